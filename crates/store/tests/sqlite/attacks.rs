//! Somebody who can write every file but the signing key, a thousand times over: seeded random edits, deletions,
//! truncations, re-chainings and rollbacks, each followed by a start. All of them must be found by a plain verification;
//! a rollback of everything by one head that was kept elsewhere.
//!
//! `TOOLYARD_ATTACKS` says how many (`make attack`: 1,000), `TOOLYARD_ATTACK_SEED` where to begin.

mod beside;

use super::tampered::{record_run, signer};
use crate::{random::Random, support::*};
use beside::set_facts;
use rusqlite::{Connection, params};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use toolyard_engine::{
    SealedStore, Store,
    chain::{genesis, link},
    ledger::{SavedHead, Sealer, VerifyOptions, read_heads, verify_ledger},
    record::RecordKind,
};
use toolyard_protocol::RunId;
use toolyard_store::{SqliteStore, StoreOptions};
use uuid::Uuid;

/// Attacks when nothing else is said.
const ATTACKS: u64 = 80;
/// Runs in the store that is attacked; half of them are in the older copy.
const RUNS: u64 = 12;
const HEADS: &str = "heads.jsonl";
const DATABASE: &str = "toolyard.db";

/// An honest store, an older copy of it, and the newest head, kept elsewhere.
struct Base {
    now: tempfile::TempDir,
    earlier: tempfile::TempDir,
    head: String,
}

/// A sealer that keeps its heads beside the store and names facts, as the program's does.
fn sealer(store: &Arc<SealedStore>, dir: &Path) -> Sealer {
    let sealer = Sealer::new(store.clone(), signer()).naming_facts_of(store);
    let path = dir.join(HEADS);
    sealer.on_head(Box::new(move |head| {
        // One that was removed is not made again.
        if let Ok(mut file) = fs::OpenOptions::new().append(true).open(&path) {
            writeln!(file, "{}", serde_json::to_string(head).unwrap()).unwrap();
        }
    }));
    sealer
}

fn open(dir: &Path) -> Result<Arc<dyn Store>, String> {
    Ok(Arc::new(SqliteStore::open(dir, StoreOptions::default()).map_err(|e| e.to_string())?))
}

