//! `vault.ensureFolder`: creates a folder unless it exists.

use super::{Args, Idempotency, PlanContext, Run, Tool, parse, schema::PathArg, to_map, writes};
use crate::{
    change::{Change, WritePlan},
    error::VaultResult,
    locks::LockScope,
    path::VaultPath,
    view::{Purpose, check_creatable},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// The folder; missing parents are made too.
    path: PathArg,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    path: String,
    /// Whether it had to be made.
    created: bool,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.ensureFolder",
    define: || {
        writes::<Input, Data>(
            "Make folder",
            "Makes sure that a folder exists, with its parents. Does nothing when it is already there.",
            &["create-folder"],
        )
        .idempotency(Idempotency::Idempotent)
    },
    run: Run::Write { scope, plan },
};

fn scope(args: Args) -> VaultResult<LockScope> {
    Ok(LockScope::Paths(vec![VaultPath::parse(&parse::<Input>(args)?.path.0)?]))
}

fn plan(context: &PlanContext<'_>, args: Args) -> VaultResult<WritePlan> {
    let path = VaultPath::parse(&parse::<Input>(args)?.path.0)?;
    let existing = context.view.stat(&path, Purpose::Write)?;
    let changes = match existing {
        Some(stat) if stat.kind == EntryKind::Folder => Vec::new(),
        Some(_) => {
            return Err(Failure::new(ErrorCode::Conflict, format!("{path} is a file")).detail("path", path.as_str()));
        }
        None => {
            let mut folders = check_creatable(context.view, &path, None)?;
            folders.push(path.clone());
            folders.into_iter().map(Change::MakeFolder).collect()
        }
    };
    let created = !changes.is_empty();
    let message = if created { format!("Made folder {path}") } else { format!("Folder {path} was already there") };
    Ok(WritePlan { changes, data: to_map(&Data { path: path.to_string(), created })?, stat: None, message })
}
