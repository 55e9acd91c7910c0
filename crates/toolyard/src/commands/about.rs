//! `toolyard version` and `toolyard self check`: what this program is, and whether it is whole.

use super::Outcome;
use crate::{cli::Global, home::Home, output};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};
use toolyard_protocol::{ErrorCode, Failure};

/// What this program is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    program: PathBuf,
    os: &'static str,
    arch: &'static str,
    /// Whether it was built with optimisations.
    optimised: bool,
}

fn this_version() -> Result<Version, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(ErrorCode::InternalError, format!("the path of this program is not known: {error}"))
    })?;
    Ok(Version {
        version: env!("CARGO_PKG_VERSION"),
        program,
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        optimised: !cfg!(debug_assertions),
    })
}

pub(super) fn version(global: &Global) -> Outcome {
    let version = this_version()?;
    if global.json {
        output::json(&version);
    } else {
        output::data(&format!("toolyard {} ({} {})", version.version, version.os, version.arch));
    }
    Ok(ExitCode::SUCCESS)
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    /// Whether the program cannot work without it.
    required: bool,
    detail: String,
}

#[derive(Debug, Serialize)]
struct SelfCheck {
    #[serde(flatten)]
    version: Version,
    ok: bool,
    checks: Vec<Check>,
}

/// Looks whether everything that belongs to this program is there. Starts nothing of it and reads no configuration.
pub(super) fn self_check(global: &Global) -> Outcome {
    let version = this_version()?;
    let folder = version.program.parent().unwrap_or(Path::new("/")).to_owned();
    let home = Home::resolve(global.home.as_deref())
        .map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("{error:#}")))?;
    let checks = vec![
        beside("the index program", &folder, "toolyard-index"),
        beside("the document parser", &folder, "toolyard-parse"),
        git(),
        writable(home.path()),
    ];
    let ok = checks.iter().all(|check| check.ok || !check.required);
    let report = SelfCheck { version, ok, checks };
    if global.json {
        output::json(&report);
    } else {
        let rows = report.checks.iter().map(|check| {
            let state = if check.ok {
                "ok"
            } else if check.required {
                "missing"
            } else {
                "not there"
            };
            vec![check.name.to_owned(), state.to_owned(), check.detail.clone()]
        });
        output::data(&output::table(&rows.collect::<Vec<_>>()));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn beside(name: &'static str, folder: &Path, program: &str) -> Check {
    let path = folder.join(program);
    Check { name, ok: path.is_file(), required: false, detail: path.display().to_string() }
}

/// Snapshots of projects need it.
fn git() -> Check {
    let ran = Command::new("git").arg("--version").output();
    let (ok, detail) = match ran {
        Ok(output) => (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Err(error) => (false, format!("{error}; commands of coding agents cannot be taken back without it")),
    };
    Check { name: "git", ok, required: false, detail }
}

/// Whether the home can be written, or made.
fn writable(home: &Path) -> Check {
    let existing = home.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let access = rustix::fs::access(existing, rustix::fs::Access::WRITE_OK);
    let detail = match access {
        Ok(()) => home.display().to_string(),
        Err(error) => format!("{}: {error}", existing.display()),
    };
    Check { name: "the home", ok: access.is_ok(), required: true, detail }
}
