//! Times `tools.invoke` over WebSocket: one connection, sixteen connections, and what an idle connection weighs.
//!
//! usage: cargo run --release -p toolyard-gateway --example time_gateway -- ws://127.0.0.1:PORT TOKEN [TOOL [ARGS]] [IDLE]
//! One JSON line each. The server's own figures (CPU, memory) are read from /metrics of the same address.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolyard_gateway::client::{Client, Connect};

const CALLS: usize = 2000;
const CONNECTIONS: usize = 16;
const CALLS_EACH: usize = 1500;

async fn metric(address: &str, token: &str, name: &str) -> f64 {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let prefix = format!("{name} ");
    text.lines().find_map(|l| l.strip_prefix(prefix.as_str())).and_then(|v| v.parse().ok()).unwrap_or_default()
}

fn percentile(sorted: &[Duration], of: usize) -> f64 {
    sorted[(sorted.len() - 1) * of / 100].as_secs_f64() * 1e6
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (url, token) = (args[0].clone(), args[1].clone());
    let tool = args.get(2).cloned().unwrap_or_else(|| "util.slugifyTitle".to_owned());
    let tool_args: Value = args.get(3).map_or_else(|| json!({"title": "Hello"}), |a| serde_json::from_str(a).unwrap());
    let idle: usize = args.get(4).map_or(1000, |n| n.parse().unwrap());
    let address = url.trim_start_matches("ws://").to_owned();
    let connect = Connect {
        url,
        token: token.clone(),
        scopes: vec!["operator.read".to_owned(), "operator.write".to_owned()],
        mode: "backend".to_owned(),
        timeout: Duration::from_secs(30),
    };
    let params = json!({"name": tool, "args": tool_args});

    let mut client = Client::connect(&connect).await.unwrap();
    for _ in 0..200 {
        let warm = client.call("tools.invoke", params.clone()).await.unwrap();
        assert_eq!(warm["ok"], true, "{warm}");
    }
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        client.call("tools.invoke", params.clone()).await.unwrap();
        times.push(began.elapsed());
    }
    times.sort();
    println!(
        "{}",
        json!({"case": "one connection", "calls": CALLS, "p50us": percentile(&times, 50), "p99us": percentile(&times, 99)})
    );

    let cpu = metric(&address, &token, "process_cpu_seconds_total").await;
    let began = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let (connect, params) = (connect.clone(), params.clone());
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(&connect).await.unwrap();
            for _ in 0..CALLS_EACH {
                client.call("tools.invoke", params.clone()).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = metric(&address, &token, "process_cpu_seconds_total").await - cpu;
    let calls = (CONNECTIONS * CALLS_EACH) as f64;
    println!(
        "{}",
        json!({"case": "16 connections", "callsPerSecond": calls / seconds, "serverCpuUsPerCall": cpu * 1e6 / calls})
    );

    let before = metric(&address, &token, "process_resident_memory_bytes").await;
    let mut held = Vec::with_capacity(idle);
    for _ in 0..idle {
        held.push(Client::connect(&connect).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = metric(&address, &token, "process_resident_memory_bytes").await;
    println!(
        "{}",
        json!({"case": "idle connections", "connections": held.len(), "bytesEach": (after - before) / idle as f64, "rssBytes": after})
    );
}
