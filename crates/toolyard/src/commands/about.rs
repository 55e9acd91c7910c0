//! `toolyard version` and `toolyard self check`: the version and build, and whether the installation is complete.

use super::Outcome;
use crate::{cli::Global, home::Home, notes::PROGRAM_VARIABLE, output};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};
use toolyard_knowledge::index::remote::ProgramLocator;
use toolyard_protocol::{ErrorCode, Failure};

/// The version and build of this program.
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

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    /// Whether it belongs to every installation. Without another one, only single tools are missing.
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

/// Checks that the programs and folders that Toolyard needs exist. Starts none of them and reads no configuration.
pub(super) fn self_check(global: &Global) -> Outcome {
    let version = this_version()?;
    let folder = version.program.parent().unwrap_or(Path::new("/")).to_owned();
    let home = Home::resolve(global.home.as_deref())
        .map_err(|error| Failure::new(ErrorCode::ConfigInvalid, format!("{error:#}")))?;
    let checks = vec![index_program(), document_parser(&folder), git(), writable(home.path())];
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
                "missing, optional"
            };
            vec![check.name.to_owned(), state.to_owned(), check.detail.clone()]
        });
        output::data(&output::table(&rows.collect::<Vec<_>>()));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Notes need it. It is searched for where `up` searches, except for a path in the configuration, which is not read here.
fn index_program() -> Check {
    let found = ProgramLocator::new(std::env::var_os(PROGRAM_VARIABLE).map(PathBuf::from)).find();
    let (ok, detail) = match found {
        Ok(program) => (true, program.display().to_string()),
        Err(error) => {
            (false, format!("{error}; without it, notes are indexed in the memory of a running Toolyard only"))
        }
    };
    Check { name: "the index program", ok, required: true, detail }
}

/// Imports of documents need it.
fn document_parser(folder: &Path) -> Check {
    let path = folder.join("toolyard-parse");
    let ok = path.is_file();
    let without = if ok { "" } else { " is missing; documents cannot be imported without it" };
    Check { name: "the document parser", ok, required: false, detail: format!("{}{without}", path.display()) }
}

/// Snapshots of projects need it.
fn git() -> Check {
    let ran = Command::new("git").arg("--version").output();
    let (ok, detail) = match ran {
        Ok(output) => (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Err(error) => (false, format!("{error}; commands of coding agents cannot be undone without it")),
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
