//! `toolyard gateway`: a WebSocket client of a gateway on this or another machine.

use super::{Outcome, input};
use crate::{
    cli::{GatewayCommand, GatewayTarget, Global},
    config, output,
};
use serde::Serialize;
use serde_json::Value;
use std::{process::ExitCode, time::Duration};
use toolyard_client::{self as client, CallError, Client, Connect, Credential, Hello, Identity, local::LocalClient};
use toolyard_engine::redact::redactor;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::Method;

pub(super) async fn run(global: &Global, command: GatewayCommand) -> Outcome {
    match command {
        GatewayCommand::Call { method, params, target } => call(global, &method, &params, &target).await,
        GatewayCommand::Probe { target } => probe(global, &target).await,
    }
}

/// Where the Toolyard of this home listens. Another program that listens on the default port is not contacted.
async fn own_address(resolved: &config::Resolved) -> Result<String, Failure> {
    let home = &resolved.home;
    if LocalClient::connect(&home.socket()).await?.is_none() {
        let why = format!("no Toolyard runs for the home {}", home.path().display());
        return Err(Failure::new(ErrorCode::Unavailable, why).suggest(format!(
            "Start one with `toolyard --home {} up`, or name another gateway with --url.",
            home.path().display()
        )));
    }
    let gateway = &resolved.config.gateway;
    let scheme = if gateway.tls.cert_file.is_some() { "wss" } else { "ws" };
    let configured = || format!("{scheme}://{}", std::net::SocketAddr::new(gateway.host, gateway.port));
    Ok(home.announced().map_or_else(configured, |instance| instance.url))
}

async fn connect(global: &Global, target: &GatewayTarget, scopes: Vec<String>, mode: &str) -> Result<Connect, Failure> {
    let resolved = config::resolve(global)?;
    let gateway = &resolved.config.gateway;
    let url = match &target.url {
        Some(url) => url.clone(),
        None => own_address(&resolved).await?,
    };
    // `http` is what `toolyard up` prints; both mean the same place.
    let url = url.replacen("http://", "ws://", 1).replacen("https://", "wss://", 1);
    let trouble = |e: anyhow::Error| Failure::new(ErrorCode::UsageError, format!("{e:#}"));
    let (mut identity, mut kept) = (None, None);
    if target.device {
        resolved.home.create().map_err(trouble)?;
        identity = Some(Identity::new(&resolved.home.device_key().map_err(trouble)?));
        if target.token.is_none() {
            kept = resolved.home.device_token(&url).map_err(trouble)?;
        }
    }
    let credential = match (kept, target.token.clone().or_else(|| gateway.token.clone())) {
        (Some(token), _) => Credential::Device(token),
        (None, Some(token)) => Credential::Shared(token),
        (None, None) => Credential::Shared(resolved.home.token().map_err(|e| {
            Failure::new(ErrorCode::UsageError, format!("there is no token: {e:#}")).suggest("Pass one with --token.")
        })?),
    };
    let (Credential::Shared(token) | Credential::Device(token)) = &credential;
    redactor().learn(token);
    let timeout = Duration::from_millis(target.timeout.clamp(1, 3_600_000));
    // The gateway of this home presents the certificate that the configuration names, so that certificate is trusted.
    let ca_file = target.ca_file.clone().or_else(|| gateway.tls.cert_file.clone());
    Ok(Connect { url, ca_file, credential, identity, scopes, mode: mode.to_owned(), timeout })
}

/// Stores the token that the gateway issued to this machine's device, for the next connection.
fn remember(global: &Global, connect: &Connect, hello: &Hello) -> Result<(), Failure> {
    if let (Some(_), Some(token)) = (&connect.identity, &hello.auth.device_token) {
        let home = config::resolve(global)?.home;
        home.keep_device_token(&connect.url, token)
            .map_err(|e| Failure::new(ErrorCode::UsageError, format!("the device's token cannot be kept: {e:#}")))?;
    }
    Ok(())
}

/// Calls a method of a gateway; the inner error is the gateway's own. `more` are scopes beside the method's.
pub(super) async fn ask<M: Method>(
    global: &Global,
    target: &GatewayTarget,
    params: &M::Params,
    more: &[&str],
) -> Result<Result<Value, CallError>, Failure>
where
    M::Params: Serialize,
{
    let params = serde_json::to_value(params)
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the request cannot be written: {e}")))?;
    ask_by_name(global, target, M::NAME, params, more).await
}

/// Calls a method that is given by its name.
async fn ask_by_name(
    global: &Global,
    target: &GatewayTarget,
    method: &str,
    params: Value,
    more: &[&str],
) -> Result<Result<Value, CallError>, Failure> {
    let mut scopes = client::scopes_for(&crate::wiring::all_methods(), method);
    scopes.extend(more.iter().map(|scope| (*scope).to_owned()));
    let connect = connect(global, target, scopes, "cli").await?;
    let mut gateway = Client::connect(&connect).await?;
    remember(global, &connect, &gateway.hello)?;
    let answer = gateway.call(method, params).await;
    gateway.close().await;
    Ok(answer)
}

/// The gateway's own error, as a command prints it.
#[derive(Serialize)]
pub(super) struct Refused {
    pub(super) ok: bool,
    pub(super) error: CallError,
}

async fn call(global: &Global, method: &str, params: &str, target: &GatewayTarget) -> Outcome {
    let params = Value::Object(input::json_object(params)?);
    match ask_by_name(global, target, method, params, &[]).await? {
        Ok(payload) => {
            output::json(&payload);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            output::json(&Refused { ok: false, error });
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn probe(global: &Global, target: &GatewayTarget) -> Outcome {
    let connect = connect(global, target, vec!["operator.read".to_owned()], "probe").await?;
    let found = client::probe(&connect).await?;
    if global.json {
        output::json(&found);
    } else {
        output::data(&format!("{} answers, version {}", connect.url, found.server.version));
        for (method, asked) in found.methods() {
            let word = if asked.ok { "ok" } else { "failed" };
            output::data(&format!("  {method:<16} {word:<7} {:.1} ms", asked.ms));
        }
    }
    Ok(if found.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
