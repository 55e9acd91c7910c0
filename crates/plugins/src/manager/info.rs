//! Information about a plugin for people: its manifest, its grants, and the state of its processes.

use super::Loaded;
use crate::{
    host::line_name,
    manifest::Permissions,
    settings::{Grant, SandboxMode},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toolyard_mcp::{
    Upstreams,
    client::{Health, OmittedTool, ServerStatus},
};
use toolyard_sandbox::launch::{KernelFeatures, MissingFeature};

/// A plugin as people are shown it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginInfo {
    /// The id of the plugin.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The description for people.
    pub description: String,
    /// The version.
    pub version: String,
    /// Where it came from.
    pub source: String,
    /// The folder of the plugin.
    pub folder: PathBuf,
    /// Whether it is used.
    pub enabled: bool,
    /// `healthy`, `degraded` or `unavailable`.
    pub status: Health,
    /// What is wrong.
    pub problems: Vec<String>,
    /// Tools it declares.
    pub declared: Vec<String>,
    /// Tools that can be called.
    pub tools: usize,
    /// Tools left out, and why.
    pub left_out: Vec<OmittedTool>,
    /// Tools its hooks look at; `*` for all.
    pub hooks: Vec<String>,
    /// Folders with skills.
    pub skills: Vec<String>,
    /// The permissions in its manifest, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Permissions>,
    /// What the plugin was granted.
    pub grant: Grant,
    /// Whether its processes run in the sandbox.
    pub confined: bool,
    /// Sandbox features that this kernel lacks, and the consequences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_walls: Vec<MissingSandboxFeature>,
    /// The state of its processes.
    pub processes: Vec<ServerStatus>,
}

/// A sandbox feature that this kernel lacks, and the consequence.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MissingSandboxFeature {
    /// What is missing.
    pub wall: String,
    /// What the missing feature means for plugins.
    pub consequence: String,
}

impl From<&MissingFeature> for MissingSandboxFeature {
    fn from(missing: &MissingFeature) -> Self {
        Self { wall: missing.wall.to_owned(), consequence: missing.consequence.to_owned() }
    }
}

/// The health that a plugin's process reports.
#[derive(Deserialize)]
struct ReportedHealth {
    notes: Option<Vec<String>>,
    checks: Option<Vec<HealthCheck>>,
}

#[derive(Deserialize)]
struct HealthCheck {
    name: Option<String>,
    status: Option<String>,
    message: Option<String>,
}

impl ReportedHealth {
    fn problems(self) -> impl Iterator<Item = String> {
        let failed = self.checks.into_iter().flatten().filter(|check| check.status.as_deref() != Some("healthy"));
        let describe =
            |check: HealthCheck| format!("{}: {}", check.name.unwrap_or_default(), check.message.unwrap_or_default());
        self.notes.into_iter().flatten().chain(failed.map(describe))
    }
}

impl Loaded {
    pub(super) fn info(
        &self,
        id: &str,
        statuses: &[ServerStatus],
        upstreams: &Upstreams,
        sandbox: SandboxMode,
    ) -> PluginInfo {
        let processes: Vec<ServerStatus> =
            statuses.iter().filter(|status| self.processes.contains(&status.name)).cloned().collect();
        let mut problems: Vec<String> = self.problem.iter().map(|failure| failure.message.clone()).collect();
        for process in &processes {
            problems.extend(process.error.clone());
            match Option::<ReportedHealth>::deserialize(&process.health) {
                Ok(health) => problems.extend(health.into_iter().flat_map(ReportedHealth::problems)),
                Err(error) => problems.push(format!("what it says of its health cannot be read: {error}")),
            }
        }
        // The health of a plugin is the worst health of its processes.
        let status = if self.problem.is_some() || processes.iter().any(|p| p.status == Health::Unavailable) {
            Health::Unavailable
        } else if processes.iter().any(|p| p.status == Health::Degraded) {
            Health::Degraded
        } else {
            Health::Healthy
        };
        let manifest = self.manifest.clone().unwrap_or_default();
        let mut hooks: Vec<String> = Vec::new();
        for hook in upstreams.hooks(&line_name(id)).into_iter().filter(|_| !self.processes.is_empty()) {
            if hook.matcher.is_empty() { hooks.push("*".to_owned()) } else { hooks.extend(hook.matcher) }
        }
        PluginInfo {
            id: id.to_owned(),
            name: if manifest.name.is_empty() { id.to_owned() } else { manifest.name.clone() },
            description: manifest.description.clone(),
            version: self.version.clone(),
            source: self.source.clone(),
            folder: self.folder.clone(),
            enabled: self.enabled,
            status,
            problems,
            declared: manifest.contracts.tools.clone(),
            tools: processes.iter().map(|p| p.tools).sum(),
            left_out: processes.iter().flat_map(|p| p.left_out.clone()).collect(),
            hooks,
            skills: manifest.skills.clone(),
            asks: manifest.permissions.clone(),
            grant: self.grant.clone(),
            confined: sandbox == SandboxMode::Require,
            missing_walls: match sandbox {
                SandboxMode::Require => {
                    KernelFeatures::here().missing.iter().map(MissingSandboxFeature::from).collect()
                }
                _ => Vec::new(),
            },
            processes,
        }
    }
}
