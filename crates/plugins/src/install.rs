//! Where plugins come from: a folder, a tarball, npm, git. Fetches into a staging folder and runs nothing of what it
//! fetched: package scripts are off, and so are git hooks.

use std::{
    io::Read,
    path::{Component, Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::process::Command;
use toolyard_protocol::{ErrorCode, Failure};

/// A package unpacked is at most this large,
const MAX_PACKAGE_BYTES: u64 = 1 << 30;
/// with at most this many files.
const MAX_PACKAGE_FILES: u64 = 100_000;
/// npm and git may take this long.
const FETCH_WITHIN: Duration = Duration::from_secs(600);

/// Where a plugin comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder on this machine.
    Folder(PathBuf),
    /// A `.tgz`, `.tar.gz` or `.tar` on this machine.
    Tarball(PathBuf),
    /// A package on npm, with a version or tag if wanted.
    Npm(String),
    /// A repository.
    Git(String),
}

impl Source {
    /// Reads what was typed.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |why: String| {
            Failure::new(ErrorCode::UsageError, why).suggest("Give a folder, a tarball, npm:NAME or git:URL.")
        };
        if let Some(name) = text.strip_prefix("npm:") {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"@/._-~^".contains(&b);
            if name.is_empty() || name.starts_with('-') || !name.bytes().all(plain) || name.contains("..") {
                return Err(bad(format!("{name:?} is no name of an npm package")));
            }
            return Ok(Self::Npm(name.to_owned()));
        }
        if let Some(url) = text.strip_prefix("git:") {
            // Other transports run commands.
            let known = ["https://", "http://", "ssh://", "git://", "file://", "/"];
            if !known.iter().any(|scheme| url.starts_with(scheme)) {
                return Err(bad(format!("{url:?} is no https, http, ssh, git or file address")));
            }
            return Ok(Self::Git(url.to_owned()));
        }
        let path = std::path::absolute(text).map_err(|e| bad(format!("{text}: {e}")))?;
        match std::fs::metadata(&path) {
            Ok(about) if about.is_dir() => Ok(Self::Folder(path)),
            Ok(_) if [".tgz", ".tar.gz", ".tar"].iter().any(|end| text.ends_with(end)) => Ok(Self::Tarball(path)),
            Ok(_) => Err(bad(format!("{text} is neither a folder nor a .tgz, .tar.gz or .tar"))),
            Err(e) => Err(bad(format!("{text}: {e}"))),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(path) | Self::Tarball(path) => write!(f, "{}", path.display()),
            Self::Npm(name) => write!(f, "npm:{name}"),
            Self::Git(url) => write!(f, "git:{url}"),
        }
    }
}

fn failed(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("{what}: {why}"))
}

/// Fetches into an empty folder. Gives the plugin's folder within it.
pub(crate) async fn fetch(source: &Source, stage: &Path) -> Result<PathBuf, Failure> {
    match source {
        Source::Folder(folder) => {
            let (from, to) = (folder.clone(), stage.to_owned());
            blocking(move || copy(&from, &to, &mut Budget::new())).await?;
            dependencies(stage).await?;
            Ok(PathBuf::from("."))
        }
        Source::Tarball(file) => {
            let (from, to) = (file.clone(), stage.to_owned());
            blocking(move || unpack(&from, &to)).await?;
            let root = only_folder(stage);
            dependencies(&stage.join(&root)).await?;
            Ok(root)
        }
        Source::Npm(name) => {
            std::fs::write(stage.join("package.json"), r#"{"private":true}"#).map_err(|e| failed("npm", e))?;
            npm(stage, &["install", "--save-exact", "--", name]).await?;
            Ok(Path::new("node_modules").join(package_name(name)))
        }
        Source::Git(url) => {
            let mut command = Command::new("git");
            command
                .args([
                    "-c",
                    "core.hooksPath=/dev/null",
                    "-c",
                    "protocol.ext.allow=never",
                    "clone",
                    "--quiet",
                    "--depth",
                    "1",
                    "--",
                ])
                .arg(url)
                .arg(stage.join("repository"))
                .env("GIT_TERMINAL_PROMPT", "0");
            run(command, "git clone").await?;
            let root = PathBuf::from("repository");
            dependencies(&stage.join(&root)).await?;
            Ok(root)
        }
    }
}

/// The name without a version: `@scope/name@1.2` is `@scope/name`.
fn package_name(spec: &str) -> &str {
    match spec.get(1..).and_then(|rest| rest.find('@')) {
        Some(at) => &spec[..=at],
        None => spec,
    }
}

/// Installs what a package needs, unless it brought it along.
async fn dependencies(folder: &Path) -> Result<(), Failure> {
    if folder.join("node_modules").exists() {
        return Ok(());
    }
    let Ok(text) = std::fs::read(folder.join("package.json")) else { return Ok(()) };
    let package: serde_json::Value = serde_json::from_slice(&text).map_err(|e| failed("package.json", e))?;
    let needs = package.get("dependencies").and_then(serde_json::Value::as_object).is_some_and(|d| !d.is_empty());
    if needs { npm(folder, &["install"]).await } else { Ok(()) }
}

async fn npm(folder: &Path, args: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("npm");
    // Scripts of packages are code: it must not run here. Peers would bring a whole OpenClaw.
    let fixed = [
        "--ignore-scripts",
        "--omit=dev",
        "--omit=peer",
        "--legacy-peer-deps",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ];
    let (verb, rest) = args.split_first().unwrap_or((&"install", &[]));
    command.arg(verb).args(fixed).args(rest).current_dir(folder);
    run(command, "npm install").await
}

async fn run(mut command: Command, what: &str) -> Result<(), Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().map_err(|e| failed(what, e))?;
    let output = tokio::time::timeout(FETCH_WITHIN, child.wait_with_output()).await;
    let output = output.map_err(|_| failed(what, "it took too long"))?.map_err(|e| failed(what, e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).take(6).collect();
    Err(failed(what, last.join(" | ")))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err("it failed unexpectedly".to_owned()));
    done.map_err(|why| failed("the package cannot be used", why))
}

