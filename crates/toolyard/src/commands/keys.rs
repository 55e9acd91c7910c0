//! `toolyard keys`: the keys that sign the record.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, KeysCommand},
    output,
    wiring::RequiredParts,
};
use std::process::ExitCode;
use toolyard_service::{
    NoParams,
    proof::{KeysList, KeysRotate},
};

pub(super) async fn run(global: &Global, command: KeysCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let keys = match command {
        KeysCommand::List => backend.call::<KeysList>(&NoParams {}, None).await,
        KeysCommand::Rotate => backend.call::<KeysRotate>(&NoParams {}, None).await,
    };
    backend.close().await;
    let keys = keys?;
    if global.json {
        output::json(&keys);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = keys.keys.iter().map(|span| {
        let to = span.to.map_or_else(|| "now".to_owned(), |to| to.to_string());
        vec![span.key.clone(), format!("entries {} to {to}", span.from)]
    });
    output::data(&output::table(&rows.collect::<Vec<_>>()));
    Ok(ExitCode::SUCCESS)
}
