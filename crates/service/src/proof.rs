//! The methods about the proof of the record: verification, receipts, the signed head, and the signing keys.

use crate::{
    Call, Handle, MethodError, NoParams, RpcError, Service, Terms, methods,
    runs::{RunsVerify, VerifyParams},
    service::blocking,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{ops::ControlFlow, path::PathBuf, sync::Arc};
use toolyard_engine::{
    Caller, Store,
    authority::Power,
    chain::Verifier,
    ledger::{
        self, FirstBad, KeyChange, KeySpan, LedgerReport, Receipt, ReceiptReport, SignedHead, VerifyOptions,
        VerifyReport, WrittenTiles,
    },
    secrets::{ProvenSecret, find_secret},
    store::{RunFilter, StoreError},
};
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId};

/// How many runs that began before a call are searched for the run of that call.
const SEARCHED_RUNS: usize = 10_000;
/// Runs looked at a time.
const RUNS_PER_PAGE: usize = 200;

methods! {
    /// Returns the signed head of the ledger, which should be stored elsewhere.
    RunsHead = "runs.head", Terms::read().everywhere(), NoParams => SignedHead;
    /// Makes the receipt of a run or of a call: the proof that it is in the ledger.
    RunsProve = "runs.prove", Terms::read().everywhere(), ProveParams => Receipt;
    /// Writes the ledger's tree as files, in the layout of C2SP tlog-tiles.
    RunsTiles = "runs.tiles", Terms::administer().uses(&[Power::HostPaths]), TilesParams => WrittenTiles;
    /// Lists the keys that signed the record.
    KeysList = "keys.list", Terms::read().everywhere(), NoParams => KeyList;
    /// Shows the keys that signed the record, with the proof of each change, so that a pinned key leads to the others.
    KeysChain = "keys.chain", Terms::read().everywhere(), NoParams => KeyChain;
    /// Replaces the key that signs the record; the old key signs the new one.
    KeysRotate = "keys.rotate", Terms::administer(), NoParams => KeyList;
}

/// The subject of a receipt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProveParams {
    /// A run, or a call.
    pub id: RunId,
}

/// The target of the tree's files.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TilesParams {
    /// The folder, made if missing.
    pub out: PathBuf,
}

/// The keys that signed the record, the present one last.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyList {
    /// The keys.
    pub keys: Vec<KeySpan>,
}

/// The keys that signed the record, with the proof of each change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyChain {
    /// The keys, the present one last.
    pub keys: Vec<KeySpan>,
    /// The changes between them, the oldest first.
    pub changes: Vec<KeyChange>,
}

/// What verification found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Verified {
    /// The result for a receipt.
    Receipt(Box<ReceiptReport>),
    /// The result for one run.
    Run(Box<VerifyReport>),
    /// The result for everything.
    Ledger(Box<LedgerReport>),
}

/// The files that a process keeps beside the store for the proof of its record.
pub trait ProofKeeper: Send + Sync + 'static {
    /// The name and the content of the file of heads; no content where there is no file.
    fn kept_heads(&self) -> (String, Option<String>);
    /// Creates a new signing key and stores it separately from the current one.
    fn make_key(&self) -> Result<[u8; 32], Failure>;
    /// Makes the new key the current one.
    fn use_key(&self) -> Result<(), StoreError>;
}

impl Service {
    /// Sets what is kept beside the store; the first to be set stays.
    pub fn keep_proof(&self, keeper: Arc<dyn ProofKeeper>) {
        if self.proof_keeper_slot().set(keeper).is_err() {
            tracing::error!("the proof of the record is kept already");
        }
    }
}

