//! The tool `approve`. If Claude Code is started with `--permission-prompt-tool`, it calls this tool for each
//! permission question, and the person's answer is the result. The question is handled like one of the channel.

use super::mcp;
use crate::frames::{Behavior, Question};
use serde_json::{Map, Value, json};

/// The tool's name.
pub const APPROVE: &str = "approve";
/// How long a question waits for its answer: the server closes it first.
pub(super) const ANSWER_WITHIN_MS: u64 = crate::server::QUESTION_OPEN_MS + 5_000;
/// Characters of the arguments as people are shown them; Claude Code's own previews are as long.
const MAX_PREVIEW: usize = 3_500;
/// The letters of a question's id.
const LETTERS: &[u8; 25] = b"abcdefghijkmnopqrstuvwxyz";

/// A question that was asked by a call of the tool.
pub(super) struct PendingApproval {
    /// The id of the call.
    pub(super) id: Value,
    /// The input of the action; it is repeated in a positive answer.
    input: Map<String, Value>,
    /// When it is given up.
    pub(super) give_up_at: u64,
}

/// The tool as it is listed.
pub(super) fn tool() -> Value {
    json!({
        "name": APPROVE,
        "title": "Approve",
        "description": "Asks a person whether a tool may be used. Claude Code calls it by itself; a model has no use for it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string", "minLength": 1, "description": "The tool to be used."},
                "input": {"type": "object", "description": "Its arguments."},
                "tool_use_id": {"type": "string", "description": "The model's id for the use."},
            },
            "required": ["tool_name", "input"],
        },
        "annotations": {"title": "Approve", "readOnlyHint": true, "openWorldHint": true},
    })
}

/// Reads a call of the tool; the error says what is wrong.
pub(super) fn read(
    id: Value,
    args: &Map<String, Value>,
    request_id: String,
    now: u64,
) -> Result<(PendingApproval, Question), String> {
    let tool = args.get("tool_name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let tool = tool.ok_or("approve: tool_name is missing")?.to_owned();
    let input = match args.get("input") {
        Some(Value::Object(input)) => input.clone(),
        None | Some(Value::Null) => Map::new(),
        Some(_) => return Err("approve: input must be an object".to_owned()),
    };
    let preview = Value::Object(input.clone()).to_string();
    let rationale = input.get("description").and_then(Value::as_str).unwrap_or_default();
    let question = Question {
        request_id,
        tool,
        rationale: rationale.chars().take(MAX_PREVIEW).collect(),
        args: input.clone(),
        input_preview: Some(preview.chars().take(MAX_PREVIEW).collect()),
    };
    Ok((PendingApproval { id, input, give_up_at: now + ANSWER_WITHIN_MS }, question))
}

/// A person's answer as the call's result.
pub(super) fn answered(waiting: &PendingApproval, behavior: Behavior) -> String {
    match behavior {
        Behavior::Allow => tool_result(waiting, &json!({"behavior": "allow", "updatedInput": waiting.input})),
        Behavior::Deny => refused(waiting, "A person said no."),
    }
}

/// The answer if nobody answered, which is a denial.
pub(super) fn refused(waiting: &PendingApproval, why: &str) -> String {
    tool_result(waiting, &json!({"behavior": "deny", "message": why}))
}

fn tool_result(waiting: &PendingApproval, answer: &Value) -> String {
    mcp::response(&waiting.id, json!({"content": [{"type": "text", "text": answer.to_string()}]}))
}

/// An id out of a number.
pub(super) fn request_id(mut number: u64) -> String {
    let mut letters = String::with_capacity(5);
    for _ in 0..5 {
        letters.push(char::from(LETTERS[(number % 25) as usize]));
        number /= 25;
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::is_request_id;

    #[test]
    fn ids_are_five_letters_without_l() {
        for number in [0, 1, 24, 25, 12_345_678, u64::MAX] {
            assert!(is_request_id(&request_id(number)), "{number}");
        }
        assert_ne!(request_id(1), request_id(2));
    }

    #[test]
    fn a_call_that_names_no_tool_is_refused() {
        for bad in [json!({}), json!({"tool_name": ""}), json!({"tool_name": 5}), json!({"tool_name": "x", "input": 1})]
        {
            assert!(read(json!(1), bad.as_object().unwrap(), request_id(1), 0).is_err(), "{bad}");
        }
    }
}
