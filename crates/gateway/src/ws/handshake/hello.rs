//! `hello-ok`: the response to a successful handshake.

use super::{PROTOCOL, ShownAuth};
use crate::{gateway::Gateway, settings::MAX_PAYLOAD_BYTES};
use serde::Serialize;
use serde_json::value::RawValue;
use toolyard_engine::authority::holds;
use toolyard_protocol::WorkspaceId;
use toolyard_service::{
    EVENTS, RpcError,
    hub::{Admitted, MAX_BUFFERED_BYTES, PresenceEntry, Versions},
    sessions::main_key,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hello<'a> {
    r#type: &'static str,
    protocol: u64,
    server: Server<'a>,
    features: Features,
    snapshot: Snapshot<'a>,
    auth: ShownAuth,
    policy: Policy,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Server<'a> {
    version: &'static str,
    build_id: &'static str,
    boot_id: &'a str,
    conn_id: &'a str,
}

#[derive(Serialize)]
struct Features {
    methods: Vec<&'static str>,
    events: &'static [&'static str],
    capabilities: [&'static str; 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Snapshot<'a> {
    suspension: Suspension,
    presence: Vec<PresenceEntry>,
    health: Box<RawValue>,
    state_version: Versions,
    uptime_ms: u64,
    session_defaults: SessionDefaults,
    #[serde(flatten)]
    places: Option<AdminPaths<'a>>,
}

#[derive(Serialize)]
struct Suspension {
    phase: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionDefaults {
    default_agent_id: &'static str,
    model_configured: bool,
    ownership: &'static str,
    selection_required: bool,
    main_key: &'static str,
    main_session_key: String,
    scope: &'static str,
}

impl SessionDefaults {
    fn of(workspace: &WorkspaceId) -> Self {
        Self {
            default_agent_id: "main",
            model_configured: false,
            ownership: "sole",
            selection_required: false,
            main_key: "main",
            main_session_key: main_key(workspace),
            scope: "per-sender",
        }
    }
}

/// Paths on this machine, for administrators only.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdminPaths<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    config_path: Option<&'a str>,
    state_dir: &'a str,
    auth_mode: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    max_payload: usize,
    max_buffered_bytes: usize,
    tick_interval_ms: u64,
}

/// The response to a client whose handshake succeeded.
pub(crate) async fn hello(gateway: &Gateway, admitted: &Admitted, auth: ShownAuth) -> Result<Box<RawValue>, RpcError> {
    let unwritten = |error: serde_json::Error| RpcError::unavailable(format!("hello-ok cannot be written: {error}"));
    let hub = gateway.hub();
    // Without a store the summary is empty; calls report the reason.
    let health = match hub.health(&admitted.workspace).await {
        Ok(health) => serde_json::value::to_raw_value(&health),
        Err(_) => RawValue::from_string("{}".to_owned()),
    };
    let settings = gateway.settings();
    let places = holds(&admitted.scopes, "operator.admin").then_some(AdminPaths {
        config_path: settings.config_path.as_deref(),
        state_dir: &settings.state_path,
        auth_mode: "token",
    });
    let may_read = holds(&admitted.scopes, "operator.read");
    let hello = Hello {
        r#type: "hello-ok",
        protocol: PROTOCOL,
        server: Server {
            version: env!("CARGO_PKG_VERSION"),
            build_id: concat!("toolyard-", env!("CARGO_PKG_VERSION")),
            boot_id: &gateway.inner.boot_id,
            conn_id: &admitted.id,
        },
        features: Features { methods: gateway.service().methods().gateway_names(), events: EVENTS, capabilities: [] },
        snapshot: Snapshot {
            suspension: Suspension { phase: "accepting" },
            presence: if may_read { hub.presence(&admitted.workspace) } else { Vec::new() },
            health: health.map_err(unwritten)?,
            state_version: hub.versions(),
            uptime_ms: gateway.service().uptime_ms(),
            session_defaults: SessionDefaults::of(&admitted.workspace),
            places,
        },
        auth,
        policy: Policy {
            max_payload: MAX_PAYLOAD_BYTES,
            max_buffered_bytes: MAX_BUFFERED_BYTES,
            tick_interval_ms: settings.tick.as_millis() as u64,
        },
    };
    serde_json::value::to_raw_value(&hello).map_err(unwritten)
}
