//! What was recalled, for what and why: the newest in memory, all of them in one file a day, for so many days.

use crate::{account::lock, config::ContextConfig};
use jiff::{Timestamp, civil::Date};
use serde_json::{Map, Value, json};
use std::{
    collections::{HashMap, VecDeque},
    io::{BufRead, Seek, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// A day of traces beyond this is not looked through.
const MAX_DAY_BYTES: u64 = 1 << 30;
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

/// One file a day.
struct Files {
    folder: PathBuf,
    retention_days: i64,
    open: Option<(Date, std::fs::File)>,
    /// What days hold, once somebody asked.
    known: HashMap<Date, Day>,
}

impl Traces {
    /// As configured; files lie in `beside` unless said otherwise.
    pub fn open(config: &ContextConfig, beside: &Path) -> Self {
        let folder = config.trace_recall_dir.clone().unwrap_or_else(|| beside.join("recall-traces"));
        let files =
            Files { folder, retention_days: config.trace_recall_retention_days, open: None, known: HashMap::new() };
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

fn day(ms: i64) -> Date {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::UTC).date()
}

fn earlier(date: Date, days: i64) -> Date {
    date.checked_sub(jiff::Span::new().try_days(days).unwrap_or_default()).unwrap_or(date)
}

impl Files {
    fn append(&mut self, trace: &Value) -> std::io::Result<()> {
        let today = day(trace["ts"].as_i64().unwrap_or_default());
        if self.open.as_ref().is_none_or(|(date, _)| *date != today) {
            std::fs::create_dir_all(&self.folder)?;
            let path = self.folder.join(format!("{today}.jsonl"));
            self.open = Some((today, std::fs::OpenOptions::new().create(true).append(true).open(path)?));
            // A new day is when days grow too old.
            self.tidy(today);
        }
        match &mut self.open {
            Some((_, file)) => file.write_all(format!("{trace}\n").as_bytes()),
            None => Ok(()),
        }
    }

    fn tidy(&self, today: Date) {
        let oldest = earlier(today, self.retention_days);
        for (date, path) in self.days() {
            if date < oldest
                && let Err(error) = std::fs::remove_file(&path)
            {
                tracing::warn!(%error, "an old file of recall traces is still there");
            }
        }
    }

    fn days(&self) -> Vec<(Date, PathBuf)> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut days: Vec<(Date, PathBuf)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some((name.strip_suffix(".jsonl")?.parse().ok()?, entry.path()))
            })
            .collect();
        days.sort_by_key(|(date, _)| std::cmp::Reverse(*date));
        days
    }

    fn find(&mut self, wanted: &Wanted, most_days: i64) -> Found {
        let now = Timestamp::now().as_millisecond();
        let until = day(wanted.until.unwrap_or(now));
        let since = wanted.since.map_or_else(|| earlier(day(now), most_days), day);
        let mut found = Found { layer: "persistent", ..Found::default() };
        for (date, path) in self.days().into_iter().filter(|(date, _)| (since..=until).contains(date)) {
            if found.entries.len() >= wanted.limit {
                break;
            }
            self.look_through(date, &path, wanted, &mut found);
        }
        found.entries.truncate(wanted.limit);
        found
    }

    /// Reads the lines of a day that fit. What a line is about is known without reading it again.
    fn look_through(&mut self, date: Date, path: &Path, wanted: &Wanted, found: &mut Found) {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Ok(mut file) = std::fs::File::open(path) else { return };
        let length = file.metadata().map_or(0, |meta| meta.len());
        if length > MAX_DAY_BYTES {
            found.warnings.push(format!("{name} is too large to be looked through"));
            return;
        }
        let day = self.known.entry(date).or_default();
        if length < day.length {
            // Somebody else wrote it anew.
            *day = Day::default();
        }
        if length > day.length && day.take_in(&mut file).is_err() {
            found.warnings.push(format!("{name} cannot be read"));
            return;
        }
        found.warnings.extend(day.broken.iter().map(|at| format!("Skipping corrupted recall trace line {name}:{at}")));
        let asked = Asked::of(wanted);
        for line in day.lines.iter().rev().filter(|line| asked.may_fit(line)) {
            if found.entries.len() >= wanted.limit {
                break;
            }
            let mut bytes = vec![0; line.length as usize];
            if file.read_exact_at(&mut bytes, line.offset).is_err() {
                continue;
            }
            let Ok(mut trace) = serde_json::from_slice::<Value>(&bytes) else { continue };
            let owner = trace.as_object_mut().and_then(|map| map.remove("owner"));
            let own = wanted.owner.as_ref().is_none_or(|w| owner.as_ref().is_none_or(|o| o == w.as_str()));
            if own && wanted.fits(&trace) {
                found.entries.push(Arc::new(trace));
            }
        }
    }
}

