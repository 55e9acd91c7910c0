//! Cloning a repository: shallow, one branch, no hooks, no submodules, no prompts, within walls (Landlock and seccomp)
//! that leave it the network and one folder.

use crate::{fetch::NetworkRules, importer::ImportError, limits::Limits, source::GitSource};
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::launch::{ConfinedLauncher, Confinement, Program};

/// How often a clone's size is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Characters of Git's own words that are passed on.
const SHOWN_CHARS: usize = 300;

/// Clones a repository into a folder that is there and empty.
pub(crate) async fn clone(
    source: &GitSource,
    into: &Path,
    rules: &NetworkRules,
    limits: &Limits,
    launcher: &ConfinedLauncher,
    cancel: &CancellationToken,
) -> Result<PathBuf, ImportError> {
    let address = Address::of(&source.url)?;
    let found = rules.resolve(&address.host, address.port).await?;
    if let Some(reference) = &source.reference
        && (reference.starts_with('-') || reference.chars().any(|c| c.is_control() || c.is_whitespace()))
    {
        return Err(ImportError::Invalid(format!("{reference:?} is no branch")));
    }
    // Plain protocols prove nothing about the other side: only where private networks are allowed at all.
    if address.scheme != "https" && !rules.allow_private {
        return Err(ImportError::Invalid(format!("repositories are cloned over https, not {}", address.scheme)));
    }
    let target = into.join("repository");
    let mut args: Vec<String> = Vec::new();
    let mut set = |setting: String| args.extend(["-c".to_owned(), setting]);
    set("protocol.allow=never".to_owned());
    set(format!("protocol.{}.allow=always", address.scheme));
    set("core.hooksPath=/dev/null".to_owned());
    set("core.symlinks=false".to_owned());
    set("core.fsmonitor=false".to_owned());
    set("http.followRedirects=false".to_owned());
    set("credential.helper=".to_owned());
    set("submodule.recurse=false".to_owned());
    if let Some(first) = found.first()
        && address.scheme.starts_with("http")
        && address.host.parse::<IpAddr>().is_err()
    {
        // The address that was checked is the one that is used.
        set(format!("http.curloptResolve={}:{}:{}", address.host, address.port, first.ip()));
    }
    args.extend(
        ["clone", "--quiet", "--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules"].map(str::to_owned),
    );
    if let Some(reference) = &source.reference {
        args.push(format!("--branch={reference}"));
    }
    args.extend(["--".to_owned(), source.url.clone(), target.display().to_string()]);
    run(&args, into, limits, launcher, cancel).await?;
    Ok(target)
}

async fn run(
    args: &[String],
    into: &Path,
    limits: &Limits,
    launcher: &ConfinedLauncher,
    cancel: &CancellationToken,
) -> Result<(), ImportError> {
    let walls = Confinement { read: Vec::new(), write: vec![into.to_owned()], network: true };
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    let env = [
        ("PATH", path.as_str()),
        ("HOME", &into.display().to_string()),
        ("TMPDIR", &into.display().to_string()),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ASKPASS", "/bin/false"),
        ("GIT_SSH_COMMAND", "/bin/false"),
        ("LC_ALL", "C"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let program = Program { program: "git", args, cwd: Some(into), env: &env };
    let mut command = launcher.command(&walls, &program).map_err(ImportError::Git)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().map_err(|e| ImportError::Git(format!("git cannot be started: {e}")))?;
    let finished = child.wait_with_output();
    tokio::pin!(finished);
    let deadline = tokio::time::sleep(Duration::from_millis(limits.clone_ms));
    tokio::pin!(deadline);
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            output = &mut finished => {
                let output = output.map_err(|e| ImportError::Git(e.to_string()))?;
                if output.status.success() {
                    return Ok(());
                }
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("git failed");
                return Err(ImportError::Git(last.chars().take(SHOWN_CHARS).collect()));
            }
            () = &mut deadline => return Err(ImportError::Git(format!("cloning took longer than {} ms", limits.clone_ms))),
            () = cancel.cancelled() => return Err(ImportError::Cancelled),
            _ = look.tick() => {
                let folder = into.to_owned();
                let most = limits.clone_bytes;
                let size = tokio::task::spawn_blocking(move || size_of(&folder, most)).await.unwrap_or(0);
                if size > most {
                    return Err(ImportError::TooLarge(format!("the repository takes more than {most} bytes")));
                }
            }
        }
    }
}

/// Bytes of the files in a folder; counting stops above `most`.
fn size_of(folder: &Path, most: u64) -> u64 {
    let mut total = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                open.push(entry.path());
            } else {
                total += about.len();
            }
            if total > most {
                return total;
            }
        }
    }
    total
}

#[derive(Debug)]
struct Address {
    scheme: String,
    host: String,
    port: u16,
}

impl Address {
    fn of(url: &str) -> Result<Self, ImportError> {
        let bad = || ImportError::Invalid(format!("{url} is no repository's address"));
        if url.starts_with('-')
            || url.contains("::") && !url.contains('[')
            || url.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            // A leading hyphen is an option to git, a double colon one of its helpers.
            return Err(bad());
        }
        if let Some((_, rest)) = url.split_once('@').filter(|_| !url.contains("://")) {
            let host = rest.split(':').next().filter(|host| !host.is_empty()).ok_or_else(bad)?;
            return Ok(Self { scheme: "ssh".to_owned(), host: host.to_owned(), port: 22 });
        }
        let parsed = reqwest::Url::parse(url).map_err(|_| bad())?;
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or_else(bad)?.to_owned();
        let known = match parsed.scheme() {
            "https" => 443,
            "http" => 80,
            "git" => 9_418,
            "ssh" => 22,
            _ => return Err(bad()),
        };
        Ok(Self { scheme: parsed.scheme().to_owned(), host, port: parsed.port().unwrap_or(known) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_git_would_take_for_something_else_are_refused() {
        for bad in ["--upload-pack=x", "ext::sh -c x", "file:///etc", "https://", "a b", "/local/path"] {
            assert!(Address::of(bad).is_err(), "{bad}");
        }
        let address = Address::of("https://e.org:8443/r.git").unwrap();
        assert_eq!((address.scheme.as_str(), address.host.as_str(), address.port), ("https", "e.org", 8443));
        assert_eq!(Address::of("git@e.org:o/r.git").unwrap().host, "e.org");
    }
}
