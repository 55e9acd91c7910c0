//! Runs git and npm in the sandbox with only our configuration. They write to a scratch folder only.

use super::{
    MAX_PACKAGE_BYTES,
    dependencies::{Dependencies, MAX_LOCK_BYTES, check_lock},
    refused,
    source::git_scheme,
    unavailable,
};
use crate::{
    sandboxed::{find, prefix},
    settings::PluginsConfig,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_beneath::{Folder, Links};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_sandbox::{
    git,
    launch::ConfinedLauncher,
    tool::{Tool, ToolError},
};

/// One call of git or npm may take this long.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// The scratch folder holds a download and what was unpacked from it.
const MAX_SCRATCH_BYTES: u64 = 2 * MAX_PACKAGE_BYTES;
/// Variables of Toolyard's own environment that git and npm get: how to reach the network.
const NETWORK_VARIABLES: [&str; 7] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "npm_config_registry"];
/// The same, with a file or folder of certificates as value, which they may read.
const CERTIFICATE_VARIABLES: [&str; 4] = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"];
/// Options of every call of npm. Options of the command line take precedence over every file and variable.
///
/// `allow-*` are known to npm 11; `git` makes a repository impossible to fetch for older ones as well.
const NPM_OPTIONS: [&str; 17] = [
    "--ignore-scripts",
    "--bin-links=false",
    "--allow-git=none",
    "--allow-file=none",
    "--allow-directory=none",
    "--git=/dev/null/git",
    "--script-shell=/dev/null/sh",
    "--node-options=",
    "--workspaces=false",
    "--omit=dev",
    // Peers would bring a whole OpenClaw.
    "--omit=peer",
    "--legacy-peer-deps",
    "--omit-lockfile-registry-resolved=true",
    "--audit=false",
    "--fund=false",
    "--update-notifier=false",
    "--loglevel=error",
];

/// Loaded into npm before its own code. As root, npm sets the owner of each file that it unpacks; the sandbox refuses
/// that, and npm then leaves the file out without an error. Without `getuid`, npm behaves as for other users.
const NO_OWNER: &str = "delete process.getuid;\n";

/// Fetches packages with git and npm.
pub(crate) struct Fetcher {
    launcher: ConfinedLauncher,
    /// The registry to ask instead of npm's own.
    npm_registry: Option<String>,
    /// ClawHub's address, or the folder that mirrors it.
    pub(super) clawhub: Option<String>,
}

impl Fetcher {
    pub(crate) fn new(launcher: ConfinedLauncher, config: &PluginsConfig) -> Self {
        Self { launcher, npm_registry: config.npm_registry.clone(), clawhub: config.clawhub.clone() }
    }

    /// Clones a repository. Gives its folder, with the repository's own files in `.git`.
    pub(super) async fn clone_repository(&self, url: &str, scratch: &Path) -> Result<PathBuf, Failure> {
        let scheme = git_scheme(url).ok_or_else(|| refused(format!("{url:?} is no address of a repository")))?;
        let target = scratch.join("repository");
        let clone = git::Clone { url, scheme, reference: None, target: &target, settings: &[] };
        let local = (scheme == "file").then(|| PathBuf::from(url.strip_prefix("file://").unwrap_or(url)));
        let call =
            Call { name: "git", what: "git clone", network: local.is_none(), reads: local.into_iter().collect() };
        self.run(&call, clone.arguments(), git::environment(scratch), scratch, scratch).await?;
        Ok(target)
    }

    /// Downloads a package's tarball from the registry, which gives its hash as well; npm compares them. The tarball of an
    /// address is taken as it is.
    pub(super) async fn pack(&self, name: &str, scratch: &Path) -> Result<PathBuf, Failure> {
        let folder = scratch.join("packed");
        std::fs::create_dir(&folder).map_err(|e| unavailable("npm", e))?;
        // npm takes the address that the registry gives for a tarball for a remote one; the name was checked to be one of the
        // registry's.
        self.npm("npm pack", &["pack", "--allow-remote=all", "--pack-destination=.", "--", name], &folder, scratch)
            .await?;
        let found = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let tarballs: Vec<PathBuf> = found.filter(|path| path.extension().is_some_and(|end| end == "tgz")).collect();
        match tarballs.as_slice() {
            [one] => Ok(one.clone()),
            _ => Err(unavailable("npm pack", format!("npm gave no tarball for {name}"))),
        }
    }

