//! `add_skill` and `add_resource`.

use super::{Call, Outcome, ToolFailure, text_result};
use crate::{
    sessions::tasks::TaskResult,
    store::{
        resources::{INBOUND, NewResource, is_remote},
        skills::{self, Form, SkillData},
    },
    wire::{
        given,
        shapes::{ImportShape, InstalledShape},
    },
};
use serde::Serialize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum duration of an import, regardless of the request.
const MAX_SECONDS: f64 = 3600.0;

pub(super) fn skill(call: &Call<'_>) -> Outcome {
    let source = call.text("source").map(str::trim);
    let data = call.args.get("data").filter(|data| !data.is_null());
    let account = call.store.account(&call.who)?;
    let skill = match (source, data) {
        (Some(path), None) => skills::add_path(&account, &call.who, &call.host_path(path)?, Form::PlainToo)?,
        (None, Some(data)) => {
            let data = match given::skill(data)? {
                SkillData::Text(text) => SkillData::Markdown(text),
                data => data,
            };
            skills::add_data(&account, &call.who, &data)?
        }
        _ => return Err(ToolFailure::argument("Provide exactly one of 'path' or 'data' for skill import.")),
    };
    let task = call.store.tasks.begin("add_skill", &skill.uri, &call.owner());
    call.store.tasks.end(&task, TaskResult::default());
    let text = format!("Imported OpenViking skill ({}). {}", skill.name, skill.uri);
    text_result(text, ImportDetails { action: "skill_imported", result: InstalledShape::new(skill, task) })
}

/// The details of a response: the action, and the fields of the server's response.
#[derive(Serialize)]
struct ImportDetails<T> {
    action: &'static str,
    #[serde(flatten)]
    result: T,
}

/// A token that is cancelled with the call, or after `timeout` seconds.
fn within(call: &Call<'_>) -> CancellationToken {
    let cancel = call.session.cancel.child_token();
    if let Some(seconds) = call.number("timeout").filter(|n| *n > 0.0)
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        let ends = cancel.clone();
        let most = Duration::from_secs_f64(seconds.min(MAX_SECONDS));
        runtime.spawn(async move {
            tokio::time::sleep(most).await;
            ends.cancel();
        });
    }
    cancel
}

pub(super) fn resource(call: &Call<'_>) -> Outcome {
    let Some(source) = call.text("source").map(str::trim) else {
        return Err(ToolFailure::argument("pathOrUrl is required"));
    };
    let text = |name: &str| call.text(name).map(str::to_owned);
    if call.text("to").is_some() && call.text("parent").is_some() {
        return Err(ToolFailure::argument("Cannot specify both 'to' and 'parent'."));
    }
    let path = match source.strip_prefix(INBOUND) {
        Some(name) => call.store.inbound(name)?.display().to_string(),
        None if is_remote(source) => source.to_owned(),
        None => call.host_path(source)?.display().to_string(),
    };
    let account = call.store.account(&call.who)?;
    let new = NewResource {
        path: Some(path),
        to: text("to"),
        parent: text("parent"),
        reason: text("reason"),
        instruction: text("instruction"),
        describe: true,
        plain_file: true,
        host_paths: true,
        cancel: within(call),
        ..NewResource::default()
    };
    let imported = call.store.import(&account, &call.who, &new)?;
    let failed = imported.failed.iter().map(|(path, why)| format!("{path}: {why}"));
    let warnings: Vec<String> = failed.chain(imported.warnings.iter().cloned()).collect();
    let mut line = format!("Imported OpenViking resource. {}", imported.root);
    if !warnings.is_empty() {
        line.push_str(&format!(" Warnings: {}", warnings.join("; ")));
    }
    text_result(line, ImportDetails { action: "resource_imported", result: ImportShape::new(imported, &call.who) })
}
