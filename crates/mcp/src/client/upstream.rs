//! [`Upstream`]: one server, started when it is needed, started again (not too often) when it fails, stopped when nobody
//! needs it. Its tools are there all the while.

use super::{
    Shared,
    child::Launcher,
    config::{Pinning, ServerConfig},
    define::{self, Defined},
    live::{Live, Opening},
    mux::{Inbox, LinkError, unknown},
    pins::{Pin, Pins, Seen},
    terms::{Dialect, HookInterest, PluginTerms},
};
use crate::{RpcError, headers::Mirrored, server::Change};
use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use toolyard_catalog::ToolEntry;
use toolyard_engine::{Failed, Progress};
use toolyard_protocol::{ErrorCode, Failure, RunId};

/// The pause after a first failed start; it doubles with each further one,
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// up to this.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// A server that ran this long had not failed to start.
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// A list that changes is asked for again after this long, so that many changes are one.
const SETTLE: Duration = Duration::from_millis(50);
/// Lists of prompts and resources older than this are asked for again when somebody looks.
const LISTS_FRESH: Duration = Duration::from_secs(30);

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It answers, or would if asked.
    Healthy,
    /// It answers, but something is held back or left out.
    Degraded,
    /// It does not answer.
    Unavailable,
}

/// A server as people are shown it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// `healthy`, `degraded` or `unavailable`.
    pub status: Health,
    /// Whether it runs now.
    pub running: bool,
    /// The child's process, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Tools that can be called.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Resources.
    pub resources: usize,
    /// Tools held back until a person approves them.
    pub withheld: Vec<Withheld>,
    /// Tools left out, and why.
    pub left_out: Vec<LeftOut>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Milliseconds until it may be started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// Times it was started.
    pub starts: u64,
    /// The plugin it belongs to, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// What it says about its own health.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub health: Value,
    /// The revision spoken, once it has been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A tool held back.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Withheld {
    /// The name the server knows it by.
    pub tool: String,
    /// `changed` or `new`.
    pub why: &'static str,
    /// What it says now.
    pub description: String,
    /// What it said when it was approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_description: Option<String>,
    /// The hash to approve.
    pub hash: String,
}

/// A tool left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub tool: String,
    /// Why.
    pub reason: String,
}

/// What is known of a server's offers.
#[derive(Default)]
struct Offers {
    /// By the name in the catalog.
    tools: HashMap<String, Known>,
    prompts: Arc<Vec<Value>>,
    resources: Arc<Vec<Value>>,
    templates: Arc<Vec<Value>>,
    withheld: Vec<Withheld>,
    left_out: Vec<LeftOut>,
    hooks: Vec<HookInterest>,
    health: Value,
    looked: Option<Instant>,
    protocol: Option<String>,
}

/// A tool as calls need it.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) original: Arc<str>,
    pub(crate) mirrored: Arc<[Mirrored]>,
    /// As JSON: it is read when a list is written, and there may be thousands.
    extras: Option<Arc<str>>,
}

impl Known {
    /// What the catalog does not hold.
    pub(crate) fn extras(&self) -> Option<Arc<Map<String, Value>>> {
        serde_json::from_str(self.extras.as_ref()?).ok().map(Arc::new)
    }
}

/// How starting went lately.
#[derive(Default)]
struct Attempts {
    failures: u32,
    not_before: Option<Instant>,
    error: Option<String>,
    started: Option<Instant>,
}

/// One server.
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) config: ServerConfig,
    launcher: Arc<dyn Launcher>,
    pub(crate) terms: Option<PluginTerms>,
    /// Ids of the tools it has in the catalog.
    pub(crate) published: Mutex<Vec<String>>,
    pub(crate) shared: Arc<Shared>,
    this: Weak<Upstream>,
    live: ArcSwapOption<Live>,
    /// Held while starting, so that it is done once.
    starting: tokio::sync::Mutex<()>,
    attempts: Mutex<Attempts>,
    offers: Mutex<Offers>,
    permits: Semaphore,
    in_flight: Mutex<HashMap<u64, RunId>>,
    progress: Mutex<HashMap<u64, Progress>>,
    next: AtomicU64,
    starts: AtomicU64,
    last_used: Mutex<Instant>,
    refreshing: AtomicBool,
}

