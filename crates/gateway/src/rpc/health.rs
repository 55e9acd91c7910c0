//! `health`, `status` and `system-presence`: how this gateway is, in the shapes clients know. What those shapes have a
//! place for and this program has not (channels, models) is left out.

use super::{Ask, RpcError, blocking, sessions};
use crate::{
    hub::{Gateway, lock},
    pulse,
    ws::params::{Field, Kind, check, flag},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// Sessions named in a summary.
const RECENT: usize = 10;
/// A summary is given out for this long; its `ts` says how old it is.
const KEPT: Duration = Duration::from_secs(60);
/// A new summary is waited for this long where there is an older one.
const FRESH_WITHIN: Duration = Duration::from_millis(20);
/// Where a probe writes.
const PROBE: (&str, &str) = ("gateway", "probe");

const NOTHING: &[Field] = &[];
const HEALTH: &[Field] = &[Field::optional("probe", Kind::Flag)];
// There are no channels to sum up, whether or not it is asked for.
const STATUS: &[Field] = &[Field::optional("includeChannelSummary", Kind::Flag)];

/// The last summary.
#[derive(Default)]
pub(crate) struct HealthCache {
    kept: Mutex<Option<(Instant, Value)>>,
}

impl HealthCache {
    /// What it says is no longer so.
    pub(crate) fn forget(&self) {
        *lock(&self.kept) = None;
    }
}

pub(super) async fn answer(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, HEALTH)?;
    if flag(&params, "probe") {
        return probed(ask.gateway).await;
    }
    health(ask.gateway).await
}

/// How this gateway is, or was within the last minute.
pub(crate) async fn health(gateway: &Gateway) -> Result<Value, RpcError> {
    let last = lock(&gateway.inner.health.kept).clone();
    let health = match last {
        None => return fresh(gateway).await,
        Some((at, health)) if at.elapsed() < KEPT => health,
        // A busy store does not hold up the answer: an older summary comes instead, and says how old it is.
        Some((_, older)) => match tokio::time::timeout(FRESH_WITHIN, fresh(gateway)).await {
            Ok(health) => return health,
            Err(_) => older,
        },
    };
    Ok(current(gateway, health))
}

/// A summary with what is known at any time.
fn current(gateway: &Gateway, mut health: Value) -> Value {
    health["ok"] = is_writable(gateway).into();
    health["eventLoop"] = gateway.inner.pulse.report();
    health
}

fn is_writable(gateway: &Gateway) -> bool {
    gateway.service().engine().store().writable().is_ok()
}

/// How this gateway is after it has shown that it can still write to its disk.
async fn probed(gateway: &Gateway) -> Result<Value, RpcError> {
    let began = Instant::now();
    let store = gateway.service().engine().store();
    let position = store.put(PROBE.0, PROBE.1, Timestamp::now().to_string().into_bytes(), None)?;
    store.durable(position).await?;
    summary(gateway, began).await
}

/// How this gateway is now.
pub(crate) async fn fresh(gateway: &Gateway) -> Result<Value, RpcError> {
    summary(gateway, Instant::now()).await
}

async fn summary(gateway: &Gateway, began: Instant) -> Result<Value, RpcError> {
    let (count, recent) = sessions::summary(gateway, RECENT).await?;
    let tools = gateway.service().engine().tools();
    let mut plugins: Vec<&str> = tools
        .snapshot
        .iter()
        .filter(|e| e.source().kind == toolyard_catalog::SourceKind::Plugin)
        .map(|e| &*e.source().name)
        .collect();
    let report = gateway.service().plugins().await;
    plugins.extend(report.iter().filter(|p| is_used(p) && works(p)).filter_map(|p| p["id"].as_str()));
    plugins.sort_unstable();
    plugins.dedup();
    let health = json!({
        "ok": is_writable(gateway), "ts": Timestamp::now().as_millisecond(), "durationMs": began.elapsed().as_millis() as u64,
        "runtimeVersion": env!("CARGO_PKG_VERSION"),
        "plugins": {
            "loaded": plugins, "errors": wrong_plugins(&report),
            "unavailable": report.iter().filter(|p| !works(p)).map(|p| &p["id"]).collect::<Vec<_>>(),
        },
        "defaultAgentId": sessions::DEFAULT_AGENT,
        "sessions": {"path": gateway.settings().state_path, "count": count, "recent": recent},
        "eventLoop": gateway.inner.pulse.report(),
    });
    *lock(&gateway.inner.health.kept) = Some((Instant::now(), health.clone()));
    Ok(health)
}

