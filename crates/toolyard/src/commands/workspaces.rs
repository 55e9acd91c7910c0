//! `toolyard workspaces`: the workspaces of this installation and their tokens.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, WorkspacesCommand},
    output,
    wiring::RequiredParts,
};
use std::process::ExitCode;
use toolyard_protocol::Failure;
use toolyard_service::{
    NoParams,
    workspaces::{
        AddParams, NameParams, NewToken, WorkspaceList, WorkspacesAdd, WorkspacesList, WorkspacesRemove,
        WorkspacesRotate,
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
