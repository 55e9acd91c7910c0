//! Upstream MCP servers as tools, prompts and resources.
//!
//! [`Upstreams`] holds all servers. At start, their tools come from the stored catalogs; a call starts its server if it
//! is not running. No server waits for another.

mod child;
mod compare;
mod config;
mod define;
mod definition;
mod http;
mod lines;
mod live;
mod mux;
mod oauth;
mod offers;
mod old_sse;
mod pins;
mod pipe;
mod questions;
mod retry_after;
mod sse;
mod status;
mod terms;
mod upstream;

pub use child::{ChildSpec, Launcher, PlainLauncher};
pub use config::{
    GrantKind, LimitsConfig, MAX_SERVER_NAME, OauthConfig, Pinning, RevisionChoice, SandboxConfig, ServerConfig,
    Transport, Trust,
};
pub use definition::Definition;
pub use oauth::{Login, PendingLogin, logout};
pub use status::{
    Approved, Health, OmittedTool, ServerSandbox, ServerStatus, ShownDefinition, WithheldReason, WithheldTool,
};
pub use terms::{Dialect, HookInterest, PluginTerms, ToolTerms};

use crate::wire::{
    Empty,
    upstream::{CallResult, Question, ToolDetails},
};
use crate::{
    ClientRoutes,
    server::{Change, ToolExtras},
};
use live::CallRoute;
use mux::LinkError;
use pins::PinStore;
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak},
    time::Duration,
};
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolyard_catalog::{ToolEntry, ToolSource};
use toolyard_engine::{BoxFuture, CallContext, Engine, Failed, Output, Prepared, Provider, RETRY_AFTER, ToolExchange};
use toolyard_protocol::{ErrorCode, Failure, ToolCall};
use upstream::Upstream;

/// How often idle servers are looked for.
const LOOK_FOR_IDLE: Duration = Duration::from_secs(1);
/// How long the last child processes may take to end.
const CHILDREN_GO: Duration = Duration::from_secs(5);
/// Maximum number of new servers that are started at the same time.
const MEET_AT_ONCE: usize = 4;

/// A server to take in.
pub struct ServerSpec {
    /// Its name, unique among all.
    pub name: String,
    /// The configuration of the server.
    pub config: ServerConfig,
    /// What starts its process.
    pub launcher: Arc<dyn Launcher>,
    /// The terms of the plugin's manifest, if the server belongs to one.
    pub terms: Option<PluginTerms>,
}

impl ServerSpec {
    /// A configured server, started without a sandbox.
    pub fn plain(name: impl Into<String>, config: ServerConfig) -> Self {
        Self { name: name.into(), config, launcher: Arc::new(PlainLauncher), terms: None }
    }
}

/// What all servers share.
pub(crate) struct Shared {
    engine: Engine,
    pub(crate) memory: PinStore,
    pub(crate) asks: ClientRoutes,
    teller: OnceLock<broadcast::Sender<Change>>,
    client: OnceLock<Result<http::HttpClient, String>>,
    /// The folder of tokens.
    tokens: OnceLock<PathBuf>,
    pub(crate) stop: CancellationToken,
    /// One reference for each child process that has not ended, and one of this struct.
    pub(crate) children: Arc<()>,
    /// Held while the catalog is changed, so that checking names and adding tools is one step.
    publishing: Mutex<()>,
}

/// All upstream servers. Cheap to clone.
#[derive(Clone)]
pub struct Upstreams {
    pub(crate) shared: Arc<Shared>,
    servers: Arc<RwLock<BTreeMap<String, Arc<Upstream>>>>,
}

impl Shared {
    pub(crate) fn http(&self) -> Result<http::HttpClient, String> {
        self.client.get_or_init(http::client).clone()
    }

    pub(crate) fn tell(&self, change: Change) {
        if let Some(teller) = self.teller.get() {
            crate::server::tell_all(teller, change);
        }
    }

    /// Whether another source has a tool of this name.
    pub(crate) fn is_taken(&self, name: &str, source: &ToolSource) -> bool {
        self.engine.tools().snapshot.get(name).is_some_and(|entry| entry.source() != source)
    }

