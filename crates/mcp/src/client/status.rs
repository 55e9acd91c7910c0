//! The status of an upstream server, for people.

use super::upstream::{Upstream, lock};
use crate::wire::upstream::ReportedHealth;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{sync::atomic::Ordering, time::Instant};
use toolyard_engine::redact::redactor;

/// The health of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// The server answers, or is not running and has no known problem.
    Healthy,
    /// The server answers, but some tools are withheld or left out.
    Degraded,
    /// The server does not answer.
    Unavailable,
}

impl Health {
    /// The word people are shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Whether a server that is a child process runs in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerSandbox {
    /// It runs in the sandbox.
    On,
    /// The configuration turns the sandbox off.
    Off,
    /// Its configuration does not say; it runs without.
    Unset,
}

/// A server as people are shown it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// The name of the server.
    pub name: String,
    /// `healthy`, `degraded` or `unavailable`.
    pub status: Health,
    /// Whether it runs now.
    pub running: bool,
    /// The process id of the child, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Tools that can be called.
    pub tools: usize,
    /// Number of prompts.
    pub prompts: usize,
    /// Number of resources.
    pub resources: usize,
    /// Tools held back until a person approves them.
    pub withheld: Vec<WithheldTool>,
    /// Tools left out, and why.
    pub left_out: Vec<OmittedTool>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Milliseconds until it may be started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// Times it was started.
    pub starts: u64,
    /// The plugin that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// The health that it reports.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub health: Value,
    /// The revision spoken, once it has been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// `on`, `off` or `unset`: the sandbox of a child process that does not belong to a plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walls: Option<ServerSandbox>,
}

/// Why a tool is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WithheldReason {
    /// Its definition is not the approved one.
    Changed,
    /// It has never been approved, and the configuration wants that.
    New,
    /// It was approved by an earlier version of Toolyard, whose hash covered only part of the definition.
    ApprovedInPart,
}

impl WithheldReason {
    /// The word people are shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::New => "new",
            Self::ApprovedInPart => "approved-in-part",
        }
    }
}

/// A definition that a person was shown, as it is named when it is approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShownDefinition {
    /// The name the server knows the tool by.
    pub tool: String,
    /// The hash that was shown.
    pub hash: String,
}

/// A definition that was approved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approved {
    /// The name the server knows the tool by.
    pub tool: String,
    /// The hash of its definition.
    pub hash: String,
    /// What is different from the one approved before.
    pub diff: String,
}

/// A tool held back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WithheldTool {
    /// The name the server knows it by.
    pub tool: String,
    /// The reason.
    pub why: WithheldReason,
    /// The current description.
    pub description: String,
    /// The approved description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_description: Option<String>,
    /// The hash to approve.
    pub hash: String,
    /// What is different from the approved definition, as a unified diff; all of it where none was approved.
    pub diff: String,
    /// The definition in normal form, as it is kept once it is approved.
    #[serde(skip)]
    pub(crate) definition: String,
}

/// A tool left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OmittedTool {
    /// The name of the tool.
    pub tool: String,
    /// The reason.
    pub reason: String,
}

impl Upstream {
    fn walls(&self) -> Option<ServerSandbox> {
        // A plugin's walls are shown with the plugin.
        if self.config.command.is_none() || self.terms.is_some() {
            return None;
        }
        Some(match &self.config.sandbox {
            Some(sandbox) if sandbox.enabled => ServerSandbox::On,
            Some(_) => ServerSandbox::Off,
            None => ServerSandbox::Unset,
        })
    }

    /// As people are shown it.
    pub(crate) fn status(&self) -> ServerStatus {
        let live = self.running();
        let attempts = lock(&self.attempts);
        let offers = lock(&self.offers);
        let waits = attempts.not_before.and_then(|at| at.checked_duration_since(Instant::now()));
        let need = self.auth.as_ref().and_then(|auth| auth.need()).map(|(need, _)| need);
        let said = ReportedHealth::deserialize(&offers.health).ok().and_then(|health| health.status);
        let status = match (&live, &attempts.error) {
            (None, Some(_)) => Health::Unavailable,
            _ if need.is_some() => Health::Degraded,
            _ if said == Some("unavailable") => Health::Unavailable,
            _ if said == Some("degraded") => Health::Degraded,
            _ if !offers.withheld.is_empty() || !offers.left_out.is_empty() => Health::Degraded,
            _ => Health::Healthy,
        };
        ServerStatus {
            name: self.name.clone(),
            status,
            running: live.is_some(),
            pid: live.as_ref().and_then(|live| live.pid()),
            tools: self.published().len(),
            prompts: offers.prompts.len(),
            resources: offers.resources.len(),
            withheld: offers.withheld.clone(),
            left_out: offers.left_out.clone(),
            error: attempts.error.clone().or(need).map(|error| redactor().text(&error).into_owned()),
            retry_in_ms: waits.filter(|_| live.is_none()).map(|wait| wait.as_millis() as u64),
            starts: self.starts.load(Ordering::Relaxed),
            plugin: self.terms.as_ref().map(|terms| terms.plugin.clone()),
            health: offers.health.clone(),
            walls: self.walls(),
            protocol: live.map(|l| l.revision().as_str().to_owned()).or_else(|| offers.protocol.clone()),
        }
    }
}
