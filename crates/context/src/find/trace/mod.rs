//! Recall traces: what was recalled, for which query and why. The newest are in memory, all of them in files
//! (`files.rs`) for a limited number of days.

mod files;
mod record;

use crate::{config::ContextConfig, find::query_config::ResourceType, store::account::lock};
use files::Files;
pub(crate) use record::type_of;
pub use record::{Hit, Search, Selected, Speaker, Stats, Trace, Trigger};
use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex},
};

/// A query for traces. All filters must match.
#[derive(Debug, Clone, Default)]
pub struct TraceQuery {
    /// Only the trace with this id.
    pub trace_id: Option<String>,
    /// Only traces of this tool.
    pub source: Option<String>,
    /// Only traces of the session with this gateway id.
    pub session_id: Option<String>,
    /// Only traces of the session with this key.
    pub session_key: Option<String>,
    /// Only traces of the session with this store id.
    pub ov_session_id: Option<String>,
    /// Only traces from this time on, in milliseconds.
    pub since: Option<i64>,
    /// Only traces up to this time, in milliseconds.
    pub until: Option<i64>,
    /// Only traces that searched one of these types.
    pub resource_types: Vec<ResourceType>,
    /// Maximum number of traces.
    pub limit: usize,
    /// Only traces of this owner: `account/user`.
    pub owner: Option<String>,
}

/// The result of a query.
#[derive(Debug, Default)]
pub struct TraceHits {
    /// The traces, newest first.
    pub entries: Vec<Arc<Trace>>,
    /// Where they were found: `memory` or `persistent`.
    pub layer: &'static str,
    /// Files or lines that could not be read.
    pub warnings: Vec<String>,
}

struct StoredTrace {
    owner: String,
    trace: Arc<Trace>,
}

/// The traces in memory, indexed by id and session.
#[derive(Default)]
struct Ring {
    all: VecDeque<StoredTrace>,
    /// Number of the oldest trace.
    first: u64,
    by_id: HashMap<String, u64>,
    by_session: HashMap<String, VecDeque<u64>>,
}

impl Ring {
    fn push(&mut self, owner: &str, trace: Arc<Trace>, most: usize) {
        let number = self.first + self.all.len() as u64;
        self.by_id.insert(trace.trace_id.clone(), number);
        for name in trace.speaker.names() {
            self.by_session.entry(name).or_default().push_back(number);
        }
        self.all.push_back(StoredTrace { owner: owner.to_owned(), trace });
        while self.all.len() > most {
            let Some(gone) = self.all.pop_front() else { break };
            self.by_id.remove(&gone.trace.trace_id);
            for name in gone.trace.speaker.names() {
                if let Some(numbers) = self.by_session.get_mut(&name) {
                    numbers.pop_front();
                    if numbers.is_empty() {
                        self.by_session.remove(&name);
                    }
                }
            }
            self.first += 1;
        }
    }

    fn get(&self, number: u64) -> Option<&StoredTrace> {
        self.all.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn find(&self, wanted: &TraceQuery) -> Vec<Arc<Trace>> {
        let fits =
            |kept: &&StoredTrace| wanted.owner.as_ref().is_none_or(|o| *o == kept.owner) && wanted.fits(&kept.trace);
        let take = |kept: &StoredTrace| kept.trace.clone();
        if let Some(id) = &wanted.trace_id {
            return self.by_id.get(id).and_then(|n| self.get(*n)).filter(fits).map(take).into_iter().collect();
        }
        let session = Speaker {
            session_key: wanted.session_key.clone(),
            session_id: wanted.session_id.clone(),
            ov_session_id: wanted.ov_session_id.clone(),
            ..Speaker::default()
        };
        let session = session.names().next();
        match session {
            Some(session) => {
                let numbers = self.by_session.get(&session);
                let kept = numbers.into_iter().flatten().rev().filter_map(|n| self.get(*n));
                kept.filter(fits).take(wanted.limit).map(take).collect()
            }
            None => self.all.iter().rev().filter(fits).take(wanted.limit).map(take).collect(),
        }
    }
}

impl TraceQuery {
    fn fits(&self, trace: &Trace) -> bool {
        let is = |wanted: &Option<String>, has: Option<&String>| wanted.is_none() || wanted.as_ref() == has;
        let speaker = &trace.speaker;
        is(&self.trace_id, Some(&trace.trace_id))
            && is(&self.source, Some(&trace.source))
            && is(&self.session_id, speaker.session_id.as_ref())
            && is(&self.session_key, speaker.session_key.as_ref())
            && is(&self.ov_session_id, speaker.ov_session_id.as_ref())
            && self.since.is_none_or(|since| trace.ts >= since)
            && self.until.is_none_or(|until| trace.ts <= until)
            && (self.resource_types.is_empty()
                || trace.resource_types.iter().any(|about| self.resource_types.contains(about)))
    }
}

/// Records and queries traces.
pub struct Traces {
    on: bool,
    ring: Mutex<Ring>,
    max_entries: usize,
    persist: Option<Mutex<Files>>,
    query_days: i64,
    keep_raw: bool,
}

impl Traces {
    /// Creates a recorder as configured; by default the files are in a folder inside `beside`.
    pub fn open(config: &ContextConfig, beside: &Path) -> Self {
        let folder = config.trace_recall_dir.clone().unwrap_or_else(|| beside.join("recall-traces"));
        let files = Files::new(folder, config.trace_recall_retention_days);
        Self {
            on: config.trace_recall,
            ring: Mutex::default(),
            max_entries: config.trace_recall_max_entries,
            persist: (config.trace_recall && config.trace_recall_persist).then(|| Mutex::new(files)),
            query_days: config.trace_recall_query_max_days,
            keep_raw: config.trace_recall_include_raw_user_preview,
        }
    }

