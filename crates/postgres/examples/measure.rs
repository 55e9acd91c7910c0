//! Measures the group commit against a bare commit of one row on the same server, in alternating slices of one run.
//!
//!     cargo run -p toolyard-postgres --example measure -- postgres://…/EMPTY_DATABASE
//!
//! `step` is one durable record of one run, at 1, 16 and 64 runs at once; `bare` is `INSERT` of one row with the same client
//! library. `notified` is a step while another node watches, so that this one sends its coalesced NOTIFY.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and ends when something fails")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_postgres::types::Type;
use toolyard_engine::{
    Store,
    store::{Batch, Durability, Frame, RunKind, RunRow},
};
use toolyard_postgres::{PostgresOptions, PostgresStore};
use toolyard_protocol::{RunId, RunStatus};
use uuid::Uuid;

const SLICES: usize = 12;
const STEPS: u64 = 150;

fn open(url: &str, node: &str) -> Arc<PostgresStore> {
    let options = PostgresOptions {
        url: url.to_owned(),
        node: node.to_owned(),
        home: node.to_owned(),
        serves: true,
        allow_async_replication: true,
        secret: None,
        is_moved: false,
        large_blobs: None,
    };
    Arc::new(PostgresStore::open(options).unwrap())
}

/// Steps one after another in a run of its own; the time of each. A run that is alone commits on its own thread, as the
/// engine does.
async fn steps(store: Arc<PostgresStore>, is_alone: bool) -> Vec<Duration> {
    let run_id = RunId::from_uuid(Uuid::now_v7());
    let mut times = Vec::new();
    for seq in 1..=STEPS {
        let row = (seq == 1).then(|| RunRow {
            run_id,
            kind: RunKind::Plan,
            status: RunStatus::Running,
            title: "measure".to_owned(),
            session: None,
            started_at: jiff::Timestamp::now(),
            ended_at: None,
        });
        let frames = vec![Frame { seq, kind: 8, payload: vec![b'x'; 300], chain: [seq as u8; 32] }];
        let (epoch, durability) = (store.epoch(), Durability::Sync);
        let batch = Batch { run_id, frames, blobs: Vec::new(), row, epoch, release: false, durability };
        let began = Instant::now();
        let position = store.append(batch).unwrap();
        match is_alone {
            true => store.durable_here(position).await.unwrap(),
            false => store.durable(position).await.unwrap(),
        }
        times.push(began.elapsed());
    }
    times
}

fn percentile(times: &mut [Duration], of: usize) -> u128 {
    times.sort();
    times[(times.len() - 1) * of / 100].as_micros()
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let store = open(&url, "measured");
    let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE bare (id int8 PRIMARY KEY, payload bytea)").await.unwrap();
    let insert = client.prepare_typed("INSERT INTO bare VALUES ($1, $2)", &[Type::INT8, Type::BYTEA]).await.unwrap();
    let mut number = 0_i64;
    let (mut bare, mut one, mut notified) = (Vec::new(), Vec::new(), Vec::new());
    let mut rates: Vec<(usize, u64, Duration)> =
        [1, 16, 64].into_iter().map(|wide| (wide, 0, Duration::ZERO)).collect();
    for slice in 0..SLICES {
        // On a worker thread, as the steps are.
        (client, bare) = tokio::spawn({
            let insert = insert.clone();
            async move {
                for of_slice in 1..=STEPS.cast_signed() {
                    let payload = vec![b'x'; 300];
                    let began = Instant::now();
                    client.execute(&insert, &[&(number + of_slice), &payload]).await.unwrap();
                    bare.push(began.elapsed());
                }
                (client, bare)
            }
        })
        .await
        .unwrap();
        number += STEPS.cast_signed();
        for (wide, count, time) in &mut rates {
            let began = Instant::now();
            let runs: Vec<_> = (0..*wide).map(|_| tokio::spawn(steps(store.clone(), *wide == 1))).collect();
            for run in runs {
                let times = run.await.unwrap();
                *count += STEPS;
                if *wide == 1 {
                    one.extend(times);
                }
            }
            *time += began.elapsed();
        }
        // Another node watches during every third slice.
        if slice % 3 == 2 {
            let watcher = open(&url, "watcher");
            let _hints = watcher.watch();
            tokio::time::sleep(Duration::from_millis(1500)).await;
            notified.extend(tokio::spawn(steps(store.clone(), true)).await.unwrap());
        }
    }
    println!("bare commit    p50 {} µs, p99 {} µs", percentile(&mut bare, 50), percentile(&mut bare, 99));
    println!("durable step   p50 {} µs, p99 {} µs", percentile(&mut one, 50), percentile(&mut one, 99));
    println!("ratio p50      {:.2}", percentile(&mut one, 50) as f64 / percentile(&mut bare, 50) as f64);
    println!("notified step  p50 {} µs", percentile(&mut notified, 50));
    let sequential = rates[0].1 as f64 / rates[0].2.as_secs_f64();
    for (wide, count, time) in rates {
        let rate = count as f64 / time.as_secs_f64();
        println!("{wide:2} runs at once {rate:.0} steps/s, {:.1}x", rate / sequential);
    }
}