    /// Installs checked dependencies. Gives the folder that holds them.
    pub(super) async fn install(&self, wanted: &Dependencies, scratch: &Path) -> Result<PathBuf, Failure> {
        let folder = scratch.join("dependencies");
        let write = || -> Result<(), String> {
            std::fs::create_dir(&folder).map_err(|e| e.to_string())?;
            std::fs::write(folder.join("package.json"), wanted.package_json()?).map_err(|e| e.to_string())?;
            match wanted.lock() {
                Some(lock) => std::fs::write(folder.join("package-lock.json"), lock).map_err(|e| e.to_string()),
                None => Ok(()),
            }
        };
        write().map_err(|why| unavailable("npm", why))?;
        // First which packages there are, then the packages: nothing is downloaded that was not looked at.
        self.npm("npm install", &["install", "--allow-remote=none", "--package-lock-only"], &folder, scratch).await?;
        let opened = Folder::open(&folder).map_err(|e| unavailable("npm install", e))?;
        let lock = opened.read("package-lock.json", Links::Refuse, MAX_LOCK_BYTES);
        let required = check_lock(&lock.map_err(|e| unavailable("npm install", e))?).map_err(refused)?;
        self.npm("npm ci", &["ci", "--allow-remote=none"], &folder, scratch).await?;
        // npm does not always fail when it could not write a file.
        if let Some(missing) = required.iter().find(|place| !folder.join(place).join("package.json").is_file()) {
            return Err(unavailable("npm ci", format!("npm did not write {missing}")));
        }
        let modules = folder.join("node_modules");
        // Where every dependency was optional and does not fit this machine, npm makes no folder.
        std::fs::create_dir_all(&modules).map_err(|e| unavailable("npm ci", e))?;
        Ok(modules)
    }

    async fn npm(&self, what: &'static str, args: &[&str], folder: &Path, scratch: &Path) -> Result<(), Failure> {
        let (verb, rest) = args.split_first().unwrap_or((&"help", &[]));
        let mut all = vec![(*verb).to_owned()];
        all.extend(NPM_OPTIONS.map(str::to_owned));
        for (option, name) in [("cache", "npm-cache"), ("userconfig", "npmrc-user"), ("globalconfig", "npmrc-global")] {
            all.push(format!("--{option}={}", scratch.join(name).display()));
        }
        all.extend(self.npm_registry.iter().map(|registry| format!("--registry={registry}")));
        all.extend(rest.iter().map(|arg| (*arg).to_owned()));
        let home = scratch.display().to_string();
        let preload = scratch.join("owner.cjs");
        std::fs::write(&preload, NO_OWNER).map_err(|e| unavailable("npm", e))?;
        let env = [
            ("NODE_OPTIONS", format!("--require={}", preload.display())),
            ("HOME", home.clone()),
            ("TMPDIR", home),
            ("npm_config_prefix", scratch.join("prefix").display().to_string()),
        ];
        let env = env.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let call =
            Call { name: "npm", what, network: true, reads: find("node").iter().flat_map(|p| prefix(p)).collect() };
        self.run(&call, all, env, folder, scratch).await
    }

    /// Runs git or npm, which can write to the scratch folder only.
    async fn run(
        &self,
        call: &Call,
        args: Vec<String>,
        mut env: Vec<(String, String)>,
        cwd: &Path,
        scratch: &Path,
    ) -> Result<(), Failure> {
        let program = find(call.name).ok_or_else(|| {
            unavailable(call.what, format!("{} is not installed", call.name)).suggest(format!(
                "Install {}, or install the plugin from a folder or tarball that does not need it.",
                call.name
            ))
        })?;
        let mut read = prefix(&program);
        read.extend(call.reads.iter().cloned());
        env.push(("PATH".to_owned(), path_of(&program)));
        if call.network {
            env.extend(variables(&NETWORK_VARIABLES));
            for (key, value) in variables(&CERTIFICATE_VARIABLES) {
                read.push(PathBuf::from(&value));
                env.push((key, value));
            }
        }
        let tool = Tool {
            program: &program.display().to_string(),
            args: &args,
            env: &env,
            cwd,
            folder: scratch,
            read,
            network: call.network,
            time_limit: TIME_LIMIT,
            byte_limit: MAX_SCRATCH_BYTES,
        };
        tool.run(&self.launcher, &CancellationToken::new()).await.map_err(|error| match error {
            ToolError::ByteLimit(_) => refused(format!("{}: {error}", call.what)),
            ToolError::TimeLimit(_) => Failure::new(ErrorCode::Timeout, format!("{}: {error}", call.what)),
            other => unavailable(call.what, other),
        })
    }
}

/// One call of git or npm.
struct Call {
    name: &'static str,
    /// For error messages.
    what: &'static str,
    network: bool,
    reads: Vec<PathBuf>,
}

/// The folders of the program and of Node.js, then the system's.
fn path_of(program: &Path) -> String {
    let mut folders: Vec<String> = Vec::new();
    for found in [Some(program.to_owned()), find("node")].into_iter().flatten() {
        folders.extend(found.parent().map(|folder| folder.display().to_string()));
    }
    folders.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(str::to_owned));
    folders.join(":")
}

fn variables(names: &[&str]) -> Vec<(String, String)> {
    names.iter().filter_map(|name| std::env::var(name).ok().map(|value| ((*name).to_owned(), value))).collect()
}
