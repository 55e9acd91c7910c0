//! `GET /download/TICKET`: a file of a run, once, for the browser that asked for it.

use super::pairing::{broken, device, protected};
use crate::{
    admission::{Admitted, coded},
    gateway::Gateway,
    http::{fresh, json_response},
};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use std::sync::Arc;
use toolyard_engine::Caller;

/// Answers with the file of a ticket.
pub(crate) async fn download(gateway: Gateway, request: Admitted) -> Response {
    fresh(protected(try_download(&gateway, request).await.unwrap_or_else(|refused| refused)))
}

async fn try_download(gateway: &Gateway, request: Admitted) -> Result<Response, Response> {
    // A page of another site may link here; its visitor's browser then does not send the cookie.
    let Admitted { parts, origin, .. } = request;
    let device = device(gateway, &origin, &parts.headers).map_err(|error| broken(&error))?;
    let ticket = parts.uri.path().rsplit('/').next().unwrap_or_default();
    let taken = device.and_then(|device| {
        let download = gateway.service().console().take_ticket(ticket, &device.device_id)?;
        Some((device, download))
    });
    let Some((device, download)) = taken else {
        let advice = "Go back and download it again: a link works once, for a minute.";
        return Err(coded(StatusCode::NOT_FOUND, "TICKET_UNKNOWN", "This link does not work any more", Some(advice)));
    };
    let caller = Caller {
        door: toolyard_engine::Door::Console,
        scopes: device.scopes.clone(),
        is_person: false,
        ..Caller::cli(format!("console:{}", device.device_id))
    };
    let caller = caller.in_workspace(device.workspace);
    let answered = gateway.service().download(Arc::new(caller), &download).await;
    let (name, content) = answered.map_err(|failure| {
        coded(StatusCode::BAD_REQUEST, failure.code.as_str(), &failure.message, failure.suggestion.as_deref())
    })?;
    let mut response = json_response(StatusCode::OK, &content);
    if let Ok(attachment) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, attachment);
    }
    Ok(response)
}
