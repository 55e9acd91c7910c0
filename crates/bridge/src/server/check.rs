//! Checks messages for Claude: the length of their content, their attachments and the size of their metadata.

use crate::frames::{self, MAX_CONTENT_BYTES};
use serde_json::{Map, Value};

/// Checks a message; the error says what is wrong.
pub fn check_message(content: &str, meta: &Map<String, Value>) -> Result<(), String> {
    if content.len() > MAX_CONTENT_BYTES {
        return Err(format!("content has {} bytes; at most {MAX_CONTENT_BYTES} are allowed", content.len()));
    }
    if meta.get("attachments").is_some_and(|attachments| !attachments.is_array()) {
        return Err("meta.attachments must be a list".to_owned());
    }
    let described = frames::write(meta).len();
    if described > frames::MAX_META_BYTES {
        return Err(format!("meta has {described} bytes; at most {} are allowed", frames::MAX_META_BYTES));
    }
    Ok(())
}
