//! The last log lines, kept in memory for `logs.tail`. A tracing layer writes them.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    sync::{Mutex, OnceLock, PoisonError},
};
use toolyard_engine::redact::redactor;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

/// Lines kept.
const MAX_LINES: usize = 2000;
/// A line longer than this is cut.
const MAX_LINE_BYTES: usize = 2000;

/// The last lines of this process.
#[derive(Default)]
pub struct LogRing {
    lines: Mutex<(u64, VecDeque<String>)>,
    /// The number of lines so far, watched by readers that wait for more.
    news: tokio::sync::watch::Sender<u64>,
}

/// The process's ring.
pub fn ring() -> &'static LogRing {
    static RING: OnceLock<LogRing> = OnceLock::new();
    RING.get_or_init(LogRing::default)
}

impl LogRing {
    fn push(&self, mut line: String) {
        if line.len() > MAX_LINE_BYTES {
            let mut cut = MAX_LINE_BYTES;
            while !line.is_char_boundary(cut) {
                cut -= 1;
            }
            line.truncate(cut);
        }
        let mut held = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 += 1;
        held.1.push_back(line);
        if held.1.len() > MAX_LINES {
            held.1.pop_front();
        }
        let end = held.0;
        drop(held);
        self.news.send_replace(end);
    }

    /// A receiver that is notified of new lines.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Lines after a cursor (the newest ones without one), the cursor to go on from, and whether some were lost.
    pub fn tail(&self, cursor: Option<u64>, limit: usize, max_bytes: usize) -> (Vec<String>, u64, bool) {
        let held = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (end, lines) = (held.0, &held.1);
        let first = end - lines.len() as u64;
        // A cursor beyond the end belongs to another process; start from the newest lines.
        let from = cursor.filter(|c| *c <= end).unwrap_or_else(|| end.saturating_sub(limit as u64)).max(first);
        let lost = cursor.is_some_and(|c| c < first);
        let mut taken = Vec::new();
        let mut bytes = 0;
        let mut at = from;
        for line in lines.iter().skip((from - first) as usize).take(limit) {
            bytes += line.len() + 1;
            if bytes > max_bytes && !taken.is_empty() {
                break;
            }
            taken.push(line.clone());
            at += 1;
        }
        (taken, at, lost)
    }
}

/// Writes every event into the process's ring.
pub struct RingLayer;

/// The formatted fields of a span, cached.
struct FormattedFields(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RingLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut said = String::new();
            attributes.record(&mut Writer(&mut said));
            span.extensions_mut().insert(FormattedFields(said));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let meta = event.metadata();
        let mut line = format!("{} {} {}:", jiff::Timestamp::now(), meta.level(), meta.target());
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(FormattedFields(said)) = span.extensions().get() {
                line.push_str(said);
            }
        }
        event.record(&mut Writer(&mut line));
        ring().push(redactor().text(&line).into_owned());
    }
}

struct Writer<'a>(&'a mut String);

impl Visit for Writer<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.0, " {value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_trace_it_belongs_to() {
        use tracing_subscriber::layer::SubscriberExt;
        let subscriber = tracing_subscriber::registry().with(RingLayer);
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("request", trace_id = "4bf92f35-of-this-test");
            span.in_scope(|| tracing::info!("inside"));
        });
        let (lines, _, _) = ring().tail(None, MAX_LINES, 1 << 20);
        let line = lines.iter().find(|l| l.contains("4bf92f35-of-this-test")).expect("the line");
        assert!(line.contains("inside"), "{line}");
    }

    #[test]
    fn the_ring_keeps_the_newest_and_goes_on_from_a_cursor() {
        let ring = LogRing::default();
        for i in 0..MAX_LINES + 10 {
            ring.push(format!("line {i}"));
        }
        let (lines, cursor, lost) = ring.tail(None, 3, 10_000);
        assert_eq!(lines, ["line 2007", "line 2008", "line 2009"]);
        assert_eq!((cursor, lost), (2010, false));
        ring.push("one more".into());
        assert_eq!(ring.tail(Some(cursor), 10, 10_000).0, ["one more"]);
        assert!(ring.tail(Some(2), 1, 10_000).2, "lines before the ring's first are lost");
        assert_eq!(ring.tail(Some(999_999), 1, 10_000).0, ["one more"], "a cursor from elsewhere");
        ring.push("é".repeat(3000));
        assert!(ring.tail(None, 1, 100_000).0[0].len() <= MAX_LINE_BYTES);
    }
}
