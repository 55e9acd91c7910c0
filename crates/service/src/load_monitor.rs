//! Measures the load of this process: the async runtime's delay and the CPU usage of the last seconds.

use schemars::JsonSchema;
use serde::Serialize;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The interval between two measurements.
pub(crate) const BEAT: Duration = Duration::from_millis(500);
/// How many measurements are kept: those of the last half minute.
const REMEMBERED: usize = 60;
/// A delay above this is reported as degraded, in milliseconds.
const DEGRADED_MS: f64 = 250.0;

/// Measures the delay of the async runtime and the CPU usage.
#[derive(Default)]
pub struct LoadMonitor {
    beats: Mutex<Samples>,
}

#[derive(Default)]
struct Samples {
    delays_ms: Vec<f64>,
    next: usize,
    degraded_since: Option<Instant>,
    cpu: Option<(Instant, f64)>,
    cpu_ratio: f64,
}

impl LoadMonitor {
    /// Records how long a sleep of one [`BEAT`] really took.
    pub(crate) fn beat(&self, took: Duration) {
        let delay = took.saturating_sub(BEAT).as_secs_f64() * 1000.0;
        let cpu_now = cpu_seconds();
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let at = beats.next % REMEMBERED;
        if beats.delays_ms.len() < REMEMBERED {
            beats.delays_ms.push(delay);
        } else {
            beats.delays_ms[at] = delay;
        }
        beats.next = (at + 1) % REMEMBERED;
        let now = Instant::now();
        match (delay > DEGRADED_MS, beats.degraded_since) {
            (true, None) => beats.degraded_since = Some(now),
            (false, Some(_)) => beats.degraded_since = None,
            _ => {}
        }
        if let Some((then, before)) = beats.cpu {
            let wall = now.duration_since(then).as_secs_f64();
            if wall >= 1.0 {
                beats.cpu_ratio = ((cpu_now - before) / wall).max(0.0);
                beats.cpu = Some((now, cpu_now));
            }
        } else {
            beats.cpu = Some((now, cpu_now));
        }
    }

    /// The measurements in the format that clients know as `eventLoop`.
    pub fn report(&self) -> EventLoop {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted = beats.delays_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let p99 = sorted.get((sorted.len().saturating_sub(1)) * 99 / 100).copied().unwrap_or_default();
        let most = sorted.last().copied().unwrap_or_default();
        let round = |n: f64| (n * 1000.0).round() / 1000.0;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let degraded = beats.degraded_since.is_some();
        EventLoop {
            degraded,
            degraded_since_ms: beats.degraded_since.map(|since| since.elapsed().as_millis() as u64),
            reasons: if degraded { vec!["event_loop_delay"] } else { Vec::new() },
            interval_ms: BEAT.as_millis() as u64,
            delay_p99_ms: round(p99),
            delay_max_ms: round(most),
            utilization: round((beats.cpu_ratio / cores as f64).min(1.0)),
            cpu_core_ratio: round(beats.cpu_ratio),
            cpu_breakdown: CpuBreakdown { host_cpu_count: cores },
        }
    }
}

/// How late this process is with its own work.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventLoop {
    pub(crate) degraded: bool,
    degraded_since_ms: Option<u64>,
    reasons: Vec<&'static str>,
    interval_ms: u64,
    #[serde(rename = "delayP99Ms")]
    delay_p99_ms: f64,
    delay_max_ms: f64,
    utilization: f64,
    cpu_core_ratio: f64,
    cpu_breakdown: CpuBreakdown,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CpuBreakdown {
    host_cpu_count: usize,
}

/// CPU time of this process so far.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64
}

/// Memory of this process that is in RAM, in bytes.
pub fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as u64
}
