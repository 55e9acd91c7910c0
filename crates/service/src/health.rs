//! `health`, `status` and `system-presence`: the gateway's health in the formats that clients know. Fields for what
//! this program does not have (channels, models) are left out.

use crate::{
    Call, Handle, Hub, Lane, MethodError, NoParams, PluginReport, Role, Terms,
    hub::{PresenceEntry, lock},
    load_monitor::{self, EventLoop},
    methods,
    service::blocking,
    sessions::{self, RecentSession},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};
use toolyard_protocol::WorkspaceId;

/// Sessions named in a summary.
const RECENT: usize = 10;
/// How long a summary is cached; its `ts` says how old it is.
const KEPT: Duration = Duration::from_secs(60);
/// How long a request waits for a new summary if an older one exists.
const FRESH_WITHIN: Duration = Duration::from_millis(20);
/// The key that a probe writes.
const PROBE: (&str, &str) = ("gateway", "probe");

methods! {
    /// Reports the health of this gateway.
    Health = "health", Terms::open().role(Role::Any).lane(Lane::Express), HealthParams => HealthAnswer;
    /// Reports the state of this gateway: agents, sessions, runs, connections, tools.
    Status = "status", Terms::read(), StatusParams => StatusAnswer;
    /// Lists this gateway and the clients that are connected to it.
    SystemPresence = "system-presence", Terms::read(), NoParams => Vec<PresenceEntry>;
}

/// The parameters of a health request.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthParams {
    /// Whether the gateway must show that it can still write to its disk.
    #[serde(default)]
    probe: bool,
}

/// The health of this gateway.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthAnswer {
    ok: bool,
    ts: i64,
    duration_ms: u64,
    runtime_version: &'static str,
    plugins: PluginsHealth,
    default_agent_id: &'static str,
    sessions: SessionsHealth,
    event_loop: EventLoop,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct PluginsHealth {
    loaded: Vec<String>,
    errors: Vec<PluginReport>,
    unavailable: Vec<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct SessionsHealth {
    path: String,
    count: usize,
    recent: Vec<RecentSession>,
}

/// The last summary.
#[derive(Default)]
pub(crate) struct HealthCache {
    kept: Mutex<Option<(Instant, HealthAnswer)>>,
}

impl HealthCache {
    /// Discards the cached summary.
    pub(crate) fn forget(&self) {
        *lock(&self.kept) = None;
    }
}

impl Handle<Health> for Hub {
    async fn handle(&self, call: &Call<'_>, params: HealthParams) -> Result<HealthAnswer, MethodError> {
        let workspace = &call.caller.workspace;
        match params.probe {
            true => self.probed_health(workspace).await,
            false => self.health(workspace).await,
        }
    }
}

impl Hub {
    /// The health of this gateway, at most one minute old.
    pub async fn health(&self, workspace: &WorkspaceId) -> Result<HealthAnswer, MethodError> {
        if !workspace.is_default() {
            return self.fresh_health(workspace).await;
        }
        let last = lock(&self.inner.health.kept).clone();
        let health = match last {
            None => return self.fresh_health(workspace).await,
            Some((at, health)) if at.elapsed() < KEPT => health,
            // A busy store does not delay the answer: the older summary is returned, with its time.
            Some((_, older)) => match tokio::time::timeout(FRESH_WITHIN, self.fresh_health(workspace)).await {
                Ok(health) => return health,
                Err(_) => older,
            },
        };
        Ok(HealthAnswer { ok: self.is_writable(), event_loop: self.load_monitor().report(), ..health })
    }

    fn is_writable(&self) -> bool {
        self.service().engine().store().writable().is_ok()
    }

    /// The health of this gateway, after a test write to its disk.
    async fn probed_health(&self, workspace: &WorkspaceId) -> Result<HealthAnswer, MethodError> {
        let began = Instant::now();
        let store = self.service().engine().store();
        let position = store.put(PROBE.0, PROBE.1, Timestamp::now().to_string().into_bytes(), None)?;
        store.durable(position).await?;
        self.health_summary(workspace, began).await
    }

    /// The current health of this gateway.
    pub(crate) async fn fresh_health(&self, workspace: &WorkspaceId) -> Result<HealthAnswer, MethodError> {
        self.health_summary(workspace, Instant::now()).await
    }

    async fn health_summary(&self, workspace: &WorkspaceId, began: Instant) -> Result<HealthAnswer, MethodError> {
        let (count, recent) = sessions::summary(self, workspace, RECENT).await?;
        let tools = self.service().engine().tools();
        let plugin_tools = tools.snapshot.iter().filter(|e| e.source().kind == toolyard_catalog::SourceKind::Plugin);
        let mut loaded: Vec<String> = plugin_tools.map(|e| e.source().name.to_string()).collect();
        let report = self.service().plugins();
        loaded.extend(report.iter().filter(|p| p.enabled && p.works()).map(|p| p.id.clone()));
        loaded.sort_unstable();
        loaded.dedup();
        let unavailable = report.iter().filter(|p| !p.works()).map(|p| p.id.clone()).collect();
        // Problems of plugins that are enabled or cannot work.
        let is_wrong = |p: &PluginReport| (p.enabled && p.status != "healthy") || !p.works();
        let errors = report.into_iter().filter(is_wrong).collect();
        let health = HealthAnswer {
            ok: self.is_writable(),
            ts: Timestamp::now().as_millisecond(),
            duration_ms: began.elapsed().as_millis() as u64,
            runtime_version: env!("CARGO_PKG_VERSION"),
            plugins: PluginsHealth { loaded, errors, unavailable },
            default_agent_id: sessions::DEFAULT_AGENT,
            sessions: SessionsHealth { path: self.settings().state_path.clone(), count, recent },
            event_loop: self.load_monitor().report(),
        };
        // A summary names sessions, so that one is kept for the default workspace alone.
        if workspace.is_default() {
            *lock(&self.inner.health.kept) = Some((Instant::now(), health.clone()));
        }
        Ok(health)
    }
}

/// The parameters of a status request.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatusParams {
    /// Accepted and ignored, because Toolyard has no channels.
    #[serde(default, rename = "includeChannelSummary")]
    _include_channel_summary: bool,
}

