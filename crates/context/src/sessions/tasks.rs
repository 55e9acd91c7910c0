//! Background tasks that continue after a request was answered, and their results.

use crate::{
    error::{ApiError, Result},
    sessions::{archive::Extraction, now_micros},
    store::account::lock,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
    time::Instant,
};

/// Maximum number of tasks kept; the oldest are dropped first.
const MAX_TASKS: usize = 1_000;

/// The result of a task.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskResult {
    pub(crate) result: Option<Extraction>,
    pub(crate) error: Option<String>,
}

/// The state of a task, as callers see it.
#[derive(Debug, Clone)]
pub(crate) struct TaskState {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) resource: String,
    /// Seconds since 1970, and the same time as text.
    pub(crate) created: (f64, String),
    pub(crate) updated: (f64, String),
    pub(crate) seconds: f64,
    /// `None` while the task is running.
    pub(crate) ended: Option<TaskResult>,
}

impl TaskState {
    /// The status name on the wire.
    pub(crate) fn status(&self) -> &'static str {
        match &self.ended {
            None => "running",
            Some(TaskResult { error: Some(_), .. }) => "failed",
            Some(_) => "completed",
        }
    }
}

impl TaskResult {
    pub(crate) fn failed(error: &ApiError) -> Self {
        Self { error: Some(error.message.clone()), ..Self::default() }
    }
}

struct Task {
    kind: &'static str,
    resource: String,
    owner: String,
    created: (f64, String),
    updated: (f64, String),
    started: Instant,
    seconds: Option<f64>,
    ended: Option<TaskResult>,
}

/// The tasks of this process.
#[derive(Default)]
pub(crate) struct Tasks {
    inner: Mutex<(HashMap<String, Task>, VecDeque<String>)>,
}

fn now() -> (f64, String) {
    (jiff::Timestamp::now().as_microsecond() as f64 / 1e6, now_micros())
}

impl Tasks {
    /// Starts a task; only `owner` may query it.
    pub(crate) fn begin(&self, kind: &'static str, resource: &str, owner: &str) -> String {
        let id = uuid::Uuid::new_v4().to_string();
        self.begin_as(&id, kind, resource, owner);
        id
    }

    /// Starts a task with an id that the client already knows.
    pub(crate) fn begin_as(&self, id: &str, kind: &'static str, resource: &str, owner: &str) {
        let now = now();
        let task = Task {
            kind,
            resource: resource.to_owned(),
            owner: owner.to_owned(),
            created: now.clone(),
            updated: now,
            started: Instant::now(),
            seconds: None,
            ended: None,
        };
        let mut inner = lock(&self.inner);
        inner.0.insert(id.to_owned(), task);
        inner.1.push_back(id.to_owned());
        while inner.1.len() > MAX_TASKS {
            if let Some(oldest) = inner.1.pop_front() {
                inner.0.remove(&oldest);
            }
        }
    }

    pub(crate) fn end(&self, id: &str, ended: TaskResult) {
        let mut inner = lock(&self.inner);
        if let Some(task) = inner.0.get_mut(id) {
            task.updated = now();
            task.seconds = Some(task.started.elapsed().as_secs_f64());
            task.ended = Some(ended);
        }
    }

    pub(crate) fn get(&self, id: &str, owner: &str) -> Result<TaskState> {
        let inner = lock(&self.inner);
        let task = inner.0.get(id).filter(|task| task.owner == owner);
        task.map(|task| task.state(id)).ok_or_else(|| {
            let shown: String = id.chars().take(80).collect();
            ApiError::none_such(format!("Task {shown} not found"))
        })
    }

    /// The tasks of an owner, newest first.
    pub(crate) fn list(&self, owner: &str, limit: usize) -> Vec<TaskState> {
        let inner = lock(&self.inner);
        let own = inner.1.iter().rev().filter_map(|id| inner.0.get(id).map(|task| (id, task)));
        own.filter(|(_, task)| task.owner == owner).take(limit).map(|(id, task)| task.state(id)).collect()
    }
}

impl Task {
    fn state(&self, id: &str) -> TaskState {
        TaskState {
            id: id.to_owned(),
            kind: self.kind,
            resource: self.resource.clone(),
            created: self.created.clone(),
            updated: self.updated.clone(),
            seconds: self.seconds.unwrap_or_else(|| self.started.elapsed().as_secs_f64()),
            ended: self.ended.clone(),
        }
    }
}
