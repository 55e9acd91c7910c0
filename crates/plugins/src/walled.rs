//! Starts children within walls: plugins' processes, and upstream MCP servers that are configured with a sandbox.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use toolyard_mcp::client::{ChildSpec, Launcher, LimitsConfig, ServerConfig, ServerSpec};
use toolyard_sandbox::launch::{ConfinedLauncher, Confinement, ProcessLimits, Program};

/// Programs under these need no further rights.
const SYSTEM: [&str; 6] = ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/"];

/// Starts a child within walls.
pub(crate) struct Walled {
    pub(crate) launcher: ConfinedLauncher,
    pub(crate) walls: Confinement,
}

impl Launcher for Walled {
    fn command(&self, spec: &ChildSpec) -> Result<tokio::process::Command, String> {
        let program = Program { program: &spec.program, args: &spec.args, cwd: spec.cwd.as_deref(), env: &spec.env };
        self.launcher.command(&self.walls, &program)
    }
}

/// Configured limits as the launcher takes them.
pub(crate) fn limits(config: LimitsConfig) -> ProcessLimits {
    ProcessLimits { processes: config.processes, memory_mb: config.memory_mb }
}

/// A configured upstream server, started within the walls that its configuration names. `expand` turns a configured path
/// into a full one.
pub fn server_spec(
    launcher: &ConfinedLauncher,
    name: &str,
    config: &ServerConfig,
    expand: impl Fn(&Path) -> PathBuf,
) -> ServerSpec {
    let mut spec = ServerSpec::plain(name, config.clone());
    if let Some(sandbox) = config.confinement() {
        let all = |paths: &[PathBuf]| paths.iter().map(|path| expand(path)).collect::<Vec<_>>();
        let mut read = all(&sandbox.read);
        if let Some(program) = config.command.as_deref().and_then(find) {
            read.extend(prefix(&program));
        }
        let walls = Confinement { read, write: all(&sandbox.write), network: sandbox.network };
        spec.launcher = Arc::new(Walled { launcher: launcher.limited(limits(sandbox.limits)), walls });
    }
    spec
}

/// A program by its path, or by its name in PATH.
pub fn find(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Path::new(command).exists().then(|| PathBuf::from(command));
    }
    let path = std::env::var_os("PATH")?;
    let found: Vec<PathBuf> =
        std::env::split_paths(&path).map(|folder| folder.join(command)).filter(|path| path.is_file()).collect();
    // A version manager's shim starts the manager, which is not within the walls.
    let is_shim = |path: &&PathBuf| path.parent().is_some_and(|folder| folder.ends_with("shims"));
    found.iter().find(|path| !is_shim(path)).or_else(|| found.first()).cloned()
}

/// What a program that was not installed with the system needs to read: the tree it was installed in.
pub fn prefix(program: &Path) -> Vec<PathBuf> {
    let mut needed = Vec::new();
    let mut places = vec![program.to_owned()];
    places.extend(program.canonicalize().ok());
    for place in places {
        if SYSTEM.iter().any(|system| place.starts_with(system)) {
            continue;
        }
        // `…/bin/node` belongs to `…`; the program itself always.
        let tree =
            place.parent().filter(|p| p.ends_with("bin")).and_then(Path::parent).filter(|p| p.parent().is_some());
        needed.push(tree.map_or_else(|| place.clone(), Path::to_owned));
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_outside_the_system_brings_its_own_tree_and_no_more() {
        assert!(prefix(Path::new("/usr/bin/python3")).is_empty());
        assert_eq!(prefix(Path::new("/home/a/.nvm/v24/bin/node")), [PathBuf::from("/home/a/.nvm/v24")]);
        assert_eq!(prefix(Path::new("/home/a/tool")), [PathBuf::from("/home/a/tool")]);
    }
}
