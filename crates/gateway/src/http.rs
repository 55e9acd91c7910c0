//! The HTTP door: liveness and readiness, in the shapes OpenClaw's gateway uses.

use crate::methods::Service;
use axum::{Json, Router, extract::State, routing::get};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The routes.
pub fn router(service: Service) -> Router {
    Router::new()
        .route("/health", get(live))
        .route("/healthz", get(live))
        .route("/ready", get(ready))
        .route("/readyz", get(ready))
        .with_state(service)
}

/// Serves until told to stop.
pub async fn serve(listener: TcpListener, service: Service, stop: CancellationToken) -> std::io::Result<()> {
    axum::serve(listener, router(service)).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn live() -> Json<Value> {
    Json(json!({"ok": true, "status": "live"}))
}

async fn ready(State(service): State<Service>) -> Json<Value> {
    Json(json!({"ready": true, "failing": [], "uptimeMs": service.uptime_ms()}))
}
