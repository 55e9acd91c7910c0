//! `toolyard mcp login` and `logout`: a person agrees, in a browser, that Toolyard uses an upstream server in their
//! name. The browser returns to a port of this machine that is open only during the login.

use super::Outcome;
use crate::{
    backend,
    cli::Global,
    config::{self, Resolved},
    output,
    terminal::counted,
    upstreams::{McpStart, McpStop, ServerParams},
};
use serde::Serialize;
use std::{process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use toolyard_mcp::client::{Login, PendingLogin, ServerStatus, logout as forget};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::Method;

/// The path that answers come back to.
const PATH: &str = "/callback";
/// The longest head of a request that is read.
const MAX_HEAD: usize = 16 << 10;
/// How long a browser may take to send it.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How often one login may ask the person to agree.
const MAX_AGREEMENTS: usize = 3;
/// Connections at once.
const MAX_CONNECTIONS: usize = 16;

/// Logs in to a server.
pub(super) async fn login(global: &Global, server: &str, wait: u64) -> Outcome {
    let resolved = config::resolve(global)?;
    let configured = resolved.config.mcp.servers.get(server).ok_or_else(|| {
        Failure::new(ErrorCode::NotFound, format!("there is no MCP server {server:?}"))
            .suggest("`toolyard mcp servers` lists those that are configured.")
    })?;
    resolved.home.create().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    let login = Login::new(server, configured, &resolved.home.tokens())?;
    // A server may require another agreement after the first: it has moved to another authorisation server, or requires
    // more scopes for the next request. The number of rounds is limited.
    for round in 0..=MAX_AGREEMENTS {
        match login.probe().await {
            Ok(tools) if !login.is_wanted() => return done(global, &resolved, server, tools).await,
            Err(failure) if !login.is_wanted() => return Err(failure),
            _ if round == MAX_AGREEMENTS => break,
            _ => agree(global, &login, configured.oauth.redirect_port != 0, wait).await?,
        }
    }
    Err(Failure::new(ErrorCode::Unavailable, format!("{server} asked for another login right after the last one")))
}

/// Asks the person to agree once, and waits for the answer.
async fn agree(global: &Global, login: &Login, must_be_port: bool, wait: u64) -> Result<(), Failure> {
    let listener = listen(login.port(), must_be_port).await?;
    let port = listener.local_addr().map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?.port();
    let begun = login.begin(&format!("http://127.0.0.1:{port}{PATH}")).await?;
    show(global, &begun, wait);
    let query = tokio::time::timeout(Duration::from_secs(wait), receive(listener, &begun)).await.map_err(|_| {
        Failure::new(ErrorCode::Timeout, format!("nobody answered within {wait} s"))
            .suggest("Run it again, and open the address in a browser on this machine; --wait SECONDS waits longer.")
    })?;
    login.finish(begun, &query).await
}

/// What `logout` did.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoggedOut<'a> {
    server: &'a str,
    logged_out: bool,
}

/// What a person is asked to do.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoginPrompt<'a> {
    url: &'a str,
    issuer: &'a str,
    scopes: &'a [String],
    wait_seconds: u64,
}

/// A server that may be used now.
#[derive(Serialize)]
struct Authorised<'a> {
    server: &'a str,
    authorised: bool,
    tools: usize,
}

/// Deletes the tokens of a server.
pub(super) async fn logout(global: &Global, server: &str) -> Outcome {
    let resolved = config::resolve(global)?;
    let was_there = forget(server, &resolved.home.tokens()).await?;
    tell::<McpStop>(global, &resolved, server).await;
    if global.json {
        output::json(&LoggedOut { server, logged_out: was_there });
    } else if was_there {
        output::data(&format!("logged out of {server}"));
    } else {
        output::data(&format!("there was no login to {server}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(global: &Global, begun: &PendingLogin, wait: u64) {
    if global.json {
        let (url, issuer, scopes) = (begun.url(), begun.issuer(), begun.scopes());
        output::json(&LoginPrompt { url, issuer, scopes, wait_seconds: wait });
        return;
    }
    let scopes = if begun.scopes().is_empty() { String::new() } else { format!(" for {}", begun.scopes().join(" ")) };
    output::note(&format!(
        "{} asks for your agreement{scopes}. Open this in a browser on this machine:",
        begun.issuer()
    ));
    output::data(begun.url());
    output::note(&format!("waiting for the answer, {wait} s at most"));
}

async fn done(global: &Global, resolved: &Resolved, server: &str, tools: usize) -> Outcome {
    tell::<McpStart>(global, resolved, server).await;
    if global.json {
        output::json(&Authorised { server, authorised: true, tools });
    } else {
        output::data(&format!("{server} can be used: {}", counted(tools, "tool")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Notifies a running Toolyard, which would otherwise notice the change a little later.
async fn tell<M: Method<Params = ServerParams, Answer = ServerStatus>>(
    global: &Global,
    resolved: &Resolved,
    server: &str,
) {
    if !global.in_process
        && let Ok(Some(mut client)) = backend::running(resolved, global).await
        && let Err(failure) = client.call::<M>(&ServerParams { server: server.to_owned() }, None).await
    {
        tracing::info!(%failure, server, "the running Toolyard could not be notified");
    }
}

/// Listens on the given port. If it is taken, listens on a free one, unless `must` forbids that.
async fn listen(port: u16, must: bool) -> Result<TcpListener, Failure> {
    let bound = match TcpListener::bind(("127.0.0.1", port)).await {
        Err(_) if !must && port != 0 => TcpListener::bind(("127.0.0.1", 0)).await,
        bound => bound,
    };
    bound.map_err(|e| Failure::new(ErrorCode::Unavailable, format!("127.0.0.1:{port} cannot be listened on: {e}")))
}

/// Waits for the answer to this login. Other requests are answered with 404.
async fn receive(listener: TcpListener, begun: &PendingLogin) -> String {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (sender, mut arrived) = mpsc::channel(MAX_CONNECTIONS);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let sender = sender.clone();
                tokio::spawn(async move {
                    let _place = place;
                    if let Ok(Some(request)) = tokio::time::timeout(HEAD_WITHIN, read(stream)).await
                        && sender.send(request).await.is_err()
                    {
                        tracing::debug!("a request came after the login had ended");
                    }
                });
            }
            Some((stream, target)) = arrived.recv() => {
                let query = target.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('?'));
                match query.filter(|query| begun.is_answer(query)) {
                    Some(query) => {
                        answer(stream, "200 OK", "Toolyard has the answer. Go back to the terminal; this window can be closed.").await;
                        return query.to_owned();
                    }
                    None => answer(stream, "404 Not Found", "This is not the answer to the login.").await,
                }
            }
        }
    }
}

/// Reads a request: its connection and its target. `None` if the bytes are not a complete request.
async fn read(mut stream: TcpStream) -> Option<(TcpStream, String)> {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(&buffer[..count]);
        if head.len() > MAX_HEAD {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let target = std::str::from_utf8(line).ok()?.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    Some((stream, target))
}

async fn answer(mut stream: TcpStream, status: &str, says: &str) {
    let page = format!("<!doctype html><meta charset=\"utf-8\"><title>Toolyard</title><p>{says}</p>");
    let head = "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
                Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n";
    let text = format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n{page}", page.len());
    let sending = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    match tokio::time::timeout(HEAD_WITHIN, sending).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the browser did not take the page"),
        Err(_) => tracing::debug!("the browser did not take the page in time"),
    }
}
