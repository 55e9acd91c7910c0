//! `toolyard ctx`: what lies in viking://, through the running Toolyard or in this process.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{CtxCommand, Global},
    context_methods::{AddParams, CommandParams, ContextAdd, ContextCommand, ContextRequest, RequestParams},
    output,
    wiring::Needs,
};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Percent-encodes a value of a query.
fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~/:".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// What a command asks the context store.
enum Asked {
    Request(RequestParams),
    Add(AddParams),
    Command(CommandParams),
}

fn get(path: String) -> Asked {
    Asked::Request(RequestParams { method: "GET".to_owned(), path, body: Value::Null })
}

fn post(path: &str, body: Value) -> Asked {
    Asked::Request(RequestParams { method: "POST".to_owned(), path: path.to_owned(), body })
}

/// What a command asks.
fn asked(command: &CtxCommand) -> Asked {
    match command {
        CtxCommand::Ls { uri, recursive, all, limit } => get(format!(
            "/api/v1/fs/ls?uri={}&recursive={recursive}&show_all_hidden={all}&node_limit={}",
            encoded(uri),
            (*limit).max(1)
        )),
        CtxCommand::Tree { uri, depth } => {
            get(format!("/api/v1/fs/tree?uri={}&level_limit={}", encoded(uri), (*depth).max(1)))
        }
        CtxCommand::Read { uri, offset, limit } => {
            get(format!("/api/v1/content/read?uri={}&offset={offset}&limit={}", encoded(uri), (*limit).max(-1)))
        }
        CtxCommand::Find { query, uri, kind, limit } => {
            let mut body = json!({"query": query, "limit": limit});
            if let Some(uri) = uri {
                body["target_uri"] = uri.as_str().into();
            }
            if let Some(kind) = kind {
                body["context_type"] = kind.as_str().into();
            }
            post("/api/v1/search/find", body)
        }
        CtxCommand::Grep { pattern, uri, ignore_case } => {
            post("/api/v1/search/grep", json!({"uri": uri, "pattern": pattern, "case_insensitive": ignore_case}))
        }
        CtxCommand::Add { source, to, parent, reason, watch } => {
            // The server may stand in another folder.
            let remote = source.contains("://") || source.starts_with("git@");
            let path = if remote { None } else { std::path::absolute(source).ok() };
            let source = path.map_or_else(|| source.clone(), |path| path.display().to_string());
            Asked::Add(AddParams {
                source,
                to: to.clone(),
                parent: parent.clone(),
                reason: reason.clone(),
                watch: *watch,
            })
        }
        CtxCommand::Rm { uri, recursive } => Asked::Request(RequestParams {
            method: "DELETE".to_owned(),
            path: format!("/api/v1/fs?uri={}&recursive={recursive}", encoded(uri)),
            body: Value::Null,
        }),
        CtxCommand::Sessions { id: None } => get("/api/v1/sessions".to_owned()),
        CtxCommand::Sessions { id: Some(id) } => get(format!("/api/v1/sessions/{}", encoded(id).replace('/', "%2F"))),
        CtxCommand::Trace { id, source, session, limit } => {
            let mut path = format!("/api/openviking/recall-traces?limit={limit}");
            for (name, value) in [("traceId", id), ("source", source), ("sessionKey", session)] {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", encoded(value)));
                }
            }
            get(path)
        }
        CtxCommand::Command { line, session } => {
            Asked::Command(CommandParams { text: line.clone(), session: Some(session.clone()) })
        }
    }
}

pub(super) async fn run(global: &Global, command: CtxCommand) -> Outcome {
    let mut backend = Backend::open(global, Needs::Store).await?;
    let answer = match asked(&command) {
        Asked::Request(params) => backend.call::<ContextRequest>(&params, None).await,
        Asked::Add(params) => backend.call::<ContextAdd>(&params, None).await,
        Asked::Command(params) => backend.call::<ContextCommand>(&params, None).await,
    };
    backend.close().await;
    let answer = answer?;
    let result = answer.get("result").unwrap_or(&answer);
    if global.json {
        output::json(result);
    } else {
        output::data(shown(&command, result).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// For people.
fn shown(command: &CtxCommand, result: &Value) -> String {
    let lines = |all: Vec<String>| all.join("\n");
    match command {
        CtxCommand::Ls { .. } => lines(
            rows(result)
                .iter()
                .map(|row| {
                    let mark = if row["isDir"] == true { "/" } else { "" };
                    let told = word(row, "abstract");
                    let told = if told.is_empty() { String::new() } else { format!("  {told}") };
                    format!("{}{mark}{told}", word(row, "uri"))
                })
                .collect(),
        ),
        CtxCommand::Tree { .. } => lines(
            rows(result)
                .iter()
                .map(|row| {
                    let path = word(row, "rel_path");
                    let depth = path.matches('/').count();
                    let name = path.rsplit('/').next().unwrap_or_default();
                    format!("{}{name}{}", "  ".repeat(depth), if row["isDir"] == true { "/" } else { "" })
                })
                .collect(),
        ),
        CtxCommand::Read { .. } => result.as_str().unwrap_or_default().to_owned(),
        CtxCommand::Find { .. } => {
            let kinds = ["memories", "resources", "skills"];
            let mut all: Vec<&Value> = kinds.iter().flat_map(|kind| rows(&result[*kind])).collect();
            all.sort_by(|a, b| {
                b["score"].as_f64().unwrap_or_default().total_cmp(&a["score"].as_f64().unwrap_or_default())
            });
            lines(
                all.iter()
                    .map(|hit| {
                        format!(
                            "{:.2}  {}  {}",
                            hit["score"].as_f64().unwrap_or_default(),
                            word(hit, "uri"),
                            word(hit, "abstract").replace('\n', " ")
                        )
                    })
                    .collect(),
            )
        }
        CtxCommand::Grep { .. } => lines(
            rows(&result["matches"])
                .iter()
                .map(|m| format!("{}:{}: {}", word(m, "uri"), m["line"], word(m, "content")))
                .collect(),
        ),
        CtxCommand::Add { .. } => {
            let failed: String =
                rows(&result["errors"]).iter().filter_map(Value::as_str).map(|e| format!("\nnot read: {e}")).collect();
            format!("{}{failed}", word(result, "root_uri"))
        }
        CtxCommand::Rm { .. } => format!("removed {} of {}", result["estimated_deleted_count"], word(result, "uri")),
        CtxCommand::Sessions { id: None } => {
            lines(rows(result).iter().map(|s| format!("{}  {}", word(s, "mod_time"), word(s, "session_id"))).collect())
        }
        CtxCommand::Sessions { .. } => format!("{result:#}"),
        CtxCommand::Trace { .. } => lines(
            rows(&result["entries"])
                .iter()
                .map(|t| {
                    format!(
                        "{}  {}  candidates {} selected {} injected {}  {}",
                        word(t, "traceId"),
                        word(t, "source"),
                        t["stats"]["candidateCount"],
                        t["stats"]["selectedCount"],
                        t["stats"]["injectedCount"],
                        word(&t["trigger"], "query")
                    )
                })
                .collect(),
        ),
        CtxCommand::Command { .. } => word(result, "text").to_owned(),
    }
}
