//! Progress of long work: a bar on a terminal, nothing elsewhere.

use crate::cli::Global;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{collections::HashSet, io::IsTerminal, sync::Arc, sync::Mutex};
use toolyard_protocol::{EventType, ExecutionEvent};
use toolyard_service::EventSink;

/// A bar over the steps of a plan.
pub struct PlanProgress {
    bar: ProgressBar,
}

impl PlanProgress {
    /// A bar for a plan with this number of steps; silent without a terminal.
    pub fn new(global: &Global, steps: usize) -> Self {
        let shown = std::io::stderr().is_terminal() && !global.quiet && !global.json;
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// The sink for events; `None` without a terminal, so that the engine does not build events.
    pub fn sink(&self) -> Option<EventSink> {
        if self.bar.is_hidden() {
            return None;
        }
        let bar = self.bar.clone();
        let done: Mutex<HashSet<String>> = Mutex::default();
        Some(Arc::new(move |event: Arc<ExecutionEvent>| match event.event_type {
            EventType::StepStarted | EventType::StepProgress => bar.set_message(event.message.clone()),
            EventType::StepFinished | EventType::StepFailed => {
                if let (Some(step), Ok(mut done)) = (&event.step_id, done.lock()) {
                    done.insert(step.to_string());
                    bar.set_position(done.len() as u64);
                }
            }
            _ => {}
        }))
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar over the notes of an indexing job.
pub struct IndexProgress {
    bar: ProgressBar,
}

impl IndexProgress {
    /// Silent without a terminal.
    pub fn new(global: &Global) -> Self {
        let shown = std::io::stderr().is_terminal() && !global.quiet && !global.json;
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} notes {elapsed}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows the progress.
    pub fn show(&self, done: u64, total: u64) {
        self.bar.set_length(total.max(1));
        self.bar.set_position(done);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
