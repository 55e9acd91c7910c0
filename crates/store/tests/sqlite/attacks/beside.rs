//! Attacks on what lies beside the records: facts, the journal, and who holds which run.

use super::*;
use toolyard_engine::{
    Blob, Engine, EngineOptions, EngineParts, EventBus, Recorder, SealedStore,
    chain::Signer,
    record::Record,
    store::{Durability, RunKind, RunRow},
    system_clock,
};
use toolyard_protocol::RunStatus;

/// Where the entries of a journal begin, and where a closed one says that it was moved.
const ENTRIES_AT: usize = 4096;
const RETIRED_AT: usize = 512;
const RETIRED_BYTES: usize = 24;
const REVOKED: &str = "agent\nvault.writeFile\n0";

/// Sets facts as the program does: some are set again and again, one is removed in the end.
pub(super) fn set_facts(store: &dyn Store, n: u64) {
    let soon = Some(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24));
    let value = |text: &str| format!("{{\"{text}\":{n}}}").into_bytes();
    store.put("grant", &format!("agent\nvault.writeFile\n{n}"), value("grant"), None).unwrap();
    store.put("devices", "device-1", value("seen"), None).unwrap();
    store.put("approvals", &format!("question-{n}"), value("decision"), soon).unwrap();
    store.put("sessions", "agent:main:main", value("label"), None).unwrap();
    assert_eq!(store.put_if_absent("idempotency", &format!("agent\n{n}"), value("run"), soon).unwrap(), None);
    if n + 1 == RUNS {
        store.remove("grant", REVOKED).unwrap();
    }
}

impl Attacker {
    /// A fact of a space that the ledger names.
    fn some_fact(&mut self) -> (String, String, Vec<u8>) {
        let sql = "SELECT space, key, value FROM facts WHERE space <> 'sessions' ORDER BY space, key";
        let mut select = self.db.prepare(sql).unwrap();
        let facts: Vec<_> = select
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        drop(select);
        facts[self.random.below(facts.len() as u64) as usize].clone()
    }

    pub(super) fn edit_fact(&mut self) {
        let (space, key, mut value) = self.some_fact();
        let update = "UPDATE facts SET value = ?1 WHERE space = ?2 AND key = ?3";
        let insert = "INSERT INTO facts (space, key, value) VALUES (?1, ?2, ?3)";
        match self.random.below(9) {
            0 => {
                self.flip(&mut value);
                self.do_sql(update, params![value, space, key]);
            }
            1 => self.do_sql(update, params![b"{\"forged\":true}", space, key]),
            2 => self.do_sql("UPDATE facts SET key = key || 'x' WHERE space = ?1 AND key = ?2", [space, key]),
            3 => {
                value.truncate(self.random.below(value.len() as u64) as usize);
                self.do_sql(update, params![value, space, key]);
            }
            4 => {
                // A fact that never was, without a seal.
                let new = format!("agent\nvault.writeFile\nforged-{}", self.random.below(1000));
                self.do_sql(insert, params!["grant", new, b"{\"grant\":\"forged\"}"]);
            }
            5 => {
                // The seal of another fact.
                self.do_sql(insert, params!["grant", "agent\nvault.deleteFile\n1", value]);
            }
            6 => {
                let sql = "UPDATE facts SET expires_at = ?1 WHERE space = ?2 AND key = ?3";
                let end = [1, 4_102_444_800_000_000_i64][self.random.below(2) as usize];
                self.do_sql(sql, params![end, space, key]);
            }
            7 => {
                // The store looks as an earlier version left it, with a grant of the attacker's.
                self.do_sql("DELETE FROM facts WHERE space = 'facts'", []);
                self.do_sql(insert, params!["grant", "agent\nvault.writeFile\nmine", b"{\"grant\":\"mine\"}"]);
            }
            _ => {
                let sql = "UPDATE facts SET value = CAST(value || x'21' AS BLOB) WHERE space = 'sessions'";
                self.do_sql(sql, []);
            }
        }
    }

    pub(super) fn remove_fact(&mut self) {
        let (space, key, _) = self.some_fact();
        match self.random.below(3) {
            0 => self.do_sql("DELETE FROM facts WHERE space = ?1", [space]),
            1 => self.do_sql("DELETE FROM facts", []),
            _ => self.do_sql("DELETE FROM facts WHERE space = ?1 AND key = ?2", [space, key]),
        }
    }

