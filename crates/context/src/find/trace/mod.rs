//! What was recalled, for what and why: the newest in memory, all of them in files (`files.rs`), for so many days.

mod files;

use crate::{config::ContextConfig, store::account::lock};
use files::Files;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex},
};

/// Letters and digits of a trace's own part.
const ID_CHARS: usize = 8;

/// A trace, as it is shown and kept.
pub type Trace = Value;

/// Filters, all of which must hold.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Exactly this one.
    pub trace_id: Option<String>,
    /// From this tool.
    pub source: Option<String>,
    /// Of this session.
    pub session_id: Option<String>,
    /// Of this session.
    pub session_key: Option<String>,
    /// Of this session.
    pub ov_session_id: Option<String>,
    /// Not before, in milliseconds.
    pub since: Option<i64>,
    /// Not after, in milliseconds.
    pub until: Option<i64>,
    /// About any of these.
    pub resource_types: Vec<String>,
    /// At most.
    pub limit: usize,
    /// Only for this user: `account/user`.
    pub owner: Option<String>,
}

/// What was found, and where.
#[derive(Debug, Default)]
pub struct Found {
    /// The newest first.
    pub entries: Vec<Arc<Trace>>,
    /// `memory` or `persistent`.
    pub layer: &'static str,
    /// What could not be read.
    pub warnings: Vec<String>,
}

struct Kept {
    owner: String,
    trace: Arc<Trace>,
}

/// The traces in memory, with the ways they are usually asked for.
#[derive(Default)]
struct Ring {
    all: VecDeque<Kept>,
    /// The number of the first.
    first: u64,
    by_id: HashMap<String, u64>,
    by_session: HashMap<String, VecDeque<u64>>,
}

