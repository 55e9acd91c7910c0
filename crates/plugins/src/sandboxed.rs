//! Starts child processes in the sandbox: plugins, and upstream MCP servers with a `sandbox` table.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use toolyard_mcp::client::{ChildSpec, Launcher, LimitsConfig, ServerConfig, ServerSpec};
use toolyard_sandbox::launch::{ConfinedLauncher, Confinement, ProcessLimits, Program, is_hidden};

/// Programs under these need no further rights.
const SYSTEM: [&str; 6] = ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/"];

/// Starts a child process in the sandbox.
pub(crate) struct SandboxedLauncher {
    pub(crate) launcher: ConfinedLauncher,
    pub(crate) walls: Confinement,
    /// The files and folders that a person granted, in addition to those that Toolyard adds.
    pub(crate) granted: Vec<PathBuf>,
}

impl Launcher for SandboxedLauncher {
    fn command(&self, spec: &ChildSpec) -> Result<tokio::process::Command, String> {
        if let Some(path) = self.granted.iter().find(|path| is_hidden(path)) {
            return Err(format!(
                "it is granted {}, which belongs to Toolyard's own keys, settings or plugins; take the grant back",
                path.display()
            ));
        }
        let program = Program { program: &spec.program, args: &spec.args, cwd: spec.cwd.as_deref(), env: &spec.env };
        self.launcher.command(&self.walls, &program)
    }
}

/// Configured limits as the launcher takes them.
pub(crate) fn limits(config: LimitsConfig) -> ProcessLimits {
    ProcessLimits { processes: config.processes, memory_mb: config.memory_mb }
}

/// A configured upstream server, started in the sandbox that its configuration describes. `expand` turns a configured
/// path into an absolute one.
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
        let granted = all(&sandbox.read).into_iter().chain(all(&sandbox.write)).collect();
        if let Some(program) = config.command.as_deref().and_then(find) {
            read.extend(prefix(&program));
        }
        let walls = Confinement { read, write: all(&sandbox.write), network: sandbox.network };
        spec.launcher =
            Arc::new(SandboxedLauncher { launcher: launcher.limited(limits(sandbox.limits)), walls, granted });
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
    // A version manager's shim starts the manager, which the sandbox does not contain.
    let is_shim = |path: &&PathBuf| path.parent().is_some_and(|folder| folder.ends_with("shims"));
    found.iter().find(|path| !is_shim(path)).or_else(|| found.first()).cloned()
}

/// What a program that was not installed with the system must be able to read: the program itself, or the tree in which
/// it is installed. The program must be chosen by a person, through PATH or the configuration, never by a package.
pub fn prefix(program: &Path) -> Vec<PathBuf> {
    let mut needed = Vec::new();
    // Without links and `..`, because what is granted is the folder that the path leads to. The name that was given counts
    // beside the file it leads to: a virtual environment's python is a link to the system's.
    let given = program.parent().and_then(|folder| Some(folder.canonicalize().ok()?.join(program.file_name()?)));
    for place in given.into_iter().chain(program.canonicalize().ok()) {
        if SYSTEM.iter().any(|system| place.starts_with(system)) {
            continue;
        }
        let path = tree(&place, home().as_deref()).unwrap_or(place);
        if !needed.contains(&path) {
            needed.push(path);
        }
    }
    needed
}

/// The user's own folder.
fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).and_then(|home| home.canonicalize().ok())
}

/// `…/bin/node` belongs to `…` if libraries are beside `bin`. The user's home (`~/bin`) and settings folders in it
/// (`~/.local/bin`, `~/.cargo/bin`) contain more than programs, so only the program itself becomes readable there.
fn tree(program: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let tree = program.parent().filter(|folder| folder.ends_with("bin"))?.parent()?;
    let has_libraries = ["lib", "lib64", "pyvenv.cfg"].iter().any(|name| tree.join(name).exists());
    let is_hidden_name = tree.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_the_users =
        home.is_some_and(|home| home.starts_with(tree) || (is_hidden_name && tree.parent() == Some(home)));
    (has_libraries && !is_the_users && tree.parent().is_some()).then(|| tree.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_outside_the_system_brings_its_own_tree_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let program = |path: &str| {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            path
        };
        let node = program(".nvm/versions/v24/bin/node");
        fs::create_dir_all(home.join(".nvm/versions/v24/lib")).unwrap();
        for folder in ["lib", ".local/lib", ".cargo/lib"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        let user = Some(home.as_path());
        assert_eq!(tree(&node, user), Some(home.join(".nvm/versions/v24")));
        for alone in ["bin/tool", ".local/bin/tool", ".cargo/bin/tool", "go/bin/tool", "tool"] {
            assert_eq!(tree(&program(alone), user), None, "{alone}");
        }
        assert!(prefix(Path::new("/usr/bin/env")).is_empty());
        assert_eq!(prefix(&node), [home.join(".nvm/versions/v24")]);
        assert_eq!(prefix(&home.join("go/bin/tool")), [home.join("go/bin/tool")]);
    }

    #[test]
    fn a_path_that_leads_elsewhere_brings_nothing_of_where_it_led_through() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let up = "../".repeat(home.components().count() - 1);
        for odd in [format!("{}/{up}usr/bin/env", home.display()), "/etc/../usr/bin/env".to_owned()] {
            assert!(Path::new(&odd).exists() && prefix(Path::new(&odd)).is_empty(), "{odd}");
        }
    }

    #[test]
    fn a_grant_of_toolyards_own_files_starts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        toolyard_sandbox::launch::hide([state.clone()]);
        let spec =
            ChildSpec { name: "x".into(), program: "/bin/true".into(), args: Vec::new(), cwd: None, env: Vec::new() };
        for (granted, is_refused) in [(state.join("token"), true), (state, true), (dir.path().to_owned(), false)] {
            let walls = Confinement { read: vec![granted.clone()], ..Confinement::default() };
            let sandboxed =
                SandboxedLauncher { launcher: ConfinedLauncher::new(), walls, granted: vec![granted.clone()] };
            assert_eq!(sandboxed.command(&spec).is_err(), is_refused, "{}", granted.display());
        }
    }
}
