//! The routes of sessions: messages, commits, context, archives and kept tool results.

use super::{
    Answer, Ask,
    params::Params,
    routes::{no_route, usize_of},
};
use crate::{
    error::{Code, Result},
    sessions::{
        self, NewMessage,
        archive::{self, Retain},
        autocommit::{self, AutoCommit, Policy},
        externalise,
    },
};
use serde_json::json;

fn read_message(body: &mut Params) -> NewMessage {
    let role = body.required("role");
    let content = body.text("content");
    let parts = body.list("parts");
    let (peer_id, created_at) = (body.text("peer_id"), body.text("created_at"));
    body.accept(&["turn_id", "role_id", "telemetry", "metadata"]);
    if content.is_none() && parts.is_none() {
        body.whole("Either 'content' or 'parts' must be provided");
    }
    let parts = parts.unwrap_or_else(|| vec![json!({"type": "text", "text": content.unwrap_or_default()})]);
    NewMessage { role, parts, peer_id, created_at }
}

/// Archives a session that has grown beyond what its policy allows.
fn commit_when_full(ask: &Ask<'_>, id: &str) -> Result<()> {
    let account = ask.store.account(&ask.who)?;
    if let Some(keep) = autocommit::due(&account, &ask.who, id)? {
        ask.store.commit(&ask.who, id, Retain::last(keep), false)?;
    }
    Ok(())
}

