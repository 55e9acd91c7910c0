//! [`Upstream`]: one server: started when it is needed, restarted with growing delays when it fails, stopped when it is
//! idle. Its tools stay in the catalog.

use super::{
    Shared,
    child::{Launcher, StderrTail},
    compare::KnownOffers,
    config::ServerConfig,
    live::{ConnectContext, LiveServer},
    mux::{Inbox, LinkError, ServerUnavailable, unknown},
    oauth::{Authorizer, RequestBlocked},
    retry_after::as_ms,
    terms::{Dialect, PluginTerms},
};
use crate::{
    RpcError,
    server::Change,
    wire::{
        self, Empty, Payload,
        upstream::{EmptyRoots, ResourceUpdated},
    },
};
use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use toolyard_catalog::ToolSource;
use toolyard_engine::{Failed, Progress, RETRY_AFTER};
use toolyard_protocol::{ErrorCode, Failure, RunId};

/// The delay after the first failed start; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest delay between two starts.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// A server that ran this long did not fail to start.
const STEADY_AFTER: Duration = Duration::from_secs(30);

/// The outcomes of the latest starts.
#[derive(Default)]
pub(super) struct Attempts {
    failures: u32,
    pub(super) not_before: Option<Instant>,
    pub(super) error: Option<String>,
    /// What lies behind the error, for logs.
    causes: Option<String>,
    started: Option<Instant>,
    /// Set if a token was missing or refused: its version. With another token, the next start need not wait.
    unauthorised: Option<u64>,
}

/// The state of one server.
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) config: ServerConfig,
    launcher: Arc<dyn Launcher>,
    /// Obtains tokens, if the server uses HTTP and no credential is configured.
    pub(super) auth: Option<Arc<Authorizer>>,
    pub(crate) terms: Option<PluginTerms>,
    /// The source of its tools in the catalog; they share the name.
    pub(super) source: ToolSource,
    /// Ids of the tools it has in the catalog.
    published: Mutex<Vec<Arc<str>>>,
    pub(crate) shared: Arc<Shared>,
    pub(super) this: Weak<Upstream>,
    live: ArcSwapOption<LiveServer>,
    /// Held while starting, so that it is done once.
    starting: tokio::sync::Mutex<()>,
    pub(super) attempts: Mutex<Attempts>,
    pub(super) offers: Mutex<KnownOffers>,
    permits: Semaphore,
    in_flight: Mutex<HashMap<u64, RunId>>,
    progress: Mutex<HashMap<u64, Progress>>,
    next: AtomicU64,
    pub(super) starts: AtomicU64,
    /// What its last process has written to its standard error.
    errors: Mutex<Arc<StderrTail>>,
    last_used: Mutex<Instant>,
    pub(super) refreshing: AtomicBool,
}

/// A call in flight: a permit, and an entry in the list of calls whose clients may be asked.
pub(crate) struct CallInFlight<'a> {
    upstream: &'a Upstream,
    pub(crate) token: u64,
    _permit: tokio::sync::SemaphorePermit<'a>,
}

impl Drop for CallInFlight<'_> {
    fn drop(&mut self) {
        lock(&self.upstream.in_flight).remove(&self.token);
        lock(&self.upstream.progress).remove(&self.token);
        *lock(&self.upstream.last_used) = Instant::now();
    }
}

impl Upstream {
    pub(crate) fn new(spec: super::ServerSpec, shared: Arc<Shared>) -> Arc<Self> {
        let super::ServerSpec { name, config, launcher, terms } = spec;
        let source = match &terms {
            Some(terms) => ToolSource::plugin(terms.plugin.as_str()),
            None => ToolSource::mcp(name.as_str()),
        };
        let auth =
            shared.tokens.get().filter(|_| terms.is_none()).and_then(|folder| Authorizer::new(&name, &config, folder));
        Arc::new_cyclic(|this| Self {
            auth,
            source,
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
            errors: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
            refreshing: AtomicBool::new(false),
        })
    }