/// What a package may still take.
struct Budget {
    bytes: u64,
    files: u64,
}

impl Budget {
    fn new() -> Self {
        Self { bytes: MAX_PACKAGE_BYTES, files: MAX_PACKAGE_FILES }
    }

    fn take(&mut self, bytes: u64) -> Result<(), String> {
        self.files = self.files.checked_sub(1).ok_or(format!("more than {MAX_PACKAGE_FILES} files"))?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(format!("more than {MAX_PACKAGE_BYTES} bytes"))?;
        Ok(())
    }
}

/// Copies a folder without what no plugin needs. Links are followed only if they stay inside.
fn copy(from: &Path, to: &Path, budget: &mut Budget) -> Result<(), String> {
    let root = from.canonicalize().map_err(|e| e.to_string())?;
    copy_below(&root, &root, to, budget)
}

fn copy_below(root: &Path, from: &Path, to: &Path, budget: &mut Budget) -> Result<(), String> {
    std::fs::create_dir_all(to).map_err(|e| e.to_string())?;
    for entry in std::fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))? {
        let entry = entry.map_err(|e| e.to_string())?;
        let (path, name) = (entry.path(), entry.file_name());
        if name == ".git" || name == "target" || name == "__pycache__" {
            continue;
        }
        let real = path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?;
        if !real.starts_with(root) {
            return Err(format!("{} leads out of the folder", path.display()));
        }
        let about = std::fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        if about.is_dir() {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                return Err(format!("{} is a link to a folder", path.display()));
            }
            copy_below(root, &path, &to.join(name), budget)?;
        } else if about.is_file() {
            budget.take(about.len())?;
            std::fs::copy(&path, to.join(name)).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

fn unpack(file: &Path, to: &Path) -> Result<(), String> {
    let opened = std::fs::File::open(file).map_err(|e| e.to_string())?;
    let packed = file.extension().is_none_or(|end| end != "tar");
    let reader: Box<dyn Read> = if packed { Box::new(flate2::read::GzDecoder::new(opened)) } else { Box::new(opened) };
    let mut archive = tar::Archive::new(reader);
    let mut budget = Budget::new();
    for entry in archive.entries().map_err(|e| e.to_string())? {
        let mut entry = entry.map_err(|e| e.to_string())?;
        budget.take(entry.size())?;
        let path = entry.path().map_err(|e| e.to_string())?.into_owned();
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(format!("{} leads out of the package", path.display()));
        }
        let target = to.join(&path);
        match entry.header().entry_type() {
            tar::EntryType::Directory => std::fs::create_dir_all(&target).map_err(|e| e.to_string())?,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                if let Some(parent) = target.parent() {
                    std::fs::create_dir_all(parent).map_err(|e| e.to_string())?;
                }
                let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                let mut out = std::fs::File::create(&target).map_err(|e| e.to_string())?;
                std::io::copy(&mut entry, &mut out).map_err(|e| e.to_string())?;
                if executable {
                    use std::os::unix::fs::PermissionsExt;
                    let mode = std::fs::Permissions::from_mode(0o755);
                    std::fs::set_permissions(&target, mode).map_err(|e| e.to_string())?;
                }
            }
            tar::EntryType::XGlobalHeader | tar::EntryType::XHeader => {}
            other => return Err(format!("{} is a {other:?}; only files and folders are taken", path.display())),
        }
    }
    Ok(())
}

/// Packages are usually packed with one folder around them.
fn only_folder(stage: &Path) -> PathBuf {
    let entries: Vec<_> = std::fs::read_dir(stage).into_iter().flatten().flatten().collect();
    match entries.as_slice() {
        [one] if one.path().is_dir() => PathBuf::from(one.file_name()),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_apart_and_dangerous_ones_refused() {
        assert_eq!(Source::parse("npm:@a/b@1.2").unwrap(), Source::Npm("@a/b@1.2".into()));
        assert_eq!(Source::parse("git:https://example.org/x").unwrap(), Source::Git("https://example.org/x".into()));
        for bad in ["npm:", "npm:--global", "npm:a b", "npm:../x", "git:ext::sh -c id", "git:-u", "/no/such/folder"] {
            assert!(Source::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(package_name("@a/b@1.2"), "@a/b");
        assert_eq!(package_name("b@latest"), "b");
        assert_eq!(package_name("@a/b"), "@a/b");
    }

    #[test]
    fn a_tarball_cannot_write_beside_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        for (name, kind) in [("../evil", tar::EntryType::Regular), ("link", tar::EntryType::Symlink)] {
            let file = dir.path().join("x.tar");
            let mut header = tar::Header::new_old();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(0);
            header.set_entry_type(kind);
            header.set_cksum();
            let mut bytes = header.as_bytes().to_vec();
            bytes.extend([0; 1024]);
            std::fs::write(&file, bytes).unwrap();
            let to = dir.path().join("to");
            assert!(unpack(&file, &to).is_err(), "{name}");
        }
        assert!(!dir.path().join("evil").exists());
    }
}
