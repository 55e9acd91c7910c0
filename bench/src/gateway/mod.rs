//! The Gateway over loopback: the latency of a call through the whole pipeline, the memory of connections, and the
//! effect of a busy or broken client on others. This process generates the load; the gateway runs in another process.

mod admission;
mod served;
pub(crate) mod wire;

pub(crate) use admission::{busy, cpu, strangers};
pub(crate) use served::serve;

use crate::{
    Setup,
    process::{home, program, start_up},
    report::{Good, Report},
    stats::{median, micros, most, quantile},
    tools::{ECHO, HANG},
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use served::{Served, TOKEN, open_files};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::runtime::Runtime;
use wire::{Wire, contains, echo, request};

const WARM_UP: usize = 2000;

/// One thread generates the load, so that the gateway has the other core to itself.
fn generator() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn echo_request() -> Vec<u8> {
    request("r", "tools.invoke", &json!({"name": ECHO, "args": {"text": "hello", "n": 1}}))
}

/// Latency of a call with one connection, and throughput with sixteen.
pub(crate) fn echoes(setup: &Setup) -> Result<Report> {
    const CALLS: usize = 10_000;
    const CONNECTIONS: usize = 16;
    const CALLS_EACH: usize = 4000;
    let served = Served::start(setup)?;
    generator()?.block_on(async {
        let call = echo_request();
        let mut wire = Wire::connect(served.address, TOKEN).await?;
        for _ in 0..WARM_UP {
            echo(&mut wire, &call).await?;
        }
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let began = Instant::now();
            echo(&mut wire, &call).await?;
            times.push(micros(began.elapsed()));
        }
        let (mut rates, mut costs) = (Vec::new(), Vec::new());
        for _ in 0..setup.rounds {
            let mut wires = Vec::new();
            for _ in 0..CONNECTIONS {
                wires.push(Wire::connect(served.address, TOKEN).await?);
            }
            let (cpu, began) = (served.cpu_micros()?, Instant::now());
            let tasks: Vec<_> = wires
                .into_iter()
                .map(|mut wire| {
                    let call = call.clone();
                    async move {
                        for _ in 0..CALLS_EACH {
                            echo(&mut wire, &call).await?;
                        }
                        anyhow::Ok(())
                    }
                })
                .collect();
            all(tasks).await?;
            let calls = (CONNECTIONS * CALLS_EACH) as f64;
            rates.push(calls / began.elapsed().as_secs_f64());
            costs.push((served.cpu_micros()? - cpu) / calls);
        }
        Ok(Report::new("gateway-echo", "p50Us", Good::Below, 200.0)
            .also("callsPerSecond16", Good::AtLeast, 15_000.0)
            .also("serverCpuUsPerCall", Good::Below, 80.0)
            .figure("p50Us", median(&times))
            .figure("p99Us", quantile(&times, 0.99))
            .figure("callsPerSecond16", median(&rates))
            .figure("serverCpuUsPerCall", median(&costs)))
    })
}

/// Runs all tasks concurrently on this thread.
async fn all<F: Future<Output = Result<()>> + 'static>(tasks: Vec<F>) -> Result<()> {
    let local = tokio::task::LocalSet::new();
    let running: Vec<_> = tasks.into_iter().map(|task| local.spawn_local(task)).collect();
    local
        .run_until(async {
            for task in running {
                task.await??;
            }
            Ok(())
        })
        .await
}

