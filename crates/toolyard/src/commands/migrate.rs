//! `toolyard migrate`: moves everything that a store holds to another store, and compares what arrived run by run.
//!
//! Bytes are copied as they are, and the keys go with them, so that whatever verified before verifies afterwards. An
//! interrupted migration continues where it stopped.

use super::Outcome;
use crate::{
    cli::{Global, MigrateArgs},
    config::{self, Resolved},
    context, output, shared_config, stores,
};
use serde::Serialize;
use std::{collections::BTreeSet, ops::ControlFlow, process::ExitCode, sync::Arc};
use toolyard_client::local::LocalClient;
use toolyard_context::{
    error::ApiError,
    store::shared::{SharedParts, Transferred, from_shared, to_shared},
};
use toolyard_engine::{
    Blob, SealedStore, Store,
    store::{Batch, Durability, Frame, Head, LedgerEntry, NodeState, RunFilter, RunRow, StoreError},
};
use toolyard_postgres::{ClusterKeys, PostgresStore, describe_url};
use toolyard_protocol::{ErrorCode, Failure, RunId};
use toolyard_store::{SqliteStore, StoreOptions};

/// Rows, facts, entries and names of blobs read at a time.
const PAGE: usize = 500;
/// Bytes of frames and blobs in one batch.
const BATCH_BYTES: usize = 4 << 20;

/// What was moved.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct MigrationReport {
    /// Where everything is now.
    to: String,
    runs: u64,
    /// Runs that an earlier, interrupted migration had copied.
    runs_there_already: u64,
    frames: u64,
    blobs: u64,
    facts: u64,
    ledger_entries: u64,
    /// Files of the context store.
    context_files: u64,
    /// Files of it that an earlier, interrupted migration had copied.
    context_files_there_already: u64,
    context_bytes: u64,
    /// Whether the cluster's configuration was written into config.toml.
    config_taken_back: bool,
}

/// Facts that mean something to the nodes of a cluster alone, or that are moved as files.
const NOT_COPIED: [&str; 6] = ["context", "drain", "guesses", "nodeClients", "nodeConfig", "offers"];

