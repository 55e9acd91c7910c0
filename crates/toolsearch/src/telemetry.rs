//! Telemetry of Tool Search: for one script ([`Telemetry`]) and since the start ([`Counters`]).

use serde::Serialize;
use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};
use toolyard_catalog::{
    ToolEntry,
    surface::{Mode, Sources, Surface},
};

/// Calls and selected tools listed in one telemetry; further ones are only counted.
const MAX_LISTED: usize = 64;

/// What one use of the control tools did.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// How the model reaches the catalog.
    pub mode: Mode,
    /// Tools the model was shown with their schemas at first.
    pub schemas_shown: usize,
    /// Tools the caller may use.
    pub catalog_size: usize,
    /// Where they come from.
    pub sources: Sources,
    /// Number of searches.
    pub search_count: u32,
    /// Number of descriptions.
    pub describe_count: u32,
    /// Number of calls.
    pub call_count: u32,
    /// Bytes of tools and prompt a model is shown, directly and in this mode.
    pub bytes: SurfaceSize,
    /// Tools that were described or called, in that order, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub selected: Vec<SelectedTool>,
    /// The calls, in the order they ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CompletedCall>,
    /// The last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_call: Option<CompletedCall>,
}

/// What a model is shown, in bytes of JSON and prompt.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SurfaceSize {
    /// Every tool with its schema.
    pub direct: usize,
    /// The compact surface.
    pub compact: usize,
}

/// A tool that was described or called.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelectedTool {
    /// The id of the tool.
    pub id: String,
    /// `openclaw`, `mcp` or `client`.
    pub source: &'static str,
}

/// A call that was made.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletedCall {
    /// `<parent tool>:<parent call>:<tool>:<number>`.
    pub nested_id: String,
    /// The call's own id in the record.
    pub call_id: String,
    /// The tool's id.
    pub id: String,
    /// `openclaw`, `mcp` or `client`.
    pub source: &'static str,
    /// Whether it worked.
    pub ok: bool,
    /// The error code, if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Telemetry {
    /// Nothing done yet; the model was shown this at first.
    pub fn new(first: &Surface) -> Self {
        let catalog = first.catalog();
        Self {
            mode: first.mode,
            schemas_shown: first.tools.len(),
            catalog_size: catalog.len(),
            sources: catalog.sources(),
            search_count: 0,
            describe_count: 0,
            call_count: 0,
            bytes: SurfaceSize { direct: catalog.direct_bytes(), compact: first.bytes() },
            selected: Vec::new(),
            calls: Vec::new(),
            final_call: None,
        }
    }

    pub(crate) fn select(&mut self, entry: &ToolEntry) {
        let selected = SelectedTool { id: entry.id().to_owned(), source: entry.source().catalog_source() };
        if self.selected.len() < MAX_LISTED && !self.selected.contains(&selected) {
            self.selected.push(selected);
        }
    }

    pub(crate) fn called(&mut self, called: CompletedCall) {
        if self.calls.len() < MAX_LISTED {
            self.calls.push(called.clone());
        }
        self.final_call = Some(called);
    }
}

/// What the control tools did since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) searches: AtomicU64,
    pub(crate) describes: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) failed_calls: AtomicU64,
    pub(crate) scripts: AtomicU64,
    pub(crate) failed_scripts: AtomicU64,
    pub(crate) timed_out_scripts: AtomicU64,
    pub(crate) catalog_tools: AtomicU64,
    pub(crate) direct_bytes: AtomicU64,
    pub(crate) compact_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// In the text form Prometheus reads.
    pub fn to_prometheus(&self) -> String {
        let mut out = String::new();
        for (name, kind, help, value) in [
            ("searches_total", "counter", "Searches of the tool catalog.", &self.searches),
            ("describes_total", "counter", "Descriptions of tools read.", &self.describes),
            ("calls_total", "counter", "Tools called through the control tools.", &self.calls),
            ("failed_calls_total", "counter", "Such calls that failed.", &self.failed_calls),
            ("scripts_total", "counter", "Scripts run.", &self.scripts),
            ("failed_scripts_total", "counter", "Scripts that did not run to their end.", &self.failed_scripts),
            ("timed_out_scripts_total", "counter", "Scripts whose time was up.", &self.timed_out_scripts),
            ("catalog_tools", "gauge", "Tools of the catalog last used.", &self.catalog_tools),
            ("direct_bytes", "gauge", "Bytes a model would be shown of it directly.", &self.direct_bytes),
            ("compact_bytes", "gauge", "Bytes a model is shown of it compactly.", &self.compact_bytes),
        ] {
            let name = format!("toolyard_tool_search_{name}");
            let value = value.load(Ordering::Relaxed);
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        out
    }
}