pub(super) fn answer(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    let account = ask.store.account(&ask.who)?;
    let who = &ask.who;
    let mut query = Params::query(ask.query);
    match (ask.method.as_str(), rest) {
        ("GET", []) => Ok(Answer::Full(sessions::list(&account, who)?)),
        ("POST", []) => {
            let mut body = Params::body(ask.body)?;
            let id = body.text("session_id").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
            let policy = body.object("auto_commit_policy");
            body.accept(&["telemetry"]);
            body.refuse(&["memory_policy", "memory_extraction_config"]);
            body.finish()?;
            if let Some(told) = &policy {
                AutoCommit::default().with(told)?;
            }
            let mut made = sessions::create(&account, who, &id)?;
            if let Some(told) = policy {
                let set = autocommit::configure(&account, who, &id, &Policy::Merge(told))?;
                made["auto_commit_policy"] = set["auto_commit_policy"].clone();
            }
            Ok(Answer::Full(made))
        }
        ("GET", [id]) => {
            let create = query.flag("auto_create").unwrap_or_default();
            query.finish()?;
            if create {
                match sessions::create(&account, who, id) {
                    Err(error) if error.code != Code::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            Ok(Answer::Full(sessions::describe(&account, who, id)?))
        }
        ("DELETE", [id]) => Ok(Answer::Full(sessions::delete(&account, who, id)?)),
        ("POST", [id, "messages"]) => {
            let mut body = Params::body(ask.body)?;
            let new = read_message(&mut body);
            body.finish()?;
            let told = sessions::add_message(&account, who, id, &new)?;
            commit_when_full(ask, id)?;
            Ok(Answer::Full(told))
        }
        ("POST", [id, "messages", "batch"]) => {
            let mut body = Params::body(ask.body)?;
            let all = body.list("messages").unwrap_or_default();
            body.accept(&["telemetry"]);
            if all.is_empty() {
                body.whole("'messages' must hold at least one message");
            }
            body.finish()?;
            let mut messages = Vec::new();
            for message in &all {
                let mut body = Params::body(message.to_string().as_bytes())?;
                messages.push(read_message(&mut body));
                body.finish()?;
            }
            // What is wrong with one of them is found before any is taken.
            let mut told = sessions::add_messages(&account, who, id, &messages)?;
            commit_when_full(ask, id)?;
            told["added"] = messages.len().into();
            Ok(Answer::Full(told))
        }
        ("PATCH", [id, "config"]) => {
            let mut body = Params::body(ask.body)?;
            let off = body.is_null("auto_commit_policy");
            let policy = body.object("auto_commit_policy");
            body.accept(&["telemetry"]);
            body.refuse(&["memory_extraction_config"]);
            body.finish()?;
            let policy = match policy {
                Some(told) => Policy::Merge(told),
                None if off => Policy::Off,
                None => Policy::Same,
            };
            Ok(Answer::Full(autocommit::configure(&account, who, id, &policy)?))
        }
        ("POST", [id, "commit"]) => {
            let mut body = Params::body(ask.body)?;
            let keep = body.integer("keep_recent_count", 0).unwrap_or_default();
            let turns = body.integer("keep_recent_turn_count", 0);
            let budget = body.one_of("retention_mode", &["", "message_count", "turn_budget"]) == Some("turn_budget");
            let reset = body.flag("reset_context").unwrap_or_default();
            let summary = body.flag("enable_working_memory").unwrap_or_default();
            let wait = body.flag("wait").unwrap_or_default() || query.flag("wait").unwrap_or_default();
            body.accept(&["telemetry"]);
            body.finish()?;
            query.finish()?;
            if keep > 1000 {
                return Err(archive::bad_keep(keep));
            }
            sessions::check_id(id)?;
            let retain = if budget || turns.is_some() {
                Retain::turns(turns.map(usize_of))
            } else {
                Retain::last(usize_of(keep))
            };
            let mut told = ask.store.commit(who, id, Retain { reset, ..retain }, wait)?;
            // An archive always gets its overview; who asked for one is told so.
            told["effective_enable_working_memory"] = summary.into();
            if reset {
                told["reset_context"] = true.into();
            }
            Ok(Answer::Short(told))
        }
        ("GET", [id, "context"]) => {
            let budget = query.integer("token_budget", 0).unwrap_or(128_000);
            query.finish()?;
            let mut told = sessions::context(&account, who, id, u64::try_from(budget).unwrap_or_default())?;
            externalise::name_for_clients(&mut told["messages"]);
            Ok(Answer::Full(told))
        }
        ("GET", [id, "archives"]) => {
            sessions::check_id(id)?;
            Ok(Answer::Full(json!({"archives": sessions::archives(&account, who, id)?})))
        }
        ("GET", [id, "archives", name]) => {
            let mut told = sessions::archive(&account, who, id, name)?;
            externalise::name_for_clients(&mut told["messages"]);
            Ok(Answer::Full(told))
        }
        ("GET", [id, "tool-results"]) => {
            let tool = query.text("tool_name");
            let limit = query.integer("limit", 1).unwrap_or(50);
            query.finish()?;
            sessions::check_id(id)?;
            let all = externalise::list(&account, who, id, tool.as_deref(), usize_of(limit))?;
            let told = all.into_iter().map(|mut result| {
                result["storage_uri"] =
                    externalise::client_name(id, result["tool_result_id"].as_str().unwrap_or_default()).into();
                result
            });
            Ok(Answer::Full(json!({"tool_results": told.collect::<Vec<_>>()})))
        }
        ("GET", [id, "tool-results", name]) => {
            let offset = query.integer("offset", 0).unwrap_or_default();
            let limit = query.integer("limit", -1).unwrap_or(20_000);
            let meta = query.flag("include_metadata").unwrap_or(true);
            query.finish()?;
            sessions::check_id(id)?;
            let (output, metadata) = externalise::load(&account, who, id, name)?;
            Ok(Answer::Full(externalise::read(name, &output, meta.then_some(metadata), usize_of(offset), limit)))
        }
        ("GET", [id, "tool-results", name, "search"]) => {
            let words = query.required("q");
            let limit = query.integer("limit", 1).unwrap_or(20);
            let around = query.integer("context_chars", 0).unwrap_or(300);
            query.finish()?;
            sessions::check_id(id)?;
            let (output, _) = externalise::load(&account, who, id, name)?;
            Ok(Answer::Full(externalise::search(name, &output, &words, usize_of(limit), usize_of(around))))
        }
        _ => Err(no_route(ask)),
    }
}