impl Ring {
    fn push(&mut self, owner: &str, trace: Arc<Trace>, most: usize) {
        let number = self.first + self.all.len() as u64;
        if let Some(id) = trace["traceId"].as_str() {
            self.by_id.insert(id.to_owned(), number);
        }
        for key in SESSION_KEYS {
            if let Some(session) = trace[key].as_str() {
                self.by_session.entry(format!("{key}:{session}")).or_default().push_back(number);
            }
        }
        self.all.push_back(Kept { owner: owner.to_owned(), trace });
        while self.all.len() > most {
            let Some(gone) = self.all.pop_front() else { break };
            if let Some(id) = gone.trace["traceId"].as_str() {
                self.by_id.remove(id);
            }
            for key in SESSION_KEYS {
                let Some(session) = gone.trace[key].as_str() else { continue };
                let name = format!("{key}:{session}");
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

    fn get(&self, number: u64) -> Option<&Kept> {
        self.all.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn find(&self, wanted: &Wanted) -> Vec<Arc<Trace>> {
        let fits = |kept: &&Kept| wanted.owner.as_ref().is_none_or(|o| *o == kept.owner) && wanted.fits(&kept.trace);
        let take = |kept: &Kept| kept.trace.clone();
        if let Some(id) = &wanted.trace_id {
            return self.by_id.get(id).and_then(|n| self.get(*n)).filter(fits).map(take).into_iter().collect();
        }
        let session = [
            ("sessionKey", &wanted.session_key),
            ("sessionId", &wanted.session_id),
            ("ovSessionId", &wanted.ov_session_id),
        ]
        .into_iter()
        .find_map(|(key, value)| value.as_ref().map(|v| format!("{key}:{v}")));
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

const SESSION_KEYS: [&str; 3] = ["sessionKey", "sessionId", "ovSessionId"];

impl Wanted {
    fn fits(&self, trace: &Value) -> bool {
        let is = |key: &str, wanted: &Option<String>| wanted.as_ref().is_none_or(|w| trace[key] == w.as_str());
        let ts = trace["ts"].as_i64().unwrap_or_default();
        is("traceId", &self.trace_id)
            && is("source", &self.source)
            && is("sessionId", &self.session_id)
            && is("sessionKey", &self.session_key)
            && is("ovSessionId", &self.ov_session_id)
            && self.since.is_none_or(|since| ts >= since)
            && self.until.is_none_or(|until| ts <= until)
            && (self.resource_types.is_empty()
                || trace["resourceTypes"]
                    .as_array()
                    .is_some_and(|types| types.iter().any(|t| self.resource_types.iter().any(|w| t == w.as_str()))))
    }
}

/// The recorder.
pub struct Traces {
    on: bool,
    ring: Mutex<Ring>,
    max_entries: usize,
    persist: Option<Mutex<Files>>,
    query_days: i64,
    keep_raw: bool,
}

impl Traces {
    /// As configured; files lie in `beside` unless said otherwise.
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

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Keeps a trace. A file that cannot be written is a warning, never a failed recall.
    pub fn record(&self, owner: &str, trace: Trace) {
        if !self.on {
            return;
        }
        if let Some(files) = &self.persist {
            let mut kept = trace.clone();
            if !self.keep_raw
                && let Some(trigger) = kept["trigger"].as_object_mut()
            {
                trigger.remove("rawUserTextPreview");
            }
            kept["owner"] = owner.into();
            if let Err(error) = lock(files).append(&kept) {
                tracing::warn!(%error, "a recall trace was not written to its file");
            }
        }
        lock(&self.ring).push(owner, Arc::new(trace), self.max_entries);
    }

    /// Looks in memory, then in the files.
    pub fn query(&self, wanted: &Wanted) -> Found {
        if !self.on {
            return Found { layer: "memory", warnings: vec!["traceRecall is disabled".to_owned()], ..Found::default() };
        }
        let entries = lock(&self.ring).find(wanted);
        match &self.persist {
            Some(files) if entries.is_empty() => lock(files).find(wanted, self.query_days),
            _ => Found { entries, layer: "memory", warnings: Vec::new() },
        }
    }
}

/// Letters and digits at random.
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

/// A trace's id.
pub(crate) fn new_id(source: &str, ms: i64) -> String {
    if source == "auto_recall" {
        let mut n = ms.max(0) as u64;
        let mut digits = Vec::new();
        while n > 0 {
            digits.push(char::from_digit((n % 36) as u32, 36).unwrap_or('0'));
            n /= 36;
        }
        digits.reverse();
        return format!("recall_{}_{}", digits.into_iter().collect::<String>(), base36(ID_CHARS));
    }
    format!("{source}-{ms}-{}", base36(ID_CHARS))
}

/// Lines for people and models.
pub(crate) fn rendered(found: &[Value], layer: &str, warnings: &[String]) -> String {
    let mut blocks: Vec<String> = found.iter().enumerate().map(|(at, trace)| block(at + 1, trace)).collect();
    if blocks.is_empty() {
        blocks.push(format!("No OpenViking recall traces found (lookupLayer={layer})."));
    }
    if !warnings.is_empty() {
        let lines: Vec<String> = warnings.iter().map(|w| format!("- {w}")).collect();
        blocks.push(format!("Warnings:\n{}", lines.join("\n")));
    }
    blocks.join("\n\n")
}

fn block(number: usize, trace: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let types: Vec<String> = trace["resourceTypes"].as_array().into_iter().flatten().map(word).collect();
    let stats = &trace["stats"];
    let mut lines = vec![
        format!("## Trace {number}: {}", word(&trace["source"])),
        format!("traceId: {}", word(&trace["traceId"])),
        format!("query: {}", word(&trace["trigger"]["query"])),
        format!("resourceTypes: {}", types.join(", ")),
        format!(
            "stats: candidates={}, selected={}, injected={}",
            stats["candidateCount"], stats["selectedCount"], stats["injectedCount"]
        ),
    ];
    let selected = trace["selected"].as_array().map(Vec::as_slice).unwrap_or_default();
    if selected.is_empty() {
        lines.push("selected: (none)".to_owned());
    } else {
        lines.push("selected:".to_owned());
        for item in selected.iter().take(8) {
            let score = item["score"].as_f64().map(|s| format!(" ({}%)", (s * 100.0).round())).unwrap_or_default();
            lines.push(format!("  - {}{score}", word(&item["uri"])));
        }
    }
    lines.join("\n")
}

/// Puts a trace together.
pub(crate) struct Draft {
    pub(crate) source: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) resource_types: Vec<String>,
    pub(crate) trigger: Map<String, Value>,
    pub(crate) searches: Vec<Value>,
    pub(crate) selected: Vec<Value>,
    pub(crate) stats: Value,
}

impl Draft {
    pub(crate) fn into_trace(self, session: &Map<String, Value>) -> Trace {
        let ms = Timestamp::now().as_millisecond();
        let mut trace = Map::new();
        trace.insert("schemaVersion".to_owned(), "1.0".into());
        trace.insert("traceId".to_owned(), new_id(self.source, ms).into());
        trace.insert("ts".to_owned(), ms.into());
        trace.extend(session.clone());
        trace.insert("source".to_owned(), self.source.into());
        trace.insert("operationType".to_owned(), self.operation.into());
        trace.insert("resourceTypes".to_owned(), self.resource_types.into());
        trace.insert("trigger".to_owned(), Value::Object(self.trigger));
        trace.insert("searches".to_owned(), self.searches.into());
        trace.insert("selected".to_owned(), self.selected.into());
        trace.insert("stats".to_owned(), self.stats);
        Value::Object(trace)
    }
}

/// A short text of a long one.
pub(crate) fn preview(text: &str, most: usize) -> String {
    let text = crate::store::digest::collapse(text);
    if text.chars().count() <= most { text } else { text.chars().take(most).collect() }
}

/// An answer's error of the HTTP routes.
pub(crate) fn route_error(code: &str, message: &str) -> Value {
    json!({"ok": false, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(id: &str, ts: i64, session: &str) -> Value {
        json!({"traceId": id, "ts": ts, "sessionKey": session, "source": "ov_search", "resourceTypes": ["resource"],
            "trigger": {"query": "q", "rawUserTextPreview": "secret"}})
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
        let all = kept.query(&Wanted { limit: 9, ..Wanted::default() });
        assert_eq!((all.layer, all.entries.len()), ("memory", 2));
        assert_eq!(all.entries[0]["traceId"], "t4");
        let old = kept.query(&Wanted { trace_id: Some("t0".into()), limit: 1, ..Wanted::default() });
        assert_eq!((old.layer, old.entries.len()), ("persistent", 1));
        assert!(old.entries[0]["trigger"].get("rawUserTextPreview").is_none(), "not written unless allowed");
        assert!(old.entries[0].get("owner").is_none());
        let none = kept.query(&Wanted { session_key: Some("no".into()), limit: 1, ..Wanted::default() });
        assert_eq!((none.layer, none.entries.len()), ("persistent", 0));
        let other = kept.query(&Wanted { owner: Some("d/x".into()), limit: 9, ..Wanted::default() });
        assert!(other.entries.is_empty(), "another user's traces are not shown");
    }

    #[test]
    fn a_broken_line_is_a_warning_and_off_means_off() {
        let dir = tempfile::tempdir().unwrap();
        let kept = traces(dir.path(), ContextConfig::default());
        let today = files::day(Timestamp::now().as_millisecond());
        std::fs::write(dir.path().join(format!("{today}.jsonl")), "not json\n").unwrap();
        let found = kept.query(&Wanted { limit: 1, ..Wanted::default() });
        assert_eq!(found.warnings, [format!("Skipping corrupted recall trace line {today}.jsonl:1")]);
        let off = traces(dir.path(), ContextConfig { trace_recall: false, ..ContextConfig::default() });
        off.record("d/d", trace("x", 1, "s"));
        assert_eq!(off.query(&Wanted::default()).warnings, ["traceRecall is disabled"]);
    }

    #[test]
    fn filters_are_combined() {
        let dir = tempfile::tempdir().unwrap();
        let kept = traces(dir.path(), ContextConfig { trace_recall_persist: false, ..ContextConfig::default() });
        for n in 0..10 {
            kept.record("d/d", trace(&format!("t{n}"), n, if n % 2 == 0 { "even" } else { "odd" }));
        }
        let wanted =
            Wanted { session_key: Some("even".into()), since: Some(3), until: Some(7), limit: 9, ..Wanted::default() };
        let ids: Vec<_> =
            kept.query(&wanted).entries.iter().map(|t| t["traceId"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ids, ["t6", "t4"]);
        let none = Wanted { resource_types: vec!["agent".into()], limit: 9, ..Wanted::default() };
        assert!(kept.query(&none).entries.is_empty());
    }
}
