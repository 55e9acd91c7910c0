//! The result of one benchmark, as one JSON line.

use serde_json::{Map, Value, json};
use std::io::Write;

/// How a figure is compared with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Good {
    AtMost,
    AtLeast,
    Below,
}

impl Good {
    fn word(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Below => "<",
        }
    }

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtMost => value <= limit,
            Self::AtLeast => value >= limit,
            Self::Below => value < limit,
        }
    }
}

/// The figures and targets of one benchmark.
pub(crate) struct Report {
    name: &'static str,
    figures: Map<String, Value>,
    targets: Vec<(&'static str, Good, f64)>,
    skipped: Option<String>,
}

impl Report {
    /// Creates a report with a target for one of its figures.
    pub(crate) fn new(name: &'static str, figure: &'static str, good: Good, limit: f64) -> Self {
        Self { name, figures: Map::new(), targets: vec![(figure, good, limit)], skipped: None }
    }

    /// Adds a target for another figure.
    pub(crate) fn also(mut self, figure: &'static str, good: Good, limit: f64) -> Self {
        self.targets.push((figure, good, limit));
        self
    }

    /// Adds a figure that is not a single number.
    pub(crate) fn value(mut self, name: &str, value: Value) -> Self {
        self.figures.insert(name.to_owned(), value);
        self
    }

    /// Adds a figure, rounded to a readable precision.
    pub(crate) fn figure(mut self, name: &str, value: f64) -> Self {
        let digits = if value.abs() >= 1000.0 { 1.0 } else { 1000.0 };
        self.figures.insert(name.to_owned(), json!((value * digits).round() / digits));
        self
    }

    /// Marks the benchmark as skipped, with the reason.
    pub(crate) fn skipped(mut self, why: String) -> Self {
        self.skipped = Some(why);
        self
    }

    /// Why nothing was measured, if so.
    pub(crate) fn why_skipped(&self) -> Option<&str> {
        self.skipped.as_deref()
    }

    /// Whether every target was met; `None` when something was not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        let met = |(figure, good, limit): &(&str, Good, f64)| {
            let value = self.figures.get(*figure).and_then(Value::as_f64)?;
            Some(good.holds(value, *limit))
        };
        self.targets.iter().map(met).try_fold(true, |so_far, met| Some(so_far & met?))
    }

    fn to_json(&self) -> Value {
        let targets: Vec<String> =
            self.targets.iter().map(|(figure, good, limit)| format!("{figure} {} {limit}", good.word())).collect();
        let mut line = json!({
            "bench": self.name, "figures": self.figures,
            "target": targets.join(", "), "met": self.met(),
        });
        if let Some(why) = &self.skipped {
            line["skipped"] = json!(why);
        }
        line
    }

    /// Prints the line.
    pub(crate) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", self.to_json())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_about_its_figure() {
        let report = Report::new("x", "ratio", Good::AtMost, 1.5);
        assert_eq!(report.met(), None);
        assert_eq!(report.figure("ratio", 1.5).met(), Some(true));
        let report = Report::new("x", "rate", Good::AtLeast, 10.0).figure("rate", 9.99).figure("other", 99.0);
        assert_eq!(report.met(), Some(false));
        assert_eq!(report.to_json()["target"], "rate >= 10");
        let both = report.also("other", Good::AtMost, 99.0);
        assert_eq!((both.to_json()["target"].as_str(), both.met()), (Some("rate >= 10, other <= 99"), Some(false)));
        assert_eq!(Report::new("x", "cpu", Good::Below, 5.0).figure("cpu", 5.0).met(), Some(false));
    }
}
