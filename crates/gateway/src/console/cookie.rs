//! The console's cookie. Scripts cannot read it, browsers do not send it with requests from other sites, and it grants
//! no access without the device's signature.

use crate::{auth::Origin, gateway::Gateway};
use axum::http::{HeaderMap, HeaderValue, header};

/// How long a browser keeps it, in seconds: as long as the device stays paired.
const MAX_AGE: u64 = 30 * 24 * 60 * 60;

/// Its name. Browsers send a cookie to every port of a host, so each home has a name of its own; over TLS the prefix makes
/// browsers refuse one that another host or an unencrypted page set.
fn name(gateway: &Gateway, origin: &Origin) -> String {
    let prefix = if origin.is_https() { "__Host-" } else { "" };
    format!("{prefix}toolyard_console_{}", gateway.service().console().instance())
}

/// The value that a request shows.
pub(super) fn shown(gateway: &Gateway, origin: &Origin, headers: &HeaderMap) -> Option<String> {
    let name = name(gateway, origin);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|value| value.split(';'))
        .find_map(|pair| pair.trim().split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value.to_owned())
}

/// Sets it, or clears it.
pub(super) fn set(gateway: &Gateway, origin: &Origin, value: Option<&str>) -> Option<HeaderValue> {
    let (value, max_age) = (value.unwrap_or_default(), value.map_or(0, |_| MAX_AGE));
    let secure = if origin.is_https() { "; Secure" } else { "" };
    let text =
        format!("{}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}", name(gateway, origin));
    HeaderValue::from_str(&text).ok()
}
