//! What Tool Search saved, by day and door: the bytes of tools that models were shown beside the bytes that the full list
//! would have had. Kept in the store for a year, one small entry a day.

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use toolyard_engine::{
    Door, Store,
    store::{StoreError, Swap},
};

const SPACE: &str = "toolSavings";
/// How long a day is kept.
const KEPT_DAYS: i64 = 400;
/// The most days in one answer.
pub const MAX_DAYS: u32 = 400;
/// What was counted is written at most this often; the rest is written with the next list, when somebody asks, or at the end.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Bytes of JSON that make one token, roughly, for the models in use.
const BYTES_PER_TOKEN: u64 = 4;
/// Times that a day is written again because another process wrote it meanwhile.
const MAX_SWAPS: usize = 16;

/// The bytes that were shown, and the bytes of all schemas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ByteCounts {
    lists: u64,
    direct_bytes: u64,
    shown_bytes: u64,
}

impl ByteCounts {
    fn add(&mut self, other: Self) {
        self.lists = self.lists.saturating_add(other.lists);
        self.direct_bytes = self.direct_bytes.saturating_add(other.direct_bytes);
        self.shown_bytes = self.shown_bytes.saturating_add(other.shown_bytes);
    }
}

/// A day's counts by the word of the door.
type Day = BTreeMap<String, ByteCounts>;

/// Savings in figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Savings {
    /// Times that tools were listed for a model.
    pub lists: u64,
    /// Bytes that the full lists would have had.
    pub direct_bytes: u64,
    /// Bytes that were shown.
    pub shown_bytes: u64,
    /// The difference; 0 where more was shown.
    pub saved_bytes: u64,
    /// The difference in tokens, estimated at four bytes a token.
    pub saved_tokens: u64,
}

impl From<ByteCounts> for Savings {
    fn from(counted: ByteCounts) -> Self {
        let saved_bytes = counted.direct_bytes.saturating_sub(counted.shown_bytes);
        Self {
            lists: counted.lists,
            direct_bytes: counted.direct_bytes,
            shown_bytes: counted.shown_bytes,
            saved_bytes,
            saved_tokens: saved_bytes / BYTES_PER_TOKEN,
        }
    }
}

/// The savings of one door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoorSavings {
    /// The door.
    pub door: String,
    /// Its figures.
    #[serde(flatten)]
    pub savings: Savings,
}

/// The savings of one day, in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaySavings {
    /// The day, as in `2026-11-18`.
    pub date: String,
    /// By door.
    pub doors: Vec<DoorSavings>,
    /// All doors together.
    pub total: Savings,
}

/// The savings of some days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SavingsHistory {
    /// Days on which tools were listed, the newest last.
    pub days: Vec<DaySavings>,
    /// All of them together.
    pub total: Savings,
}

#[derive(Default)]
struct Pending {
    days: BTreeMap<Date, Day>,
    written_at: Option<Instant>,
}

/// Counts the bytes that a model is shown.
#[derive(Default)]
pub struct SavingsCounter(Mutex<Pending>);

impl SavingsCounter {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one list. Returns whether the counts should be written now.
    pub(crate) fn add(&self, door: Door, direct_bytes: usize, shown_bytes: usize, now: Timestamp) -> bool {
        let date = now.to_zoned(TimeZone::UTC).date();
        let counted = ByteCounts { lists: 1, direct_bytes: direct_bytes as u64, shown_bytes: shown_bytes as u64 };
        let mut pending = self.lock();
        pending.days.entry(date).or_default().entry(door.as_str().to_owned()).or_default().add(counted);
        match pending.written_at {
            Some(at) if at.elapsed() < WRITE_EVERY => false,
            _ => {
                pending.written_at = Some(Instant::now());
                true
            }
        }
    }