    /// Puts facts back as they were in the older copy: each carries a valid seal.
    pub(super) fn roll_back_facts(&mut self) {
        let earlier = self.base.earlier.path().join(DATABASE).display().to_string();
        self.db.execute("ATTACH ?1 AS earlier", [earlier]).unwrap();
        match self.random.below(3) {
            0 => self.do_sql("INSERT OR REPLACE INTO facts SELECT * FROM earlier.facts WHERE space = 'devices'", []),
            // The grant that was taken back since.
            1 => self.do_sql("INSERT OR REPLACE INTO facts SELECT * FROM earlier.facts WHERE key = ?1", [REVOKED]),
            _ => {
                self.do_sql("DELETE FROM facts", []);
                self.do_sql("INSERT INTO facts SELECT * FROM earlier.facts", []);
            }
        }
        self.db.execute("DETACH earlier", []).unwrap();
    }

    /// Forges a journal that looks as if its process had died before the database took it over.
    pub(super) fn edit_journal(&mut self) {
        let (no, run_id) = self.some_run();
        let frames = self.frames(no);
        let last = frames.last().unwrap();
        let paths = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().path());
        let path = paths.filter(|path| path.display().to_string().contains("toolyard.jnl-")).min().unwrap();
        let mut file = fs::read(&path).unwrap();
        file[RETIRED_AT..RETIRED_AT + RETIRED_BYTES].fill(0);
        self.db.execute("DELETE FROM journals", []).unwrap();
        let payload = br#"{"at":"2026-01-01T00:00:00Z","level":"info","message":"forged"}"#;
        match self.random.below(3) {
            // A record that the database has already, once more.
            0 => put_entry(&mut file, run_id, (last.0 & 0xffff_ffff) as u32, &[0; 32], payload),
            1 => {
                let seq = (last.0 & 0xffff_ffff) as u32 + 1;
                let before: [u8; 32] = last.3.clone().try_into().unwrap();
                put_entry(&mut file, run_id, seq, &before, payload);
            }
            _ => {
                let run_id = new_run();
                put_entry(&mut file, run_id, 1, &genesis(run_id), payload);
            }
        }
        fs::write(&path, file).unwrap();
    }
}

/// Writes an entry with one note as the only one of a journal.
fn put_entry(file: &mut [u8], run_id: RunId, seq: u32, before: &[u8; 32], payload: &[u8]) {
    let mut body = run_id.as_uuid().as_bytes().to_vec();
    body.push(0);
    body.extend_from_slice(&1_u32.to_le_bytes());
    body.extend_from_slice(&seq.to_le_bytes());
    body.extend_from_slice(&(RecordKind::Note as i64).to_le_bytes());
    body.extend_from_slice(&link(before, u64::from(seq), RecordKind::Note as u8, payload));
    body.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    body.extend_from_slice(payload);
    body.extend_from_slice(&0_u32.to_le_bytes());
    body.push(0);
    let entry = toolyard_store::fuzzing::journal_entry(&body);
    file[ENTRIES_AT..].fill(0);
    file[ENTRIES_AT..ENTRIES_AT + entry.len()].copy_from_slice(&entry);
}

/// Leaves a direct call behind whose process has died.
async fn leave_a_run(dir: &Path) -> RunId {
    let store = open(dir).unwrap();
    let run_id = new_run();
    let recorder = Recorder::begin(run_id, None, store.clone(), Arc::new(EventBus::default()), signer());
    let at = jiff::Timestamp::from_microsecond(jiff::Timestamp::now().as_microsecond()).unwrap();
    let policy = Blob::new(serde_json::to_vec(&toolyard_protocol::PolicySnapshot::default()).unwrap());
    let text = format!(
        r#"{{"runId":"{run_id}","kind":"call","policyHash":"h","policyBlob":"{}","registryVersion":"1","executorVersion":"1","caller":{{}},"startedAt":"{at}","title":"left"}}"#,
        policy.sha256
    );
    recorder.push(&Record::decode(RecordKind::RunStarted as u8, text.as_bytes()).unwrap());
    recorder.push_blobs([policy]);
    let (kind, status) = (RunKind::Call, RunStatus::Running);
    let title = "left".to_owned();
    recorder.set_row(RunRow { run_id, kind, status, title, session: None, started_at: at, ended_at: None });
    recorder.flush(Durability::Sync).unwrap();
    recorder.sync().await.unwrap();
    run_id
}

