//! `health`, `status` and `system-presence`: how this gateway is, in the shapes clients know.

use super::{Ask, RpcError, sessions};
use crate::{
    hub::Gateway,
    pulse,
    ws::params::{Field, Kind, check},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Instant;

/// Sessions named in a summary.
const RECENT: usize = 10;

const NOTHING: &[Field] = &[];
const HEALTH: &[Field] = &[
    Field::optional("probe", Kind::Flag),
    Field::optional("includeSensitive", Kind::Flag),
    Field::optional("agentId", Kind::Text),
];

pub(super) async fn answer(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    check(ask.method, params, HEALTH)?;
    Ok(health(ask.gateway).await)
}

/// How this gateway is.
pub(crate) async fn health(gateway: &Gateway) -> Value {
    let began = Instant::now();
    let sessions = sessions::summary(gateway, RECENT).await;
    let path = &gateway.settings().state_path;
    let sessions = json!({"path": path, "count": sessions.0, "recent": sessions.1});
    let tools = gateway.service().engine().tools();
    let mut plugins: Vec<&str> = tools
        .snapshot
        .iter()
        .filter(|e| e.source().kind == toolyard_catalog::SourceKind::Plugin)
        .map(|e| e.source().name.as_str())
        .collect();
    plugins.dedup();
    json!({
        "ok": true, "ts": Timestamp::now().as_millisecond(), "durationMs": began.elapsed().as_millis() as u64,
        "runtimeVersion": env!("CARGO_PKG_VERSION"),
        "plugins": {"loaded": plugins, "errors": [], "unavailable": []},
        "configReload": {"hotReloadStatus": "disabled"},
        "channels": {}, "channelOrder": [], "channelLabels": {}, "heartbeatSeconds": 0, "defaultAgentId": "main",
        "agents": agents(gateway).iter().map(|agent| json!({
            "agentId": agent, "isDefault": agent == "main",
            "heartbeat": {"enabled": false, "every": "0m", "everyMs": 0, "prompt": "", "target": "none", "ackMaxChars": 0},
            "sessions": sessions,
        })).collect::<Vec<_>>(),
        "sessions": sessions,
        "modelRuntime": {"degraded": false, "pendingAgents": []},
        "eventLoop": gateway.inner.pulse.report(),
    })
}

fn agents(gateway: &Gateway) -> Vec<String> {
    std::iter::once("main".to_owned()).chain(gateway.settings().agents.iter().cloned()).collect()
}

pub(super) async fn status(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    check(ask.method, params, HEALTH)?;
    let gateway = ask.gateway;
    let (count, recent) = sessions::summary(gateway, RECENT).await;
    let tools = gateway.service().engine().tools();
    let active = gateway.service().engine().active_runs().len();
    Ok(json!({
        "runtimeVersion": env!("CARGO_PKG_VERSION"),
        "heartbeat": {"defaultAgentId": "main", "agents": agents(gateway).iter().map(|agent| json!({
            "agentId": agent, "enabled": false, "every": "0m", "everyMs": 0,
        })).collect::<Vec<_>>()},
        "channelSummary": [], "queuedSystemEvents": [], "degradedSecretOwners": [], "degradedPlugins": [],
        "tasks": {"total": active, "active": active, "terminal": 0, "failures": 0,
            "byStatus": {"running": active}, "byRuntime": {}},
        "sessions": {"paths": [], "count": count, "defaults": {"model": null, "contextTokens": null}, "recent": recent,
            "byAgent": [{"agentId": "main", "path": gateway.settings().state_path, "count": count, "recent": recent}]},
        "modelRuntime": {"degraded": false, "pendingAgents": []},
        "eventLoop": gateway.inner.pulse.report(),
        "processMemory": {"rssBytes": pulse::rss_bytes()},
        "connections": gateway.count(),
        "tools": {"count": tools.snapshot.len(), "registryVersion": tools.snapshot.version()},
        "uptimeMs": gateway.service().uptime_ms(),
        "pid": std::process::id(),
    }))
}

pub(super) fn presence(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    check(ask.method, params, NOTHING)?;
    Ok(Value::Array(ask.gateway.presence()))
}