    /// Adds what was counted to what is kept. May block.
    ///
    /// # Errors
    /// The store did not answer; what was counted is kept for the next time.
    pub fn write(&self, store: &dyn Store) -> Result<(), StoreError> {
        let days = std::mem::take(&mut self.lock().days);
        for (date, day) in days {
            if let Err(error) = write_day(store, date, &day) {
                let mut pending = self.lock();
                merge(pending.days.entry(date).or_default(), &day);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The last days, this process's newest counts included. May block.
    ///
    /// # Errors
    /// The store did not answer.
    pub fn history(&self, store: &dyn Store, days: u32, now: Timestamp) -> Result<SavingsHistory, StoreError> {
        self.write(store)?;
        let today = now.to_zoned(TimeZone::UTC).date();
        let first = today.checked_sub((i64::from(days.clamp(1, MAX_DAYS)) - 1).days()).unwrap_or(Date::MIN);
        let (first, mut total) = (first.to_string(), ByteCounts::default());
        let mut shown = Vec::new();
        for (date, bytes) in store.list(SPACE)?.into_iter().filter(|(date, _)| *date >= first) {
            let day = read(&bytes)?;
            let mut whole = ByteCounts::default();
            day.values().for_each(|counted| whole.add(*counted));
            total.add(whole);
            let doors = day.into_iter().map(|(door, counted)| DoorSavings { door, savings: counted.into() });
            shown.push(DaySavings { date, doors: doors.collect(), total: whole.into() });
        }
        shown.sort_by(|a, b| a.date.cmp(&b.date));
        Ok(SavingsHistory { days: shown, total: total.into() })
    }
}

fn merge(into: &mut Day, from: &Day) {
    for (door, counted) in from {
        into.entry(door.clone()).or_default().add(*counted);
    }
}

fn read(bytes: &[u8]) -> Result<Day, StoreError> {
    serde_json::from_slice(bytes)
        .map_err(|error| StoreError::failed(format!("the savings of a day are damaged: {error}")))
}

/// Adds to a day. Several processes may do so at once.
fn write_day(store: &dyn Store, date: Date, added: &Day) -> Result<(), StoreError> {
    let key = date.to_string();
    let forgotten_at = date
        .to_zoned(TimeZone::UTC)
        .ok()
        .and_then(|day| day.checked_add(KEPT_DAYS.days()).ok())
        .map(|day| day.timestamp());
    let mut known = store.get(SPACE, &key)?;
    for _ in 0..MAX_SWAPS {
        let mut day = known.as_deref().map(read).transpose()?.unwrap_or_default();
        merge(&mut day, added);
        let bytes = serde_json::to_vec(&day).map_err(|error| StoreError::failed(error.to_string()))?;
        match store.compare_and_set(SPACE, &key, known.as_deref(), Some((bytes, forgotten_at)))? {
            Swap::Done => return Ok(()),
            Swap::Differs(other) => known = other,
        }
    }
    Err(StoreError::failed("the savings of a day are being written by too many processes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_engine::memory_store::MemoryStore;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn days_and_doors_are_counted_apart_and_survive_the_process() {
        let store = MemoryStore::new();
        let first = SavingsCounter::default();
        assert!(first.add(Door::Mcp, 4000, 400, at("2026-11-17T23:59:59Z")), "the first is written at once");
        assert!(!first.add(Door::Mcp, 4000, 400, at("2026-11-18T00:00:01Z")), "the next one waits");
        first.add(Door::Gateway, 1000, 1000, at("2026-11-18T00:00:02Z"));
        first.write(&store).unwrap();
        let second = SavingsCounter::default();
        second.add(Door::Mcp, 400, 800, at("2026-11-18T12:00:00Z"));
        let history = second.history(&store, 30, at("2026-11-18T12:00:00Z")).unwrap();
        let dates: Vec<&str> = history.days.iter().map(|day| day.date.as_str()).collect();
        assert_eq!(dates, ["2026-11-17", "2026-11-18"]);
        let today = &history.days[1];
        assert_eq!(today.doors.iter().map(|own| own.door.as_str()).collect::<Vec<_>>(), ["gateway", "mcp"]);
        assert_eq!(today.doors[0].savings.saved_bytes, 0);
        let mcp = today.doors[1].savings;
        assert_eq!((mcp.lists, mcp.direct_bytes, mcp.shown_bytes, mcp.saved_bytes), (2, 4400, 1200, 3200));
        assert_eq!(mcp.saved_tokens, 800);
        assert_eq!((history.total.lists, history.total.saved_bytes), (4, 6800));
        let short = second.history(&store, 1, at("2026-11-18T12:00:00Z")).unwrap();
        assert_eq!(short.days.len(), 1, "only today");
    }

    #[test]
    fn what_could_not_be_written_is_written_later() {
        let store = MemoryStore::new();
        store.put(SPACE, "2026-11-18", b"damaged".to_vec(), None).unwrap();
        let counter = SavingsCounter::default();
        counter.add(Door::Mcp, 10, 1, at("2026-11-18T12:00:00Z"));
        assert!(counter.write(&store).is_err());
        store.remove(SPACE, "2026-11-18").unwrap();
        assert_eq!(counter.history(&store, 1, at("2026-11-18T12:00:00Z")).unwrap().total.lists, 1);
    }
}
