//! Counters for `/metrics`, in Prometheus' text form. Counting never waits.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0];

/// What the doors count.
#[derive(Default)]
pub struct Metrics {
    connected: AtomicU64,
    disconnected: AtomicU64,
    events_dropped: AtomicU64,
    slow_consumers: AtomicU64,
    refused: Mutex<BTreeMap<String, u64>>,
    requests: Mutex<BTreeMap<(&'static str, &'static str), Durations>>,
    tools: Mutex<BTreeMap<&'static str, u64>>,
}

#[derive(Default)]
struct Durations {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Metrics {
    /// Counts a new connection.
    pub fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }
    /// Counts a closed connection.
    pub fn disconnected(&self) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
    }
    /// Counts an event that was not sent to a slow client.
    pub fn event_dropped(&self) {
        self.events_dropped.fetch_add(1, Ordering::Relaxed);
    }
    /// Counts a client that was closed because it did not read.
    pub fn slow_consumer(&self) {
        self.slow_consumers.fetch_add(1, Ordering::Relaxed);
    }
    /// Counts a refused handshake, by its code (a fixed set).
    pub fn refused(&self, code: &str) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(code.to_owned()).or_default() += 1;
    }
    /// A request that was answered. `method` is the name of a declared method, so the number of labels is bounded.
    pub fn answered(&self, method: &'static str, outcome: &'static str, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = requests.entry((method, outcome)).or_default();
        durations.count += 1;
        durations.sum += seconds;
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            durations.buckets[bucket] += 1;
        }
    }
    /// Counts a finished tool call.
    pub fn tool(&self, outcome: &'static str) {
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner).entry(outcome).or_default() += 1;
    }

    /// The page. `gauges` are values of other parts: name, help, value.
    pub fn page(&self, gauges: &[(&str, &str, f64)]) -> String {
        let mut out = String::with_capacity(4096);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, value) in gauges {
            _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        for (name, help, value) in [
            ("toolyard_connections_total", "WebSocket clients that came in.", load(&self.connected)),
            ("toolyard_disconnections_total", "WebSocket clients that left.", load(&self.disconnected)),
            ("toolyard_events_dropped_total", "Events not sent to slow clients.", load(&self.events_dropped)),
            ("toolyard_slow_consumers_total", "Clients closed because they did not read.", load(&self.slow_consumers)),
        ] {
            _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        }
        let name = "toolyard_handshakes_refused_total";
        _ = writeln!(out, "# HELP {name} Handshakes refused, by code.\n# TYPE {name} counter");
        for (code, count) in &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            _ = writeln!(out, "{name}{{code=\"{code}\"}} {count}");
        }
        let name = "toolyard_tool_calls_total";
        _ = writeln!(out, "# HELP {name} Tool calls through the network doors, by outcome.\n# TYPE {name} counter");
        for (outcome, count) in &*self.tools.lock().unwrap_or_else(PoisonError::into_inner) {
            _ = writeln!(out, "{name}{{outcome=\"{outcome}\"}} {count}");
        }
        let name = "toolyard_request_seconds";
        _ = writeln!(out, "# HELP {name} Requests answered, by method and outcome.\n# TYPE {name} histogram");
        for ((method, outcome), durations) in &*self.requests.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels = format!("method=\"{method}\",outcome=\"{outcome}\"");
            let mut so_far = 0;
            for (bound, count) in BUCKETS.iter().zip(durations.buckets) {
                so_far += count;
                _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {so_far}");
            }
            _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", durations.count);
            _ = writeln!(out, "{name}_sum{{{labels}}} {}", durations.sum);
            _ = writeln!(out, "{name}_count{{{labels}}} {}", durations.count);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_counts_in_cumulative_buckets() {
        let metrics = Metrics::default();
        metrics.answered("health", "ok", Duration::from_micros(50));
        metrics.answered("health", "ok", Duration::from_millis(2));
        metrics.refused("AUTH_TOKEN_MISMATCH");
        let page = metrics.page(&[("toolyard_up", "One.", 1.0)]);
        assert!(page.contains("toolyard_up 1\n"));
        assert!(
            page.contains(r#"toolyard_request_seconds_bucket{method="health",outcome="ok",le="0.001"} 1"#),
            "{page}"
        );
        assert!(page.contains(r#"toolyard_request_seconds_bucket{method="health",outcome="ok",le="+Inf"} 2"#));
        assert!(page.contains(r#"toolyard_handshakes_refused_total{code="AUTH_TOKEN_MISMATCH"} 1"#));
    }
}
