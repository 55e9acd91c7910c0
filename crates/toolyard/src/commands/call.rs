//! `toolyard call`: one tool, one result.

use super::{Outcome, input};
use crate::{
    backend::Backend,
    cli::{CallArgs, Global},
    output::{self, Paint},
    wiring::Needs,
};
use serde_json::json;
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure, ToolResult};

pub(super) async fn run(global: &Global, args: CallArgs) -> Outcome {
    let params = json!({
        "name": args.name, "args": input::json_object(&args.args)?, "timeoutMs": args.timeout_ms,
        "idempotencyKey": args.idempotency_key, "dryRun": args.dry_run,
    });
    let mut backend = Backend::open(global, Needs::Store).await?;
    let answer = tokio::select! {
        answer = backend.call("tools.call", params, None) => answer,
        _ = tokio::signal::ctrl_c() => {
            // Closing stops the call and records how it ended.
            backend.close().await;
            output::failure(global, &Failure::new(ErrorCode::Cancelled, "interrupted"));
            return Ok(ExitCode::from(output::INTERRUPTED));
        }
    };
    backend.close().await;
    let mut answer = answer?;
    let result: ToolResult = serde_json::from_value(answer["result"].take())
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the answer cannot be read: {e}")))?;
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
    // Text is what people came for; everything else is shown as JSON.
    match result.data.as_ref().and_then(|d| d.get("content")).and_then(|c| c.as_str()) {
        Some(content) if result.tool.as_str() == "vault.readFile" => output::data(content.trim_end_matches('\n')),
        _ => output::data(&format!("{:#}", json!(result.data))),
    }
}
