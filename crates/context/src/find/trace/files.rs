//! Traces in files, one per day. After the first query the keys of each line are cached, so that a query reads only the
//! lines that may match.

use super::{Trace, TraceHits, TraceQuery};
use crate::find::query_config::ResourceType;
use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io::{BufRead, Seek, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Larger files are not searched.
const MAX_DAY_BYTES: u64 = 1 << 30;

/// A line of a file, as written.
#[derive(Serialize)]
struct WrittenLine<'a> {
    #[serde(flatten)]
    trace: &'a Trace,
    /// The owner of the trace: `account/user`.
    owner: &'a str,
}

/// A line of a file, as read.
#[derive(Deserialize)]
struct StoredLine {
    #[serde(flatten)]
    trace: Trace,
    owner: Option<String>,
}

/// The trace files, one per day.
pub(super) struct Files {
    folder: PathBuf,
    retention_days: i64,
    open: Option<(Date, std::fs::File)>,
    /// Cached line keys by day, filled on first use.
    known: HashMap<Date, Day>,
}

pub(super) fn day(ms: i64) -> Date {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::UTC).date()
}

fn earlier(date: Date, days: i64) -> Date {
    date.checked_sub(jiff::Span::new().try_days(days).unwrap_or_default()).unwrap_or(date)
}

impl Files {
    pub(super) fn new(folder: PathBuf, retention_days: i64) -> Self {
        Self { folder, retention_days, open: None, known: HashMap::new() }
    }

    pub(super) fn append(&mut self, owner: &str, trace: &Trace) -> std::io::Result<()> {
        let today = day(trace.ts);
        if self.open.as_ref().is_none_or(|(date, _)| *date != today) {
            std::fs::create_dir_all(&self.folder)?;
            let path = self.folder.join(format!("{today}.jsonl"));
            self.open = Some((today, std::fs::OpenOptions::new().create(true).append(true).open(path)?));
            // Old files are deleted when a new day starts.
            self.tidy(today);
        }
        match &mut self.open {
            Some((_, file)) => {
                let mut line = serde_json::to_vec(&WrittenLine { trace, owner })?;
                line.push(b'\n');
                file.write_all(&line)
            }
            None => Ok(()),
        }
    }

    fn tidy(&self, today: Date) {
        let oldest = earlier(today, self.retention_days);
        for (date, path) in self.days() {
            if date < oldest
                && let Err(error) = std::fs::remove_file(&path)
            {
                tracing::warn!(%error, "an old file of recall traces could not be deleted");
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

    pub(super) fn find(&mut self, wanted: &TraceQuery, most_days: i64) -> TraceHits {
        let now = Timestamp::now().as_millisecond();
        let until = day(wanted.until.unwrap_or(now));
        let since = wanted.since.map_or_else(|| earlier(day(now), most_days), day);
        let mut found = TraceHits { layer: "persistent", ..TraceHits::default() };
        for (date, path) in self.days().into_iter().filter(|(date, _)| (since..=until).contains(date)) {
            if found.entries.len() >= wanted.limit {
                break;
            }
            self.look_through(date, &path, wanted, &mut found);
        }
        found.entries.truncate(wanted.limit);
        found
    }

    /// Reads the matching lines of a day; the cached keys avoid reading the others.
    fn look_through(&mut self, date: Date, path: &Path, wanted: &TraceQuery, found: &mut TraceHits) {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Ok(mut file) = std::fs::File::open(path) else { return };
        let length = file.metadata().map_or(0, |meta| meta.len());
        if length > MAX_DAY_BYTES {
            found.warnings.push(format!("{name} is too large to be looked through"));
            return;
        }
        let day = self.known.entry(date).or_default();
        if length < day.length {
            // The file was rewritten by somebody else.
            *day = Day::default();
        }
        if length > day.length && day.take_in(&mut file).is_err() {
            found.warnings.push(format!("{name} cannot be read"));
            return;
        }
        found.warnings.extend(day.broken.iter().map(|at| format!("Skipping corrupted recall trace line {name}:{at}")));
        let asked = QueryKeys::of(wanted);
        for line in day.lines.iter().rev().filter(|line| asked.may_fit(line)) {
            if found.entries.len() >= wanted.limit {
                break;
            }
            let mut bytes = vec![0; line.length as usize];
            if file.read_exact_at(&mut bytes, line.offset).is_err() {
                continue;
            }
            let Ok(StoredLine { trace, owner }) = serde_json::from_slice::<StoredLine>(&bytes) else { continue };
            let own = wanted.owner.as_ref().is_none_or(|w| owner.as_ref().is_none_or(|o| o == w));
            if own && wanted.fits(&trace) {
                found.entries.push(Arc::new(trace));
            }
        }
    }
}

/// The cached keys of a day's file.
#[derive(Default)]
struct Day {
    /// Number of bytes read so far.
    length: u64,
    numbered: usize,
    lines: Vec<Line>,
    broken: Vec<usize>,
}

/// The hashed keys of a line, enough to skip lines that cannot match.
struct Line {
    offset: u64,
    length: u32,
    ts: i64,
    names: [u64; 5],
    types: u8,
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn type_bits(types: &[ResourceType]) -> u8 {
    types.iter().fold(0, |bits, about| bits | 1 << (*about as u8))
}

/// The fields of a trace that are searched, parsed without the rest.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    ts: i64,
    trace_id: String,
    source: String,
    session_id: String,
    session_key: String,
    ov_session_id: String,
    resource_types: Vec<ResourceType>,
}

impl Day {
    /// Reads what was appended since the last call.
    fn take_in(&mut self, file: &mut std::fs::File) -> std::io::Result<()> {
        file.seek(std::io::SeekFrom::Start(self.length))?;
        let mut reader = std::io::BufReader::new(file);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = reader.read_until(b'\n', &mut bytes)?;
            if read == 0 || bytes.last() != Some(&b'\n') {
                // A partially written line is read when it is complete.
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
                    types: type_bits(&head.resource_types),
                }),
                Err(_) => self.broken.push(self.numbered),
            }
        }
    }
}

/// The hashed keys of a query.
struct QueryKeys {
    names: [Option<u64>; 5],
    since: Option<i64>,
    until: Option<i64>,
    types: Option<u8>,
}

impl QueryKeys {
    fn of(wanted: &TraceQuery) -> Self {
        let names = [&wanted.trace_id, &wanted.source, &wanted.session_id, &wanted.session_key, &wanted.ov_session_id];
        let types = (!wanted.resource_types.is_empty()).then(|| type_bits(&wanted.resource_types));
        Self { names: names.map(|n| n.as_deref().map(hash)), since: wanted.since, until: wanted.until, types }
    }

    fn may_fit(&self, line: &Line) -> bool {
        self.names.iter().zip(line.names).all(|(wanted, has)| wanted.is_none_or(|wanted| wanted == has))
            && self.since.is_none_or(|since| line.ts >= since)
            && self.until.is_none_or(|until| line.ts <= until)
            && self.types.is_none_or(|types| types & line.types != 0)
    }
}
