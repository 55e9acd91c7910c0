//! How each kind of channel writes a message.

use crate::{
    ChannelConfig, ChannelKind, NotifyConfig, Severity,
    message::Message,
    outgoing::{DeliveryError, post},
};
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use ring::hmac;
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

/// The header with the signature of a webhook: `t=SECONDS,v1=HEX`, an HMAC-SHA-256 over `SECONDS.BODY`.
const SIGNATURE: HeaderName = HeaderName::from_static("toolyard-signature");
/// The program that shows messages on a desktop.
const DESKTOP_PROGRAM: &str = "notify-send";
/// How long it may take.
const DESKTOP_WITHIN: Duration = Duration::from_secs(10);
/// A file with a secret is not longer than this.
const MAX_SECRET: u64 = 64 << 10;

/// The body of a plain webhook.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WebhookBody<'a> {
    event: &'a str,
    severity: Severity,
    title: &'a str,
    text: &'a str,
    count: usize,
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deny_url: Option<&'a str>,
}

/// The body of a webhook in Slack's form.
#[derive(Debug, Serialize)]
struct SlackBody {
    text: String,
}

/// The address of a channel, without its secret parts.
pub(crate) fn shown_target(config: &ChannelConfig) -> String {
    let host = config.url.as_deref().and_then(|url| reqwest::Url::parse(url).ok());
    match (config.kind, host) {
        (ChannelKind::Desktop, _) => "this desktop".to_owned(),
        (_, Some(url)) => url.host_str().unwrap_or_default().to_owned(),
        (_, None) => String::new(),
    }
}

/// Why a channel cannot work on this machine.
pub(crate) fn problem(config: &ChannelConfig) -> Option<String> {
    if config.kind != ChannelKind::Desktop {
        return None;
    }
    if find_program(DESKTOP_PROGRAM).is_none() {
        return Some(format!("{DESKTOP_PROGRAM} is not installed; Debian has it in the package libnotify-bin"));
    }
    if std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none() {
        return Some("there is no desktop session: DBUS_SESSION_BUS_ADDRESS is not set".to_owned());
    }
    None
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Sends a message.
pub(crate) async fn send(
    config: &ChannelConfig,
    all: &NotifyConfig,
    message: &Message,
    now: Timestamp,
) -> Result<(), DeliveryError> {
    if config.kind == ChannelKind::Desktop {
        return show(message).await;
    }
    let url = config.url.as_deref().ok_or_else(|| DeliveryError::never("the channel has no url"))?;
    let url = all.address(url).map_err(DeliveryError::never)?;
    let (headers, body) = match config.kind {
        ChannelKind::Ntfy => ntfy(config, message)?,
        ChannelKind::Slack => slack(message)?,
        ChannelKind::Webhook | ChannelKind::Desktop => webhook(config, message, now)?,
    };
    post(&url, &all.rules(), headers, body).await
}

type Request = (HeaderMap, Vec<u8>);

fn ntfy(config: &ChannelConfig, message: &Message) -> Result<Request, DeliveryError> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &'static str, value: &str| match HeaderValue::from_str(value) {
        Ok(value) => {
            headers.insert(name, value);
        }
        Err(_) => tracing::warn!(header = name, "a header of a message to ntfy is left out"),
    };
    let priority = if message.severity == Severity::Ask { config.priority } else { config.priority.min(3) };
    add("title", &message.title);
    add("priority", &priority.to_string());
    if let Some(url) = &message.url {
        add("click", url);
    }
    if let Some(deny) = &message.deny_url {
        // Opens a page that asks for confirmation: a preview of the link denies nothing.
        add("actions", &format!("view, Deny, {deny}, clear=true"));
    }
    let token = secret(config.token.as_deref(), config.token_env.as_deref(), config.token_file.as_deref())?;
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| DeliveryError::never("the token has characters that no header can carry"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok((headers, message.text.clone().into_bytes()))
}

fn webhook(config: &ChannelConfig, message: &Message, now: Timestamp) -> Result<Request, DeliveryError> {
    let body = WebhookBody {
        event: message.event,
        severity: message.severity,
        title: &message.title,
        text: &message.text,
        count: message.count,
        at: now,
        url: message.url.as_deref(),
        deny_url: message.deny_url.as_deref(),
    };
    let body = serde_json::to_vec(&body).map_err(|error| DeliveryError::never(error.to_string()))?;
    let mut headers = json_headers();
    let key = secret(config.secret.as_deref(), config.secret_env.as_deref(), config.secret_file.as_deref())?;
    if let Some(key) = key
        && let Ok(value) = HeaderValue::from_str(&signature(key.as_bytes(), now.as_second(), &body))
    {
        headers.insert(SIGNATURE, value);
    }
    Ok((headers, body))
}

/// The signature of a webhook's body at a time, so that an old one cannot be sent again for long.
fn signature(key: &[u8], second: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{second}.").as_bytes());
    context.update(body);
    let hex: String = context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={second},v1={hex}")
}