/// A call under way: a permit, and a place among those that may be asked.
pub(crate) struct Under<'a> {
    upstream: &'a Upstream,
    pub(crate) token: u64,
    _permit: tokio::sync::SemaphorePermit<'a>,
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        lock(&self.upstream.in_flight).remove(&self.token);
        lock(&self.upstream.progress).remove(&self.token);
        *lock(&self.upstream.last_used) = Instant::now();
    }
}

impl Upstream {
    pub(crate) fn new(spec: super::ServerSpec, shared: Arc<Shared>) -> Arc<Self> {
        let super::ServerSpec { name, config, launcher, terms } = spec;
        Arc::new_cyclic(|this| Self {
            name,
            terms,
            published: Mutex::default(),
            permits: Semaphore::new(config.max_concurrent),
            config,
            launcher,
            shared,
            this: this.clone(),
            live: ArcSwapOption::empty(),
            starting: tokio::sync::Mutex::new(()),
            attempts: Mutex::default(),
            offers: Mutex::default(),
            in_flight: Mutex::default(),
            progress: Mutex::default(),
            next: AtomicU64::new(1),
            starts: AtomicU64::new(0),
            last_used: Mutex::new(Instant::now()),
            refreshing: AtomicBool::new(false),
        })
    }

    /// The running server, started if need be.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, Failure> {
        if let Some(live) = self.running() {
            return Ok(live);
        }
        let _starting = self.starting.lock().await;
        if let Some(live) = self.running() {
            return Ok(live);
        }
        {
            let attempts = lock(&self.attempts);
            if let Some(wait) = attempts.not_before.and_then(|at| at.checked_duration_since(Instant::now())) {
                let why = attempts.error.clone().unwrap_or_default();
                return Err(self.unavailable(&why).detail("retryAfterMs", wait.as_millis() as u64));
            }
        }
        self.starts.fetch_add(1, Ordering::Relaxed);
        let started = tokio::select! {
            started = tokio::time::timeout(self.config.start_timeout(), self.start()) => started,
            () = self.shared.stop.cancelled() => return Err(self.unavailable("Toolyard is stopping")),
        };
        match started {
            Ok(Ok(live)) => Ok(live),
            Ok(Err(why)) => Err(self.failed(&why)),
            Err(_) => Err(self.failed(&format!("it did not start within {} ms", self.config.start_timeout_ms))),
        }
    }

    fn running(&self) -> Option<Arc<Live>> {
        self.live.load_full().filter(|live| !live.closed().is_cancelled())
    }

    async fn start(&self) -> Result<Arc<Live>, String> {
        let inbox = self.this.upgrade().ok_or("the server is being removed")?;
        let client = if self.config.url.is_some() { Some(self.shared.http()?) } else { None };
        let live = Live::open(Opening {
            name: &self.name,
            config: &self.config,
            launcher: &*self.launcher,
            client,
            inbox: inbox.clone(),
            children: self.shared.children.clone(),
            dialect: self.terms.as_ref().map_or(&Dialect::Mcp, |terms| &terms.dialect),
        })
        .await?;
        let live = Arc::new(live);
        let seen = live.look().await.map_err(|error| RpcError::from(error).message)?;
        self.adopt(seen, false).await.map_err(|failure| failure.message)?;
        self.live.store(Some(live.clone()));
        {
            let mut attempts = lock(&self.attempts);
            attempts.started = Some(Instant::now());
            attempts.not_before = None;
            attempts.error = None;
        }
        *lock(&self.last_used) = Instant::now();
        let (upstream, watched) = (self.this.clone(), live.clone());
        tokio::spawn(async move {
            watched.closed().cancelled().await;
            if let Some(upstream) = upstream.upgrade() {
                upstream.ended(&watched);
            }
        });
        Ok(live)
    }

    /// Notes that a connection has ended, by itself or by us.
    fn ended(&self, live: &Arc<Live>) {
        let was_ours = self.live.load_full().is_some_and(|now| Arc::ptr_eq(&now, live));
        if !was_ours {
            return; // stopped on purpose
        }
        self.live.store(None);
        let mut attempts = lock(&self.attempts);
        let was_steady = attempts.started.is_some_and(|at| at.elapsed() >= STEADY_AFTER);
        attempts.failures = if was_steady { 1 } else { attempts.failures + 1 };
        attempts.not_before = Some(Instant::now() + backoff(attempts.failures));
        attempts.error = Some("the server ended unexpectedly".to_owned());
        tracing::warn!(server = self.name, "an upstream server ended unexpectedly");
    }

    fn failed(&self, why: &str) -> Failure {
        let wait = {
            let mut attempts = lock(&self.attempts);
            attempts.failures += 1;
            let wait = backoff(attempts.failures);
            attempts.not_before = Some(Instant::now() + wait);
            attempts.error = Some(why.to_owned());
            wait
        };
        tracing::warn!(server = self.name, why, "an upstream server cannot be used");
        self.unavailable(why).detail("retryAfterMs", wait.as_millis() as u64)
    }

    fn unavailable(&self, why: &str) -> Failure {
        let who = match &self.terms {
            Some(terms) => format!("the plugin {}", terms.plugin),
            None => format!("the MCP server {}", self.name),
        };
        Failure::new(ErrorCode::Unavailable, format!("{who} is not available: {why}"))
            .detail("server", self.name.as_str())
            .retryable(true)
    }

    /// Takes what a server offers: compares with what was approved, and puts the rest into the catalog.
    /// `restored` when it comes from memory.
    pub(crate) async fn adopt(&self, seen: Seen, restored: bool) -> Result<(), Failure> {
        if let Some(batch) = self.weigh(seen, restored).await? {
            self.shared.publish(vec![(self.this.clone(), batch)])?;
        }
        Ok(())
    }

    /// Compares with what was approved. Gives the tools for the catalog.
    pub(crate) async fn weigh(&self, seen: Seen, restored: bool) -> Result<Option<Vec<ToolEntry>>, Failure> {
        let Some(this) = self.this.upgrade() else { return Ok(None) };
        let broken = || Failure::new(ErrorCode::InternalError, "an upstream server's tools could not be taken in");
        tokio::task::spawn_blocking(move || this.weigh_now(seen, restored)).await.map_err(|_| broken())?.map(Some)
    }

    fn weigh_now(&self, seen: Seen, restored: bool) -> Result<Vec<ToolEntry>, Failure> {
        let memory = &self.shared.memory;
        let known = memory.pins(&self.name)?;
        let is_first = known.is_none();
        let mut pins = known.unwrap_or_default();
        let before = pins.clone();
        let mut offers = Offers {
            prompts: Arc::new(seen.prompts.clone()),
            resources: Arc::new(seen.resources.clone()),
            templates: Arc::new(seen.templates.clone()),
            hooks: seen.hooks.clone(),
            health: seen.health.clone(),
            looked: (!restored).then(Instant::now),
            protocol: Some(seen.protocol.clone()),
            ..Offers::default()
        };
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        for tool in &seen.tools {
            let original = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let leave_out = |offers: &mut Offers, reason: String| {
                tracing::info!(server = self.name, tool = original, reason, "an upstream tool is left out");
                offers.left_out.push(LeftOut { tool: original.chars().take(128).collect(), reason });
            };
            if self.terms.as_ref().is_some_and(|terms| !terms.declared.contains(&original)) {
                leave_out(&mut offers, format!("plugin must declare contracts.tools for: {original}"));
                continue;
            }
            if let Some(withheld) = self.hold_back(tool, &original, is_first, &mut pins) {
                offers.withheld.push(withheld);
                continue;
            }
            let defined = match define::define(&self.name, &self.config, self.terms.as_ref(), tool) {
                Ok(defined) => defined,
                Err(reason) => {
                    leave_out(&mut offers, reason);
                    continue;
                }
            };
            let Defined { entry, original, extras, mirrored } = defined;
            let name = entry.name().to_string();
            if self.shared.is_taken(&name, entry.source()) || !names.insert(name.clone()) {
                leave_out(&mut offers, format!("the name {name} is taken"));
                continue;
            }
            let known = Known {
                original: original.into(),
                mirrored: mirrored.into(),
                extras: (!extras.is_empty()).then(|| Value::Object(extras).to_string().into()),
            };
            offers.tools.insert(name, known);
            entries.push(entry);
        }
        for missing in self.terms.iter().flat_map(|terms| &terms.expected) {
            if !seen.tools.iter().any(|tool| tool.get("name").and_then(Value::as_str) == Some(missing)) {
                let reason = "declared in contracts.tools, but the plugin did not register it".to_owned();
                offers.left_out.push(LeftOut { tool: missing.clone(), reason });
            }
        }
        if pins != before || is_first {
            memory.keep_pins(&self.name, &pins)?;
        }
        if !restored {
            let seen = Seen { at: Some(Timestamp::now()), ..seen };
            memory.keep_seen(&self.name, &seen)?;
        }
        *lock(&self.offers) = offers;
        Ok(entries)
    }

    /// Whether a tool must wait for a person. Pins it where nobody has to be asked.
    fn hold_back(
        &self,
        tool: &Map<String, Value>,
        original: &str,
        is_first: bool,
        pins: &mut Pins,
    ) -> Option<Withheld> {
        if self.config.pin == Pinning::Off {
            return None;
        }
        let hash = define::pin_of(tool);
        let says = tool.get("description").and_then(Value::as_str).unwrap_or_default();
        let description: String = says.chars().take(2000).collect();
        let approved = pins.get(original);
        if approved.is_some_and(|pin| pin.hash == hash) {
            return None;
        }
        let must_ask = approved.is_some() || (self.config.pin == Pinning::All && !is_first);
        if must_ask {
            let why = if approved.is_some() { "changed" } else { "new" };
            let approved_description = approved.map(|pin| pin.description.clone());
            return Some(Withheld { tool: original.to_owned(), why, description, approved_description, hash });
        }
        pins.insert(original.to_owned(), Pin { hash, at: Timestamp::now(), by: "first seen".to_owned(), description });
        None
    }

    /// A person approves tools that are held back: those named, or all. Gives their names.
    pub(crate) async fn approve(&self, tools: &[String], by: &str) -> Result<Vec<String>, Failure> {
        let withheld = lock(&self.offers).withheld.clone();
        let chosen: Vec<Withheld> =
            withheld.iter().filter(|w| tools.is_empty() || tools.contains(&w.tool)).cloned().collect();
        if let Some(missing) = tools.iter().find(|t| !withheld.iter().any(|w| w.tool == **t)) {
            return Err(Failure::new(ErrorCode::NotFound, format!("{} holds back no tool {missing:?}", self.name))
                .suggest("`toolyard mcp servers` lists what is held back."));
        }
        let memory = self.shared.memory.clone();
        let (name, by) = (self.name.clone(), by.to_owned());
        let names: Vec<String> = chosen.iter().map(|w| w.tool.clone()).collect();
        let seen = tokio::task::spawn_blocking(move || {
            let mut pins = memory.pins(&name)?.unwrap_or_default();
            for w in chosen {
                let pin = Pin { hash: w.hash, at: Timestamp::now(), by: by.clone(), description: w.description };
                pins.insert(w.tool, pin);
            }
            memory.keep_pins(&name, &pins)?;
            memory.seen(&name)
        })
        .await
        .map_err(|_| Failure::new(ErrorCode::InternalError, "the approval could not be kept"))??;
        if let Some(seen) = seen {
            self.adopt(seen, true).await?;
        }
        Ok(names)
    }

    /// What stands before its prompts' names.
    pub(crate) fn prefix(&self) -> String {
        match &self.terms {
            Some(terms) => format!("{}__", terms.plugin),
            None => self.config.prefix(&self.name),
        }
    }

    /// Hooks it registered, when last seen.
    pub(crate) fn hooks(&self) -> Vec<HookInterest> {
        lock(&self.offers).hooks.clone()
    }

    /// A request of the plugins' line protocol.
    pub(crate) async fn line(&self, method: &str, params: Value) -> Result<Value, Failure> {
        let live = self.live().await?;
        let cancel = tokio_util::sync::CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        let answer = live.request(method, params, &cancel).await;
        *lock(&self.last_used) = Instant::now();
        answer.map_err(|error| failed(&self.name, error).failure)
    }

    /// Notes what it says about its health.
    pub(crate) fn note_health(&self, health: Value) {
        lock(&self.offers).health = health;
    }

    /// A tool by its name in the catalog.
    pub(crate) fn known(&self, name: &str) -> Option<Known> {
        lock(&self.offers).tools.get(name).cloned()
    }

    /// Lets go of a connection whose session the server has forgotten. The next use opens another; that is no failure.
    pub(crate) fn let_go(&self, live: &Arc<Live>) {
        let ours = self.live.load_full().is_some_and(|now| Arc::ptr_eq(&now, live));
        if ours {
            self.live.store(None);
        }
    }

    /// Takes a place among the calls under way.
    pub(crate) async fn begin(&self, run_id: Option<RunId>, progress: Option<Progress>) -> Result<Under<'_>, Failed> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|_| Failed::new(ErrorCode::Unavailable, "the server is being removed"))?;
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(run_id) = run_id {
            lock(&self.in_flight).insert(token, run_id);
        }
        if let Some(progress) = progress {
            lock(&self.progress).insert(token, progress);
        }
        Ok(Under { upstream: self, token, _permit: permit })
    }

    /// Lists, as last seen. Old ones are asked for again, for the next time.
    pub(crate) fn prompts(&self) -> Arc<Vec<Value>> {
        self.refresh_if_old();
        lock(&self.offers).prompts.clone()
    }
    pub(crate) fn resources(&self) -> (Arc<Vec<Value>>, Arc<Vec<Value>>) {
        self.refresh_if_old();
        let offers = lock(&self.offers);
        (offers.resources.clone(), offers.templates.clone())
    }

    fn refresh_if_old(&self) {
        let old = lock(&self.offers).looked.is_some_and(|at| at.elapsed() > LISTS_FRESH);
        if old {
            self.refresh();
        }
    }

    /// Looks again at what a running server offers, soon and once.
    fn refresh(&self) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.this.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE).await;
            let Some(upstream) = this.upgrade() else { return };
            upstream.refreshing.store(false, Ordering::Release);
            let Some(live) = upstream.running() else { return };
            let (before_prompts, before_resources) = {
                let offers = lock(&upstream.offers);
                (offers.prompts.clone(), offers.resources.clone())
            };
            let looked = tokio::time::timeout(upstream.config.start_timeout(), live.look()).await;
            match looked {
                Ok(Ok(seen)) => {
                    let changed = [
                        (seen.prompts != *before_prompts, Change::Prompts),
                        (seen.resources != *before_resources, Change::Resources),
                    ];
                    if let Err(failure) = upstream.adopt(seen, false).await {
                        tracing::warn!(server = upstream.name, %failure, "changed tools could not be taken in");
                    }
                    for (_, change) in changed.into_iter().filter(|(changed, _)| *changed) {
                        upstream.shared.tell(change);
                    }
                }
                Ok(Err(error)) => {
                    let error = RpcError::from(error).message;
                    tracing::warn!(server = upstream.name, error, "a changed list could not be read");
                }
                Err(_) => tracing::warn!(server = upstream.name, "a changed list did not come in time"),
            }
        });
    }

    /// Stops it when nobody has used it for a while.
    pub(crate) async fn stop_if_idle(&self) {
        if self.config.idle_seconds == 0 || !lock(&self.in_flight).is_empty() {
            return;
        }
        let idle = lock(&self.last_used).elapsed();
        if idle >= Duration::from_secs(self.config.idle_seconds) && self.running().is_some() {
            tracing::info!(server = self.name, "stopped: nobody uses it");
            self.stop().await;
        }
    }

    /// Stops it.
    pub(crate) async fn stop(&self) {
        let _starting = self.starting.lock().await;
        if let Some(live) = self.live.swap(None) {
            live.stop().await;
        }
    }

    /// Asks a server that never was seen what it offers, and lets it go again.
    pub(crate) async fn meet(&self) {
        if let Err(failure) = self.live().await {
            tracing::debug!(server = self.name, message = failure.message, "first contact failed");
        }
    }

    /// As people are shown it.
    pub(crate) fn status(&self) -> ServerStatus {
        let live = self.running();
        let attempts = lock(&self.attempts);
        let offers = lock(&self.offers);
        let waits = attempts.not_before.and_then(|at| at.checked_duration_since(Instant::now()));
        let status = match (&live, &attempts.error) {
            (None, Some(_)) => Health::Unavailable,
            _ if offers.health.get("status").and_then(Value::as_str) == Some("unavailable") => Health::Unavailable,
            _ if offers.health.get("status").and_then(Value::as_str) == Some("degraded") => Health::Degraded,
            _ if !offers.withheld.is_empty() || !offers.left_out.is_empty() => Health::Degraded,
            _ => Health::Healthy,
        };
        ServerStatus {
            name: self.name.clone(),
            status,
            running: live.is_some(),
            pid: live.as_ref().and_then(|live| live.pid()),
            tools: offers.tools.len(),
            prompts: offers.prompts.len(),
            resources: offers.resources.len(),
            withheld: offers.withheld.clone(),
            left_out: offers.left_out.clone(),
            error: attempts.error.clone(),
            retry_in_ms: waits.filter(|_| live.is_none()).map(|wait| wait.as_millis() as u64),
            starts: self.starts.load(Ordering::Relaxed),
            plugin: self.terms.as_ref().map(|terms| terms.plugin.clone()),
            health: offers.health.clone(),
            protocol: live.map(|l| l.revision().as_str().to_owned()).or_else(|| offers.protocol.clone()),
        }
    }

    /// The run a request of the server belongs to, as far as that can be known.
    fn whose(&self) -> Option<RunId> {
        let runs: BTreeMap<u64, RunId> = lock(&self.in_flight).iter().map(|(k, v)| (*k, *v)).collect();
        let runs: Vec<RunId> = runs.into_values().collect();
        self.shared.asks.only_client(&runs)
    }
}