fn is_used(plugin: &Value) -> bool {
    plugin["enabled"] == true
}

fn works(plugin: &Value) -> bool {
    plugin["status"] != "unavailable"
}

/// What is wrong with plugins that are used or cannot be.
fn wrong_plugins(plugins: &[Value]) -> Vec<Value> {
    let wrong = plugins.iter().filter(|p| (is_used(p) && p["status"] != "healthy") || !works(p));
    let shown =
        |p: &Value| json!({"id": p["id"], "status": p["status"], "problems": p["problems"], "leftOut": p["leftOut"]});
    wrong.map(shown).collect()
}

pub(super) async fn status(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    check(ask.method, params, STATUS)?;
    let gateway = ask.gateway;
    let service = gateway.service();
    let path = &gateway.settings().state_path;
    let sessions = sessions::newest_first(gateway).await?;
    let newest = |agent: Option<&str>| sessions::recent(&sessions, agent, RECENT);
    let by_agent: Vec<Value> = std::iter::once(sessions::DEFAULT_AGENT)
        .chain(gateway.settings().agents.iter().map(String::as_str))
        .map(|agent| {
            let (count, recent) = newest(Some(agent));
            json!({"agentId": agent, "path": path, "count": count, "recent": recent})
        })
        .collect();
    let (count, recent) = newest(None);
    // The heartbeat is the gateway's tick, which goes to every connection: it belongs to the default agent. Nothing wakes
    // the other agents up.
    let every_ms = gateway.settings().tick.as_millis() as u64;
    let heartbeats: Vec<Value> = by_agent
        .iter()
        .map(|agent| match agent["agentId"] == sessions::DEFAULT_AGENT {
            true => json!({
                "agentId": agent["agentId"], "enabled": true, "every": format!("{}s", every_ms.div_ceil(1000)),
                "everyMs": every_ms,
            }),
            false => json!({"agentId": agent["agentId"], "enabled": false}),
        })
        .collect();
    let tools = service.engine().tools();
    let active = service.engine().active_runs().len();
    let store = service.engine().store().clone();
    let (waiting, current) =
        blocking(move || Ok((sessions::open_runs(&store)?, sessions::current(&store, &sessions)?))).await?;
    let mut status = json!({
        "runtimeVersion": env!("CARGO_PKG_VERSION"),
        "mainHeartbeatEnabled": true,
        "heartbeat": {"defaultAgentId": sessions::DEFAULT_AGENT, "agents": heartbeats},
        "tasks": {"active": active, "byStatus": waiting},
        "sessions": {"paths": [path], "count": count, "defaults": {"model": null, "contextTokens": null},
            "recent": recent, "byAgent": by_agent},
        "eventLoop": gateway.inner.pulse.report(),
        "processMemory": {"rssBytes": pulse::rss_bytes()},
        "connections": gateway.count(),
        "tools": {"count": tools.snapshot.len(), "registryVersion": tools.snapshot.version()},
        "uptimeMs": service.uptime_ms(),
        "pid": std::process::id(),
    });
    // For scripts, which must not make keys up. Absent where every session is archived.
    if let Some(key) = current {
        status["sessionKey"] = key.into();
    }
    Ok(status)
}

pub(super) fn presence(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    check(ask.method, params, NOTHING)?;
    Ok(Value::Array(ask.gateway.presence()))
}