    /// The running server, started if need be.
    pub(crate) async fn live(&self) -> Result<Arc<LiveServer>, Failure> {
        if let Some(live) = self.running() {
            return Ok(live);
        }
        let _starting = self.starting.lock().await;
        if let Some(live) = self.running() {
            return Ok(live);
        }
        {
            let attempts = lock(&self.attempts);
            let wait = attempts.not_before.and_then(|at| at.checked_duration_since(Instant::now()));
            if let Some(wait) = wait.filter(|_| !self.has_another_token(&attempts)) {
                let why = attempts.error.as_deref().unwrap_or("its last start failed");
                let failure = self.unavailable(why).detail(RETRY_AFTER, as_ms(wait));
                return Err(failure.with_causes(attempts.causes.clone()));
            }
        }
        self.starts.fetch_add(1, Ordering::Relaxed);
        let started = tokio::select! {
            started = tokio::time::timeout(self.config.start_timeout(), self.start()) => started,
            () = self.shared.stop.cancelled() => return Err(self.unavailable("Toolyard is stopping")),
        };
        match started {
            Ok(Ok(live)) => Ok(live),
            Ok(Err(unavailable)) => Err(self.failed(unavailable)),
            Err(_) => Err(self.failed(format!("it did not start within {} ms", self.config.start_timeout_ms).into())),
        }
    }

    /// Whether the last start failed because of its token, and another token exists now.
    fn has_another_token(&self, attempts: &Attempts) -> bool {
        match (&self.auth, attempts.unauthorised) {
            (Some(auth), Some(version)) => auth.version() != version,
            _ => false,
        }
    }

    /// The version of the token that was not enough, if a person must log in.
    fn need(&self, why: &str) -> Option<u64> {
        let (need, version) = self.auth.as_ref()?.need()?;
        (need == why).then_some(version)
    }

    /// Connects again if somebody has logged in.
    pub(crate) fn meet_if_authorised(&self) {
        let is_now = self.running().is_none() && self.has_another_token(&lock(&self.attempts));
        if let Some(upstream) = self.this.upgrade().filter(|_| is_now) {
            lock(&self.attempts).not_before = None;
            lock(&self.attempts).unauthorised = None;
            tokio::spawn(async move { upstream.meet().await });
        }
    }

    pub(super) fn running(&self) -> Option<Arc<LiveServer>> {
        self.live.load_full().filter(|live| !live.closed().is_cancelled())
    }

