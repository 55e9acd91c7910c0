//! `toolyard up`: bind, open, recover, serve, and stop cleanly.

use super::{Outcome, console};
use crate::{
    cli::{Global, UpArgs},
    config, context, drain, home, mcp,
    output::{self, Paint},
    stores,
    wiring::{App, RequiredParts},
};
use serde_json::json;
use std::{
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::Arc,
};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use toolyard_client::local::LocalSecret;
use toolyard_engine::{plan::Recovered, store::StoreError};
use toolyard_gateway::{Gateway, listen, local, tls};
use toolyard_mcp::server::Client;
use toolyard_protocol::{ErrorCode, Failure};

/// The shortest token with which `up` listens on an address other than loopback.
const MIN_TOKEN: usize = 16;
/// How long `up` waits for plugins to register their tools before it accepts connections.
const PLUGINS_MEET: std::time::Duration = std::time::Duration::from_secs(10);
/// How long open HTTP connections may take to end when stopping.
const DOOR_CLOSES: std::time::Duration = std::time::Duration::from_secs(2);

/// Raises the limit of open files to the maximum that the system allows: every connection uses one.
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
    let mut resolved = config::resolve(global)?;
    resolved.serves = true;
    let home = resolved.home.clone();
    home.create().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    let host = args.host.unwrap_or(resolved.config.gateway.host);
    let port = args.port.unwrap_or(resolved.config.gateway.port);
    if stores::url(&resolved).is_none() {
        // In a cluster the token may come from the shared configuration, which is not known yet.
        token(args.token.as_ref(), &resolved, host)?;
    }

    let tls = &resolved.config.gateway.tls;
    let acceptor = match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => Some(
            tls::acceptor(cert, key)
                .map_err(|e| Failure::new(ErrorCode::ConfigInvalid, format!("gateway.tls cannot be used: {e}")))?,
        ),
        _ => None,
    };
    // Bind before any work: a port that is taken is known at once, and nothing has been touched.
    let listener = TcpListener::bind(SocketAddr::new(host, port)).await.map_err(|e| {
        Failure::new(ErrorCode::Unavailable, format!("{host}:{port} cannot be listened on: {e}"))
            .suggest("Another program may use the port: choose one with --port N, or 0 for a free one.")
    })?;
    let address = listener.local_addr().map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
    let socket = local::bind(&home.socket()).await.map_err(|e| {
        Failure::new(ErrorCode::Unavailable, format!("{}: {e}", home.socket().display()))
            .suggest("Stop the other Toolyard first, or use another --home.")
    })?;
    // Only after this process has bound the socket: the secret of another running Toolyard must not be replaced.
    let secret = LocalSecret::create(&home.state()).map_err(|e| {
        Failure::new(ErrorCode::StoreUnavailable, format!("the local socket's secret cannot be written: {e}"))
    })?;

    resolved.opened = Some(stores::open_agreed(&mut resolved)?);
    let token = token(args.token.as_ref(), &resolved, host)?;
    let vault = resolved.vault.clone();
    let public_url = resolved.config.gateway.public_url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
    let node_address = stores::node_address(&resolved)?;
    let config = resolved.config.clone();
    let app = App::open(resolved, RequiredParts::Store)?;
    let mut settings = config.gateway_settings(token.clone(), host, &home, app.shared.clone());
    let bridge_scheme = if acceptor.is_some() { "wss" } else { "ws" };
    settings.bridge_url.get_or_insert_with(|| format!("{bridge_scheme}://{}/bridge", reachable(address)));
    if let Some(program) = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned)) {
        settings.program = program;
    }
    // The owner can answer later, with `toolyard approvals` or at the console.
    app.service.engine().approvals().keep_questions();
    app.watch_notes();
    let stop = CancellationToken::new();
    let retention = tokio::spawn({
        let (upkeep, stop) = (app.upkeep.clone(), stop.clone());
        async move {
            if let Some(upkeep) = upkeep {
                upkeep.keep_within(stop).await;
            }
        }
    });
    let notifying = tokio::spawn(app.notifications.clone().run(app.upstreams.clone(), stop.clone()));
    let owner = local::Owner { uid: rustix::process::getuid().as_raw(), secret, principal: home::user_name() };
    let gateway = Gateway::new(app.service.clone(), settings, stop.clone());
    app.editors.connect(gateway.hub());
    let mcp_server = mcp::server(&app);
    gateway.set_bridge_tools(Arc::new(mcp::BridgedTools(mcp_server.clone())));
    let cluster = app.service.cluster().cloned();
    let endpoint = mcp::McpEndpoint::new(&mcp_server, app.mcp.http_client_approvals, cluster, stop.clone());
    gateway.mount(mcp::PATH, endpoint);
    if let Some(store) = &app.context {
        let endpoint = context::ContextEndpoint::new(store.clone());
        for path in context::PATHS {
            gateway.mount_tree(path, endpoint.clone());
        }
        tokio::spawn(context::watch(store.clone(), stop.clone()));
    }
    let mcp_socket = local::bind(&home.mcp_socket())
        .await
        .map_err(|e| Failure::new(ErrorCode::Unavailable, format!("{}: {e}", home.mcp_socket().display())))?;
    let client = Client::owner(home::user_name()).with_approvals(app.mcp.client_approvals());
    let stopped_early = meet_tools(&app, &mut signals).await?;
    // After the tools, because a run whose tool is not in the catalog cannot be resumed. Before the doors, so that a
    // caller that asks for the result of an interrupted run finds the run.
    let recovered = if stopped_early { Recovered::default() } else { app.service.recover().await? };
    let recovering = tokio::spawn({
        let (service, stop) = (app.service.clone(), stop.clone());
        async move { service.keep_recovering(stop).await }
    });
    let following = tokio::spawn({
        let (shared, stop) = (app.shared.clone(), stop.clone());
        async move {
            if let Some(shared) = shared {
                shared.follow(stop).await;
            }
        }
    });
    let local_door = tokio::spawn(local::serve(socket, app.service.clone(), owner.clone(), stop.clone()));
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
    app.service.console().set_address(public_url.unwrap_or_else(|| reached.clone()));
    if let Some(cluster) = app.service.cluster() {
        cluster.announce(node_address.unwrap_or_else(|| reached.clone())).await?;
    }
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
        if let Some(line) = app.notes_line().await {
            output::note(&format!("  notes  {line}"));
        }
        console::invite(&app.service).await;
    }
    report_recovery(global, &recovered);

    let mut fenced = None;
    if !stopped_early {
        let (engine, store) = (app.service.engine(), app.service.engine().store().clone());
        let stopped = async {
            tokio::select! {
                () = signals.next() => {}
                () = drain::asked(engine) => {}
                () = tidy_after_recovery(&app) => tokio::select! {
                    () = signals.next() => {}
                    () = drain::asked(engine) => {}
                },
            }
        };
        tokio::select! {
            () = stopped => {}
            owner = stores::fenced(store) => fenced = Some(owner),
        }
    }
    if app.service.engine().store().is_shared() && !stopped_early && fenced.is_none() {
        drain_node(global, &app, &gateway, &mut signals).await;
    }
    if !global.quiet {
        output::note("stopping");
    }
    gateway.farewell("stopping", &[]).await;
    stop.cancel();
    let parts = [
        ("local", local_door.await),
        ("MCP", mcp_door.await),
        ("recovery", recovering.await),
        ("retention", retention.await),
        ("notifications", notifying.await),
        ("configuration", following.await),
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
    app.close().await;
    if let Err(error) = home.retract() {
        tracing::warn!(%error, "the file with this Toolyard's address could not be removed");
    }
    for socket in [home.socket(), home.mcp_socket()] {
        if let Err(error) = home::remove_if_there(&socket) {
            tracing::warn!(socket = %socket.display(), %error, "a socket could not be removed");
        }
    }
    match fenced {
        None => Ok(ExitCode::SUCCESS),
        Some(owner) => Err(StoreError::Fenced(owner).into()),
    }
}

