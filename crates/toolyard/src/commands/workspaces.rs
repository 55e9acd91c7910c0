//! `toolyard workspaces`: the workspaces of this installation and their tokens.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, WorkspacesCommand},
    output,
    wiring::RequiredParts,
};
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId};
use toolyard_service::{
    NoParams,
    workspaces::{
        AddParams, NameParams, NewToken, WorkspaceList, WorkspacesAdd, WorkspacesList, WorkspacesRemove,
        WorkspacesRotate, removed, unknown,
    },
};

pub(super) async fn run(global: &Global, command: WorkspacesCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = answer(global, &mut backend, command).await;
    backend.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn answer(global: &Global, backend: &mut Backend, command: WorkspacesCommand) -> Result<(), Failure> {
    match command {
        WorkspacesCommand::List => {
            let list = backend.call::<WorkspacesList>(&NoParams {}, None).await?;
            if global.json { output::json(&list) } else { table(&list) }
        }
        WorkspacesCommand::Add { name, with_vault } => {
            let made = backend.call::<WorkspacesAdd>(&AddParams { name, vault: with_vault }, None).await?;
            show(global, &made);
        }
        WorkspacesCommand::Rotate { name } => {
            let made = backend.call::<WorkspacesRotate>(&NameParams { name }, None).await?;
            show(global, &made);
        }
        WorkspacesCommand::Remove { name } => {
            let removed = backend.call::<WorkspacesRemove>(&NameParams { name }, None).await?;
            match global.json {
                true => output::json(&removed),
                false => output::data(&format!("removed: {}", removed.name)),
            }
        }
    }
    Ok(())
}

/// The workspace that the command line names.
pub(crate) fn named(global: &Global) -> Result<WorkspaceId, Failure> {
    let Some(name) = &global.workspace else { return Ok(WorkspaceId::default()) };
    WorkspaceId::parse(name).map_err(|error| {
        Failure::new(ErrorCode::ValidationError, error.to_string())
            .suggest("List them with `toolyard workspaces list`.")
    })
}

/// The workspace that the command line names, if programs can work in it. Looks it up unless it is the default one.
pub(crate) async fn in_use(global: &Global) -> Result<WorkspaceId, Failure> {
    let workspace = named(global)?;
    if !workspace.is_default() {
        let owners = Global { workspace: None, ..global.clone() };
        let mut backend = Backend::open(&owners, RequiredParts::Store).await?;
        let list = backend.call::<WorkspacesList>(&NoParams {}, None).await;
        backend.close().await;
        check_in_use(&workspace, list?)?;
    }
    Ok(workspace)
}

/// Refuses a workspace that is not there, or not any more.
pub(crate) fn check_in_use(workspace: &WorkspaceId, list: WorkspaceList) -> Result<(), Failure> {
    match list.workspaces.into_iter().find(|known| known.name == *workspace) {
        None => Err(unknown(workspace)),
        Some(known) if known.removed_at.is_some() => Err(removed(workspace)),
        Some(_) => Ok(()),
    }
}

/// Prints a token. Only the token goes to standard output, so that it can be piped into a secret store.
fn show(global: &Global, made: &NewToken) {
    if global.json {
        return output::json(made);
    }
    output::data(&made.token);
    if !global.quiet {
        output::note(&format!("the token of the workspace {}; it is not kept and cannot be shown again", made.name));
    }
}

fn table(list: &WorkspaceList) {
    let rows = list.workspaces.iter().map(|workspace| {
        let vault = if workspace.vault { "vault" } else { "-" };
        let state = match (workspace.created_at, workspace.removed_at) {
            (_, Some(at)) => format!("removed {at}"),
            (Some(at), None) => format!("made {at}"),
            (None, None) => "always there".to_owned(),
        };
        vec![workspace.name.to_string(), vault.to_owned(), state]
    });
    output::data(&output::table(&rows.collect::<Vec<_>>()));
}