/// Ten thousand idle connections.
pub(crate) fn idle(setup: &Setup) -> Result<Report> {
    const CONNECTIONS: usize = 10_000;
    open_files(CONNECTIONS as u64 + 200)?;
    let served = Served::start(setup)?;
    generator()?.block_on(async {
        // The memory that the gateway allocates for its first connections is kept; the cost of each further one is
        // measured.
        drop(connect_many(&served, 200).await?);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = served.memory()?;
        let began = Instant::now();
        let wires = connect_many(&served, CONNECTIONS).await?;
        let connecting = began.elapsed();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let each = (served.memory()? - before) / CONNECTIONS as f64;
        // Measures how late each connection receives the next two ticks. Ticks sent before this process started
        // listening are ignored.
        let listening_since = now_ms()?;
        let late: Arc<std::sync::Mutex<Vec<f64>>> = Arc::default();
        let tasks: Vec<_> = wires
            .into_iter()
            .map(|mut wire| {
                let late = late.clone();
                async move {
                    let mut ticks = 0;
                    while ticks < 2 {
                        let event = wire.event().await?;
                        if contains(event, br#""event":"tick""#) {
                            let event: serde_json::Value = serde_json::from_slice(event)?;
                            let sent = event["payload"]["ts"].as_f64().context("a tick has a time")?;
                            if sent > listening_since {
                                late.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(now_ms()? - sent);
                                ticks += 1;
                            }
                        }
                    }
                    // No connection closes before all have received the tick, because closing is work for the gateway.
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    anyhow::Ok(())
                }
            })
            .collect();
        all(tasks).await?;
        let late = late.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        Ok(Report::new("gateway-idle", "bytesEach", Good::Below, 32_768.0)
            .also("tickLateMsMost", Good::Below, 1000.0)
            .figure("bytesEach", each)
            .figure("tickLateMsP50", median(&late))
            .figure("tickLateMsMost", most(&late))
            .figure("connections", CONNECTIONS as f64)
            .figure("connectsPerSecond", CONNECTIONS as f64 / connecting.as_secs_f64()))
    })
}

fn now_ms() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1000.0)
}

async fn connect_many(served: &Served, count: usize) -> Result<Vec<Wire>> {
    let mut wires = Vec::with_capacity(count);
    for _ in 0..count {
        wires.push(Wire::connect(served.address, TOKEN).await?);
    }
    Ok(wires)
}

