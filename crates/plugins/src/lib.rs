//! Plugins: `openclaw.plugin.json` manifests, installation, and processes.
//!
//! A plugin is one or more processes. Each speaks MCP, or the line protocol of docs/guide/plugins.md; plugins written
//! against OpenClaw's `api.registerTool` run in a Node host that speaks the latter. Processes are started, supervised
//! and stopped like upstream MCP servers (`toolyard-mcp`), in the sandbox (`toolyard-sandbox`), and calls of their
//! tools pass the engine's pipeline.
//!
//! Nothing of a plugin runs before its manifest and its configuration are valid. Has no transport, command line or
//! configuration file.

mod hooks;
mod host;
mod install;
mod manager;
mod manifest;
pub mod sandboxed;
mod settings;
mod state;

pub use install::{SCHEMES, Source};
pub use manager::{Installation, MissingSandboxFeature, PluginInfo, Plugins, PluginsParts};
pub use manifest::{MANIFEST_FILE, Manifest, Permissions};
pub use settings::{Entry, Grant, PluginsConfig, SandboxMode};