/// A claim is not a record: nothing proves who holds a run. So an edited claim must have no effect: the run that a dead
/// process left is taken up at the next start, once, and everything verifies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_claim_neither_loses_a_run_nor_hides_it() {
    let attacks = std::env::var("TOOLYARD_ATTACKS").ok().map_or(12, |text| text.parse::<u64>().unwrap() / 10);
    for n in 0..attacks {
        let dir = tempfile::tempdir().unwrap();
        let run_id = leave_a_run(dir.path()).await;
        let db = Connection::open(dir.path().join(DATABASE)).unwrap();
        let epoch: i64 =
            db.query_row("SELECT seq FROM sqlite_sequence WHERE name = 'owners'", [], |row| row.get(0)).unwrap();
        let sql = [
            "UPDATE runs SET owner = NULL".to_owned(),
            format!("UPDATE runs SET owner = {}", epoch + 1),
            format!("UPDATE runs SET owner = {}", epoch + 1000),
            "DELETE FROM owners".to_owned(),
            format!("UPDATE sqlite_sequence SET seq = {} WHERE name = 'owners'; DELETE FROM owners", epoch - 1),
            format!("UPDATE sqlite_sequence SET seq = {} WHERE name = 'owners'", epoch + 7),
        ];
        db.execute_batch(&sql[(n % sql.len() as u64) as usize]).unwrap();
        drop(db);
        let engine = Engine::new(EngineParts {
            store: open(dir.path()).unwrap(),
            signer: Signer::from_secret("test", &[7; 32]),
            policy: toolyard_catalog::Policy::compile(&serde_json::from_str("{}").unwrap()).unwrap(),
            clock: system_clock(),
            options: EngineOptions::default(),
        });
        let recovered = engine.recover().await.unwrap();
        assert_eq!(recovered.settled_calls, [run_id], "attack {n}: {recovered:?}");
        let again = engine.recover().await.unwrap();
        assert!(again.settled_calls.is_empty(), "attack {n}: taken up twice");
        let row = engine.store().run(run_id).unwrap().unwrap();
        assert!(row.status.is_final(), "attack {n}: {row:?}");
        engine.seal().await.unwrap();
        let report = verify_ledger(&**engine.store(), &signer().verifier(), &VerifyOptions::default()).unwrap();
        assert_eq!(report.first_bad, None, "attack {n}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_forged_grant_is_not_honoured_and_the_others_are() {
    let home = SqliteHome::new();
    let honest = b"{\"grant\":1}".to_vec();
    {
        let store = SealedStore::new(Arc::new(home.open()), signer());
        let position = store.put("grant", "agent\ntool\n1", honest.clone(), None).unwrap();
        store.durable(position).await.unwrap();
    }
    let db = Connection::open(home.0.path().join(DATABASE)).unwrap();
    let sealed: Vec<u8> = db.query_row("SELECT value FROM facts WHERE space = 'grant'", [], |row| row.get(0)).unwrap();
    for (key, value) in [("agent\ntool\n2", b"{\"grant\":2}".to_vec()), ("agent\nother\n1", sealed)] {
        db.execute("INSERT INTO facts (space, key, value) VALUES ('grant', ?1, ?2)", params![key, value]).unwrap();
    }
    drop(db);
    let store = SealedStore::new(Arc::new(home.open()), signer());
    assert_eq!(store.list("grant").unwrap(), [("agent\ntool\n1".to_owned(), honest)]);
    let refused = store.get("grant", "agent\ntool\n2").unwrap_err();
    assert!(matches!(refused, toolyard_engine::store::StoreError::Tampered(_)), "{refused}");
    assert!(store.put_if_absent("grant", "agent\nother\n1", vec![1], None).is_err(), "it is not taken for absent");
}

#[tokio::test]
async fn a_revoked_grant_that_was_put_back_while_stopped_is_not_honoured() {
    let home = SqliteHome::new();
    let (key, kept) = ("agent\ntool\n1", "agent\ntool\n2");
    let database = home.0.path().join(DATABASE);
    let revoked: Vec<u8> = {
        let sealed = Arc::new(SealedStore::new(Arc::new(home.open()), signer()));
        let store: Arc<dyn Store> = sealed.clone();
        let sealer = Sealer::new(store.clone(), signer()).naming_facts_of(&sealed);
        store.put("grant", kept, b"{}".to_vec(), None).unwrap();
        let position = store.put("grant", key, b"{}".to_vec(), None).unwrap();
        store.durable(position).await.unwrap();
        record_run(&store, &sealer, "a note", 1).await;
        store.settle().unwrap();
        let db = Connection::open(&database).unwrap();
        let read = db.query_row("SELECT value FROM facts WHERE key = ?1", [key], |row| row.get(0)).unwrap();
        let position = store.remove("grant", key).unwrap();
        store.durable(position).await.unwrap();
        record_run(&store, &sealer, "a note", 2).await;
        read
    };
    let db = Connection::open(&database).unwrap();
    db.execute("DELETE FROM facts WHERE space = 'grant' AND key = ?1", [key]).unwrap();
    db.execute("INSERT INTO facts (space, key, value) VALUES ('grant', ?1, ?2)", params![key, revoked]).unwrap();
    drop(db);
    let store = SealedStore::new(Arc::new(home.open()), signer());
    assert_eq!(store.list("grant").unwrap(), [(kept.to_owned(), b"{}".to_vec())]);
    let refused = store.get("grant", key).unwrap_err();
    assert!(refused.to_string().contains("an older version of it was put back"), "{refused}");
}

/// A fact is replaced between a read and the check of what was read: no reader may take the version it read for one that
/// somebody put back.
#[test]
fn readers_beside_a_writer_never_take_a_fact_for_forged() {
    const CHANGES: u64 = 2000;
    let store = SealedStore::new(Arc::new(toolyard_engine::memory_store::MemoryStore::default()), signer());
    let (space, key) = ("approvals", "one");
    store.put(space, key, 0_u64.to_be_bytes().to_vec(), None).unwrap();
    let raise = |store: &SealedStore| {
        let found = store.get(space, key).unwrap().unwrap();
        let next = u64::from_be_bytes(found.as_slice().try_into().unwrap()) + 1;
        store.compare_and_set(space, key, Some(&found), Some((next.to_be_bytes().to_vec(), None))).unwrap();
        next
    };
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| while raise(&store) < CHANGES {});
        }
        threads.spawn(|| while store.list(space).unwrap()[0].1 < CHANGES.to_be_bytes().to_vec() {});
    });
    let last = store.get(space, key).unwrap().unwrap();
    assert!(last >= CHANGES.to_be_bytes().to_vec());
}

