//! `toolyard ctx`: the content of viking://, through the running Toolyard or in this process.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{CtxCommand, Global},
    context_methods::{AddParams, CommandParams, ContextAdd, ContextCommand, ContextRequest, RequestParams},
    output,
    wiring::RequiredParts,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::process::ExitCode;
use toolyard_client::local::unread;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::Method;

/// Percent-encodes a value of a query.
fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~/:".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// What a command asks the context store.
enum CtxOperation {
    Request(RequestParams),
    Add(AddParams),
    Command(CommandParams),
}

fn get(path: String) -> CtxOperation {
    CtxOperation::Request(RequestParams { method: "GET".to_owned(), path, body: Value::Null })
}

fn post(path: &str, body: impl Serialize) -> Result<CtxOperation, Failure> {
    let body = serde_json::to_value(body)
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the request cannot be written: {e}")))?;
    Ok(CtxOperation::Request(RequestParams { method: "POST".to_owned(), path: path.to_owned(), body }))
}

/// The body of a search.
#[derive(Serialize)]
struct FindBody<'a> {
    query: &'a str,
    limit: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_uri: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_type: Option<&'a str>,
}

/// The body of a search for a pattern.
#[derive(Serialize)]
struct GrepBody<'a> {
    uri: &'a str,
    pattern: &'a str,
    case_insensitive: bool,
}

/// The request that a command makes.
fn asked(command: &CtxCommand) -> Result<CtxOperation, Failure> {
    Ok(match command {
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
            let body = FindBody { query, limit: *limit, target_uri: uri.as_deref(), context_type: kind.as_deref() };
            return post("/api/v1/search/find", body);
        }
        CtxCommand::Grep { pattern, uri, ignore_case } => {
            return post("/api/v1/search/grep", GrepBody { uri, pattern, case_insensitive: *ignore_case });
        }
        CtxCommand::Add { source, to, parent, reason, watch } => {
            // The server may have another working directory.
            let remote = source.contains("://") || source.starts_with("git@");
            let path = if remote { None } else { std::path::absolute(source).ok() };
            let source = path.map_or_else(|| source.clone(), |path| path.display().to_string());
            CtxOperation::Add(AddParams {
                source,
                to: to.clone(),
                parent: parent.clone(),
                reason: reason.clone(),
                watch: *watch,
            })
        }
        CtxCommand::Rm { uri, recursive } => CtxOperation::Request(RequestParams {
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
            CtxOperation::Command(CommandParams { text: line.clone(), session: Some(session.clone()) })
        }
    })
}

/// The store's HTTP interface wraps its answers in `result`; the answers of methods are not wrapped.
#[derive(Deserialize)]
struct Wrapped {
    result: Option<Value>,
}

pub(super) async fn run(global: &Global, command: CtxCommand) -> Outcome {
    let asked = asked(&command)?;
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let answer = match &asked {
        CtxOperation::Request(params) => call::<ContextRequest>(&mut backend, params).await,
        CtxOperation::Add(params) => call::<ContextAdd>(&mut backend, params).await,
        CtxOperation::Command(params) => call::<ContextCommand>(&mut backend, params).await,
    };
    backend.close().await;
    let answer = answer?;
    let wrapped = Wrapped::deserialize(&answer).ok().and_then(|wrapped| wrapped.result);
    let result = wrapped.unwrap_or(answer);
    if global.json {
        output::json(&result);
    } else {
        output::data(shown(&command, result)?.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

async fn call<M: Method>(backend: &mut Backend, params: &M::Params) -> Result<Value, Failure>
where
    M::Params: Serialize,
{
    let answer = backend.call_raw::<M>(params, None).await?;
    serde_json::from_str(answer.get()).map_err(|error| unread(M::NAME, &error))
}

// The fields of OpenViking's answers that are printed for people.

/// A row of a listing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Row {
    uri: String,
    rel_path: String,
    #[serde(rename = "isDir")]
    is_dir: bool,
    #[serde(rename = "abstract")]
    about: String,
}

impl Row {
    fn mark(&self) -> &'static str {
        if self.is_dir { "/" } else { "" }
    }
}

/// Hits by kind.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Hits {
    memories: Vec<Hit>,
    resources: Vec<Hit>,
    skills: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    score: f64,
    uri: String,
    #[serde(rename = "abstract", default)]
    about: String,
}