/// The heads to compare with: those beside the store, and those that the caller sent.
fn options(
    keeper: Option<&Arc<dyn ProofKeeper>>,
    given: Option<&str>,
    is_shared: bool,
) -> Result<VerifyOptions, Failure> {
    let mut options = VerifyOptions::default();
    if let Some((name, content)) = keeper.map(|keeper| keeper.kept_heads()) {
        match content.as_deref().map(|text| ledger::read_heads(&name, text)) {
            // Each node of a cluster has a file of its own, which begins when the node joins.
            None if is_shared => {}
            None => {
                let problem = "the file of heads is missing: it was removed".to_owned();
                options.found = Some(FirstBad::heads_file(&name, problem));
            }
            // The first head is written a moment after the first entry; whether one may be missing is checked later.
            Some(_) if content.as_deref().is_some_and(|text| text.trim().is_empty()) => {}
            Some(Ok(heads)) => options.heads = heads,
            Some(Err(problem)) => options.found = Some(FirstBad::heads_file(&name, problem)),
        }
        options.kept = options.heads.len();
        options.name = (!is_shared).then_some(name);
    }
    if let Some(given) = given {
        let unreadable = |problem| {
            Failure::new(ErrorCode::ValidationError, problem)
                .suggest("Give what `toolyard runs head --json` printed, or the signed note in it.")
        };
        options.heads.extend(ledger::read_heads("the given head", given).map_err(unreadable)?);
    }
    Ok(options)
}

fn read_receipt(text: &str) -> Result<Receipt, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::new(ErrorCode::ValidationError, format!("this is not a receipt: {error}"))
            .suggest("Give a file that `toolyard runs prove` wrote.")
    })
}

impl Handle<RunsVerify> for Service {
    async fn handle(&self, _: &Call<'_>, params: VerifyParams) -> Result<Verified, MethodError> {
        self.engine().seal().await?;
        let store = self.engine().store().clone();
        let verifier = self.verifier();
        let keeper = self.proof_keeper_slot().get().cloned();
        blocking(move || {
            store.settle()?;
            if let Some(text) = &params.receipt {
                let receipt = read_receipt(text)?;
                let keys = ledger::keys(&*store, &verifier)?;
                let keys: Vec<Verifier> = keys.iter().filter_map(|span| Verifier::parse(&span.key)).collect();
                return Ok(Verified::Receipt(Box::new(ledger::verify_receipt(&receipt, &keys))));
            }
            let everything = || -> Result<_, MethodError> {
                let options = options(keeper.as_ref(), params.head.as_deref(), store.is_shared())?;
                Ok(ledger::verify_ledger(&*store, &verifier, &options)?)
            };
            let Some(run_id) = params.run_id else { return Ok(Verified::Ledger(Box::new(everything()?))) };
            if params.head.is_some() {
                let report = everything()?;
                if !report.ok {
                    return Ok(Verified::Ledger(Box::new(report)));
                }
            }
            let mut report = ledger::verify_run(&*store, run_id, &verifier)?;
            if let Some(secret) = &params.secret {
                report.secret_arguments = Some(held_secret(&*store, run_id, &verifier, secret)?);
            }
            Ok(Verified::Run(Box::new(report)))
        })
        .await
    }
}

/// The arguments that held a secret: the text itself, or the value that it is the JSON of.
fn held_secret(
    store: &dyn Store,
    run_id: RunId,
    verifier: &Verifier,
    secret: &str,
) -> Result<Vec<ProvenSecret>, Failure> {
    let found = find_secret(store, run_id, verifier, &secret.into())?;
    match serde_json::from_str(secret) {
        Ok(value) if found.is_empty() => find_secret(store, run_id, verifier, &value),
        _ => Ok(found),
    }
}

impl Handle<RunsHead> for Service {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<SignedHead, MethodError> {
        self.engine().seal().await?;
        let sealer = self.engine().sealer().clone();
        let head = blocking(move || Ok::<_, MethodError>(sealer.head()?)).await?;
        Ok(head.ok_or_else(|| Failure::new(ErrorCode::NotFound, "the ledger is empty: no run has ended yet"))?)
    }
}

