//! `toolyard approvals` and `toolyard grants`: answers questions of a running Toolyard, and takes permissions back.

use super::Outcome;
use crate::{
    backend::{self, Backend},
    cli::{AllowArgs, ApprovalsCommand, Global, GrantScopeArg, GrantsCommand},
    config,
    output::{self, Paint},
    terminal,
    upkeep::parse_age,
    wiring::RequiredParts,
};
use jiff::Timestamp;
use serde::Serialize;
use std::process::ExitCode;
use toolyard_client::local::LocalClient;
use toolyard_engine::approvals::{Grant, GrantScope};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::approvals::people::{
    AnswerParams, Answered, ApprovalsAnswer, ApprovalsList, ApprovalsShow, Decision, GrantParams, GrantsList,
    GrantsListParams, GrantsRevoke, ListParams, Question, RevokeParams, ShowParams,
};

/// How long one request of `watch` waits for an event, in milliseconds.
const WATCH_MS: u64 = 25_000;

pub(super) async fn run(global: &Global, command: ApprovalsCommand) -> Outcome {
    let mut client = connect(global).await?;
    match command {
        ApprovalsCommand::List => {
            let answer = client.call::<ApprovalsList>(&ListParams::default(), None).await?;
            if global.json {
                output::json(&answer)
            } else {
                list(&answer.approvals)
            }
            Ok(ExitCode::SUCCESS)
        }
        ApprovalsCommand::Show { id } => {
            let answer = client.call::<ApprovalsShow>(&ShowParams { id }, None).await?;
            if global.json {
                output::json(&answer)
            } else {
                show(&answer.approval)
            }
            Ok(ExitCode::SUCCESS)
        }
        ApprovalsCommand::Allow(args) => {
            let params = allow(&mut client, args).await?;
            answer(global, &mut client, params).await
        }
        ApprovalsCommand::Deny { id, reason, shown } => {
            let params = AnswerParams { id, decision: Decision::Deny, shown, note: reason, grant: None };
            answer(global, &mut client, params).await
        }
        ApprovalsCommand::Watch => watch(global, &mut client).await,
    }
}

/// Connects to the running Toolyard. Open questions exist only in a running Toolyard.
async fn connect(global: &Global) -> Result<LocalClient, Failure> {
    let resolved = config::resolve(global)?;
    backend::running(&resolved, global).await?.ok_or_else(|| {
        Failure::new(
            ErrorCode::Unavailable,
            format!("no Toolyard runs for {}, so no question is open", resolved.home.path().display()),
        )
        .suggest("Start it with `toolyard up`, or name another home with --home.")
    })
}

/// The answer that the options select.
async fn allow(client: &mut LocalClient, args: AllowArgs) -> Result<AnswerParams, Failure> {
    let AllowArgs { id, scope, folder, lasting, shown } = args;
    let lasting = lasting.as_deref().map(parse_age).transpose()?;
    let expires_in_ms = lasting.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    let scope = match (scope, folder) {
        (None, None) if expires_in_ms.is_none() => None,
        (None | Some(GrantScopeArg::Tool), None) => Some(GrantScope::Tool),
        (Some(GrantScopeArg::Arguments), None) => Some(GrantScope::Arguments { args_hash: String::new() }),
        (Some(GrantScopeArg::Run), None) => Some(GrantScope::Run { run_id: None }),
        (None | Some(GrantScopeArg::Folder), Some(path)) => Some(GrantScope::Folder { path }),
        (Some(GrantScopeArg::Folder), None) => Some(GrantScope::Folder { path: folder_of(client, &id).await? }),
        (Some(_), Some(_)) => {
            return Err(Failure::new(ErrorCode::UsageError, "--folder belongs to --scope folder"));
        }
    };
    let decision = if scope.is_some() { Decision::AllowAlways } else { Decision::AllowOnce };
    let grant = scope.map(|scope| GrantParams { scope, expires_in_ms });
    Ok(AnswerParams { id, decision, shown, note: None, grant })
}

/// The folder of the first path of a question's call.
async fn folder_of(client: &mut LocalClient, id: &str) -> Result<String, Failure> {
    let question = client.call::<ApprovalsShow>(&ShowParams { id: id.to_owned() }, None).await?.approval;
    let folder = question.paths.first().and_then(|path| path.rsplit_once('/')).map(|(folder, _)| folder.to_owned());
    folder.ok_or_else(|| {
        Failure::new(ErrorCode::UsageError, "the call names no path in a folder")
            .suggest("Use --scope arguments or --scope tool, or name a folder with --folder.")
    })
}