fn slack(message: &Message) -> Result<Request, DeliveryError> {
    // Slack reads these three characters as markup.
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut text = escaped(&message.text);
    for (label, url) in [("Open", &message.url), ("Deny", &message.deny_url)] {
        if let Some(url) = url {
            text.push_str(&format!("\n<{url}|{label}>"));
        }
    }
    let body = serde_json::to_vec(&SlackBody { text }).map_err(|error| DeliveryError::never(error.to_string()))?;
    Ok((json_headers(), body))
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// A secret from the first place that is configured.
fn secret(value: Option<&str>, variable: Option<&str>, file: Option<&Path>) -> Result<Option<String>, DeliveryError> {
    let found = match (value, variable, file) {
        (Some(value), ..) => value.to_owned(),
        (None, Some(variable), _) => std::env::var(variable)
            .map_err(|_| DeliveryError::never(format!("the environment variable {variable} is not set")))?,
        (None, None, Some(file)) => {
            let shown = file.display();
            let is_small = std::fs::metadata(file).is_ok_and(|metadata| metadata.len() <= MAX_SECRET);
            let text = is_small.then(|| std::fs::read_to_string(file).ok()).flatten();
            text.ok_or_else(|| DeliveryError::never(format!("{shown} cannot be read")))?
        }
        (None, None, None) => return Ok(None),
    };
    let found = found.trim().to_owned();
    toolyard_engine::redact::redactor().learn(&found);
    match found.is_empty() {
        true => Err(DeliveryError::never("the secret of the channel is empty")),
        false => Ok(Some(found)),
    }
}

/// Shows a message on this desktop.
async fn show(message: &Message) -> Result<(), DeliveryError> {
    let missing = || {
        DeliveryError::never(format!("{DESKTOP_PROGRAM} is not installed"))
            .suggest("Install it (Debian: libnotify-bin), or remove the channel.")
    };
    let program = find_program(DESKTOP_PROGRAM).ok_or_else(missing)?;
    let urgency = if message.severity == Severity::Ask { "critical" } else { "normal" };
    let text = match &message.url {
        Some(url) => format!("{}\n{url}", message.text),
        None => message.text.clone(),
    };
    let running = tokio::process::Command::new(program)
        .args(["--app-name=Toolyard", "--urgency", urgency, "--", &message.title, &text])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(DESKTOP_WITHIN, running).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(DeliveryError::later(format!("{DESKTOP_PROGRAM}: {}", said.lines().next().unwrap_or("failed").trim())))
        }
        Ok(Err(error)) => Err(DeliveryError::never(format!("{DESKTOP_PROGRAM} cannot be started: {error}"))),
        Err(_) => Err(DeliveryError::later(format!("{DESKTOP_PROGRAM} did not end in time"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Notice, Subject};
    use serde_json::{Value, json};

    fn message() -> Message {
        let subject = Subject::Question { id: "policy:1".to_owned(), expires_at: Timestamp::UNIX_EPOCH };
        let notice = Notice { subject, is_urgent: false, details: "agent <main> & co".to_owned() };
        let mut message = Message::of(&[notice], true, Some("https://yard.example"));
        message.deny_url = Some("https://yard.example/deny/CODE".to_owned());
        message
    }

    /// RFC 4231, test case 2, in the form of the header.
    #[test]
    fn the_signature_is_an_hmac_over_time_and_body() {
        let plain = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"Jefe"), b"what do ya want for nothing?");
        assert_eq!(&plain.as_ref()[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        let over = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"key"), b"17.{}");
        let hex: String = over.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(signature(b"key", 17, b"{}"), format!("t=17,v1={hex}"));
    }

    #[test]
    fn a_webhook_has_the_links_and_its_signature_and_never_an_answer() {
        let config = ChannelConfig { secret: Some("s3cret".to_owned()), ..ChannelConfig::default() };
        let (headers, body) = webhook(&config, &message(), Timestamp::UNIX_EPOCH).unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            sent,
            json!({
                "event": "question", "severity": "ask", "title": "Toolyard",
                "text": "A question waits for your answer.\nagent <main> & co", "count": 1,
                "at": "1970-01-01T00:00:00Z", "url": "https://yard.example/approve/policy:1",
                "denyUrl": "https://yard.example/deny/CODE",
            })
        );
        assert_eq!(headers[SIGNATURE], signature(b"s3cret", 0, &body));
    }

    #[test]
    fn slack_reads_text_as_text() {
        let (_, body) = slack(&message()).unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap();
        let text = sent["text"].as_str().unwrap();
        assert!(text.contains("agent &lt;main&gt; &amp; co"), "{text}");
        assert!(text.ends_with("<https://yard.example/approve/policy:1|Open>\n<https://yard.example/deny/CODE|Deny>"));
    }

    #[test]
    fn ntfy_gets_title_priority_link_token_and_the_deny_page() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "tk_1234567890\n").unwrap();
        let config = ChannelConfig { token_file: Some(file), priority: 5, ..ChannelConfig::default() };
        let (headers, body) = ntfy(&config, &message()).unwrap();
        assert_eq!(headers["title"], "Toolyard");
        assert_eq!(headers["priority"], "5");
        assert_eq!(headers["click"], "https://yard.example/approve/policy:1");
        assert_eq!(headers["actions"], "view, Deny, https://yard.example/deny/CODE, clear=true");
        assert_eq!(headers[AUTHORIZATION], "Bearer tk_1234567890");
        assert!(String::from_utf8(body).unwrap().starts_with("A question waits"));
        let missing = ChannelConfig { token_file: Some(folder.path().join("none")), ..ChannelConfig::default() };
        assert!(ntfy(&missing, &message()).unwrap_err().message.contains("cannot be read"));
    }
}