#[tokio::test]
async fn the_facts_of_an_earlier_version_are_sealed_once() {
    let home = SqliteHome::new();
    let until = Some(jiff::Timestamp::from_second(4_102_444_800).unwrap());
    {
        let plain = home.open();
        plain.put("devices", "old", b"{}".to_vec(), until).unwrap();
        let position = plain.put("sessions", "main", b"{}".to_vec(), None).unwrap();
        plain.durable(position).await.unwrap();
    }
    let sealed = Arc::new(SealedStore::new(Arc::new(home.open()), signer()));
    assert_eq!(sealed.get("devices", "old").unwrap().as_deref(), Some(b"{}".as_slice()));
    let store: Arc<dyn Store> = sealed.clone();
    let sealer = Sealer::new(store.clone(), signer()).naming_facts_of(&sealed);
    record_run(&store, &sealer, "a note", 1).await;
    let report = verify_ledger(&*store, &signer().verifier(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.first_bad, report.facts), (None, 3), "two facts and the mark");
    drop((sealer, store, sealed));
    let plain = home.open();
    plain.put("devices", "mine", b"{}".to_vec(), None).unwrap();
    plain.remove("facts", "sealed").unwrap();
    drop(plain);
    let sealed = SealedStore::new(Arc::new(home.open()), signer());
    assert!(sealed.get("devices", "mine").is_err(), "the ledger names facts: nothing is sealed a second time");
    assert_eq!(sealed.get("devices", "old").unwrap().as_deref(), Some(b"{}".as_slice()));
}

#[tokio::test]
async fn a_store_whose_key_was_replaced_works_without_its_facts() {
    let home = SqliteHome::new();
    {
        let store = SealedStore::new(Arc::new(home.open()), signer());
        let position = store.put("devices", "one", b"{}".to_vec(), None).unwrap();
        store.durable(position).await.unwrap();
    }
    let other = Arc::new(Signer::from_secret("test", &[7; 32]).with_secrets_key(&[9; 32]));
    let store = SealedStore::new(Arc::new(home.open()), other.clone());
    assert_eq!(store.get("devices", "one").unwrap(), None);
    assert!(store.list("devices").unwrap().is_empty());
    assert_eq!(store.put_if_absent("devices", "one", b"new".to_vec(), None).unwrap(), None);
    assert_eq!(store.get("devices", "one").unwrap().as_deref(), Some(b"new".as_slice()));
    let report = verify_ledger(&store, &other.verifier(), &VerifyOptions::default()).unwrap();
    assert!(!report.ok, "verification tells that the facts are not this key's");
}