    async fn start(&self) -> Result<Arc<LiveServer>, ServerUnavailable> {
        let inbox = self.this.upgrade().ok_or_else(|| "the server is being removed".to_owned())?;
        let errors = Arc::new(StderrTail::default());
        *lock(&self.errors) = errors.clone();
        let client = if self.config.url.is_some() { Some(self.shared.http()?) } else { None };
        let live = LiveServer::open(ConnectContext {
            name: &self.name,
            config: &self.config,
            launcher: &*self.launcher,
            client,
            auth: self.auth.clone(),
            inbox: inbox.clone(),
            children: self.shared.children.clone(),
            errors,
            clock: self.shared.engine.clock().clone(),
            dialect: self.terms.as_ref().map_or(&Dialect::Mcp, |terms| &terms.dialect),
        })
        .await?;
        let live = Arc::new(live);
        let seen = live.look().await.map_err(LinkError::into_unavailable)?;
        self.adopt(seen, false).await.map_err(|failure| failure.message)?;
        self.live.store(Some(live.clone()));
        {
            let mut attempts = lock(&self.attempts);
            attempts.started = Some(Instant::now());
            attempts.not_before = None;
            attempts.error = None;
            attempts.causes = None;
            attempts.unauthorised = None;
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

    /// Records that a connection has ended, by itself or on request.
    fn ended(&self, live: &Arc<LiveServer>) {
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
        attempts.causes = self.last_errors();
        tracing::warn!(server = self.name, "an upstream server ended unexpectedly");
    }

    fn failed(&self, unavailable: ServerUnavailable) -> Failure {
        let why = unavailable.why.as_str();
        let causes: Vec<String> = unavailable.causes.into_iter().chain(self.last_errors()).collect();
        let causes = (!causes.is_empty()).then(|| causes.join("\n"));
        let wait = {
            let mut attempts = lock(&self.attempts);
            attempts.failures += 1;
            // A server may ask for a longer delay, up to a limit.
            let wait = backoff(attempts.failures).max(unavailable.retry_after.unwrap_or_default().min(MAX_BACKOFF));
            attempts.not_before = Some(Instant::now() + wait);
            attempts.error = Some(why.to_owned());
            attempts.causes.clone_from(&causes);
            attempts.unauthorised = self.need(why);
            wait
        };
        tracing::warn!(server = self.name, why, "an upstream server cannot be used");
        self.unavailable(why).detail(RETRY_AFTER, as_ms(wait)).with_causes(causes)
    }

    /// What its process wrote to its standard error last.
    pub(super) fn standard_error(&self) -> Option<String> {
        lock(&self.errors).last()
    }

    /// The same under a heading.
    pub(super) fn last_errors(&self) -> Option<String> {
        let text = self.standard_error()?;
        Some(format!("standard error of {}:\n{text}", self.name))
    }

    fn unavailable(&self, why: &str) -> Failure {
        let who = match &self.terms {
            Some(terms) => format!("the plugin {}", terms.plugin),
            None => format!("the MCP server {}", self.name),
        };
        let failure = Failure::new(ErrorCode::Unavailable, format!("{who} is not available: {why}"))
            .detail("server", self.name.as_str());
        if self.need(why).is_some() { unauthorised(failure) } else { failure.retryable(true) }
    }

    /// Ids of the tools it has in the catalog.
    pub(super) fn published(&self) -> MutexGuard<'_, Vec<Arc<str>>> {
        lock(&self.published)
    }

    /// The prefix of its prompts' names.
    pub(crate) fn prefix(&self) -> String {
        match &self.terms {
            Some(terms) => format!("{}__", terms.plugin),
            None => self.config.prefix(&self.name),
        }
    }

    /// A request of the plugins' line protocol.
    pub(crate) async fn line(&self, method: &str, params: &impl Serialize) -> Result<Value, Failure> {
        let live = self.live().await?;
        let cancel = tokio_util::sync::CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        let answer = live.request(method, params, &cancel).await;
        *lock(&self.last_used) = Instant::now();
        answer.map_err(|error| failed(&self.name, error).failure)
    }

    /// Drops a connection whose session the server has forgotten. The next use opens another; this is not a failure.
    pub(crate) fn let_go(&self, live: &Arc<LiveServer>) {
        let ours = self.live.load_full().is_some_and(|now| Arc::ptr_eq(&now, live));
        if ours {
            self.live.store(None);
        }
    }

    /// Registers a call in flight.
    pub(crate) async fn begin(
        &self,
        run_id: Option<RunId>,
        progress: Option<Progress>,
    ) -> Result<CallInFlight<'_>, Failed> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|_| Failed::new(ErrorCode::Unavailable, "the server is being removed"))?;
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(run_id) = run_id {
            lock(&self.in_flight).insert(token, run_id);
        }
        if let Some(progress) = progress {
            lock(&self.progress).insert(token, progress);
        }
        Ok(CallInFlight { upstream: self, token, _permit: permit })
    }

    /// Stops the server if it has not been used for a while.
    pub(crate) async fn stop_if_idle(&self) {
        if self.config.idle_seconds == 0 || !lock(&self.in_flight).is_empty() {
            return;
        }
        let idle = lock(&self.last_used).elapsed();
        if idle >= Duration::from_secs(self.config.idle_seconds) && self.running().is_some() {
            tracing::info!(server = self.name, "stopped because it was idle");
            self.stop().await;
        }
    }

    /// Allows the next start at once although the last one failed: a person who has fixed the problem is waiting.
    pub(crate) fn forget_failure(&self) {
        lock(&self.attempts).not_before = None;
    }

    /// Stops the server.
    pub(crate) async fn stop(&self) {
        let _starting = self.starting.lock().await;
        if let Some(live) = self.live.swap(None) {
            live.stop().await;
        }
    }

    /// Starts a server without a cache, lists what it offers, and stops it.
    pub(crate) async fn meet(&self) {
        if let Err(failure) = self.live().await {
            tracing::debug!(server = self.name, message = failure.message, "first contact failed");
        }
    }