/// A thousand connections that all call: as fast as possible, and five times a second each.
pub(crate) fn many(setup: &Setup) -> Result<Report> {
    const CONNECTIONS: usize = 1000;
    const PACE: Duration = Duration::from_millis(200);
    open_files(CONNECTIONS as u64 + 200)?;
    let served = Served::start(setup)?;
    generator()?.block_on(async {
        let mut all_times = Vec::new();
        let errors = Arc::new(AtomicU64::new(0));
        let mut rate = 0.0;
        for (calls, pace) in [(40, Duration::ZERO), (25, PACE)] {
            let wires = connect_many(&served, CONNECTIONS).await?;
            let times: Arc<std::sync::Mutex<Vec<f64>>> = Arc::default();
            let began = Instant::now();
            let tasks: Vec<_> = wires
                .into_iter()
                .enumerate()
                .map(|(i, mut wire)| {
                    let (times, errors, call) = (times.clone(), errors.clone(), echo_request());
                    async move {
                        // With a pace, the calls are spread over the interval.
                        tokio::time::sleep(pace * i as u32 / CONNECTIONS as u32).await;
                        let mut own = Vec::with_capacity(calls);
                        for n in 0..calls {
                            let began = Instant::now();
                            if echo(&mut wire, &call).await.is_err() {
                                errors.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            // The first call of each connection is ignored, because the gateway has just admitted a
                            // thousand connections.
                            if n > 0 {
                                own.push(micros(began.elapsed()) / 1000.0);
                            }
                            tokio::time::sleep(pace.saturating_sub(began.elapsed())).await;
                        }
                        times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(own);
                        anyhow::Ok(())
                    }
                })
                .collect();
            all(tasks).await?;
            if pace.is_zero() {
                rate = (CONNECTIONS * calls) as f64 / began.elapsed().as_secs_f64();
            }
            all_times.push(times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone());
        }
        Ok(Report::new("gateway-many", "p99Ms", Good::Below, 100.0)
            .also("errors", Good::AtMost, 0.0)
            .figure("p99Ms", quantile(&all_times[0], 0.99))
            .figure("p50Ms", median(&all_times[0]))
            .figure("callsPerSecond", rate)
            .figure("pacedP99Ms", quantile(&all_times[1], 0.99))
            .figure("errors", errors.load(Ordering::Relaxed) as f64)
            .figure("connections", CONNECTIONS as f64))
    })
}

/// Time from the start of `toolyard up` to its first response, and its idle memory.
pub(crate) fn start(setup: &Setup) -> Result<Report> {
    const IDLE: Duration = Duration::from_secs(2);
    let report =
        Report::new("gateway-start", "readyMs", Good::Below, 150.0).also("idlePrivateMegabytes", Good::Below, 12.0);
    let program = match program(setup) {
        Ok(program) => program,
        Err(why) => return Ok(report.skipped(why)),
    };
    let home = home(setup)?;
    let (mut times, mut private, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=setup.rounds {
        let began = Instant::now();
        let (running, url) = start_up(&program, &home)?;
        let address: std::net::SocketAddr = url.trim_start_matches("http://").parse()?;
        let status = generator()?.block_on(async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            let get = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream.write_all(get.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        })?;
        ensure!(status.starts_with("HTTP/1.1 200"), "it is not ready: {status}");
        // The first start creates the home folder, so it is not measured.
        if round > 0 {
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            std::thread::sleep(IDLE);
            let (own, all) = crate::usage::Memory::of(running.id())?.megabytes();
            private.push(own);
            resident.push(all);
        }
    }
    Ok(report
        .figure("readyMs", median(&times))
        .figure("readyMsMost", most(&times))
        .figure("idlePrivateMegabytes", median(&private))
        .figure("idleResidentMegabytes", median(&resident)))
}

/// A mixed load: memory at the end against memory after the first minute.
pub(crate) fn soak(setup: &Setup) -> Result<Report> {
    const FIRST: Duration = Duration::from_secs(60);
    const LOOK: Duration = Duration::from_secs(15);
    const CALLERS: usize = 8;
    let length = setup.seconds.max(FIRST + LOOK);
    let served = Served::start(setup)?;
    generator()?.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let (calls, connects) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks: Vec<std::pin::Pin<Box<dyn Future<Output = Result<()>>>>> = Vec::new();
        let address = served.address;
        for caller in 0..CALLERS {
            let (stop, calls) = (stop.clone(), calls.clone());
            tasks.push(Box::pin(async move {
                let mut wire = Wire::connect(address, TOKEN).await?;
                let small = echo_request();
                let list = request("l", "runs.list", &json!({"limit": 20}));
                let health = request("h", "health", &json!({}));
                let bad = request("b", "tools.invoke", &json!({"name": ECHO, "args": {"text": 5}}));
                let session = json!({"key": format!("agent:main:soak{caller}"), "label": "x".repeat(100)});
                let session = request("s", "sessions.create", &session);
                for n in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    match n % 50 {
                        10 => drop(wire.call(&list).await?),
                        20 => drop(wire.call(&health).await?),
                        30 => drop(wire.call(&bad).await?),
                        40 => drop(wire.call(&session).await?),
                        _ => echo(&mut wire, &small).await?,
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Ok(())
            }));
        }
        // A client that connects and disconnects continuously.
        let (stopped, came) = (stop.clone(), connects.clone());
        tasks.push(Box::pin(async move {
            let call = echo_request();
            while !stopped.load(Ordering::Relaxed) {
                let mut wire = Wire::connect(address, TOKEN).await?;
                echo(&mut wire, &call).await?;
                came.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        }));
        let (stopped, looked) = (stop.clone(), Arc::new(std::sync::Mutex::new(Vec::new())));
        let memory = looked.clone();
        let served = Arc::new(served);
        let watched = served.clone();
        tasks.push(Box::pin(async move {
            let began = Instant::now();
            // Memory fluctuates with pending disk writes, so the median over 15 seconds is used instead of one sample.
            for at in [FIRST, length] {
                tokio::time::sleep((at - LOOK).saturating_sub(began.elapsed())).await;
                let mut looks = Vec::new();
                while began.elapsed() < at {
                    looks.push(watched.memory()?);
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
                memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(median(&looks));
            }
            stopped.store(true, Ordering::Relaxed);
            Ok(())
        }));
        all(tasks).await?;
        let memory = looked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        Ok(Report::new("gateway-soak", "ratio", Good::AtMost, 1.1)
            .figure("ratio", memory[1] / memory[0])
            .figure("afterOneMinuteMegabytes", memory[0] / 1e6)
            .figure("atTheEndMegabytes", memory[1] / 1e6)
            .figure("seconds", length.as_secs_f64())
            .figure("calls", calls.load(Ordering::Relaxed) as f64)
            .figure("connections", connects.load(Ordering::Relaxed) as f64))
    })
}

/// The effect of a hanging tool, and of a client that never reads, on other clients.
pub(crate) fn neighbours(setup: &Setup) -> Result<Report> {
    const CALLERS: usize = 4;
    const CALLS: usize = 1500;
    const HANGING: usize = 16;
    const UNREAD: usize = 4000;
    let served = Served::start(setup)?;
    generator()?.block_on(async {
        let address = served.address;
        // p99 of several callers, in microseconds.
        let slice = || async {
            let times: Arc<std::sync::Mutex<Vec<f64>>> = Arc::default();
            let mut tasks = Vec::new();
            for _ in 0..CALLERS {
                let (times, call) = (times.clone(), echo_request());
                let mut wire = Wire::connect(address, TOKEN).await?;
                tasks.push(async move {
                    let mut own = Vec::with_capacity(CALLS);
                    for _ in 0..CALLS {
                        let began = Instant::now();
                        echo(&mut wire, &call).await?;
                        own.push(micros(began.elapsed()));
                        tokio::task::yield_now().await;
                    }
                    times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(own);
                    anyhow::Ok(())
                });
            }
            all(tasks).await?;
            let times = times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            anyhow::Ok(quantile(&times, 0.99))
        };
        slice().await?; // warms up
        let (mut alone, mut beside_hanging, mut beside_deaf) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..setup.rounds {
            alone.push(slice().await?);
            let mut hanging = Wire::connect(address, TOKEN).await?;
            for n in 0..HANGING {
                let args = json!({"name": HANG, "args": {"ms": 3_600_000}, "timeoutMs": 600_000});
                hanging.send(&request(&format!("h{n}"), "tools.invoke", &args)).await?;
            }
            beside_hanging.push(slice().await?);
            for n in 0..HANGING {
                hanging.send(&request("c", "tools.cancel", &json!({"requestId": format!("h{n}")}))).await?;
            }
            drop(hanging);
            let mut deaf = Wire::connect(address, TOKEN).await?;
            let health = request("d", "health", &json!({}));
            for _ in 0..UNREAD {
                // Once the gateway stops reading from this client, nothing more can be sent.
                if tokio::time::timeout(Duration::from_millis(200), deaf.send(&health)).await.is_err() {
                    break;
                }
            }
            beside_deaf.push(slice().await?);
            drop(deaf);
        }
        let ratio = |times: &[f64]| median(times) / median(&alone);
        Ok(Report::new("gateway-neighbours", "hangingRatio", Good::AtMost, 2.0)
            .also("deafRatio", Good::AtMost, 2.0)
            .figure("hangingRatio", ratio(&beside_hanging))
            .figure("deafRatio", ratio(&beside_deaf))
            .figure("aloneP99Us", median(&alone))
            .figure("besideHangingP99Us", median(&beside_hanging))
            .figure("besideDeafP99Us", median(&beside_deaf)))
    })
}
