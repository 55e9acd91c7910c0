//! `toolyard explain`: the page of an error code.

use super::Outcome;
use crate::{
    cli::{ExplainArgs, Global},
    output,
};
use serde_json::json;
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) fn run(global: &Global, args: ExplainArgs) -> Outcome {
    let Some(code) = args.code else {
        if global.json {
            let all: Vec<_> = ErrorCode::ALL.iter().map(|c| json!({"code": c, "suggestion": c.suggestion()})).collect();
            output::json(&json!({"codes": all}));
        } else {
            let rows: Vec<Vec<String>> =
                ErrorCode::ALL.iter().map(|c| vec![c.to_string(), c.suggestion().to_owned()]).collect();
            output::data(&output::table(&rows));
        }
        return Ok(ExitCode::SUCCESS);
    };
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