/// The token that clients must present.
fn token(given: Option<&String>, resolved: &config::Resolved, host: IpAddr) -> Result<String, Failure> {
    let given = given.or(resolved.config.gateway.token.as_ref());
    if !host.is_loopback() && given.is_none_or(|token| token.len() < MIN_TOKEN) {
        return Err(Failure::new(
            ErrorCode::ConfigInvalid,
            format!("{host} is beyond loopback, and no token of at least {MIN_TOKEN} characters is set"),
        )
        .suggest("Set --token or gateway.token, or listen on 127.0.0.1."));
    }
    match given {
        Some(token) => Ok(token.clone()),
        None => resolved.home.token().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}"))),
    }
}

/// Waits until the tools of plugins and those that MCP servers offered before are in the catalog, so that they answer from
/// the first moment. Answers whether somebody stopped us meanwhile.
async fn meet_tools(app: &App, signals: &mut Signals) -> Result<bool, Failure> {
    let connecting = app.connect();
    connecting.remembered.cancelled().await;
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

/// Lets a node of a cluster finish, until it has or a second signal arrives.
async fn drain_node(global: &Global, app: &App, gateway: &Gateway, signals: &mut Signals) {
    let engine = app.service.engine();
    let drain = async {
        let elsewhere = drain::announce(engine, global.quiet).await;
        gateway.hub().announce_shutdown("draining", &elsewhere);
        drain::finish(engine).await;
        gateway.farewell("draining", &elsewhere).await;
    };
    tokio::select! {
        () = drain => {}
        () = signals.next() => tracing::info!("a second signal: runs under way are handed over at once"),
    }
}

/// The address by which programs on this machine reach a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(a) if a.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], a.port())),
        SocketAddr::V6(a) if a.ip().is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, a.port())),
        other => other,
    }
}

/// Removes the files that killed processes staged in the vault, after the resumed runs have ended.
async fn tidy_after_recovery(app: &App) {
    while !app.service.engine().active_runs().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    app.tidy().await;
}

fn report_recovery(global: &Global, recovered: &Recovered) {
    if global.quiet {
        return;
    }
    for run in &recovered.resumed {
        output::note(&format!("  resumed: run {run}"));
    }
    for run in &recovered.paused {
        output::note(&format!("  needs approval again: toolyard runs resume {run} --yes"));
    }
    for (run, failure) in &recovered.failed {
        output::note(&format!("  could not be resumed: run {run}: {}", failure.message));
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

    /// Returns when a signal to stop has arrived.
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
