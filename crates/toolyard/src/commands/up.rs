//! `toolyard up`: bind, open, recover, serve, and stop cleanly.

use super::{Outcome, console};
use crate::{
    cli::{Global, UpArgs},
    config, context, home, mcp,
    output::{self, Paint},
    wiring::{Needs, Yard},
};
use serde_json::json;
use std::{net::SocketAddr, process::ExitCode, sync::Arc};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use toolyard_client::local::LocalSecret;
use toolyard_gateway::{Gateway, listen, local, tls};
use toolyard_mcp::server::Client;
use toolyard_protocol::{ErrorCode, Failure};

/// A token shorter than this does not open anything beyond loopback.
const MIN_TOKEN: usize = 16;
/// How long the doors stay closed for plugins that have yet to register their tools.
const PLUGINS_MEET: std::time::Duration = std::time::Duration::from_secs(10);
/// How long open HTTP connections may take to end when stopping.
const DOOR_CLOSES: std::time::Duration = std::time::Duration::from_secs(2);

/// As many open files as the system lets us have: every client is one.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current != now.maximum {
        let all = Rlimit { current: now.maximum, maximum: now.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, all) {
            tracing::warn!(%error, allowed = ?now.current, "the limit of open files could not be raised");
        }
    }
}

pub(super) async fn run(global: &Global, args: UpArgs) -> Outcome {
    allow_many_files();
    let mut signals = Signals::listen()?;
    let resolved = config::resolve(global)?;
    let home = resolved.home.clone();
    home.create().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    let host = args.host.unwrap_or(resolved.config.gateway.host);
    let port = args.port.unwrap_or(resolved.config.gateway.port);
    let given = args.token.or_else(|| resolved.config.gateway.token.clone());
    if !host.is_loopback() && given.as_ref().is_none_or(|t| t.len() < MIN_TOKEN) {
        return Err(Failure::new(
            ErrorCode::ConfigInvalid,
            format!("{host} is beyond loopback, and no token of at least {MIN_TOKEN} characters is set"),
        )
        .suggest("Set --token or gateway.token, or listen on 127.0.0.1."));
    }
    let token = match given {
        Some(token) => token,
        None => home.token().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?,
    };

    let tls = &resolved.config.gateway.tls;
    let acceptor = match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => Some(
            tls::acceptor(cert, key)
                .map_err(|e| Failure::new(ErrorCode::ConfigInvalid, format!("gateway.tls cannot be used: {e}")))?,
        ),
        _ => None,
    };
    let mut settings = resolved.config.gateway_settings(token.clone(), host, &home);

    // Bind before any work: a port that is taken is known at once, and nothing has been touched.
    let listener = TcpListener::bind(SocketAddr::new(host, port)).await.map_err(|e| {
        Failure::new(ErrorCode::Unavailable, format!("{host}:{port} cannot be listened on: {e}"))
            .suggest("Another program may use the port: choose one with --port N, or 0 for a free one.")
    })?;
    let address = listener.local_addr().map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
    let bridge_scheme = if acceptor.is_some() { "wss" } else { "ws" };
    settings.bridge_url.get_or_insert_with(|| format!("{bridge_scheme}://{}/bridge", reachable(address)));
    if let Some(program) = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned)) {
        settings.program = program;
    }
    let socket = local::bind(&home.socket()).await.map_err(|e| {
        Failure::new(ErrorCode::Unavailable, format!("{}: {e}", home.socket().display()))
            .suggest("Stop the other Toolyard first, or use another --home.")
    })?;
    // Only after the socket is ours: the secret of a Toolyard that runs already must stay as it is.
    let secret = LocalSecret::create(&home.state()).map_err(|e| {
        Failure::new(ErrorCode::StoreUnavailable, format!("the local socket's secret cannot be written: {e}"))
    })?;

    let vault = resolved.vault.clone();
    let public_url = resolved.config.gateway.public_url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
    let yard = Yard::open(resolved, Needs::Store)?;
    // The owner can answer later, with `toolyard approvals` or at the console.
    yard.service.engine().approvals().keep_questions();
    let recovered = yard.service.recover().await?;
    yard.watch_notes();
    let stop = CancellationToken::new();
    let recovering = tokio::spawn({
        let (service, stop) = (yard.service.clone(), stop.clone());
        async move { service.keep_recovering(stop).await }
    });
    let retention = tokio::spawn({
        let (upkeep, stop) = (yard.upkeep.clone(), stop.clone());
        async move {
            if let Some(upkeep) = upkeep {
                upkeep.keep_within(stop).await;
            }
        }
    });
    let owner = local::Owner { uid: rustix::process::getuid().as_raw(), secret, principal: home::user_name() };
    let gateway = Gateway::new(yard.service.clone(), settings, stop.clone());
    yard.editors.connect(gateway.hub());
    let mcp_server = mcp::server(&yard);
    gateway.set_bridge_tools(Arc::new(mcp::BridgedTools(mcp_server.clone())));
    gateway.mount(mcp::PATH, mcp::McpEndpoint::new(&mcp_server, yard.mcp.http_client_approvals, stop.clone()));
    if let Some(store) = &yard.context {
        let endpoint = context::ContextEndpoint::new(store.clone());
        for path in context::PATHS {
            gateway.mount_tree(path, endpoint.clone());
        }
        tokio::spawn(context::watch(store.clone(), stop.clone()));
    }
    let mcp_socket = local::bind(&home.mcp_socket())
        .await
        .map_err(|e| Failure::new(ErrorCode::Unavailable, format!("{}: {e}", home.mcp_socket().display())))?;
    let client = Client::owner(home::user_name()).with_approvals(yard.mcp.client_approvals());
    let stopped_early = meet_plugins(&yard, &mut signals).await?;
    let local_door = tokio::spawn(local::serve(socket, yard.service.clone(), owner.clone(), stop.clone()));
    let mcp_door = tokio::spawn(mcp::serve_local(mcp_socket, mcp_server, owner, client, stop.clone()));
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    let network_door = match acceptor {
        Some(acceptor) => {
            let listener = tls::TlsListener::new(listener, acceptor);
            tokio::spawn(listen::serve_tls(listener, gateway.clone(), stop.clone()))
        }
        None => tokio::spawn(listen::serve(listener, gateway.clone(), stop.clone())),
    };

    let url = format!("{scheme}://{address}");
    let reached = format!("{scheme}://{}", reachable(address));
    yard.service.console().set_address(public_url.unwrap_or_else(|| reached.clone()));
    let instance = home::Instance { url: reached, pid: std::process::id() };
    home.announce(&instance).map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    if global.json {
        output::json(&json!({"ready": true, "url": url, "pid": std::process::id()}));
    } else {
        let paint = Paint::stderr();
        output::note(&format!("{} {url}", paint.green("Toolyard is up:")));
        output::note(&format!("  token  {token}"));
        output::note(&format!("  vault  {}", vault.display()));
        output::note(&format!("  home   {}", home.path().display()));
        if let Some(line) = yard.notes_line().await {
            output::note(&format!("  notes  {line}"));
        }
        console::invite(&yard.service).await;
    }
    report_recovery(global, &recovered);

    if !stopped_early {
        tokio::select! {
            () = signals.next() => {}
            () = tidy_after_recovery(&yard) => signals.next().await,
        }
    }
    if !global.quiet {
        output::note("stopping");
    }
    gateway.farewell("stopping").await;
    stop.cancel();
    let parts = [
        ("local", local_door.await),
        ("MCP", mcp_door.await),
        ("recovery", recovering.await),
        ("retention", retention.await),
    ];
    for (part, ended) in parts {
        if let Err(error) = ended {
            tracing::error!(part, %error, "a part ended unexpectedly");
        }
    }
    // A client that keeps its HTTP connection open does not keep the process from ending.
    if tokio::time::timeout(DOOR_CLOSES, network_door).await.is_err() {
        tracing::info!("connections that are still open are closed");
    }
    yard.close().await;
    if let Err(error) = home.retract() {
        tracing::warn!(%error, "the address of this Toolyard could not be taken back");
    }
    for socket in [home.socket(), home.mcp_socket()] {
        if let Err(error) = home::remove_if_there(&socket) {
            tracing::warn!(socket = %socket.display(), %error, "a socket could not be removed");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the tools of plugins are in the catalog, so that they answer from the first moment. Answers whether somebody
/// stopped us meanwhile.
async fn meet_plugins(yard: &Yard, signals: &mut Signals) -> Result<bool, Failure> {
    let connecting = yard.connect();
    tokio::select! {
        met = tokio::time::timeout(PLUGINS_MEET, connecting.plugins) => {
            if met.is_err() {
                tracing::warn!("a plugin has not registered its tools in time; they come when it has");
            }
            Ok(false)
        }
        () = signals.next() => Ok(true),
    }
}

/// Where somebody on this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(a) if a.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], a.port())),
        SocketAddr::V6(a) if a.ip().is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, a.port())),
        other => other,
    }
}

/// What killed processes staged in the vault goes once the runs that were taken up again have ended.
async fn tidy_after_recovery(yard: &Yard) {
    while !yard.service.engine().active_runs().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    yard.tidy().await;
}

fn report_recovery(global: &Global, recovered: &toolyard_engine::plan::Recovered) {
    if global.quiet {
        return;
    }
    for run in &recovered.resumed {
        output::note(&format!("  taken up again: run {run}"));
    }
    for run in &recovered.paused {
        output::note(&format!("  needs approval again: toolyard runs resume {run} --yes"));
    }
    for (run, failure) in &recovered.failed {
        output::note(&format!("  could not be taken up: run {run}: {}", failure.message));
    }
}

/// The signals that stop the program. Listening begins once, before the start does anything slow: a signal that arrives
/// while nobody awaits [`Signals::next`] is kept for it, and would be lost between two listeners.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        let on = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(ErrorCode::InternalError, format!("signals cannot be awaited: {error}")))
        };
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Answers when a signal to stop has arrived.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

pub(super) async fn wait_for_signal() -> Result<(), Failure> {
    Signals::listen()?.next().await;
    Ok(())
}
