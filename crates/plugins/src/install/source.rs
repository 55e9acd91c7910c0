//! The source of a plugin, as a person writes it.

use std::path::PathBuf;
use toolyard_protocol::{ErrorCode, Failure};

/// Ends of file names that are archives. npm takes a package name with such an end for a file.
const ARCHIVES: [&str; 3] = [".tgz", ".tar.gz", ".tar"];
/// A package name of npm has at most this many bytes.
const MAX_NPM_NAME: usize = 214;

/// Where a plugin comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder on this machine.
    Folder(PathBuf),
    /// A `.tgz`, `.tar.gz` or `.tar` on this machine.
    Tarball(PathBuf),
    /// A package of npm's registry, with a version or tag if wanted.
    Npm(String),
    /// The URL of a repository.
    Git(String),
    /// A package of ClawHub, OpenClaw's registry, with a version if wanted.
    Clawhub(String),
}

/// Prefixes of sources that are not paths.
pub const SCHEMES: [&str; 3] = ["npm:", "git:", "clawhub:"];

impl Source {
    /// Parses a source from the command line.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |why: String| {
            Failure::new(ErrorCode::UsageError, why)
                .suggest("Give a folder, a tarball, npm:NAME, git:URL or clawhub:NAME.")
        };
        if let Some(name) = text.strip_prefix("npm:") {
            return match is_npm_spec(name) {
                true => Ok(Self::Npm(name.to_owned())),
                false => Err(bad(format!("{name:?} is not NAME, NAME@VERSION or @SCOPE/NAME of a package on npm"))),
            };
        }
        if let Some(name) = text.strip_prefix("clawhub:") {
            return match is_npm_spec(name) {
                true => Ok(Self::Clawhub(name.to_owned())),
                false => Err(bad(format!("{name:?} is not NAME, NAME@VERSION or @SCOPE/NAME of a package on ClawHub"))),
            };
        }
        if let Some(url) = text.strip_prefix("git:") {
            if url.starts_with("ssh://") {
                return Err(bad("git runs without your keys, so ssh addresses cannot be cloned".to_owned())
                    .suggest("Clone the repository yourself and install the folder."));
            }
            if git_scheme(url).is_none() || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(bad(format!("{url:?} is not an https, http, git or file address")));
            }
            return Ok(Self::Git(url.to_owned()));
        }
        let path = std::path::absolute(text).map_err(|e| bad(format!("{text}: {e}")))?;
        match std::fs::metadata(&path) {
            Ok(about) if about.is_dir() => Ok(Self::Folder(path)),
            Ok(about) if about.is_file() && ARCHIVES.iter().any(|end| text.ends_with(end)) => Ok(Self::Tarball(path)),
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
            Self::Clawhub(name) => write!(f, "clawhub:{name}"),
        }
    }
}

/// The transport of a repository's address. Others (`ext::`, `ssh`) run commands.
pub(super) fn git_scheme(url: &str) -> Option<&'static str> {
    if url.starts_with('/') {
        return Some("file");
    }
    ["https", "http", "git", "file"].into_iter().find(|scheme| {
        url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://")).is_some_and(|rest| !rest.starts_with('-'))
    })
}

/// Whether npm can take this for nothing but a package of its registry: `owner/name` would be a repository, `x.tgz` a file.
fn is_npm_spec(spec: &str) -> bool {
    let (name, version) = name_and_version(spec);
    is_npm_name(name) && version.is_none_or(is_version_or_tag)
}

/// `NAME@VERSION` in its two parts. The `@` of a scope is no beginning of a version.
pub(super) fn name_and_version(spec: &str) -> (&str, Option<&str>) {
    let at = spec.get(1..).and_then(|rest| rest.find('@')).map(|at| at + 1);
    at.map_or((spec, None), |at| (&spec[..at], Some(&spec[at + 1..])))
}

/// Whether this is a package's name: `name` or `@scope/name`.
pub(super) fn is_npm_name(name: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-', '_'])
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-~".contains(&b))
    };
    let parts = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| plain(scope) && plain(name)),
        None => plain(name),
    };
    parts && name.len() <= MAX_NPM_NAME && !is_archive(name)
}

/// Whether this is one version or tag: no range, no address, no path.
fn is_version_or_tag(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '^' || c == '~')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-~^+".contains(&b))
        && !is_archive(text)
}

/// Whether a name ends like an archive's.
pub(super) fn is_archive(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ARCHIVES.iter().any(|end| lower.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_apart_and_dangerous_ones_refused() {
        for good in ["npm:@a/b@1.2", "npm:b", "npm:b@latest", "npm:@a/b", "npm:b@^1.2.0", "npm:b@1.0.0-rc.1+5"] {
            assert_eq!(Source::parse(good).unwrap().to_string(), good);
        }
        for good in ["git:https://example.org/x", "git:file:///srv/x", "git:/srv/x", "git:http://e.org/x"] {
            assert_eq!(Source::parse(good).unwrap().to_string(), good);
        }
        for good in ["clawhub:obsidian-rag", "clawhub:@a/b@1.2.0"] {
            assert_eq!(Source::parse(good).unwrap().to_string(), good);
        }
        for bad in [
            "clawhub:",
            "clawhub:../x",
            "clawhub:x@../y",
            "npm:",
            "npm:--global",
            "npm:a b",
            "npm:../x",
            "npm:owner/repository",
            "npm:x@owner/repository",
            "npm:@a/b/c",
            "npm:x.tgz",
            "npm:x@y.tar.gz",
            "npm:./x",
            "npm:~/x",
            "npm:.",
            "npm:git+ssh://e.org/x",
            "npm:x@https://e.org/x",
            "git:ext::sh -c id",
            "git:ext::id",
            "git:-u",
            "git:ssh://e.org/x",
            "git:https://-oProxyCommand=id/x",
            "git:https://e.org/x\ny",
            "git:user@e.org:x",
            "/no/such/folder",
        ] {
            assert_eq!(Source::parse(bad).unwrap_err().code, ErrorCode::UsageError, "{bad}");
        }
    }
}
