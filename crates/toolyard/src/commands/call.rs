//! `toolyard call`: one tool, one result.

use super::{Outcome, input};
use crate::{
    backend::Backend,
    cli::{CallArgs, Global},
    output::{self, Paint},
    wiring::RequiredParts,
};
use serde_json::Value;
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure, ToolResult};
use toolyard_service::local::{ToolsCall, ToolsCallParams};

pub(super) async fn run(global: &Global, args: CallArgs) -> Outcome {
    let params = ToolsCallParams {
        name: args.name,
        args: input::json_object(&args.args)?,
        timeout_ms: args.timeout_ms,
        idempotency_key: args.idempotency_key,
        dry_run: args.dry_run,
    };
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let answer = tokio::select! {
        answer = backend.call::<ToolsCall>(&params, None) => answer,
        _ = tokio::signal::ctrl_c() => {
            // Closing stops the call and records how it ended.
            backend.close().await;
            output::failure(global, &Failure::new(ErrorCode::Cancelled, "interrupted"));
            return Ok(ExitCode::from(output::INTERRUPTED));
        }
    };
    backend.close().await;
    let result = answer?.result;
    if global.json {
        output::json(&result);
    } else {
        show(global, &result);
    }
    Ok(match &result.error {
        None => ExitCode::SUCCESS,
        Some(error) => ExitCode::from(output::code_of(error.code)),
    })
}

fn show(global: &Global, result: &ToolResult) {
    if let Some(error) = &result.error {
        output::failure(global, error);
        return;
    }
    let paint = Paint::stderr();
    if let (Some(message), false) = (&result.user_message, global.quiet) {
        output::note(&paint.dim(message));
    }
    // The content of a file is printed as text, every other answer as JSON.
    let is_text = result.tool.as_str() == "vault.readFile";
    match result.data.as_ref().filter(|_| is_text).and_then(|data| data.get("content")).and_then(Value::as_str) {
        Some(content) => output::data(content.trim_end_matches('\n')),
        None => output::pretty(&result.data),
    }
}