    /// Puts servers' tools into the catalog, in one change.
    pub(crate) fn publish(&self, batch: Vec<(Weak<Upstream>, Vec<ToolEntry>)>) -> Result<(), Failure> {
        let _one = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut exchanges, mut published) = (Vec::new(), Vec::new());
        for (upstream, entries) in batch {
            let Some(upstream) = upstream.upgrade() else { continue };
            let provider: Arc<dyn Provider> = Arc::new(UpstreamTools(upstream.clone()));
            let ids: Vec<Arc<str>> = entries.iter().map(|entry| entry.shared_id().clone()).collect();
            let out = upstream.published().clone();
            exchanges.push(ToolExchange { out, entries, provider });
            published.push((upstream, ids));
        }
        self.engine
            .exchange(exchanges)
            .map_err(|e| Failure::new(ErrorCode::InternalError, format!("upstream tools were refused: {e}")))?;
        // The status is updated after the catalog, so that it never counts tools that the catalog does not have.
        for (upstream, ids) in published {
            *upstream.published() = ids;
        }
        Ok(())
    }
}

impl Upstreams {
    /// Without servers. Must be called inside a tokio runtime.
    pub fn new(engine: Engine, asks: ClientRoutes, stop: CancellationToken) -> Self {
        let memory = PinStore(engine.store().clone());
        let shared = Shared {
            engine,
            memory,
            asks,
            teller: OnceLock::new(),
            client: OnceLock::new(),
            tokens: OnceLock::new(),
            stop,
            children: Arc::default(),
            publishing: Mutex::default(),
        };
        let all = Self { shared: Arc::new(shared), servers: Arc::default() };
        tokio::spawn(all.clone().look_for_idle());
        all
    }

    /// Sets the receiver of change notifications.
    pub fn tell_changes(&self, teller: broadcast::Sender<Change>) {
        if self.shared.teller.set(teller).is_err() {
            tracing::warn!("changes of upstream servers are reported to the first listener that was set");
        }
    }

    /// Sets the folder for tokens. Without one, OAuth is off. Servers that were added before are not affected.
    pub fn keep_tokens(&self, folder: PathBuf) {
        if let Err(folder) = self.shared.tokens.set(folder) {
            tracing::warn!(folder = %folder.display(), "tokens are kept in the first folder that was set");
        }
    }

    fn servers(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<Upstream>>> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Upstream>> {
        self.servers().values().cloned().collect()
    }

    /// Adds servers, each with what starts its process. Returns at once: cached tools are added in the background, and
    /// servers without a cache are started there.
    pub fn add(&self, specs: Vec<ServerSpec>) -> tokio::task::JoinHandle<()> {
        self.add_telling(specs, CancellationToken::new())
    }

    /// As [`Self::add`]. `remembered` is cancelled when the tools that are remembered are in the catalog, which does not
    /// wait for any server.
    pub fn add_telling(&self, specs: Vec<ServerSpec>, remembered: CancellationToken) -> tokio::task::JoinHandle<()> {
        let mut added = Vec::new();
        {
            let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
            for spec in specs {
                if spec.config.enabled {
                    let upstream = Upstream::new(spec, self.shared.clone());
                    servers.insert(upstream.name.clone(), upstream.clone());
                    added.push(upstream);
                }
            }
        }
        let all = self.clone();
        tokio::spawn(async move { all.take_in(added, remembered.drop_guard()).await })
    }

    async fn take_in(&self, added: Vec<Arc<Upstream>>, known_tools: DropGuard) {
        let memory = self.shared.memory.clone();
        let remembered = tokio::task::spawn_blocking(move || memory.all_seen()).await;
        let mut remembered = match remembered {
            Ok(Ok(remembered)) => remembered,
            Ok(Err(error)) => {
                tracing::warn!(%error, "what upstream servers offered before cannot be read; each is asked again");
                BTreeMap::new()
            }
            Err(error) => {
                tracing::error!(%error, "reading what upstream servers offered before ended unexpectedly");
                BTreeMap::new()
            }
        };
        let mut batch = Vec::new();
        let mut strangers = Vec::new();
        for upstream in added {
            // Parsed one at a time: parsing all of them at once would determine the peak memory.
            let seen = remembered.remove(&upstream.name).and_then(|bytes| PinStore::read_seen(&bytes));
            match seen {
                Some(_) if upstream.terms.as_ref().is_some_and(|terms| terms.on_startup) => strangers.push(upstream),
                Some(seen) => match upstream.compare(seen, true).await {
                    Ok(Some(entries)) => batch.push((Arc::downgrade(&upstream), entries)),
                    Ok(None) => {}
                    Err(failure) => tracing::warn!(server = upstream.name, %failure, "remembered tools are not used"),
                },
                None => strangers.push(upstream),
            }
        }
        let shared = self.shared.clone();
        let published = tokio::task::spawn_blocking(move || shared.publish(batch)).await;
        if let Ok(Err(failure)) = published {
            tracing::warn!(%failure, "remembered tools could not be put into the catalog");
        }
        drop(known_tools);
        let room = Arc::new(Semaphore::new(MEET_AT_ONCE));
        let mut meetings = Vec::new();
        for upstream in strangers {
            let (room, stop) = (room.clone(), self.shared.stop.clone());
            meetings.push(tokio::spawn(async move {
                let Ok(_place) = room.acquire_owned().await else { return };
                tokio::select! { () = upstream.meet() => {}, () = stop.cancelled() => {} }
            }));
        }
        for meeting in meetings {
            if let Err(error) = meeting.await {
                tracing::error!(%error, "meeting an upstream server ended unexpectedly");
            }
        }
    }

    /// Removes a server and its tools.
    pub async fn remove(&self, name: &str) {
        let removed = self.servers.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(upstream) = removed {
            if let Err(failure) = self.shared.publish(vec![(Arc::downgrade(&upstream), Vec::new())]) {
                tracing::error!(server = name, %failure, "the tools of a removed server stay in the catalog");
            }
            upstream.stop().await;
        }
    }

    /// Removes the cached tools and the approved definitions of a server.
    pub async fn forget(&self, name: &str) -> Result<(), Failure> {
        let (memory, name) = (self.shared.memory.clone(), name.to_owned());
        let forgotten = tokio::task::spawn_blocking(move || memory.forget(&name)).await;
        forgotten
            .map_err(|_| Failure::new(ErrorCode::InternalError, "the store did not answer"))?
            .map_err(Failure::from)
    }

    /// All servers as people are shown them.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.all().iter().map(|upstream| upstream.status()).collect()
    }

