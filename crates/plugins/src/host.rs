//! A plugin's processes: what to start, in which sandbox, and what it may register.

use crate::{
    manifest::Manifest,
    sandboxed::{SandboxedLauncher, find, limits, prefix},
    settings::{Grant, SandboxMode},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};
use toolyard_mcp::client::{
    Dialect, Launcher, LimitsConfig, Pinning, PlainLauncher, PluginTerms, RevisionChoice, SandboxConfig, ServerConfig,
    ServerSpec, ToolTerms, Transport, Trust,
};
use toolyard_sandbox::launch::{ConfinedLauncher, Confinement};

/// Runs plugins written for OpenClaw.
const HOST: &str = include_str!("../assets/plugin-host.mjs");
/// The line protocol's version.
const PROTOCOL: u32 = 1;
/// A plugin may take this long to start: it may be fetching something.
const START_WITHIN_MS: u64 = 60_000;
/// The context that all plugins share.
pub(crate) struct HostContext {
    pub(crate) launcher: ConfinedLauncher,
    pub(crate) sandbox: SandboxMode,
    pub(crate) node: Option<PathBuf>,
    /// The folder with the Node host and the plugins' data.
    pub(crate) place: PathBuf,
}

/// A program to start, and what it must read in addition to the system's files and the package.
struct Executable {
    program: PathBuf,
    reads: Vec<PathBuf>,
}

impl Executable {
    /// The program that a manifest names. A name is looked up in PATH, which the user controls, so the tree in which
    /// the program is installed becomes readable. A path comes from the package and makes nothing readable.
    fn of_manifest(folder: &Path, command: &str) -> Result<Self, String> {
        let is_name = !command.contains('/');
        let program = find(&here(folder, command)).ok_or_else(|| format!("the program {command} is not there"))?;
        let reads = if is_name { prefix(&program) } else { Vec::new() };
        Ok(Self { program, reads })
    }
}

/// A plugin that is about to run.
pub(crate) struct PluginLaunch<'a> {
    pub(crate) manifest: &'a Manifest,
    pub(crate) folder: &'a Path,
    /// The installed package, dependencies and all.
    pub(crate) package: &'a Path,
    pub(crate) config: &'a Map<String, Value>,
    pub(crate) grant: &'a Grant,
    pub(crate) limits: LimitsConfig,
}

/// The first message to a plugin that uses the line protocol.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartMessage<'a> {
    protocol: u32,
    id: &'a str,
    name: &'a str,
    version: &'a str,
    description: &'a str,
    folder: &'a Path,
    data_dir: &'a Path,
    /// What the operator configured, checked against the manifest's schema.
    config: &'a Map<String, Value>,
    extensions: &'a [String],
}

/// The name of a plugin's process that speaks the line protocol.
pub(crate) fn line_name(plugin: &str) -> String {
    format!("plugin:{plugin}")
}

impl HostContext {
    /// The folder that is the plugin's own.
    pub(crate) fn data(&self, plugin: &str) -> PathBuf {
        self.place.join(".data").join(plugin)
    }

    /// What to start for a plugin.
    pub(crate) fn processes(&self, running: &PluginLaunch<'_>) -> Result<Vec<ServerSpec>, String> {
        let manifest = running.manifest;
        let data = self.data(&manifest.id);
        std::fs::create_dir_all(data.join("tmp")).map_err(|e| format!("{}: {e}", data.display()))?;
        let mut specs = Vec::new();
        if let Some(process) = &manifest.process {
            let executable = Executable::of_manifest(running.folder, &process.command)?;
            let args = process.args.iter().map(|arg| here(running.folder, arg)).collect();
            specs.push(self.line(running, &data, executable, args)?);
        } else if !manifest.extensions.is_empty() {
            let program = PathBuf::from(self.node()?);
            let script = self.host_script()?;
            let args = vec!["--no-warnings".to_owned(), script.display().to_string()];
            let mut reads = prefix(&program);
            reads.push(script);
            specs.push(self.line(running, &data, Executable { program, reads }, args)?);
        }
        let only_process = specs.is_empty() && manifest.mcp_servers.len() == 1;
        for (name, process) in &manifest.mcp_servers {
            let executable = Executable::of_manifest(running.folder, &process.command)?;
            let args = process.args.iter().map(|arg| here(running.folder, arg)).collect();
            let mut spec = self.spec(running, &data, executable, args, Dialect::Mcp);
            spec.name = format!("{}/{name}", spec.name);
            spec.config.env.extend(process.env.clone());
            if let (Some(terms), true) = (&mut spec.terms, only_process) {
                terms.expected = terms.declared.clone();
            }
            specs.push(spec);
        }
        Ok(specs)
    }

    fn line(
        &self,
        running: &PluginLaunch<'_>,
        data: &Path,
        executable: Executable,
        args: Vec<String>,
    ) -> Result<ServerSpec, String> {
        let manifest = running.manifest;
        let start = StartMessage {
            protocol: PROTOCOL,
            id: &manifest.id,
            name: &manifest.name,
            version: &manifest.version,
            description: &manifest.description,
            folder: running.folder,
            data_dir: data,
            config: running.config,
            extensions: &manifest.extensions,
        };
        let Value::Object(start) = serde_json::to_value(start).map_err(|e| e.to_string())? else {
            return Err("start is no object".to_owned());
        };
        let mut spec = self.spec(running, data, executable, args, Dialect::Line { start });
        if let (Some(terms), true) = (&mut spec.terms, manifest.mcp_servers.is_empty()) {
            terms.expected = terms.declared.clone();
        }
        Ok(spec)
    }

