//! What is kept or run: plans, entries of the store's journal, records of a run.

use toolyard_catalog::{Policy, PolicyConfig, Snapshot, Subject};
use toolyard_engine::{
    plan::{check::check, parse_plan},
    record::Record,
};
use toolyard_protocol::canonical;
use toolyard_store::fuzzing::{journal_entries, journal_entry as entry_with};

/// A plan of an agent's: read, checked and written again.
pub fn plan(bytes: &[u8]) -> bool {
    let Ok(plan) = parse_plan(bytes) else { return false };
    let policy = Policy::compile(&PolicyConfig::default()).expect("the default policy");
    let policy = policy.effective(&Subject { agent: "fuzz", session: None, door: "cli", scopes: &[] });
    let (report, compiled) = check(&plan, &Snapshot::empty(), &policy);
    assert_eq!(report.ok, compiled.is_some());
    assert!(report.ok || report.to_failure().is_some(), "a plan that cannot be run says why");
    let written = serde_json::to_vec(&plan).expect("a plan can be written");
    let again = parse_plan(&written).expect("a plan that was written can be read");
    assert_eq!(again, plan);
    assert_eq!(canonical::hash(&again).ok(), canonical::hash(&plan).ok(), "its hash is that of its content");
    true
}

/// What lies in the store's journal after a crash. The first byte chooses: a whole journal, the body of one entry, or
/// the payload of a run's record.
pub fn journal_entry(bytes: &[u8]) -> bool {
    let Some((choice, rest)) = bytes.split_first() else { return false };
    match choice % 3 {
        0 => journal(rest) > 0,
        1 => journal(&entry_with(rest)) == 1,
        _ => record(rest),
    }
}

/// How many entries there are. Each is read, written and read again; damage behind the last is not taken for one.
fn journal(bytes: &[u8]) -> usize {
    let entries = journal_entries(bytes);
    let written = entries.concat();
    assert_eq!(journal_entries(&written), entries, "what was written is read as it was");
    assert!(written.len() <= 2 * bytes.len() + 64, "an entry does not grow by being read");
    if let Some((last, rest)) = written.split_last() {
        let damaged = [rest, &[last ^ 1]].concat();
        assert_eq!(journal_entries(&damaged).len(), entries.len() - 1, "a changed byte is no entry");
    }
    entries.len()
}

/// The first byte is the record's kind.
fn record(bytes: &[u8]) -> bool {
    let Some((kind, payload)) = bytes.split_first() else { return false };
    let Ok(record) = Record::decode(*kind, payload) else { return false };
    assert_eq!(record.kind() as u8, *kind);
    assert_eq!(Record::decode(*kind, &record.encode()).as_ref(), Ok(&record));
    true
}
