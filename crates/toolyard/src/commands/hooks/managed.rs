//! `toolyard hooks install --managed`: hooks for everybody on this machine.

use super::{HooksReport, home};
use crate::{
    cli::{Global, ManagedArgs},
    clients::{
        Program,
        kept::{self, InstallStore},
        managed, unusable,
    },
};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use toolyard_hooks::Client;
use toolyard_protocol::{Failure, WorkspaceId};

/// Everybody's clients read these files; only the administrator writes them.
const FILE_MODE: u32 = 0o644;
/// What is said where a file of the machine cannot be written.
const NEEDS_ROOT: &str = "Settings of the whole machine belong to root: run the command with sudo.";

fn keeper(global: &Global, client: Client) -> Result<InstallStore, Failure> {
    Ok(InstallStore::new(home(global)?.path(), &format!("{client}-managed")))
}

/// Puts the hooks in. A second time changes nothing.
pub(super) fn install(global: &Global, client: Client, args: &ManagedArgs) -> Result<HooksReport, Failure> {
    let (program, path) = (Program::this(global)?, managed::file(client, &args.root));
    let before = kept::read(&path)?;
    let text = before.clone().unwrap_or_default();
    if managed::has_hooks(client, &program, &path, &text)? {
        return status(global, client, args);
    }
    let after = managed::with_hooks(client, &program, &path, &text)?;
    keeper(global, client)?.change(&path, before, &after).map_err(|failure| failure.suggest(NEEDS_ROOT))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(FILE_MODE)).map_err(|error| unusable(&path, error))?;
    Ok(HooksReport { changed: true, ..status(global, client, args)? })
}

/// Removes the hooks. A file that nobody has changed since is restored byte for byte.
pub(super) fn uninstall(global: &Global, client: Client, args: &ManagedArgs) -> Result<HooksReport, Failure> {
    let (program, path) = (Program::this(global)?, managed::file(client, &args.root));
    let put_back = keeper(global, client)?
        .put_back(|file, now| managed::without_hooks(client, &program, &file.path, now))
        .map_err(|failure| failure.suggest(NEEDS_ROOT))?;
    let mut changed = !put_back.is_empty();
    // Hooks that an installation put in whose record is gone.
    if let Some(text) = kept::read(&path)?
        && managed::has_hooks(client, &program, &path, &text)?
    {
        kept::write(&path, &managed::without_hooks(client, &program, &path, &text)?)?;
        changed = true;
    }
    Ok(HooksReport { changed, ..status(global, client, args)? })
}

/// Looks at the hooks.
pub(super) fn status(global: &Global, client: Client, args: &ManagedArgs) -> Result<HooksReport, Failure> {
    let (program, path) = (Program::this(global)?, managed::file(client, &args.root));
    let text = kept::read(&path)?.unwrap_or_default();
    let installed = managed::has_hooks(client, &program, &path, &text)?;
    let keeper = keeper(global, client)?;
    let running = is_running(home(global)?.socket().as_path());
    let mut problems = Vec::new();
    if installed && !running {
        problems.push("no Toolyard is running for this home: every call is refused until `toolyard up`".to_owned());
    }
    Ok(HooksReport {
        client,
        installed,
        workspace: WorkspaceId::default(),
        changed: false,
        file: path,
        backup: keeper.load()?.map(|_| keeper.path().to_owned()),
        trusted: None,
        running,
        problems,
    })
}

fn is_running(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}