    fn spec(
        &self,
        running: &PluginLaunch<'_>,
        data: &Path,
        executable: Executable,
        args: Vec<String>,
        dialect: Dialect,
    ) -> ServerSpec {
        let manifest = running.manifest;
        let Executable { program, reads } = executable;
        let text = |path: PathBuf| path.display().to_string();
        let env = BTreeMap::from([
            ("HOME".to_owned(), text(data.to_owned())),
            ("TMPDIR".to_owned(), text(data.join("tmp"))),
            ("TOOLYARD_PLUGIN_ID".to_owned(), manifest.id.clone()),
            ("TOOLYARD_PLUGIN_DATA".to_owned(), text(data.to_owned())),
        ]);
        let config = ServerConfig {
            command: Some(text(program)),
            args,
            cwd: Some(running.folder.to_owned()),
            env,
            pass_env: running.grant.env.clone(),
            // Determines which variables the process gets; the sandbox itself is built below.
            sandbox: (self.sandbox == SandboxMode::Require).then(SandboxConfig::default),
            transport: Transport::Stdio,
            trust: Trust::Annotations,
            pin: Pinning::Off, // what runs was installed; an update is a person's act
            protocol: RevisionChoice::Auto,
            start_timeout_ms: START_WITHIN_MS,
            idle_seconds: if manifest.activation.on_startup { 0 } else { 600 },
            ..ServerConfig::default()
        };
        let tools = manifest.tool_metadata.iter().map(|(name, about)| {
            let terms = ToolTerms {
                side_effecting: about.side_effecting,
                replay_safe: about.replay_safe,
                optional: about.optional,
                profiles: about.profiles.clone(),
                permissions: about.required_permissions.clone(),
            };
            (name.clone(), terms)
        });
        let terms = PluginTerms {
            plugin: manifest.id.clone(),
            declared: manifest.contracts.tools.iter().cloned().collect(),
            expected: BTreeSet::new(),
            tools: tools.collect(),
            dialect,
            on_startup: manifest.activation.on_startup,
        };
        let launcher: Arc<dyn Launcher> = match self.sandbox {
            SandboxMode::Off => Arc::new(PlainLauncher),
            SandboxMode::Require => {
                let mut read = vec![running.package.to_owned(), running.folder.to_owned()];
                read.extend(reads);
                read.extend(running.grant.read.iter().cloned());
                let mut write = vec![data.to_owned()];
                write.extend(running.grant.write.iter().cloned());
                let walls = Confinement { read, write, network: running.grant.network };
                let granted = running.grant.read.iter().chain(&running.grant.write).cloned().collect();
                Arc::new(SandboxedLauncher { launcher: self.launcher.limited(limits(running.limits)), walls, granted })
            }
        };
        ServerSpec { name: line_name(&manifest.id), config, launcher, terms: Some(terms) }
    }

    /// The Node to run plugins with.
    pub(crate) fn node(&self) -> Result<String, String> {
        match &self.node {
            Some(node) if node.exists() => Ok(node.display().to_string()),
            Some(node) => Err(format!("plugins.node: {} is not there", node.display())),
            None => find("node").map(|node| node.display().to_string()).ok_or_else(|| {
                "Node.js is not installed; plugins written for OpenClaw need it (22.18 or newer for those in TypeScript)"
                    .to_owned()
            }),
        }
    }

    /// Writes the Node host to a file that children can read. Its name contains a hash, so that an old version is never
    /// used.
    fn host_script(&self) -> Result<PathBuf, String> {
        let hash = toolyard_protocol::canonical::sha256_hex(HOST.as_bytes());
        let folder = self.place.join(".host");
        let file = folder.join(format!("plugin-host-{}.mjs", &hash[..16]));
        if std::fs::read(&file).is_ok_and(|text| text == HOST.as_bytes()) {
            return Ok(file);
        }
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&folder)?;
            let staged = folder.join(format!(".{}", uuid::Uuid::new_v4().simple()));
            std::fs::write(&staged, HOST)?;
            std::fs::rename(&staged, &file)
        };
        write().map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(file)
    }
}

/// A path that begins with `./`, in full.
fn here(folder: &Path, text: &str) -> String {
    match text.strip_prefix("./") {
        Some(rest) => folder.join(rest).display().to_string(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_a_manifest_names_by_its_path_opens_no_folder() {
        for path in ["/etc/../bin/sh", "/proc/self/root/bin/sh", "/tmp/../usr/bin/env"] {
            assert!(Executable::of_manifest(Path::new("/p"), path).unwrap().reads.is_empty(), "{path}");
        }
        let own = std::env::current_exe().unwrap();
        let (folder, name) = (own.parent().unwrap(), own.file_name().unwrap().to_str().unwrap());
        assert!(Executable::of_manifest(folder, &format!("./{name}")).unwrap().reads.is_empty());
        assert!(Executable::of_manifest(Path::new("/p"), own.to_str().unwrap()).unwrap().reads.is_empty());
    }

    #[test]
    fn a_path_in_the_package_is_made_full() {
        assert_eq!(here(Path::new("/p"), "./x"), "/p/x");
        assert_eq!(here(Path::new("/p"), "python3"), "python3");
    }
}
