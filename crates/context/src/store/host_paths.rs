//! Which paths of this machine a caller may read: none for agents, unless the configuration grants folders.
//!
//! The engine rejects host paths of agents before a tool runs. This module checks the path itself: links are resolved,
//! and files in the vault or in Toolyard's own folders are never read this way, because their own rules would not
//! apply.

use crate::wire::tools::ToolFailure;
use std::path::{Path, PathBuf};
use toolyard_protocol::ErrorCode;

/// The host paths that a session may read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostPaths {
    /// Only paths inside the granted folders. For agents.
    #[default]
    Granted,
    /// All paths. For the person at this machine.
    All,
}

/// Folders from which agents may import, and folders from which they never may.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostRoots {
    granted: Vec<PathBuf>,
    protected: Vec<PathBuf>,
}

impl HostRoots {
    /// Resolves links in the folders' paths once; a missing folder grants nothing.
    pub(crate) fn new(granted: &[PathBuf], protected: &[PathBuf]) -> Self {
        let granted = granted.iter().filter_map(|root| root.canonicalize().ok()).collect();
        let protected = protected.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
        Self { granted, protected }
    }

    /// The path with links resolved, if the caller may read it.
    pub(crate) fn admit(&self, paths: HostPaths, named: &str) -> Result<PathBuf, ToolFailure> {
        let path = Path::new(named);
        if paths == HostPaths::All {
            return if path.exists() { Ok(path.to_owned()) } else { Err(not_there(named)) };
        }
        // The error does not reveal whether a path outside the granted folders exists.
        let refused = || {
            let message = format!(
                "agents may not name paths of this machine ({}); hand over the content, or have the owner name the folder in context.importRoots",
                crate::store::fs::cut(named, 200)
            );
            ToolFailure::new(ErrorCode::PolicyDenied, message)
        };
        if !path.is_absolute() {
            return Err(refused());
        }
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(_) if self.granted.iter().any(|root| path.starts_with(root) && !climbs(path)) => {
                return Err(not_there(named));
            }
            Err(_) => return Err(refused()),
        };
        let granted = self.granted.iter().any(|root| real.starts_with(root));
        let touches = |folder: &PathBuf| real.starts_with(folder) || folder.starts_with(&real);
        if granted && !self.protected.iter().any(touches) { Ok(real) } else { Err(refused()) }
    }
}

fn climbs(path: &Path) -> bool {
    path.components().any(|part| part == std::path::Component::ParentDir)
}

/// The error for a missing path, in Node's wording.
fn not_there(path: &str) -> ToolFailure {
    ToolFailure::new(ErrorCode::NotFound, format!("ENOENT: no such file or directory, stat '{path}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_read_below_granted_folders_alone_and_never_in_protected_ones() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for folder in ["granted/docs", "granted/vault/private", "other"] {
            std::fs::create_dir_all(base.join(folder)).unwrap();
        }
        std::fs::write(base.join("granted/docs/a.md"), "a").unwrap();
        std::fs::write(base.join("other/secret"), "s").unwrap();
        std::os::unix::fs::symlink(base.join("other"), base.join("granted/link")).unwrap();
        let roots = HostRoots::new(&[base.join("granted"), base.join("missing")], &[base.join("granted/vault")]);
        let admit = |path: &str| roots.admit(HostPaths::Granted, &base.join(path).display().to_string());
        assert_eq!(admit("granted/docs").unwrap(), base.join("granted/docs"));
        assert_eq!(admit("granted/docs/../docs/a.md").unwrap(), base.join("granted/docs/a.md"));
        for refused in [
            "other/secret",
            "granted/link/secret",
            "granted/../other/secret",
            "granted/vault",
            "granted/vault/private",
            "granted",
            "missing/x",
            "other/none",
            "granted/../other/none",
        ] {
            assert_eq!(admit(refused).unwrap_err().code, ErrorCode::PolicyDenied, "{refused}");
        }
        assert_eq!(admit("granted/docs/none.md").unwrap_err().code, ErrorCode::NotFound);
        assert!(roots.admit(HostPaths::Granted, "relative.md").is_err());
        let nothing = HostRoots::default();
        assert!(nothing.admit(HostPaths::Granted, "/etc/hostname").is_err());
        let secret = base.join("other/secret").display().to_string();
        assert!(nothing.admit(HostPaths::All, &secret).is_ok(), "a person may");
    }
}