impl Handle<RunsProve> for Service {
    async fn handle(&self, call: &Call<'_>, params: ProveParams) -> Result<Receipt, MethodError> {
        self.engine().seal().await?;
        let (engine, caller) = (self.engine().clone(), call.caller.clone());
        let store = self.engine().store().clone();
        let signer = self.engine().signer().clone();
        blocking(move || {
            store.settle()?;
            let run_id = params.id;
            if store.run(run_id)?.is_some() && engine.check_run(&caller, run_id).is_ok() {
                return Ok(Receipt::make(&*store, &signer, run_id, None)?);
            }
            let call_id = CallId::from_uuid(*params.id.as_uuid());
            if let Some(run_id) = run_of_call(&*store, &caller, call_id)? {
                return Ok(Receipt::make(&*store, &signer, run_id, Some(call_id))?);
            }
            // A run that was removed still has its leaf.
            let unknown = || {
                Failure::new(ErrorCode::NotFound, format!("there is no run and no call {call_id}"))
                    .suggest("Name the run: `toolyard runs list` shows them.")
            };
            if store.run(run_id)?.is_some() || engine.check_run(&caller, run_id).is_err() {
                return Err(unknown().into());
            }
            Receipt::make(&*store, &signer, run_id, None)
                .map_err(|failure| if failure.code == ErrorCode::NotFound { unknown() } else { failure }.into())
        })
        .await
    }
}

/// The run that made a call: ids sort by time, so it is one of those that began before the call.
fn run_of_call(store: &dyn Store, caller: &Caller, call_id: CallId) -> Result<Option<RunId>, StoreError> {
    let wanted = call_id.to_string();
    let mut before = Some(RunId::from_uuid(*call_id.as_uuid()));
    for _ in 0..SEARCHED_RUNS / RUNS_PER_PAGE {
        let workspace = Some(caller.workspace.clone());
        let rows = store.runs(&RunFilter { before, workspace, limit: RUNS_PER_PAGE, ..RunFilter::default() })?;
        let Some(last) = rows.last() else { return Ok(None) };
        before = Some(last.run_id);
        for row in &rows {
            let mut found = false;
            store.frames(row.run_id, 1, &mut |frame| {
                found = std::str::from_utf8(&frame.payload).is_ok_and(|payload| payload.contains(&wanted));
                if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if found {
                return Ok(Some(row.run_id));
            }
        }
    }
    Ok(None)
}

impl Handle<RunsTiles> for Service {
    async fn handle(&self, _: &Call<'_>, params: TilesParams) -> Result<WrittenTiles, MethodError> {
        self.engine().seal().await?;
        let (store, verifier) = (self.engine().store().clone(), self.verifier());
        blocking(move || Ok::<_, MethodError>(ledger::write_tiles(&*store, &verifier, &params.out)?)).await
    }
}

impl Handle<KeysList> for Service {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<KeyList, MethodError> {
        let (store, verifier) = (self.engine().store().clone(), self.verifier());
        blocking(move || Ok::<_, MethodError>(KeyList { keys: ledger::keys(&*store, &verifier)? })).await
    }
}

impl Handle<KeysChain> for Service {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<KeyChain, MethodError> {
        let (store, verifier) = (self.engine().store().clone(), self.verifier());
        blocking(move || {
            let keys = ledger::keys(&*store, &verifier)?;
            Ok::<_, MethodError>(KeyChain { keys, changes: ledger::key_changes(&*store, &verifier)? })
        })
        .await
    }
}

impl Handle<KeysRotate> for Service {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<KeyList, MethodError> {
        let keeper = self.proof_keeper_slot().get().cloned();
        let keeper = keeper.ok_or_else(|| RpcError::unavailable("this process keeps no signing key"))?;
        let (sealer, store, signer) =
            (self.engine().sealer().clone(), self.engine().store().clone(), self.engine().signer().clone());
        blocking(move || {
            store.settle()?;
            let secret = keeper.make_key()?;
            sealer.rotate(&secret, &|| keeper.use_key())?;
            Ok(KeyList { keys: ledger::keys(&*store, &signer.verifier())? })
        })
        .await
    }
}