impl Inbox for Upstream {
    fn notified(&self, method: &str, params: Map<String, Value>) {
        match method {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.refresh(),
            "notifications/progress" => {
                let token = params.get("progressToken").and_then(Value::as_u64);
                let progress = token.and_then(|token| lock(&self.progress).get(&token).cloned());
                if let Some(progress) = progress {
                    let message = params.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
                    let kept = ["progress", "total"].into_iter();
                    let payload = kept.filter_map(|k| Some((k.to_owned(), params.get(k)?.clone()))).collect();
                    progress.report(message, Some(payload));
                }
            }
            "notifications/message" => {
                if let Some(run_id) = self.whose() {
                    self.shared.asks.tell(run_id, method, Value::Object(params));
                }
            }
            "notifications/resources/updated" => {
                if let Some(uri) = params.get("uri").and_then(Value::as_str) {
                    self.shared.tell(Change::Resource(super::offers::outer_uri(self, uri)));
                }
            }
            _ => {}
        }
    }

    fn asked<'a>(&'a self, method: &'a str, params: Map<String, Value>) -> BoxFuture<'a, Result<Value, RpcError>> {
        Box::pin(async move {
            match method {
                "ping" => Ok(json!({})),
                "elicitation/create" | "sampling/createMessage" | "roots/list" => match self.whose() {
                    Some(run_id) => self.shared.asks.ask(run_id, method, Value::Object(params)).await,
                    None if method == "roots/list" => Ok(json!({"roots": []})),
                    None => Err(RpcError::new(
                        crate::jsonrpc::METHOD_NOT_FOUND,
                        "there is no client this question could be put to",
                    )),
                },
                _ => Err(unknown(method)),
            }
        })
    }
}

fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(MAX_BACKOFF)
}

/// A link's error as a call's.
pub(crate) fn failed(server: &str, error: LinkError) -> Failed {
    match error {
        LinkError::Rpc(error) => {
            let code = match error.code {
                crate::jsonrpc::INVALID_PARAMS => ErrorCode::ValidationError,
                _ => ErrorCode::InternalError,
            };
            let message: String = error.message.chars().take(4000).collect();
            let mut failure = Failure::new(code, format!("{server}: {message}")).detail("rpcCode", error.code);
            if let Some(data) = error.data {
                failure = failure.detail("rpcData", data);
            }
            failure.into()
        }
        LinkError::Gone(why) => Failure::new(ErrorCode::Unavailable, format!("{server}: {why}"))
            .suggest("The server may have done part of it; look before trying again.")
            .detail("server", server)
            .into(),
        LinkError::Forgotten => Failed::new(ErrorCode::Unavailable, format!("{server}: it has forgotten our session")),
        LinkError::Cancelled => Failed::new(ErrorCode::Cancelled, "the call was stopped"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