fn open_sealed(dir: &Path) -> Result<Arc<SealedStore>, String> {
    Ok(Arc::new(SealedStore::new(open(dir)?, signer())))
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

async fn base() -> Base {
    let now = tempfile::tempdir().unwrap();
    fs::write(now.path().join(HEADS), "").unwrap();
    let earlier = tempfile::tempdir().unwrap();
    for n in 0..RUNS {
        let store = open_sealed(now.path()).unwrap();
        let sealer = sealer(&store, now.path());
        set_facts(&*store, n);
        record_run(&(store.clone() as Arc<dyn Store>), &sealer, &format!("note {n}"), n).await;
        drop((sealer, store));
        if n + 1 == RUNS / 2 {
            copy(now.path(), earlier.path());
        }
    }
    let store = open_sealed(now.path()).unwrap();
    let head = sealer(&store, now.path()).head().unwrap().unwrap();
    Base { now, earlier, head: head.note }
}

fn kept(dir: &Path) -> VerifyOptions {
    let name = dir.join(HEADS).display().to_string();
    let mut options = VerifyOptions { name: Some(name.clone()), ..VerifyOptions::default() };
    match fs::read_to_string(dir.join(HEADS)).ok().map(|text| read_heads(&name, &text)) {
        Some(Ok(heads)) => options.heads = heads,
        Some(Err(problem)) => options.found = Some(toolyard_engine::ledger::FirstBad::heads_file(&name, problem)),
        None => options.found = Some(toolyard_engine::ledger::FirstBad::heads_file(&name, "missing".into())),
    }
    options.kept = options.heads.len();
    options
}

/// The frames of a run: key, kind, payload, chain value.
type StoredFrames = Vec<(i64, i64, Vec<u8>, Vec<u8>)>;

/// An attacker at work on one copy.
struct Attacker {
    db: Connection,
    dir: PathBuf,
    base: Arc<Base>,
    random: Random,
}

impl Attacker {
    fn runs(&self) -> Vec<(i64, RunId)> {
        let mut select = self.db.prepare("SELECT no, run_id FROM runs ORDER BY no").unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, [u8; 16]>(1)?))).unwrap();
        rows.map(|row| row.map(|(no, id)| (no, RunId::from_uuid(Uuid::from_bytes(id)))).unwrap()).collect()
    }

    fn some_run(&mut self) -> (i64, RunId) {
        let runs = self.runs();
        runs[self.random.below(runs.len() as u64) as usize]
    }

    fn frames(&self, no: i64) -> StoredFrames {
        let mut select =
            self.db.prepare("SELECT id, kind, payload, chain FROM frames WHERE id >> 32 = ?1 ORDER BY id").unwrap();
        let rows = select
            .query_map([no], |r| {
                // Records are compressed: somebody who edits one reads it first, and writes it back plain.
                let (kind, payload) = toolyard_store::fuzzing::unpacked(r.get(1)?, &r.get::<_, Vec<u8>>(2)?);
                Ok((r.get(0)?, kind, payload, r.get(3)?))
            })
            .unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn do_sql(&self, sql: &str, values: impl rusqlite::Params) {
        assert!(self.db.execute(sql, values).unwrap() > 0, "{sql} changed nothing");
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let at = self.random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 + self.random.below(255) as u8;
    }

    /// Writes payloads back with the chain made anew.
    fn rechain(&self, run_id: RunId, frames: &StoredFrames) {
        let mut chain = genesis(run_id);
        for (id, kind, payload, _) in frames {
            chain = link(&chain, (id & 0xffff_ffff) as u64, *kind as u8, payload);
            let sql = "UPDATE frames SET kind = ?1, payload = ?2, chain = ?3 WHERE id = ?4";
            self.do_sql(sql, params![kind, payload, chain, id]);
        }
    }

    /// Replaces a word in every record of a run and makes the chain anew.
    fn rewrite(&self, no: i64, run_id: RunId) {
        let mut frames = self.frames(no);
        for (_, _, payload, _) in &mut frames {
            *payload = String::from_utf8(payload.clone()).unwrap().replace("note", "lie!").into_bytes();
        }
        self.rechain(run_id, &frames);
    }

    fn last_entry(&self) -> i64 {
        self.db.query_row("SELECT max(seq) FROM ledger", [], |row| row.get(0)).unwrap()
    }

    fn edit_record(&mut self) {
        let (no, _) = self.some_run();
        let mut frames = self.frames(no);
        let at = self.random.below(frames.len() as u64) as usize;
        let (id, mut kind, mut payload, mut chain) = frames.swap_remove(at);
        match self.random.below(3) {
            0 => self.flip(&mut payload),
            1 => self.flip(&mut chain),
            _ => kind = kind % 13 + 1,
        }
        self.do_sql(
            "UPDATE frames SET kind = ?1, payload = ?2, chain = ?3 WHERE id = ?4",
            params![kind, payload, chain, id],
        );
    }

    fn rewrite_and_rechain(&mut self) {
        let (no, run_id) = self.some_run();
        self.rewrite(no, run_id);
        match self.random.below(3) {
            0 => {}
            1 => self.do_sql("DELETE FROM ledger WHERE seq = ?1", [self.last_entry()]),
            _ => self.do_sql("DELETE FROM ledger WHERE seq > ?1", [self.last_entry() - 3]),
        }
    }

    fn remove_records(&mut self) {
        let (no, _) = self.some_run();
        let frames = self.frames(no);
        let at = frames[self.random.below(frames.len() as u64) as usize].0;
        let end = (no << 32) | 0xffff_ffff;
        match self.random.below(3) {
            0 => self.do_sql("DELETE FROM frames WHERE id = ?1", [at]),
            1 => self.do_sql("DELETE FROM frames WHERE id BETWEEN ?1 AND ?2", [at, end]),
            _ => {
                // The run looks as if its process had died.
                self.do_sql("DELETE FROM frames WHERE id BETWEEN ?1 AND ?2", [at, end]);
                self.do_sql("UPDATE runs SET status = 1, ended_at = NULL WHERE no = ?1", [no]);
            }
        }
    }

    fn move_records(&mut self) {
        let (no, run_id) = self.some_run();
        let mut frames = self.frames(no);
        let n = frames.len() as u64;
        let (a, b) = (self.random.below(n - 1) as usize, (n - 1) as usize);
        match self.random.below(2) {
            0 => {
                let (payload, kind) = (frames[a].2.clone(), frames[a].1);
                (frames[a].2, frames[a].1) = (frames[b].2.clone(), frames[b].1);
                (frames[b].2, frames[b].1) = (payload, kind);
                for (id, kind, ..) in &frames {
                    self.do_sql("UPDATE frames SET kind = ?1 WHERE id = ?2", params![kind, id]);
                }
                self.rechain(run_id, &frames);
            }
            _ => {
                let other = self.runs().into_iter().find(|(other, _)| *other != no).unwrap().0;
                self.do_sql("DELETE FROM frames WHERE id >> 32 = ?1", [other]);
                self.do_sql("UPDATE frames SET id = id - (?1 << 32) + (?2 << 32) WHERE id >> 32 = ?1", [no, other]);
            }
        }
    }

    fn add_records(&mut self) {
        let payload = br#"{"at":"2026-01-01T00:00:00Z","level":"info","message":"forged"}"#.to_vec();
        let kind = RecordKind::Note as i64;
        if self.random.below(2) == 0 {
            let (no, run_id) = self.some_run();
            let mut frames = self.frames(no);
            let id = frames.last().unwrap().0 + 1;
            self.do_sql(
                "INSERT INTO frames (id, kind, payload, chain) VALUES (?1, ?2, ?3, zeroblob(32))",
                params![id, kind, payload],
            );
            frames.push((id, kind, payload, vec![]));
            return self.rechain(run_id, &frames);
        }
        // A whole run that never was: ended, or as if it were under way.
        let run_id = new_run();
        let (status, ended) =
            if self.random.below(2) == 0 { (3, Some(1_767_225_601_000_000_000_i64)) } else { (1, None) };
        self.do_sql(
            "INSERT INTO runs (run_id, kind, status, title, started_at, ended_at) VALUES (?1, 1, ?2, 't', 1767225600000000000, ?3)",
            params![run_id.as_uuid().as_bytes(), status, ended],
        );
        let no = self.db.last_insert_rowid();
        let finished = br#"{"at":"2026-01-01T00:00:01Z","status":"finished","message":"done"}"#.to_vec();
        let mut frames: StoredFrames = vec![((no << 32) | 1, kind, payload, vec![])];
        if ended.is_some() {
            frames.push(((no << 32) | 2, RecordKind::Finished as i64, finished, vec![]));
        }
        for (id, kind, payload, _) in &frames {
            self.do_sql(
                "INSERT INTO frames (id, kind, payload, chain) VALUES (?1, ?2, ?3, zeroblob(32))",
                params![id, kind, payload],
            );
        }
        self.rechain(run_id, &frames);
    }

    fn edit_row(&mut self) {
        let (no, _) = self.some_run();
        let sql = [
            "UPDATE runs SET status = CASE status WHEN 3 THEN 4 ELSE 3 END WHERE no = ?1",
            "UPDATE runs SET status = 1, ended_at = NULL WHERE no = ?1",
            "UPDATE runs SET title = title || '.' WHERE no = ?1",
            "UPDATE runs SET session = coalesce(session, '') || 'x' WHERE no = ?1",
            "UPDATE runs SET started_at = 1577836800000000000 WHERE no = ?1",
            "UPDATE runs SET ended_at = 1577836800000000000 WHERE no = ?1",
            "UPDATE runs SET kind = 1 - kind WHERE no = ?1",
            "UPDATE runs SET kind = NULL WHERE no = ?1",
            "UPDATE runs SET run_id = randomblob(16) WHERE no = ?1",
            "UPDATE runs SET no = no + 1000 WHERE no = ?1",
            "UPDATE runs SET status = 9 WHERE no = ?1",
            "DELETE FROM runs WHERE no = ?1",
        ];
        let chosen = sql[self.random.below(sql.len() as u64) as usize];
        self.do_sql(chosen, [no]);
    }

    fn remove_run(&mut self) {
        let (no, _) = self.some_run();
        self.do_sql("DELETE FROM runs WHERE no = ?1", [no]);
        self.do_sql("DELETE FROM frames WHERE id >> 32 = ?1", [no]);
    }

    fn edit_ledger(&mut self) {
        let last = self.last_entry();
        let seq = 1 + self.random.below(last as u64) as i64;
        let (mut payload, mut chain): (Vec<u8>, Vec<u8>) = self
            .db
            .query_row("SELECT payload, chain FROM ledger WHERE seq = ?1", [seq], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        let update = "UPDATE ledger SET payload = ?1, chain = ?2 WHERE seq = ?3";
        match self.random.below(6) {
            0 => self.flip(&mut payload),
            1 => self.flip(&mut chain),
            2 => return self.do_sql("DELETE FROM ledger WHERE seq = ?1", [seq]),
            3 => return self.do_sql("DELETE FROM ledger WHERE seq >= ?1", [seq]),
            4 => {
                // An entry that is there already, once more.
                let add = "INSERT INTO ledger (seq, payload, chain) VALUES (?1, ?2, ?3)";
                return self.do_sql(add, params![last + 1, payload, chain]);
            }
            _ => payload.insert(1, b' '),
        }
        self.do_sql(update, params![payload, chain, seq]);
    }

    fn edit_blob(&mut self) {
        let mut select = self.db.prepare("SELECT id FROM blobs").unwrap();
        let ids: Vec<i64> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        drop(select);
        let id = ids[self.random.below(ids.len() as u64) as usize];
        match self.random.below(4) {
            0 => {
                let mut bytes: Vec<u8> =
                    self.db.query_row("SELECT bytes FROM blobs WHERE id = ?1", [id], |row| row.get(0)).unwrap();
                self.flip(&mut bytes);
                self.do_sql("UPDATE blobs SET bytes = ?1 WHERE id = ?2", params![bytes, id]);
            }
            1 => self.do_sql("DELETE FROM blobs WHERE id = ?1", [id]),
            2 => self.do_sql("UPDATE blobs SET len = len + 1 WHERE id = ?1", [id]),
            _ => self.do_sql("UPDATE blobs SET bytes = NULL WHERE id = ?1", [id]),
        }
    }

    fn edit_heads(&mut self) {
        let path = self.dir.join(HEADS);
        let mut text = fs::read(&path).unwrap();
        match self.random.below(4) {
            0 => {
                // Inside a note: the other fields of a line follow from it.
                let at = text.windows(7).position(|window| window == b"\"note\":").unwrap() + 40;
                text[at] ^= 1 + self.random.below(3) as u8;
            }
            1 => return fs::remove_file(&path).unwrap(),
            2 => text.clear(),
            _ => {
                let lines = String::from_utf8(text).unwrap();
                let forged = lines.lines().next().unwrap().replace("\\n2\\n", "\\n3\\n");
                text = format!("{lines}{forged}\n").into_bytes();
            }
        }
        fs::write(&path, text).unwrap();
    }

    /// Puts the older database in place; the heads beside it stay.
    fn roll_back_database(&mut self) {
        fs::remove_file(self.dir.join(HEADS)).unwrap();
        self.roll_back_all();
        fs::copy(self.base.now.path().join(HEADS), self.dir.join(HEADS)).unwrap();
    }

    /// Puts an older copy of everything in place.
    fn roll_back_all(&mut self) {
        self.db = Connection::open_in_memory().unwrap();
        for entry in fs::read_dir(&self.dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        copy(self.base.earlier.path(), &self.dir);
    }
}

type Attack = fn(&mut Attacker);

const KINDS: [(&str, Attack, bool); 16] = [
    ("edit a record", Attacker::edit_record, false),
    ("rewrite a run and its chain", Attacker::rewrite_and_rechain, false),
    ("remove records", Attacker::remove_records, false),
    ("move records", Attacker::move_records, false),
    ("add records", Attacker::add_records, false),
    ("edit a run's row", Attacker::edit_row, false),
    ("remove a run", Attacker::remove_run, false),
    ("edit the ledger", Attacker::edit_ledger, false),
    ("edit a blob", Attacker::edit_blob, false),
    ("edit a fact", Attacker::edit_fact, false),
    ("remove facts", Attacker::remove_fact, false),
    ("put older facts back", Attacker::roll_back_facts, false),
    ("edit the journal", Attacker::edit_journal, false),
    ("edit the kept heads", Attacker::edit_heads, false),
    ("roll the database back", Attacker::roll_back_database, false),
    ("roll everything back", Attacker::roll_back_all, true),
];

/// Starts over the attacked files, goes on working every other time, and verifies. Answers what was found.
async fn start_and_verify(dir: &Path, goes_on: bool, head: Option<&str>) -> Option<String> {
    let sealed = match open_sealed(dir) {
        Ok(store) => store,
        Err(error) => return Some(format!("refused at the start: {error}")),
    };
    let sealer = sealer(&sealed, dir);
    let store: Arc<dyn Store> = sealed.clone();
    // A start reads grants; no value is among them that this program did not write.
    let grants = store.list("grant").unwrap();
    let is_honest = |value: &[u8]| (0..RUNS).any(|n| value == format!("{{\"grant\":{n}}}").into_bytes());
    assert!(grants.iter().all(|(_, value)| is_honest(value)), "a forged grant is honoured: {grants:?}");
    let started = sealer.seal_found();
    if goes_on && started.is_ok() {
        // Other blobs than before: one that is stored again would put a removed one back.
        record_run(&store, &sealer, "after the attack", RUNS).await;
    }
    let mut options = kept(dir);
    options
        .heads
        .extend(head.map_or_else(Vec::<SavedHead>::new, |head| read_heads("the head kept elsewhere", head).unwrap()));
    let report = verify_ledger(&*store, &signer().verifier(), &options).unwrap();
    report.first_bad.map(|bad| bad.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_without_the_key_is_found() {
    let number = |name: &str, default| std::env::var(name).ok().map_or(default, |text| text.parse().unwrap());
    let (attacks, seed) = (number("TOOLYARD_ATTACKS", ATTACKS), number("TOOLYARD_ATTACK_SEED", 1));
    let base = Arc::new(base().await);
    assert_eq!(start_and_verify(base.now.path(), false, Some(&base.head)).await, None, "the honest store verifies");
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    let mut missed = Vec::new();
    for n in 0..attacks {
        let (name, attack, needs_head) = KINDS[(n % KINDS.len() as u64) as usize];
        let copied = tempfile::tempdir().unwrap();
        copy(base.now.path(), copied.path());
        let db = Connection::open(PathBuf::from(copied.path()).join(DATABASE)).unwrap();
        let random = Random(seed.wrapping_mul(1_000_003).wrapping_add(n));
        let mut attacker = Attacker { db, dir: copied.path().to_owned(), base: base.clone(), random };
        attack(&mut attacker);
        drop(attacker);
        let head = needs_head.then_some(base.head.as_str());
        match start_and_verify(copied.path(), n % 2 == 0, head).await {
            Some(_) => *found.entry(name).or_default() += 1,
            None => missed.push(format!("attack {n} ({name})")),
        }
    }
    let total: u64 = found.values().sum();
    println!("{total} of {attacks} attacks found (seed {seed}): {found:?}");
    assert!(missed.is_empty(), "not found: {missed:?}");
}