    fn named(&self, name: &str) -> Result<Arc<Upstream>, Failure> {
        self.servers().get(name).cloned().ok_or_else(|| {
            let known: Vec<String> = self.servers().keys().cloned().collect();
            Failure::new(ErrorCode::NotFound, format!("there is no MCP server {name:?}")).suggest(if known.is_empty() {
                "No server is configured: add one under [mcp.servers] in config.toml.".to_owned()
            } else {
                format!("There is {}.", known.join(", "))
            })
        })
    }

    /// Starts a server now, and lists what it offers.
    pub async fn start(&self, name: &str) -> Result<ServerStatus, Failure> {
        let upstream = self.named(name)?;
        upstream.live().await?;
        Ok(upstream.status())
    }

    /// Starts a server anew, without waiting after a failed start.
    pub async fn restart(&self, name: &str) -> Result<ServerStatus, Failure> {
        let upstream = self.named(name)?;
        upstream.stop().await;
        upstream.forget_failure();
        upstream.live().await?;
        Ok(upstream.status())
    }

    /// Stops a server; the next call starts it again.
    pub async fn stop(&self, name: &str) -> Result<ServerStatus, Failure> {
        let upstream = self.named(name)?;
        upstream.stop().await;
        Ok(upstream.status())
    }

    /// The end of what a server's process wrote to its standard error, where there is anything; without secrets.
    pub fn log(&self, name: &str) -> Result<Option<String>, Failure> {
        Ok(self.named(name)?.standard_error())
    }

    /// A person approves definitions that are held back, each by the hash of what was shown.
    pub async fn approve(&self, name: &str, shown: &[ShownDefinition], by: &str) -> Result<Vec<Approved>, Failure> {
        self.named(name)?.approve(shown, by).await
    }

    /// The hooks a plugin's process registered, when last seen.
    pub fn hooks(&self, name: &str) -> Vec<HookInterest> {
        self.servers().get(name).map(|upstream| upstream.hooks()).unwrap_or_default()
    }

    /// A request of the plugins' line protocol, to a process that speaks it.
    pub async fn line(&self, name: &str, method: &str, params: &impl Serialize) -> Result<Value, Failure> {
        self.named(name)?.line(method, params).await
    }

    /// Asks a plugin's process for its health, and stores the answer.
    pub async fn probe(&self, name: &str) -> Result<ServerStatus, Failure> {
        let upstream = self.named(name)?;
        let health = upstream.line("health", &Empty {}).await?;
        upstream.note_health(health);
        Ok(upstream.status())
    }