/// What is known of a day's file.
#[derive(Default)]
struct Day {
    /// Bytes that were taken in.
    length: u64,
    numbered: usize,
    lines: Vec<Line>,
    broken: Vec<usize>,
}

/// What a line is about, in hashes: enough to pass it by.
struct Line {
    offset: u64,
    length: u32,
    ts: i64,
    names: [u64; 5],
    types: u8,
}

const TYPES: [&str; 4] = ["resource", "session", "user", "agent"];

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn type_bits<'a>(types: impl Iterator<Item = &'a str>) -> u8 {
    types.filter_map(|t| TYPES.iter().position(|known| *known == t)).fold(0, |bits, at| bits | 1 << at)
}

/// The part of a trace that is looked for. Read without the rest.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Head {
    ts: i64,
    trace_id: String,
    source: String,
    session_id: String,
    session_key: String,
    ov_session_id: String,
    resource_types: Vec<String>,
}

impl Day {
    /// Takes in what was written since.
    fn take_in(&mut self, file: &mut std::fs::File) -> std::io::Result<()> {
        file.seek(std::io::SeekFrom::Start(self.length))?;
        let mut reader = std::io::BufReader::new(file);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = reader.read_until(b'\n', &mut bytes)?;
            if read == 0 || bytes.last() != Some(&b'\n') {
                // A line that is being written is taken in when it is whole.
                return Ok(());
            }
            self.numbered += 1;
            let offset = self.length;
            self.length += read as u64;
            if bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice::<Head>(&bytes) {
                Ok(head) => self.lines.push(Line {
                    offset,
                    length: read as u32,
                    ts: head.ts,
                    names: [head.trace_id, head.source, head.session_id, head.session_key, head.ov_session_id]
                        .map(|n| hash(&n)),
                    types: type_bits(head.resource_types.iter().map(String::as_str)),
                }),
                Err(_) => self.broken.push(self.numbered),
            }
        }
    }
}

/// What is looked for, in hashes.
struct Asked {
    names: [Option<u64>; 5],
    since: Option<i64>,
    until: Option<i64>,
    types: Option<u8>,
}

impl Asked {
    fn of(wanted: &Wanted) -> Self {
        let names = [&wanted.trace_id, &wanted.source, &wanted.session_id, &wanted.session_key, &wanted.ov_session_id];
        let types =
            (!wanted.resource_types.is_empty()).then(|| type_bits(wanted.resource_types.iter().map(String::as_str)));
        Self { names: names.map(|n| n.as_deref().map(hash)), since: wanted.since, until: wanted.until, types }
    }

    fn may_fit(&self, line: &Line) -> bool {
        self.names.iter().zip(line.names).all(|(wanted, has)| wanted.is_none_or(|wanted| wanted == has))
            && self.since.is_none_or(|since| line.ts >= since)
            && self.until.is_none_or(|until| line.ts <= until)
            && self.types.is_none_or(|types| types & line.types != 0)
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
    let text = crate::digest::collapse(text);
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
        let today = day(Timestamp::now().as_millisecond());
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
