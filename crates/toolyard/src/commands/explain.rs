//! `toolyard explain`: the page of an error code.

use super::Outcome;
use crate::{
    cli::{ExplainArgs, Global},
    error_reference::advice,
    output,
};
use serde::Serialize;
use std::process::ExitCode;
use toolyard_knowledge::envelope::ProblemCode;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) fn run(global: &Global, args: ExplainArgs) -> Outcome {
    let Some(code) = args.code else {
        if global.json {
            let of_engine = ErrorCode::ALL.iter().map(|code| Explained::engine(*code, None));
            let of_notes = ProblemCode::PAGES.iter().map(|(code, page)| Explained::notes(code, page, None));
            output::json(&Codes { codes: of_engine.chain(of_notes).collect() });
        } else {
            let mut rows: Vec<Vec<String>> =
                ErrorCode::ALL.iter().map(|c| vec![c.to_string(), c.suggestion().to_owned()]).collect();
            rows.extend(ProblemCode::PAGES.iter().map(|(code, page)| vec![(*code).to_owned(), advice(page)]));
            output::data(&output::table(&rows));
        }
        return Ok(ExitCode::SUCCESS);
    };
    // The codes of the notes' tools have pages of their own.
    let wanted = code.trim().replace('-', "_").to_ascii_uppercase();
    if let Some((code, page)) = ProblemCode::PAGES.iter().find(|(code, _)| *code == wanted) {
        if global.json {
            output::json(&Explained::notes(code, page, Some(page)));
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
        output::json(&Explained::engine(found, Some(found.page().markdown)));
    } else {
        output::data(found.page().markdown.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// Every code.
#[derive(Serialize)]
struct Codes {
    codes: Vec<Explained>,
}

/// An error code with its advice, and its page if one code was asked for.
#[derive(Serialize)]
struct Explained {
    code: String,
    suggestion: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    markdown: Option<&'static str>,
}

impl Explained {
    fn engine(code: ErrorCode, markdown: Option<&'static str>) -> Self {
        Self { code: code.to_string(), suggestion: code.suggestion().to_owned(), markdown }
    }

    fn notes(code: &str, page: &str, markdown: Option<&'static str>) -> Self {
        Self { code: code.to_owned(), suggestion: advice(page), markdown }
    }
}