    /// Stops all servers.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        let stops: Vec<_> =
            self.all().into_iter().map(|upstream| tokio::spawn(async move { upstream.stop().await })).collect();
        for stop in stops {
            if let Err(error) = stop.await {
                tracing::error!(%error, "stopping an upstream server ended unexpectedly");
            }
        }
        // Child processes that are being started end by themselves, and are waited for as well.
        let give_up = tokio::time::Instant::now() + CHILDREN_GO;
        while Arc::strong_count(&self.shared.children) > 1 && tokio::time::Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn look_for_idle(self) {
        let mut tick = tokio::time::interval(LOOK_FOR_IDLE);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! { _ = tick.tick() => {}, () = self.shared.stop.cancelled() => return }
            for upstream in self.all() {
                upstream.stop_if_idle().await;
                upstream.meet_if_authorised();
            }
        }
    }
}

impl ToolExtras for Upstreams {
    fn extras(&self, id: &str) -> Option<Arc<ToolDetails>> {
        let mut parts = id.splitn(3, ':');
        let (Some("mcp"), Some(server), Some(_)) = (parts.next(), parts.next(), parts.next()) else { return None };
        let upstream = self.servers().get(server).cloned()?;
        let entry = self.shared.engine.tools().snapshot.get(id).cloned()?;
        upstream.known(entry.name().as_str())?.extras()
    }
}

/// Calls the tools of one server.
struct UpstreamTools(Arc<Upstream>);

impl Provider for UpstreamTools {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            let upstream = &self.0;
            let known = upstream.known(call.tool.as_str());
            let known = known.ok_or_else(|| Failed::new(ErrorCode::Unavailable, format!("{} is gone", call.tool)))?;
            let connect = async || {
                tokio::select! {
                    live = upstream.live() => Ok(live?),
                    () = context.cancel.cancelled() => Err(Failed::new(ErrorCode::Cancelled, "the call was stopped")),
                }
            };
            let mut live = connect().await?;
            let under = upstream.begin(Some(call.run_id), Some(context.progress.clone())).await?;
            let mirrored: Vec<(String, String)> =
                known.mirrored.iter().filter_map(|m| Some((m.name(), m.value(&call.args)?))).collect();
            let question = Question::Tool { name: &known.original, arguments: &call.args };
            let (asks, run_id, cancel) = (&upstream.shared.asks, Some(call.run_id), &context.cancel);
            let asker = || CallRoute { asks, run_id, cancel };
            let mut answer = live.converse(&question, Some(under.token), &mirrored, asker()).await;
            if answer == Err(LinkError::Forgotten) {
                upstream.let_go(&live);
                live = connect().await?;
                answer = live.converse(&question, Some(under.token), &mirrored, asker()).await;
            }
            drop(under);
            let answer = answer.map_err(|error| upstream::failed(&upstream.name, error));
            let errors = || live.last_errors().map(|text| format!("standard error of {}:\n{text}", upstream.name));
            answer.and_then(|result| output(upstream, result)).map_err(|failed| failed.debug(errors()))
        })
    }
}

/// Converts a server's result to a call's output. A result that the server marks as an error is a failure.
fn output(upstream: &Upstream, result: Value) -> Result<Output, Failed> {
    let result: CallResult = serde_json::from_value(result).map_err(|error| {
        Failed::new(ErrorCode::InternalError, format!("the answer of {} cannot be read: {error}", upstream.name))
    })?;
    let mut content = result.content.unwrap_or_else(|| Value::Array(Vec::new()));
    offers::rename_inside(upstream, &mut content);
    if result.is_error == Value::Bool(true) {
        let said = content.as_array().and_then(|parts| parts.iter().find_map(|p| p.get("text")?.as_str()));
        let said: String = said.unwrap_or("the tool failed").chars().take(2000).collect();
        let mut failure = Failure::new(ErrorCode::InternalError, said)
            .suggest("The tool itself reported this; change the arguments or try something else.")
            .detail("content", content)
            .detail("server", upstream.name.as_str());
        if let Some(wait) = result.structured_content.as_ref().and_then(upstream::retry_after) {
            failure = failure.detail(RETRY_AFTER, wait);
        }
        return Err(failure.into());
    }
    let parts = [
        ("content", Some(content)),
        ("structuredContent", result.structured_content),
        ("details", result.details),
        ("_meta", result.meta),
    ];
    Ok(Output::data(parts.into_iter().filter_map(|(key, part)| Some((key.to_owned(), part?))).collect()))
}