#[derive(Deserialize)]
struct Matches {
    #[serde(default)]
    matches: Vec<Match>,
}

#[derive(Deserialize)]
struct Match {
    uri: String,
    line: u64,
    content: String,
}

#[derive(Deserialize)]
struct Added {
    root_uri: String,
    #[serde(default)]
    errors: Vec<String>,
}

#[derive(Deserialize)]
struct Removed {
    estimated_deleted_count: u64,
    uri: String,
}

#[derive(Deserialize)]
struct SessionRow {
    mod_time: String,
    session_id: String,
}

#[derive(Deserialize)]
struct Traces {
    #[serde(default)]
    entries: Vec<Trace>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    trace_id: String,
    source: String,
    stats: TraceStats,
    trigger: Trigger,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TraceStats {
    candidate_count: u64,
    selected_count: u64,
    injected_count: u64,
}

#[derive(Deserialize)]
struct Trigger {
    #[serde(default)]
    query: String,
}

/// A command's reply.
#[derive(Deserialize)]
struct CommandText {
    text: String,
}

fn read<T: DeserializeOwned>(result: Value) -> Result<T, Failure> {
    serde_json::from_value(result).map_err(|error| unread("the context store", &error))
}

fn lines<T>(rows: &[T], line: impl Fn(&T) -> String) -> String {
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The answer as text for people.
fn shown(command: &CtxCommand, result: Value) -> Result<String, Failure> {
    Ok(match command {
        CtxCommand::Ls { .. } => lines(&read::<Vec<Row>>(result)?, |row| {
            let about = if row.about.is_empty() { String::new() } else { format!("  {}", row.about) };
            format!("{}{}{about}", row.uri, row.mark())
        }),
        CtxCommand::Tree { .. } => lines(&read::<Vec<Row>>(result)?, |row| {
            let name = row.rel_path.rsplit('/').next().unwrap_or_default();
            format!("{}{name}{}", "  ".repeat(row.rel_path.matches('/').count()), row.mark())
        }),
        CtxCommand::Read { .. } => read(result)?,
        CtxCommand::Find { .. } => {
            let Hits { memories, resources, skills } = read(result)?;
            let mut all: Vec<Hit> = memories.into_iter().chain(resources).chain(skills).collect();
            all.sort_by(|a, b| b.score.total_cmp(&a.score));
            lines(&all, |hit| format!("{:.2}  {}  {}", hit.score, hit.uri, hit.about.replace('\n', " ")))
        }
        CtxCommand::Grep { .. } => {
            lines(&read::<Matches>(result)?.matches, |m| format!("{}:{}: {}", m.uri, m.line, m.content))
        }
        CtxCommand::Add { .. } => {
            let added: Added = read(result)?;
            let failed: String = added.errors.iter().map(|error| format!("\nnot read: {error}")).collect();
            format!("{}{failed}", added.root_uri)
        }
        CtxCommand::Rm { .. } => {
            let removed: Removed = read(result)?;
            format!("removed {} of {}", removed.estimated_deleted_count, removed.uri)
        }
        CtxCommand::Sessions { id: None } => {
            lines(&read::<Vec<SessionRow>>(result)?, |row| format!("{}  {}", row.mod_time, row.session_id))
        }
        CtxCommand::Sessions { .. } => format!("{result:#}"),
        CtxCommand::Trace { .. } => lines(&read::<Traces>(result)?.entries, |trace| {
            let TraceStats { candidate_count, selected_count, injected_count } = &trace.stats;
            format!(
                "{}  {}  candidates {candidate_count} selected {selected_count} injected {injected_count}  {}",
                trace.trace_id, trace.source, trace.trigger.query
            )
        }),
        CtxCommand::Command { .. } => read::<CommandText>(result)?.text,
    })
}