    /// Whether traces are recorded.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Records a trace. A write error is logged and never fails the recall.
    pub fn record(&self, owner: &str, trace: Trace) {
        if !self.on {
            return;
        }
        if let Some(files) = &self.persist {
            let mut kept = trace.clone();
            if !self.keep_raw {
                kept.trigger.raw_user_text_preview = None;
            }
            if let Err(error) = lock(files).append(owner, &kept) {
                tracing::warn!(%error, "a recall trace was not written to its file");
            }
        }
        lock(&self.ring).push(owner, Arc::new(trace), self.max_entries);
    }

    /// Searches memory first, then the files.
    pub fn query(&self, wanted: &TraceQuery) -> TraceHits {
        if !self.on {
            return TraceHits {
                layer: "memory",
                warnings: vec!["traceRecall is disabled".to_owned()],
                ..TraceHits::default()
            };
        }
        let entries = lock(&self.ring).find(wanted);
        match &self.persist {
            Some(files) if entries.is_empty() => lock(files).find(wanted, self.query_days),
            _ => TraceHits { entries, layer: "memory", warnings: Vec::new() },
        }
    }
}

/// A random string of lower-case letters and digits.
pub(crate) fn base36(length: usize) -> String {
    const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut random = u128::from_le_bytes(*uuid::Uuid::new_v4().as_bytes());
    (0..length)
        .map(|_| {
            let at = (random % 36) as usize;
            random /= 36;
            char::from(LETTERS[at])
        })
        .collect()
}

/// The beginning of a text.
pub(crate) fn preview(text: &str, most: usize) -> String {
    let text = crate::store::digest::collapse(text);
    if text.chars().count() <= most { text } else { text.chars().take(most).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn trace(id: &str, ts: i64, session: &str) -> Trace {
        Trace {
            trace_id: id.to_owned(),
            ts,
            speaker: Speaker { session_key: Some(session.to_owned()), ..Speaker::default() },
            source: "ov_search".to_owned(),
            resource_types: vec![ResourceType::Resource],
            trigger: Trigger {
                query: "q".to_owned(),
                raw_user_text_preview: Some("secret".to_owned()),
                ..Trigger::default()
            },
            ..Trace::default()
        }
    }

    fn traces(dir: &Path, config: ContextConfig) -> Traces {
        Traces::open(&ContextConfig { trace_recall_dir: Some(dir.to_owned()), ..config }, dir)
    }

    #[test]
    fn memory_first_then_files_and_old_days_go() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("2001-01-01.jsonl"), "{}\n").unwrap();
        let now = Timestamp::now().as_millisecond();
        let config = ContextConfig { trace_recall_max_entries: 2, ..ContextConfig::default() };
        let kept = traces(dir.path(), config);
        for n in 0..5 {
            kept.record("d/d", trace(&format!("t{n}"), now + n, "s"));
        }
        assert!(!dir.path().join("2001-01-01.jsonl").exists());
        let all = kept.query(&TraceQuery { limit: 9, ..TraceQuery::default() });
        assert_eq!((all.layer, all.entries.len()), ("memory", 2));
        assert_eq!(all.entries[0].trace_id, "t4");
        let old = kept.query(&TraceQuery { trace_id: Some("t0".into()), limit: 1, ..TraceQuery::default() });
        assert_eq!((old.layer, old.entries.len()), ("persistent", 1));
        assert_eq!(old.entries[0].trigger.raw_user_text_preview, None, "not written unless allowed");
        let none = kept.query(&TraceQuery { session_key: Some("no".into()), limit: 1, ..TraceQuery::default() });
        assert_eq!((none.layer, none.entries.len()), ("persistent", 0));
        let other = kept.query(&TraceQuery { owner: Some("d/x".into()), limit: 9, ..TraceQuery::default() });
        assert!(other.entries.is_empty(), "another user's traces are not shown");
    }

    #[toolyard_shows::shows("003-13-03")]
    #[test]
    fn a_broken_line_is_a_warning_and_off_means_off() {
        let dir = tempfile::tempdir().unwrap();
        let kept = traces(dir.path(), ContextConfig::default());
        let today = files::day(Timestamp::now().as_millisecond());
        std::fs::write(dir.path().join(format!("{today}.jsonl")), "not json\n").unwrap();
        let found = kept.query(&TraceQuery { limit: 1, ..TraceQuery::default() });
        assert_eq!(found.warnings, [format!("Skipping corrupted recall trace line {today}.jsonl:1")]);
        let off = traces(dir.path(), ContextConfig { trace_recall: false, ..ContextConfig::default() });
        off.record("d/d", trace("x", 1, "s"));
        assert_eq!(off.query(&TraceQuery::default()).warnings, ["traceRecall is disabled"]);
    }

    #[test]
    fn filters_are_combined() {
        let dir = tempfile::tempdir().unwrap();
        let kept = traces(dir.path(), ContextConfig { trace_recall_persist: false, ..ContextConfig::default() });
        for n in 0..10 {
            kept.record("d/d", trace(&format!("t{n}"), n, if n % 2 == 0 { "even" } else { "odd" }));
        }
        let wanted = TraceQuery {
            session_key: Some("even".into()),
            since: Some(3),
            until: Some(7),
            limit: 9,
            ..TraceQuery::default()
        };
        let ids: Vec<_> = kept.query(&wanted).entries.iter().map(|t| t.trace_id.clone()).collect();
        assert_eq!(ids, ["t6", "t4"]);
        let none = TraceQuery { resource_types: vec![ResourceType::Agent], limit: 9, ..TraceQuery::default() };
        assert!(kept.query(&none).entries.is_empty());
    }
}
