//! Admission: the resources that unauthenticated clients can take, the effect of slow peers and hung calls on other
//! clients, and the CPU time of admitting a request.

use super::{
    generator,
    served::{Served, TOKEN, open_files},
    wire::{Wire, contains, frame, request},
};
use crate::{
    Setup,
    report::{Good, Report},
    rig::Rig,
    stats::quantile,
    tools::HANG,
    usage::{Whose, cpu_micros},
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{
    cell::{Cell, RefCell},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;
use toolyard_gateway::{Gateway, Settings, admission::exercise};
use toolyard_service::{ProcessInfo, Service};

/// A response that takes longer than this counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
const TEXT: u8 = 1;
const PING: u8 = 9;

/// What an unauthenticated client sends on each of its connections.
struct Attack {
    name: &'static str,
    /// Sent once at the start.
    opening: Vec<u8>,
    /// Sent repeatedly as long as the connection accepts it.
    rest: Vec<u8>,
}

fn attacks(address: SocketAddr) -> Vec<Attack> {
    let host = format!("Host: {address}\r\n");
    let upgrade = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
    };
    let piece = vec![b'x'; 32 << 10];
    let half_frame = |opening: String| {
        // The header of a frame of 60 KiB, and all of its payload but one byte.
        let whole = frame(TEXT, &vec![b' '; 60 << 10]);
        [opening.into_bytes(), whole[..whole.len() - 1].to_vec()].concat()
    };
    let wrong = request(
        "c",
        "connect",
        &json!({
            "minProtocol": 4, "maxProtocol": 4, "role": "operator", "scopes": ["operator.read"],
            "client": {"id": "gateway-client", "version": "1", "platform": "linux", "mode": "backend"},
            "auth": {"token": "wrong"},
        }),
    );
    let body = |line: &str| format!("{line} HTTP/1.1\r\n{host}Content-Length: 1000000000\r\n\r\n").into_bytes();
    let head = format!("GET /health HTTP/1.1\r\n{host}X-Filler: {}", "x".repeat(60 << 10));
    vec![
        Attack { name: "nothing", opening: Vec::new(), rest: Vec::new() },
        Attack { name: "slow heads", opening: head.into_bytes(), rest: Vec::new() },
        Attack { name: "large bodies on an open path", opening: body("GET /health"), rest: piece.clone() },
        Attack { name: "large bodies without a token", opening: body("POST /tools/invoke"), rest: piece.clone() },
        Attack { name: "large bodies nowhere", opening: body("POST /nowhere"), rest: piece },
        Attack { name: "half frames", opening: half_frame(upgrade("/")), rest: Vec::new() },
        Attack { name: "half frames on the bridge", opening: half_frame(upgrade("/bridge")), rest: Vec::new() },
        Attack { name: "pings", opening: upgrade("/").into_bytes(), rest: frame(PING, b"x").repeat(2000) },
        Attack {
            name: "wrong tokens",
            opening: [upgrade("/").into_bytes(), wrong].concat(),
            rest: vec![b'x'; 1 << 10],
        },
        Attack {
            name: "unread answers",
            opening: format!("GET /ready HTTP/1.1\r\n{host}\r\n").repeat(500).into_bytes(),
            rest: Vec::new(),
        },
    ]
}

/// One address without a token: the memory and sockets it can take, whatever it sends.
pub(crate) fn strangers(setup: &Setup) -> Result<Report> {
    const CONNECTIONS: usize = 600;
    const LASTS: Duration = Duration::from_secs(3);
    open_files(CONNECTIONS as u64 * 2 + 400)?;
    let served = Served::start(setup)?;
    generator()?.block_on(LocalSet::new().run_until(async {
        // The memory that the gateway allocates for its first clients is kept, so it must not count.
        for _ in 0..200 {
            drop(Wire::connect(served.address, TOKEN).await?);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (memory_before, sockets_before) = (served.memory()?, served.sockets()?);
        let (mut memory, mut sockets, mut shut_out) = (0f64, 0usize, Vec::new());
        let mut worst = "";
        for attack in attacks(served.address) {
            let (name, address) = (attack.name, served.address);
            let attack = Rc::new(attack);
            let tasks: Vec<_> =
                (0..CONNECTIONS).map(|_| tokio::task::spawn_local(pester(address, attack.clone(), LASTS))).collect();
            let until = Instant::now() + LASTS;
            while Instant::now() < until {
                let more = served.memory()? - memory_before;
                if more > memory {
                    (memory, worst) = (more, name);
                }
                sockets = sockets.max(served.sockets()?.saturating_sub(sockets_before));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // A client with a token connects from the same address during the attack.
            let own = tokio::time::timeout(PATIENCE, Wire::connect(address, TOKEN)).await;
            if !matches!(own, Ok(Ok(_))) {
                shut_out.push(name);
            }
            for task in tasks {
                task.abort();
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        Ok(Report::new("admission-strangers", "moreMegabytes", Good::AtMost, 64.0)
            .also("sockets", Good::AtMost, 256.0)
            .also("clientsShutOut", Good::AtMost, 0.0)
            .figure("moreMegabytes", memory / 1e6)
            .figure("sockets", sockets as f64)
            .figure("clientsShutOut", shut_out.len() as f64)
            .figure("connectionsTried", CONNECTIONS as f64)
            .value("shutOutBy", json!(shut_out))
            .value("mostMemoryBy", json!(worst)))
    }))
}

/// Attacks over one connection after another until the time is up.
async fn pester(address: SocketAddr, attack: Rc<Attack>, lasts: Duration) {
    let until = Instant::now() + lasts;
    while Instant::now() < until {
        let Ok(mut stream) = TcpStream::connect(address).await else { return };
        let mut sent = stream.write_all(&attack.opening).await;
        while sent.is_ok() && !attack.rest.is_empty() && Instant::now() < until {
            sent = stream.write_all(&attack.rest).await;
            tokio::task::yield_now().await;
        }
        // A connection that is not closed stays open and reads only enough to notice the close.
        let mut scrap = [0; 1];
        while let Ok(1..) = stream.peek(&mut scrap).await {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if stream.write_all(b"x").await.is_err() {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Latency of health, approvals and cancel, with slow peers from many addresses and hung calls.
pub(crate) fn busy(setup: &Setup) -> Result<Report> {
    const PEERS: usize = 4096;
    const PEERS_PER_ADDRESS: usize = 128;
    const HUNG: usize = 2000;
    const HUNG_PER_CONNECTION: usize = 500;
    const MEASURED: usize = 400;
    open_files(PEERS as u64 + 400)?;
    let served = Served::start(setup)?;
    let address = served.address;
    generator()?.block_on(LocalSet::new().run_until(async {
        let stop = CancellationToken::new();
        let held = Rc::new(Cell::new(0usize));
        for n in 0..PEERS {
            let from = Ipv4Addr::new(127, 0, 1, (1 + n / PEERS_PER_ADDRESS) as u8);
            tokio::task::spawn_local(slow_peer(address, from.into(), held.clone(), stop.clone()));
        }
        let mut hung = Vec::new();
        for connection in 0..HUNG / HUNG_PER_CONNECTION {
            let mut wire = Wire::connect(address, TOKEN).await?;
            for n in 0..HUNG_PER_CONNECTION {
                let args = json!({"name": HANG, "args": {"ms": 3_600_000}, "timeoutMs": 600_000});
                wire.send(&request(&format!("h{connection}-{n}"), "tools.invoke", &args)).await?;
            }
            hung.push(wire);
        }
        let until = Instant::now() + 6 * PATIENCE;
        while held.get() < PEERS * 95 / 100 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let least = Rc::new(Cell::new(held.get()));
        let mut client = Wire::connect(address, TOKEN).await?;
        let mut approver = Wire::connect_as(address, TOKEN, &["operator.admin"], &["approvals"]).await?;
        let mut asker = Wire::connect_as(address, TOKEN, &["operator.approvals"], &[]).await?;
        let (mut health, mut http, mut approvals, mut cancels) = (vec![], vec![], vec![], vec![]);
        for n in 0..MEASURED {
            health.push(timed(&mut client, "health", "e", &json!({})).await?);
            http.push(look(address).await?);
            cancels.push(cancel_one(&mut client, n).await?);
            approvals.push(approve_one(&mut asker, &mut approver, n).await?);
            least.set(least.get().min(held.get()));
        }
        stop.cancel();
        Ok(Report::new("admission-busy", "healthP99Ms", Good::AtMost, 50.0)
            .also("httpHealthP99Ms", Good::AtMost, 50.0)
            .also("approvalP99Ms", Good::AtMost, 50.0)
            .also("cancelP99Ms", Good::AtMost, 50.0)
            .figure("healthP99Ms", quantile(&health, 0.99))
            .figure("httpHealthP99Ms", quantile(&http, 0.99))
            .figure("approvalP99Ms", quantile(&approvals, 0.99))
            .figure("cancelP99Ms", quantile(&cancels, 0.99))
            .figure("healthP50Ms", quantile(&health, 0.5))
            .figure("approvalP50Ms", quantile(&approvals, 0.5))
            .figure("slowPeersAtLeast", least.get() as f64)
            .figure("hungCalls", HUNG as f64)
            .figure("measured", MEASURED as f64))
    }))
}

/// Holds a connection with an incomplete header, one byte at a time, and reconnects whenever it is closed.
async fn slow_peer(address: SocketAddr, from: IpAddr, held: Rc<Cell<usize>>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let connected = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(from, 0))?;
            let mut stream = socket.connect(address).await?;
            stream.write_all(format!("GET /health HTTP/1.1\r\nHost: {address}\r\nX-Slow: ").as_bytes()).await?;
            std::io::Result::Ok(stream)
        };
        if let Ok(Ok(mut stream)) = tokio::time::timeout(PATIENCE, connected).await {
            held.set(held.get() + 1);
            loop {
                let mut scrap = [0; 64];
                let ended = tokio::select! {
                    read = stream.read(&mut scrap) => !matches!(read, Ok(1..)),
                    () = tokio::time::sleep(Duration::from_secs(2)) => stream.write_all(b"x").await.is_err(),
                    () = stop.cancelled() => true,
                };
                if ended {
                    break;
                }
            }
            held.set(held.get() - 1);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// Sends a request and waits for the response with its id, ignoring everything else; returns the text.
async fn answer(wire: &mut Wire, id: &str, sent: &[u8]) -> Result<String> {
    wire.send(sent).await?;
    let wanted = format!(r#""id":"{id}""#);
    let reading = async {
        loop {
            let text = wire.event().await?;
            if text.starts_with(br#"{"type":"res""#) && contains(&text[..text.len().min(120)], wanted.as_bytes()) {
                return anyhow::Ok(String::from_utf8_lossy(text).into_owned());
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.context("no answer in time")?
}

async fn timed(wire: &mut Wire, method: &str, id: &str, params: &serde_json::Value) -> Result<f64> {
    let began = Instant::now();
    let text = answer(wire, id, &request(id, method, params)).await?;
    ensure!(text.contains(r#""ok":true"#), "{method} failed: {text}");
    Ok(millis(began))
}

/// Starts a hung call and cancels it.
async fn cancel_one(wire: &mut Wire, n: usize) -> Result<f64> {
    let id = format!("x{n}");
    wire.send(&request(&id, "tools.invoke", &json!({"name": HANG, "args": {"ms": 600_000}}))).await?;
    let began = Instant::now();
    let text = answer(wire, "k", &request("k", "tools.cancel", &json!({"requestId": id}))).await?;
    ensure!(text.contains(r#""cancelled":true"#), "tools.cancel failed: {text}");
    Ok(millis(began))
}

/// Creates an approval request, and measures how long its resolution takes.
async fn approve_one(asker: &mut Wire, approver: &mut Wire, n: usize) -> Result<f64> {
    let question = json!({"title": "May I?", "description": format!("Question {n}"), "twoPhase": true});
    let id = format!("q{n}");
    let accepted = answer(asker, &id, &request(&id, "plugin.approval.request", &question)).await?;
    let accepted: serde_json::Value = serde_json::from_str(&accepted)?;
    let approval = accepted["payload"]["id"].as_str().with_context(|| format!("no approval: {accepted}"))?;
    let params = json!({"id": approval, "decision": "allow-once"});
    timed(approver, "approval.resolve", "a", &params).await
}

/// `GET /health` on a new connection.
async fn look(address: SocketAddr) -> Result<f64> {
    let began = Instant::now();
    let looking = async {
        let mut stream = TcpStream::connect(address).await?;
        let get = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(get.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        anyhow::Ok(text)
    };
    let text = tokio::time::timeout(PATIENCE, looking).await.context("no answer in time")??;
    ensure!(text.starts_with("HTTP/1.1 200"), "not healthy: {text}");
    Ok(millis(began))
}

/// CPU time of admitting an authenticated request: parsing its header, and taking a slot among the running requests.
pub(crate) fn cpu(setup: &Setup) -> Result<Report> {
    const REQUESTS: usize = 100_000;
    let rig = Rig::new(setup)?;
    let stop = CancellationToken::new();
    let mut headers = http::HeaderMap::new();
    for (name, value) in [
        ("host", "127.0.0.1:18789"),
        ("authorization", &*format!("Bearer {TOKEN}")),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("user-agent", "bench/1"),
    ] {
        headers.insert(http::HeaderName::from_bytes(name.as_bytes())?, value.parse()?);
    }
    let costs = RefCell::new(Vec::new());
    rig.runtime.block_on(async {
        let service = Service::new(rig.engine.clone(), ProcessInfo::default());
        let gateway = Gateway::new(service, Settings::new(TOKEN), stop.clone());
        let peer: SocketAddr = "127.0.0.1:4711".parse()?;
        exercise(&gateway, peer, &headers, REQUESTS / 10).await; // warms up
        for _ in 0..setup.rounds {
            let before = cpu_micros(Whose::Ours)?;
            let admitted = exercise(&gateway, peer, &headers, REQUESTS).await;
            ensure!(admitted == REQUESTS, "only {admitted} of {REQUESTS} were admitted");
            costs.borrow_mut().push((cpu_micros(Whose::Ours)? - before) / REQUESTS as f64);
        }
        anyhow::Ok(())
    })?;
    stop.cancel();
    rig.close();
    let costs = costs.into_inner();
    Ok(Report::new("admission-cpu", "cpuUs", Good::AtMost, 3.0)
        .figure("cpuUs", quantile(&costs, 0.5))
        .figure("cpuUsMost", quantile(&costs, 1.0))
        .figure("requests", REQUESTS as f64))
}
