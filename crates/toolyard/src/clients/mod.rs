//! The configuration files of agents' programs: where they are, how entries are put in and taken out, and how a file's
//! earlier text is restored.

pub(crate) mod hook_entries;
pub(crate) mod json;
pub(crate) mod kept;
pub(crate) mod managed;
pub(crate) mod packages;
pub(crate) mod places;
pub(crate) mod problems;
pub mod servers;
pub(crate) mod toml;
pub(crate) mod trust;

use crate::{cli::Global, commands::workspaces};
use std::path::{Path, PathBuf};
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId};

/// The option that names the workspace in a client's entry.
pub(crate) const WORKSPACE_OPTION: &str = "--workspace";

/// How a client starts this program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The absolute path of this program.
    pub(crate) path: PathBuf,
    /// The home that its commands use, where it is not the default one.
    pub(crate) home: Option<PathBuf>,
    /// The workspace that its commands act in.
    pub(crate) workspace: WorkspaceId,
}

/// What starts this program in a shell of its owner: its name if `PATH` finds this very file, otherwise its path.
pub(crate) fn shell_command() -> String {
    const NAME: &str = "toolyard";
    let Ok(this) = std::env::current_exe() else { return NAME.to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(NAME)).find(|program| program.is_file());
    let is_this = found.is_some_and(|program| program.canonicalize().ok() == this.canonicalize().ok());
    if is_this { NAME.to_owned() } else { this.display().to_string() }
}

impl Program {
    /// This program, with the home and the workspace that were named on the command line or in the environment.
    pub(crate) fn this(global: &Global) -> Result<Self, Failure> {
        let unknown = |what: &dyn std::fmt::Display| {
            Failure::new(ErrorCode::InternalError, format!("the path of this program is not known: {what}"))
        };
        let path = std::env::current_exe().map_err(|error| unknown(&error))?;
        if path.to_str().is_none() {
            return Err(unknown(&"it is not UTF-8"));
        }
        let home = global.home.as_deref().map(std::path::absolute).transpose().map_err(|error| unknown(&error))?;
        Ok(Self { path, home, workspace: workspaces::named(global)? })
    }

    /// The program's path.
    pub(crate) fn command(&self) -> String {
        self.path.display().to_string()
    }

    /// Arguments for a command of this program.
    pub(crate) fn arguments(&self, command: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        if let Some(home) = &self.home {
            all.extend(["--home".to_owned(), home.display().to_string()]);
        }
        if !self.workspace.is_default() {
            all.extend([WORKSPACE_OPTION.to_owned(), self.workspace.to_string()]);
        }
        all
    }

    /// The same as one line for a shell.
    pub(crate) fn line(&self, command: &[&str]) -> String {
        let words = std::iter::once(self.command()).chain(self.arguments(command));
        words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:+,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A failure about a client's file.
pub(crate) fn unusable(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::ConfigInvalid, format!("{}: {why}", path.display()))
        .suggest("Correct the file by hand, then run the command again. Nothing was written.")
}