pub(super) async fn run(global: &Global, args: MigrateArgs) -> Outcome {
    let resolved = config::resolve(global)?;
    if let Ok(Some(_)) = LocalClient::connect(&resolved.home.socket()).await {
        return Err(
            Failure::new(ErrorCode::PreconditionFailed, "a Toolyard serves this home").suggest("Stop it first.")
        );
    }
    let moved = tokio::task::spawn_blocking(move || migrate(&resolved, &args.to))
        .await
        .map_err(|_| Failure::new(ErrorCode::InternalError, "the migration failed unexpectedly"))??;
    if global.json {
        output::json(&moved);
    } else {
        let MigrationReport { to, runs, frames, blobs, facts, ledger_entries, context_files, .. } = &moved;
        output::data(&format!(
            "moved {runs} runs ({frames} records), {blobs} blobs, {facts} facts, {ledger_entries} ledger entries and \
             {context_files} files of the context store to {to}"
        ));
        if moved.config_taken_back {
            output::note("config.toml has the cluster's configuration now; remove store.url from it to use this disk");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn migrate(resolved: &Resolved, to: &str) -> Result<MigrationReport, Failure> {
    let home = &resolved.home;
    home.create().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    if to == "sqlite" {
        let url = stores::url(resolved).ok_or_else(|| {
            Failure::new(ErrorCode::PreconditionFailed, "store.url is not set: the state is on this disk already")
        })?;
        let from = Arc::new(stores::open_shared(resolved, &url, false)?);
        alone(&from)?;
        let keys = stores::cluster_keys(&from, home)?;
        let onto = SqliteStore::open(&home.state(), StoreOptions::default())?;
        let mut moved = Copy::all(&*from, &onto)?;
        let parts = shared_parts(resolved, &from, &keys)?;
        moved.context(from_shared(&context::folder(&resolved.config.context, home), &parts))?;
        moved.config_taken_back = shared_config::take_back(home, parts.store)?;
        home.set_keys(&keys).map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
        stores::set_moved(home, None)?;
        moved.to = home.state().display().to_string();
        from.set_moved(Some(&moved.to))?;
        return Ok(moved);
    }
    if !to.starts_with("postgres://") && !to.starts_with("postgresql://") {
        return Err(Failure::new(ErrorCode::ValidationError, format!("{to:?} is no store"))
            .suggest("Write --to postgres://USER:PASSWORD@HOST:PORT/DATABASE, or --to sqlite."));
    }
    let described = describe_url(to);
    if let Some(moved_to) = stores::moved(home)? {
        return Err(Failure::new(ErrorCode::PreconditionFailed, format!("the state was moved to {moved_to} already")));
    }
    let from = SqliteStore::open(&home.state(), StoreOptions::default())?;
    let onto = Arc::new(stores::open_shared(resolved, to, true)?);
    alone(&onto)?;
    let mine = home.own_keys().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    if stores::cluster_keys(&onto, home)? != mine {
        return Err(Failure::new(
            ErrorCode::PreconditionFailed,
            format!("{described} holds the state of another home: two records cannot become one"),
        )
        .suggest("Name an empty database."));
    }
    let mut moved = Copy::all(&from, &*onto)?;
    let (config, parts) = (&resolved.config.context, shared_parts(resolved, &onto, &mine)?);
    moved.context(to_shared(&context::folder(config, home), config.clone(), &parts))?;
    onto.set_moved(None)?;
    stores::set_moved(home, Some(&described))?;
    moved.to = described;
    Ok(moved)
}

/// The context store's part of a shared store. Its facts are sealed with the cluster's keys, as the nodes read them.
fn shared_parts(resolved: &Resolved, store: &Arc<PostgresStore>, keys: &ClusterKeys) -> Result<SharedParts, Failure> {
    let signer = resolved.home.cluster_signer(keys);
    let signer = signer.map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    let sealed = SealedStore::new(store.clone(), Arc::new(signer));
    Ok(SharedParts { store: Arc::new(sealed), pieces: stores::pieces(&resolved.config)? })
}

impl MigrationReport {
    /// Notes what was moved of the context store.
    fn context(&mut self, transferred: Result<Transferred, ApiError>) -> Result<(), Failure> {
        let Transferred { files, there_already, bytes, .. } = transferred.map_err(|error| {
            Failure::new(ErrorCode::StoreUnavailable, format!("the context store was not moved: {}", error.message))
                .suggest("What was copied stays; run the command again to go on.")
        })?;
        (self.context_files, self.context_files_there_already, self.context_bytes) = (files, there_already, bytes);
        Ok(())
    }
}

/// Nobody serves on the shared store.
fn alone(store: &PostgresStore) -> Result<(), Failure> {
    let nodes = store.nodes()?;
    match nodes.iter().find(|node| node.state != NodeState::Dead) {
        Some(node) => Err(Failure::new(
            ErrorCode::PreconditionFailed,
            format!("node {} serves on the shared store", node.owner.node),
        )
        .suggest("Stop every node first.")),
        None => Ok(()),
    }
}

struct Copy<'a> {
    from: &'a dyn Store,
    onto: &'a dyn Store,
    blobs: BTreeSet<String>,
    moved: MigrationReport,
}

impl<'a> Copy<'a> {
    fn all(from: &'a dyn Store, onto: &'a dyn Store) -> Result<MigrationReport, Failure> {
        from.settle()?;
        let mut copy = Self { from, onto, blobs: all_blobs(onto)?, moved: MigrationReport::default() };
        let mut after = RunId::from_uuid(uuid::Uuid::nil());
        loop {
            let rows = from.runs(&RunFilter { after: Some(after), limit: PAGE, ..RunFilter::default() })?;
            let Some(last) = rows.last() else { break };
            after = last.run_id;
            for row in rows {
                copy.run(row.run_id, Some(row))?;
            }
        }
        for run_id in from.unlisted_runs(usize::MAX)? {
            copy.run(run_id, None)?;
        }
        copy.other_blobs(after)?;
        copy.facts()?;
        copy.ledger()?;
        onto.settle()?;
        copy.compare()?;
        Ok(copy.moved)
    }

    /// Copies one run, or what is missing of it.
    fn run(&mut self, run_id: RunId, row: Option<RunRow>) -> Result<(), Failure> {
        let (wanted, there) = (self.from.head(run_id)?, self.onto.head(run_id)?);
        self.moved.runs += 1;
        if wanted == there && self.onto.run(run_id)? == row {
            self.moved.runs_there_already += 1;
            return Ok(());
        }
        if there.is_some_and(|there| wanted.is_none_or(|wanted| there.seq > wanted.seq)) {
            return Err(differs(run_id));
        }
        if self.onto.run(run_id)?.is_some_and(|known| !known.status.is_final()) {
            let holder = self.onto.holder(run_id)?;
            if !self.onto.claim(run_id, holder.as_ref())? {
                return Err(differs(run_id));
            }
        }
        let mut pending: Vec<Frame> = Vec::new();
        let mut failed: Option<Failure> = None;
        let mut bytes = 0;
        self.from.frames(run_id, there.map_or(1, |head| head.seq + 1), &mut |frame| {
            bytes += frame.payload.len();
            pending.push(frame);
            if bytes >= BATCH_BYTES {
                bytes = 0;
                if let Err(failure) = self.append(run_id, std::mem::take(&mut pending), None) {
                    failed = Some(failure);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        match failed {
            Some(failure) => Err(failure),
            None => self.append(run_id, pending, Some(row)),
        }
    }

    /// Appends frames with the blobs that they name. The last batch has the row and releases the run, so that the
    /// serving process can resume it.
    fn append(&mut self, run_id: RunId, frames: Vec<Frame>, end: Option<Option<RunRow>>) -> Result<(), Failure> {
        let mut blobs = Vec::new();
        for frame in &frames {
            for name in hashes_in(&frame.payload) {
                if !self.blobs.contains(name)
                    && let Some(bytes) = self.from.blob(name)?
                {
                    self.blobs.insert(name.to_owned());
                    blobs.push(Blob::new(bytes));
                }
            }
        }
        self.moved.frames += frames.len() as u64;
        self.moved.blobs += blobs.len() as u64;
        let release = end.is_some();
        let batch = Batch {
            run_id,
            frames,
            blobs,
            row: end.flatten(),
            epoch: self.onto.epoch(),
            release,
            durability: Durability::Deferred,
        };
        self.onto.append(batch)?;
        Ok(())
    }

    /// Blobs that no record names go with the last run.
    fn other_blobs(&mut self, last: RunId) -> Result<(), Failure> {
        let missing: Vec<String> = all_blobs(self.from)?.difference(&self.blobs).cloned().collect();
        if self.from.run(last)?.is_none() {
            return Ok(());
        }
        for name in missing {
            if let Some(bytes) = self.from.blob(&name)? {
                let (frames, blobs) = (Vec::new(), vec![Blob::new(bytes)]);
                let (epoch, durability) = (self.onto.epoch(), Durability::Deferred);
                self.onto.append(Batch { run_id: last, frames, blobs, row: None, epoch, release: true, durability })?;
                self.moved.blobs += 1;
            }
        }
        Ok(())
    }

    /// Facts as they are stored, seals included. A fact that only the target has was removed from the source in the meantime.
    fn facts(&mut self) -> Result<(), Failure> {
        let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
        for space in self.from.fact_spaces()?.into_iter().filter(|space| is_copied(space)) {
            let mut after: Option<String> = None;
            loop {
                let page = self.from.stored_facts(&space, after.as_deref(), PAGE)?;
                let Some(last) = page.last() else { break };
                after = Some(last.key.clone());
                for fact in page {
                    self.moved.facts += 1;
                    self.onto.put(&space, &fact.key, fact.value, fact.expires_at)?;
                    wanted.insert((space.clone(), fact.key));
                }
            }
        }
        self.onto.settle()?;
        for space in self.onto.fact_spaces()?.into_iter().filter(|space| is_copied(space)) {
            let mut after: Option<String> = None;
            loop {
                let page = self.onto.stored_facts(&space, after.as_deref(), PAGE)?;
                let Some(last) = page.last() else { break };
                after = Some(last.key.clone());
                for fact in page.into_iter().filter(|fact| !wanted.contains(&(space.clone(), fact.key.clone()))) {
                    self.onto.remove(&space, &fact.key)?;
                }
            }
        }
        Ok(())
    }

    fn ledger(&mut self) -> Result<(), Failure> {
        let forked = || Failure::new(ErrorCode::PreconditionFailed, "the two stores have different ledgers");
        let mut seq = 1;
        loop {
            let (wanted, there) = (self.from.ledger(seq, PAGE)?, self.onto.ledger(seq, PAGE)?);
            let common = wanted.len().min(there.len());
            if wanted[..common] != there[..common] || there.len() > wanted.len() {
                return Err(forked());
            }
            let Some(last) = wanted.last() else { return Ok(()) };
            seq = last.seq + 1;
            self.moved.ledger_entries += wanted.len() as u64;
            for LedgerEntry { seq, payload, chain } in wanted.into_iter().skip(common) {
                let appended =
                    self.onto.ledger_append(&mut |last| match last.map_or(0, |last| last.seq) + 1 == seq {
                        true => Ok((payload.clone(), chain)),
                        false => Err(StoreError::failed("somebody else writes the ledger")),
                    })?;
                if appended.seq != seq {
                    return Err(forked());
                }
            }
        }
    }

    /// Compares every run's head and row, and the ends of the ledgers.
    fn compare(&self) -> Result<(), Failure> {
        let mut after = RunId::from_uuid(uuid::Uuid::nil());
        loop {
            let rows = self.from.runs(&RunFilter { after: Some(after), limit: PAGE, ..RunFilter::default() })?;
            let Some(last) = rows.last() else { break };
            after = last.run_id;
            for row in rows {
                let heads: (Option<Head>, Option<Head>) = (self.from.head(row.run_id)?, self.onto.head(row.run_id)?);
                if heads.0 != heads.1 || self.onto.run(row.run_id)?.as_ref() != Some(&row) {
                    return Err(differs(row.run_id));
                }
            }
        }
        let missing = all_blobs(self.from)?.difference(&all_blobs(self.onto)?).count();
        match missing {
            0 => Ok(()),
            _ => Err(Failure::new(ErrorCode::StoreUnavailable, format!("{missing} blobs did not arrive"))),
        }
    }
}

fn is_copied(space: &str) -> bool {
    !NOT_COPIED.contains(&space)
}

fn differs(run_id: RunId) -> Failure {
    Failure::new(ErrorCode::PreconditionFailed, format!("run {run_id} differs in the target"))
        .suggest("Name an empty database, or the one that an interrupted migration was for.")
}

fn all_blobs(store: &dyn Store) -> Result<BTreeSet<String>, Failure> {
    let mut all: BTreeSet<String> = BTreeSet::new();
    loop {
        let page = store.blob_hashes(all.last().map_or("", String::as_str), PAGE)?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// Everything in a payload that looks like a SHA-256 in lowercase hexadecimal.
fn hashes_in(payload: &[u8]) -> impl Iterator<Item = &str> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let words = payload.split(move |byte| !is_digit(byte)).filter(|word| word.len() == 64);
    words.filter_map(|word| std::str::from_utf8(word).ok())
}