/// What this gateway is doing.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusAnswer {
    runtime_version: &'static str,
    /// The agent that is used if none is named, as in `heartbeat`.
    default_agent_id: &'static str,
    main_heartbeat_enabled: bool,
    /// The same as `eventLoop.degraded`, for scripts that read one field.
    event_loop_degraded: bool,
    heartbeat: Heartbeats,
    tasks: Tasks,
    sessions: SessionsStatus,
    event_loop: EventLoop,
    process_memory: ProcessMemory,
    connections: usize,
    tools: ToolsStatus,
    uptime_ms: u64,
    pid: u32,
    /// The session key for scripts. Absent if every session is archived.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_key: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Heartbeats {
    default_agent_id: &'static str,
    agents: Vec<Heartbeat>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Heartbeat {
    agent_id: String,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Tasks {
    active: usize,
    by_status: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SessionsStatus {
    paths: Vec<String>,
    count: usize,
    defaults: ModelDefaults,
    recent: Vec<RecentSession>,
    by_agent: Vec<AgentSessions>,
}

/// The model a session would use; this program runs none.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ModelDefaults {
    model: Option<String>,
    context_tokens: Option<u64>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AgentSessions {
    agent_id: String,
    path: String,
    count: usize,
    recent: Vec<RecentSession>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ProcessMemory {
    rss_bytes: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolsStatus {
    count: usize,
    registry_version: String,
}

impl Handle<Status> for Hub {
    async fn handle(&self, call: &Call<'_>, _: StatusParams) -> Result<StatusAnswer, MethodError> {
        let workspace = call.caller.workspace.clone();
        let service = self.service();
        let path = &self.settings().state_path;
        let sessions = sessions::newest_first(self, &workspace).await?;
        let agents = std::iter::once(sessions::DEFAULT_AGENT).chain(self.settings().agents.iter().map(String::as_str));
        let by_agent: Vec<AgentSessions> = agents
            .map(|agent| {
                let (count, recent) = sessions::recent(&sessions, Some(agent), RECENT);
                AgentSessions { agent_id: agent.to_owned(), path: path.clone(), count, recent }
            })
            .collect();
        let (count, recent) = sessions::recent(&sessions, None, RECENT);
        // The heartbeat is the gateway's tick, which goes to every connection: it belongs to the default agent. Nothing
        // wakes the other agents up.
        let tick_ms = self.settings().tick.as_millis() as u64;
        let heartbeat = |agent: &AgentSessions| {
            let enabled = agent.agent_id == sessions::DEFAULT_AGENT;
            Heartbeat {
                agent_id: agent.agent_id.clone(),
                enabled,
                every: enabled.then(|| format!("{}s", tick_ms.div_ceil(1000))),
                every_ms: enabled.then_some(tick_ms),
            }
        };
        let heartbeats = by_agent.iter().map(heartbeat).collect();
        let tools = service.engine().tools();
        let store = service.engine().store().clone();
        let of = workspace.clone();
        let (by_status, session_key) = blocking(move || {
            Ok::<_, MethodError>((sessions::open_runs(&store, &of)?, sessions::current(&store, &of, &sessions)?))
        })
        .await?;
        let event_loop = self.load_monitor().report();
        Ok(StatusAnswer {
            runtime_version: env!("CARGO_PKG_VERSION"),
            main_heartbeat_enabled: true,
            heartbeat: Heartbeats { default_agent_id: sessions::DEFAULT_AGENT, agents: heartbeats },
            tasks: Tasks { active: service.engine().count_active(&workspace), by_status },
            sessions: SessionsStatus {
                paths: vec![path.clone()],
                count,
                defaults: ModelDefaults::default(),
                recent,
                by_agent,
            },
            default_agent_id: sessions::DEFAULT_AGENT,
            event_loop_degraded: event_loop.degraded,
            event_loop,
            process_memory: ProcessMemory { rss_bytes: load_monitor::rss_bytes() },
            connections: self.count_of(&workspace),
            tools: ToolsStatus { count: tools.snapshot.len(), registry_version: tools.snapshot.version().to_owned() },
            uptime_ms: service.uptime_ms(),
            pid: std::process::id(),
            session_key,
        })
    }
}

impl Handle<SystemPresence> for Hub {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<Vec<PresenceEntry>, MethodError> {
        Ok(self.presence(&call.caller.workspace))
    }
}
