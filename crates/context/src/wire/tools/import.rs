//! `add_skill` and `add_resource`.

use super::{Call, Outcome, Thrown, said};
use crate::store::{
    resources::{NewResource, is_remote},
    skills,
};
use serde_json::Value;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// An import takes at most this long, whatever is asked.
const MAX_SECONDS: f64 = 3600.0;

pub(super) fn skill(call: &Call<'_>) -> Outcome {
    let source = call.text("source").map(str::trim);
    let data = call.args.get("data").filter(|data| !data.is_null());
    let account = call.store.account(&call.who)?;
    let told = match (source, data) {
        (Some(path), None) => skills::add_path(&account, &call.who, &call.host_path(path)?)?,
        (None, Some(data)) => skills::add_data(&account, &call.who, data)?,
        _ => return Err(Thrown::argument("Provide exactly one of 'path' or 'data' for skill import.")),
    };
    let mut details = serde_json::Map::new();
    details.insert("action".to_owned(), "skill_imported".into());
    if let Value::Object(map) = told {
        details.extend(map);
    }
    let uri = details.get("uri").and_then(Value::as_str).unwrap_or_default().to_owned();
    let task = call.store.tasks.begin("add_skill", &uri, &call.owner());
    call.store.tasks.end(&task, crate::sessions::tasks::Ended::default());
    details.insert("task_id".to_owned(), task.into());
    let name = details.get("name").and_then(Value::as_str).unwrap_or_default();
    said(format!("Imported OpenViking skill ({name}). {uri}"), Value::Object(details))
}

/// Ends with the call, or after `timeout` seconds.
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
        return Err(Thrown::argument("pathOrUrl is required"));
    };
    let text = |name: &str| call.text(name).map(str::to_owned);
    if call.text("to").is_some() && call.text("parent").is_some() {
        return Err(Thrown::argument("Cannot specify both 'to' and 'parent'."));
    }
    let path = match is_remote(source) {
        true => source.to_owned(),
        false => call.host_path(source)?.display().to_string(),
    };
    let account = call.store.account(&call.who)?;
    let new = NewResource {
        path: Some(path),
        to: text("to"),
        parent: text("parent"),
        reason: text("reason"),
        instruction: text("instruction"),
        describe: true,
        host_paths: true,
        cancel: within(call),
        ..NewResource::default()
    };
    let told = call.store.import(&account, &call.who, &new)?;
    let list = |key: &str| {
        let all = told[key].as_array().into_iter().flatten();
        all.filter_map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let warnings = [list("errors"), list("warnings")].concat();
    let root = told["root_uri"].as_str().unwrap_or_default();
    let mut line = format!("Imported OpenViking resource. {root}");
    if !warnings.is_empty() {
        line.push_str(&format!(" Warnings: {}", warnings.join("; ")));
    }
    let mut details = serde_json::Map::new();
    details.insert("action".to_owned(), "resource_imported".into());
    if let Value::Object(map) = told {
        details.extend(map);
    }
    said(line, Value::Object(details))
}