    /// Forwards the progress of a call.
    fn progressed(&self, progress_note: wire::upstream::Progress) {
        let token = progress_note.progress_token.as_u64();
        let Some(progress) = token.and_then(|token| lock(&self.progress).get(&token).cloned()) else { return };
        match wire::object(&progress_note.step) {
            Ok(step) => progress.report(progress_note.message.unwrap_or_default(), Some(step)),
            Err(error) => tracing::warn!(server = self.name, error = error.message, "progress is not passed on"),
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
    fn notified(&self, method: &str, params: Payload) {
        match method {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.refresh(),
            "notifications/progress" => match wire::read(method, params) {
                Ok(progress) => self.progressed(progress),
                Err(error) => tracing::debug!(server = self.name, error = error.message, "progress cannot be read"),
            },
            "notifications/message" => {
                if let Some(run_id) = self.whose() {
                    self.shared.asks.tell(run_id, method, Value::Object(params));
                }
            }
            "notifications/resources/updated" => match wire::read::<ResourceUpdated>(method, params) {
                Ok(updated) => self.shared.tell(Change::Resource(super::offers::outer_uri(self, &updated.uri))),
                Err(error) => tracing::debug!(server = self.name, error = error.message, "a change cannot be read"),
            },
            _ => {}
        }
    }

    fn asked<'a>(&'a self, method: &'a str, params: Payload) -> BoxFuture<'a, Result<Value, RpcError>> {
        Box::pin(async move {
            match method {
                "ping" => wire::value(&Empty {}),
                "elicitation/create" | "sampling/createMessage" | "roots/list" => match self.whose() {
                    Some(run_id) => self.shared.asks.ask(run_id, method, Value::Object(params)).await,
                    None if method == "roots/list" => wire::value(&EmptyRoots::default()),
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

/// A failure that a person must fix; a retry cannot help.
fn unauthorised(failure: Failure) -> Failure {
    failure
        .suggest("A person logs in with `toolyard mcp login`; until then this fails each time.")
        .detail("authorisation", "needed")
        .retryable(false)
}

fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(MAX_BACKOFF)
}

/// The delay that a server asks for before a retry: `retryAfterMs` beside its error.
pub(super) fn retry_after(said: &Value) -> Option<Value> {
    said.get(RETRY_AFTER).filter(|wait| wait.is_number()).cloned()
}

/// The failure of a call whose server has ended. A server that was overloaded, or that says when to retry, has done
/// nothing; for any other the outcome is unknown.
fn unavailable_failure(
    server: &str,
    ServerUnavailable { why, causes, status, retry_after }: ServerUnavailable,
) -> Failure {
    let failure = Failure::new(ErrorCode::Unavailable, format!("{server}: {why}")).detail("server", server);
    let failure = match retry_after {
        Some(wait) => failure.detail(RETRY_AFTER, as_ms(wait)),
        None => failure,
    };
    let failure = if status == Some(StatusCode::TOO_MANY_REQUESTS) || retry_after.is_some() {
        failure.suggest("The server did nothing and asks to be called later.").retryable(true)
    } else {
        failure.suggest("The server may have done part of it; look before trying again.")
    };
    failure.with_causes(causes)
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
                if let Some(wait) = retry_after(&data) {
                    failure = failure.detail(RETRY_AFTER, wait);
                }
                failure = failure.detail("rpcData", data);
            }
            failure.into()
        }
        LinkError::Unavailable(unavailable) => unavailable_failure(server, unavailable).into(),
        LinkError::Unauthorised(blocked) => {
            let failure =
                |why| Failure::new(ErrorCode::Unavailable, format!("{server}: {why}")).detail("server", server);
            match blocked {
                RequestBlocked::Person(why) => unauthorised(failure(why)).into(),
                RequestBlocked::TemporaryFailure(why) => failure(why).retryable(true).into(),
            }
        }
        LinkError::Forgotten => Failed::new(ErrorCode::Unavailable, format!("{server}: it has forgotten our session")),
        LinkError::Cancelled => Failed::new(ErrorCode::Cancelled, "the call was stopped"),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
