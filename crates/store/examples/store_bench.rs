//! Measures the store against the bare disk and prints one JSON line.
//!
//! `cargo run --release -p toolyard-store --example store_bench [DIRECTORY] [FRAMES]`: the directory chooses the disk
//! (default: the temporary one), the number of frames the size of the ride and scan parts (default 1,000,000).
#![allow(clippy::print_stdout)]

use std::{
    fs::OpenOptions,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_engine::{
    Store,
    store::{Batch, Durability, Frame},
};
use toolyard_protocol::RunId;
use toolyard_store::{SqliteStore, StoreOptions};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const FRAME_BYTES: usize = 700;
const CALL_BYTES: usize = 450;
const RESULT_BYTES: usize = 250;
const SYNCS: usize = 2000;
const TASKS: usize = 16;
const SYNCS_PER_TASK: usize = 1000;

fn frame(seq: u64, bytes: usize) -> Frame {
    // Text of the kind that records are made of, different in every frame.
    let mut payload = format!("{{\"callId\":\"{}\",\"seq\":{seq},\"args\":\"", uuid::Uuid::now_v7()).into_bytes();
    let mut state = seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while payload.len() + 2 < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        payload.push(b'a' + (state % 26) as u8);
    }
    payload.extend_from_slice(b"\"}");
    let mut chain = [0; 32];
    for part in chain.chunks_exact_mut(8) {
        state = state.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1);
        part.copy_from_slice(&state.to_le_bytes());
    }
    Frame { seq, kind: 1, payload, chain }
}

fn batch(run_id: RunId, frame: Frame, durability: Durability) -> Batch {
    Batch { run_id, frames: vec![frame], blobs: Vec::new(), row: None, durability }
}

fn new_run() -> RunId {
    RunId::from_uuid(uuid::Uuid::now_v7())
}

fn quantile(times: &mut [Duration], part: f64) -> f64 {
    times.sort_unstable();
    let index = ((times.len() as f64 - 1.0) * part) as usize;
    times.get(index).copied().unwrap_or_default().as_secs_f64() * 1e6
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

async fn sync_latency(store: &Arc<SqliteStore>, dir: &Path) -> Result<serde_json::Value, Failure> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join("bare"))?;
    file.write_all_at(&vec![0; FRAME_BYTES * SYNCS], 0)?;
    file.sync_all()?;
    let run_id = new_run();
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for n in 0..SYNCS {
        let frame = frame(n as u64 + 1, FRAME_BYTES);
        let started = Instant::now();
        file.write_all_at(&frame.payload, (n * FRAME_BYTES) as u64)?;
        file.sync_data()?;
        bare.push(started.elapsed());
        let started = Instant::now();
        let position = store.append(batch(run_id, frame, Durability::Sync))?;
        store.durable(position).await?;
        ours.push(started.elapsed());
    }
    let (bare_p50, ours_p50) = (quantile(&mut bare, 0.5), quantile(&mut ours, 0.5));
    Ok(serde_json::json!({
        "bareP50Us": bare_p50, "storeP50Us": ours_p50, "ratio": ours_p50 / bare_p50,
        "bareP99Us": quantile(&mut bare, 0.99), "storeP99Us": quantile(&mut ours, 0.99),
    }))
}

async fn sync_rate(store: &Arc<SqliteStore>, tasks: usize) -> Result<f64, Failure> {
    let started = Instant::now();
    let mut running = Vec::new();
    for _ in 0..tasks {
        let store = Arc::clone(store);
        running.push(tokio::spawn(async move {
            let run_id = new_run();
            for seq in 1..=SYNCS_PER_TASK as u64 {
                let position = store.append(batch(run_id, frame(seq, FRAME_BYTES), Durability::Sync))?;
                store.durable(position).await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    for task in running {
        task.await??;
    }
    Ok((tasks * SYNCS_PER_TASK) as f64 / started.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let frames: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let dir = tempfile::tempdir_in(parent)?;

    let before = Instant::now();
    let store = Arc::new(SqliteStore::open(&dir.path().join("sync"), StoreOptions::default())?);
    let create_ms = before.elapsed().as_secs_f64() * 1e3;
    let latency = tokio::spawn({
        let (store, dir) = (Arc::clone(&store), dir.path().to_owned());
        async move { sync_latency(&store, &dir).await }
    })
    .await??;
    let one = sync_rate(&store, 1).await?;
    let many = sync_rate(&store, TASKS).await?;
    let idle_kb = resident_kb();
    drop(store);

    let home = dir.path().join("ride");
    let store = Arc::new(SqliteStore::open(&home, StoreOptions::default())?);
    let empty = std::fs::metadata(home.join("toolyard.db"))?.len();
    let run_id = new_run();
    // Made beforehand, in portions, so that only the store is measured.
    let mut riding = Duration::ZERO;
    let mut seq = 0;
    while seq < frames {
        let portion: Vec<Batch> = (seq + 1..=frames.min(seq + 50_000))
            .map(|n| frame(n, if n % 2 == 1 { CALL_BYTES } else { RESULT_BYTES }))
            .map(|frame| batch(run_id, frame, Durability::Ride))
            .collect();
        seq += portion.len() as u64;
        let started = Instant::now();
        for batch in portion {
            store.append(batch)?;
        }
        store.settle()?;
        riding += started.elapsed();
    }
    drop(store);
    let grown = std::fs::metadata(home.join("toolyard.db"))?.len() - empty;
    let log = std::fs::metadata(home.join("toolyard.db-wal"))?.len();

    let before = Instant::now();
    let store = SqliteStore::open_read_only(&home)?;
    let open_ms = before.elapsed().as_secs_f64() * 1e3;
    let started = Instant::now();
    let (mut count, mut bytes) = (0_u64, 0);
    store.frames(run_id, 1, &mut |frame| {
        count += 1;
        bytes += frame.payload.len();
        ControlFlow::Continue(())
    })?;
    let scan = started.elapsed().as_secs_f64();
    if count != frames {
        return Err(format!("{count} frames came back of {frames}").into());
    }
    let report = serde_json::json!({
        "syncLatency": latency,
        "syncPerSecond": one, "syncPerSecond16": many, "gain16": many / one,
        "ridePerSecond": frames as f64 / riding.as_secs_f64(),
        "scanSeconds": scan, "scanPerSecond": count as f64 / scan, "scanBytes": bytes,
        "bytesPerPair": grown as f64 / (frames as f64 / 2.0), "walBytes": log,
        "createMs": create_ms, "openReadOnlyMs": open_ms, "residentKb": idle_kb,
    });
    println!("{report}");
    Ok(())
}
