//! What an operator looks at and decides: configuration (secrets hidden), log lines, devices.

use super::{Ask, RpcError, from_failure};
use crate::{
    devices::Kept,
    logs,
    ws::params::{Field, Kind, check, count, text, texts},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

const NOTHING: &[Field] = &[];

pub(super) fn config(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    check(ask.method, params, NOTHING)?;
    Ok((ask.gateway.settings().config)())
}

const TAIL: &[Field] = &[
    Field::optional("cursor", Kind::Count),
    Field::optional("limit", Kind::Count),
    Field::optional("maxBytes", Kind::Count),
];

pub(super) fn logs(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, TAIL)?;
    let limit = count(&params, "limit").unwrap_or(200).clamp(1, 5000) as usize;
    let most = count(&params, "maxBytes").unwrap_or(250_000).clamp(1, 1_000_000) as usize;
    let cursor = count(&params, "cursor");
    let (lines, next, lost) = logs::ring().tail(cursor, limit, most);
    let size: usize = lines.iter().map(|l| l.len() + 1).sum();
    Ok(json!({
        "file": "memory", "cursor": next, "size": size, "lines": lines, "truncated": lost,
        "reset": cursor.is_some_and(|c| c > next),
    }))
}

const REQUEST: &[Field] = &[Field::required("requestId", Kind::Text)];
const DEVICE: &[Field] = &[Field::required("deviceId", Kind::Text)];
const TOKEN: &[Field] = &[
    Field::required("deviceId", Kind::Text),
    Field::required("role", Kind::Text),
    Field::optional("scopes", Kind::Texts),
];

pub(super) async fn devices(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let devices = &ask.gateway.inner.devices;
    let by = ask.connection.standing();
    match ask.method {
        "device.pair.list" => {
            check(ask.method, params, NOTHING)?;
            Ok(devices.overview()?)
        }
        "device.pair.approve" => {
            let params = check(ask.method, params, REQUEST)?;
            let request = devices.request_with_id(text(&params, "requestId").unwrap_or_default());
            let request = request.map_err(from_failure)?;
            let device = devices.approve(&request, by).await.map_err(from_failure)?;
            Ok(json!({"requestId": request.request_id, "device": {
                "deviceId": device.device_id, "role": device.role, "scopes": device.scopes,
                "approvedAtMs": Timestamp::now().as_millisecond(),
            }}))
        }
        "device.pair.reject" => {
            let params = check(ask.method, params, REQUEST)?;
            let request = devices.request_with_id(text(&params, "requestId").unwrap_or_default());
            let request = request.map_err(from_failure)?;
            devices.reject(&request, by).await.map_err(from_failure)?;
            Ok(json!({"requestId": request.request_id, "deviceId": request.device.device_id}))
        }
        "device.pair.remove" => {
            let params = check(ask.method, params, DEVICE)?;
            let (id, own) = (text(&params, "deviceId").unwrap_or_default(), ask.connection.device.as_deref());
            if !ask.connection.has("operator.admin") && own.is_some_and(|own| own != id) {
                tracing::warn!(device = %id, "a device asked to remove another device");
                return Err(RpcError::invalid("device pairing removal denied"));
            }
            let device = devices.revoke(id, by, own).await.map_err(from_failure)?;
            Ok(json!({"deviceId": device.device_id}))
        }
        name => change_token(ask, check(name, params, TOKEN)?).await,
    }
}

/// `device.token.rotate` and `device.token.revoke`. Why one is refused stands in the log: the answer does not say
/// whether there is such a device.
async fn change_token(ask: &Ask<'_>, params: Map<String, Value>) -> Result<Value, RpcError> {
    let (id, role) = (text(&params, "deviceId").unwrap_or_default(), text(&params, "role").unwrap_or_default());
    let revokes = ask.method == "device.token.revoke";
    let refuse = |why: &str| {
        tracing::warn!(method = ask.method, device = %id, role = %role, why, "a device token was not changed");
        RpcError::invalid(if revokes { "device token revocation denied" } else { "device token rotation denied" })
    };
    if revokes && params.contains_key("scopes") {
        return Err(RpcError::invalid("invalid device.token.revoke params: at root: unexpected property 'scopes'"));
    }
    let (caller, is_admin) = (ask.connection.device.as_deref(), ask.connection.has("operator.admin"));
    if !is_admin && caller.is_some_and(|own| own != id) {
        return Err(refuse("a device manages only itself"));
    }
    if !is_admin && role != "operator" {
        return Err(refuse("only an administrator manages other roles"));
    }
    let devices = &ask.gateway.inner.devices;
    let scopes = params.contains_key("scopes").then(|| texts(&params, "scopes"));
    let now = Timestamp::now();
    let (device, token) =
        devices.rotate(id, role, scopes, now, ask.connection.standing()).await.map_err(|kept| match kept {
            Kept::UnknownDeviceOrRole => refuse("no such device in this role"),
            Kept::BeyondItsScopes => refuse("more than the device was given"),
            Kept::BeyondTheCaller => refuse("more than the caller holds"),
            Kept::Store(error) => error.into(),
        })?;
    let at = now.as_millisecond();
    if revokes {
        return Ok(json!({"deviceId": device.device_id, "role": device.role, "revokedAtMs": at}));
    }
    let mut rotated = json!({
        "deviceId": device.device_id, "role": device.role, "scopes": device.token_scopes(), "rotatedAtMs": at,
    });
    // A token is told to the device it belongs to and to nobody else.
    if caller == Some(device.device_id.as_str()) {
        rotated["token"] = token.into();
        rotated["tokenDelivery"] = "in-band".into();
    } else {
        rotated["tokenDelivery"] = "withheld-cross-device".into();
    }
    Ok(rotated)
}
