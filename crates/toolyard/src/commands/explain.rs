//! `toolyard explain`: the page of an error code.

use super::Outcome;
use crate::{
    cli::{ExplainArgs, Global},
    error_reference::advice,
    output,
};
use serde_json::json;
use std::process::ExitCode;
use toolyard_knowledge::envelope::ProblemCode;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) fn run(global: &Global, args: ExplainArgs) -> Outcome {
    let Some(code) = args.code else {
        if global.json {
            let mut all: Vec<_> =
                ErrorCode::ALL.iter().map(|c| json!({"code": c, "suggestion": c.suggestion()})).collect();
            all.extend(ProblemCode::PAGES.iter().map(|(code, page)| json!({"code": code, "suggestion": advice(page)})));
            output::json(&json!({"codes": all}));
        } else {
            let mut rows: Vec<Vec<String>> =
                ErrorCode::ALL.iter().map(|c| vec![c.to_string(), c.suggestion().to_owned()]).collect();
            rows.extend(ProblemCode::PAGES.iter().map(|(code, page)| vec![(*code).to_owned(), advice(page)]));
            output::data(&output::table(&rows));
        }
        return Ok(ExitCode::SUCCESS);
    };
    // What the notes' tools say has pages of its own.
    let wanted = code.trim().replace('-', "_").to_ascii_uppercase();
    if let Some((code, page)) = ProblemCode::PAGES.iter().find(|(code, _)| *code == wanted) {
        if global.json {
            output::json(&json!({"code": code, "suggestion": advice(page), "markdown": page}));
        } else {
            output::data(page.trim_end());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let found = ErrorCode::parse(&code).ok_or_else(|| {
        Failure::new(
            ErrorCode::NotFound,
            format!("there is no error code {:?}", code.chars().take(60).collect::<String>()),
        )
        .suggest("`toolyard explain` lists them all.")
    })?;
    if global.json {
        output::json(&json!({"code": found, "suggestion": found.suggestion(), "markdown": found.page().markdown}));
    } else {
        output::data(found.page().markdown.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