async fn answer(global: &Global, client: &mut LocalClient, params: AnswerParams) -> Outcome {
    let answered = client.call::<ApprovalsAnswer>(&params, None).await?;
    let Answered { applied, approval } = &answered;
    if global.json {
        output::json(&answered);
    } else {
        let given = approval.answer.as_ref();
        let word = given.map_or("open", |given| given.decision.as_str());
        let by = given.and_then(|given| given.by.as_deref()).unwrap_or("nobody");
        let before = if *applied { "" } else { "answered before: " };
        output::data(&format!("{before}{word} by {by}: {}", approval.id));
    }
    let asked_for = output::word(&params.decision);
    let is_as_asked = approval.answer.as_ref().is_some_and(|given| given.decision == asked_for);
    Ok(if is_as_asked { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

/// An event of `watch`, printed as one line with --json.
#[derive(Serialize)]
struct WatchEvent<'a> {
    event: &'static str,
    approval: &'a Question,
}

async fn watch(global: &Global, client: &mut LocalClient) -> Outcome {
    let mut known: Vec<String> = Vec::new();
    loop {
        let params = ListParams { known: Some(known.clone()), wait_ms: Some(WATCH_MS) };
        let open = client.call::<ApprovalsList>(&params, None).await?.approvals;
        for id in known.iter().filter(|id| !open.iter().any(|question| question.id == **id)) {
            let settled = client.call::<ApprovalsShow>(&ShowParams { id: id.clone() }, None).await?.approval;
            tell(global, "settled", &settled);
        }
        for question in open.iter().filter(|question| !known.contains(&question.id)) {
            tell(global, "asked", question);
        }
        known = open.into_iter().map(|question| question.id).collect();
    }
}

fn tell(global: &Global, event: &'static str, approval: &Question) {
    if global.json {
        output::json(&WatchEvent { event, approval });
    } else if event == "asked" {
        show(approval);
        output::data(&format!("  toolyard approvals allow {0}\n  toolyard approvals deny {0}\n", approval.id));
    } else {
        let state = answer_of(approval).unwrap_or_else(|| "ended without an answer".to_owned());
        let what = output::visible(&format!("{} {}", approval.agent, approval.tool));
        output::data(&format!("{state}: {what}  {}\n", approval.id));
    }
}

/// Who answered what: `allow-once by main, by cli`.
fn answer_of(question: &Question) -> Option<String> {
    let given = question.answer.as_ref()?;
    let by = given.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let door = given.door.as_deref().map(|door| format!(" ({door})")).unwrap_or_default();
    let why = given.note.as_deref().map(|note| format!(", “{}”", output::visible(note))).unwrap_or_default();
    Some(format!("{}{by}{door}{why}", given.decision))
}

fn line(question: &Question) -> Vec<String> {
    let state = answer_of(question).unwrap_or_else(|| terminal::left(question.expires_at, Timestamp::now()));
    let what = question.paths.first().unwrap_or(&question.description);
    let shown = |text: &str| output::visible(text);
    vec![question.id.clone(), shown(&question.tool), shown(&question.agent), state, shown(what)]
}

fn list(questions: &[Question]) {
    if questions.is_empty() {
        output::note("no question is open");
        return;
    }
    output::data(&output::table(&questions.iter().map(line).collect::<Vec<_>>()));
}

/// Prints a question. Everything an agent could have written goes through [`output::visible`]: a diff that clears the
/// screen must not hide what is asked.
fn show(question: &Question) {
    let (paint, now) = (Paint::stdout(), Timestamp::now());
    let said = |text: &str| output::visible(text);
    output::data(&paint.bold(&said(&question.title)));
    if question.description != question.title {
        output::data(&said(&question.description));
    }
    let row = |name: &str, value: &str| vec![format!("  {name}"), value.to_owned()];
    let mut rows = vec![
        row("id", &question.id),
        row("tool", &said(&question.tool)),
        row("agent", &said(&question.agent)),
        row("rule", &question.rule),
        row("asked", &terminal::time(question.asked_at, now)),
    ];
    match answer_of(question) {
        Some(answer) => rows.push(row("answer", &answer)),
        None => rows.push(row("time", &terminal::left(question.expires_at, now))),
    }
    rows.push(row("shown", &question.shown));
    rows.extend(question.run_id.map(|run| row("run", &run.to_string())));
    output::data(&output::table(&rows));
    if let Some(problem) = &question.problem {
        output::data(&format!("the dry run failed: {}", said(problem)));
    }
    output::data(&said(&serde_json::to_string_pretty(&question.args).unwrap_or_default()));
    if let Some(diff) = &question.diff {
        diff.trim_end().lines().for_each(|line| output::data(&diff_line(&said(line), paint)));
    }
    if question.args_cut || question.diff_cut {
        output::data("(shortened; the console shows it in full: toolyard console)");
    }
}

/// A line of a diff in its colour.
fn diff_line(line: &str, paint: Paint) -> String {
    match line.as_bytes() {
        [b'+', ..] => paint.green(line),
        [b'-', ..] => paint.red(line),
        [b'@', ..] => paint.dim(line),
        _ => line.to_owned(),
    }
}

pub(super) async fn grants(global: &Global, command: GrantsCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = answer_grants(global, &mut backend, command).await;
    backend.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn answer_grants(global: &Global, backend: &mut Backend, command: GrantsCommand) -> Result<(), Failure> {
    match command {
        GrantsCommand::List { agent, tool } => {
            let answer = backend.call::<GrantsList>(&GrantsListParams { agent, tool }, None).await?;
            if global.json {
                output::json(&answer);
            } else {
                output::data(&output::table(&answer.grants.iter().map(grant_line).collect::<Vec<_>>()));
            }
        }
        GrantsCommand::Revoke { id } => {
            let answer = backend.call::<GrantsRevoke>(&RevokeParams { id }, None).await?;
            if global.json { output::json(&answer) } else { output::data(&format!("revoked: {}", answer.id)) }
        }
    }
    Ok(())
}

fn grant_line(grant: &Grant) -> Vec<String> {
    let scope = match &grant.scope {
        GrantScope::Tool => "every call".to_owned(),
        GrantScope::Folder { path } => format!("in {path}/"),
        GrantScope::Run { run_id } => format!("in run {}", run_id.map(|run| run.to_string()).unwrap_or_default()),
        GrantScope::Arguments { args_hash } => format!("arguments {args_hash}"),
    };
    let until = grant.until.map_or_else(|| "for ever".to_owned(), |until| format!("until {until}"));
    vec![grant.id.clone(), grant.agent.clone(), grant.tool.clone(), scope, until, format!("by {}", grant.given_by)]
}
