//! The metadata of a message in the form that Claude Code accepts: flat, keys of letters, digits and underscores,
//! values strings.
//!
//! Any other key is dropped and never renamed, because a renamed key could replace another one: `user-id` could be
//! taken for `user_id`.

use serde_json::{Map, Value};

/// Entries at most; the rest is left out.
const MAX_ENTRIES: usize = 64;
/// A value is cut at this many bytes.
const MAX_VALUE_BYTES: usize = 4 << 10;
/// Attachments that are described one by one.
const MAX_ATTACHMENTS: usize = 16;

/// Flattens a description. Attachments become `attachment_count`, `attachment_1_path` and so on.
pub fn flatten(meta: &Map<String, Value>) -> Map<String, Value> {
    let mut flat = Map::new();
    for (key, value) in meta {
        match value {
            Value::Array(_) if key == "attachments" => {}
            other => put(&mut flat, key, other),
        }
    }
    // Generated keys are added last, so that they never replace a key of the sender.
    if let Some(Value::Array(items)) = meta.get("attachments") {
        attachments(items, &mut flat);
    }
    flat
}

fn attachments(items: &[Value], flat: &mut Map<String, Value>) {
    put(flat, "attachment_count", &Value::from(items.len()));
    for (at, item) in items.iter().take(MAX_ATTACHMENTS).enumerate() {
        match item {
            Value::Object(fields) => {
                for (key, value) in fields {
                    put(flat, &format!("attachment_{}_{key}", at + 1), value);
                }
            }
            other => put(flat, &format!("attachment_{}", at + 1), other),
        }
    }
}

fn put(flat: &mut Map<String, Value>, key: &str, value: &Value) {
    let is_plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let mut text = match value {
        Value::Null => return,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if !is_plain || flat.len() >= MAX_ENTRIES || flat.contains_key(key) {
        return;
    }
    if text.len() > MAX_VALUE_BYTES {
        let mut cut = MAX_VALUE_BYTES;
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        text.truncate(cut);
    }
    flat.insert(key.to_owned(), Value::String(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[toolyard_shows::shows("004-2-06")]
    #[test]
    fn everything_becomes_a_string_under_a_plain_key() {
        let meta = json!({
            "chat_id": "1", "ts": 5, "ok": true, "none": null, "message_id": "m", "nested": {"a": [1]},
            "attachments": [{"path": "/a b.png", "mime": "image/png", "size": 3, "content-id": "c"}, "id-2"],
        });
        let flat = Value::Object(flatten(meta.as_object().unwrap()));
        assert_eq!(
            flat,
            json!({
                "chat_id": "1", "ts": "5", "ok": "true", "message_id": "m", "nested": "{\"a\":[1]}",
                "attachment_count": "2", "attachment_1_path": "/a b.png", "attachment_1_mime": "image/png",
                "attachment_1_size": "3", "attachment_2": "id-2",
            })
        );
    }

    #[test]
    fn a_key_with_another_character_is_dropped_and_takes_no_ones_place() {
        for meta in [
            json!({"user_id": "u1", "user-id": "u2", "user id": "u3", "user.id": "u4", "üser_id": "u5", "": "u6"}),
            json!({"user-id": "u2", "user_id": "u1"}),
        ] {
            assert_eq!(Value::Object(flatten(meta.as_object().unwrap())), json!({"user_id": "u1"}));
        }
        let only = json!({"user-id": "u2", "attachments": [{"pa-th": "x"}]});
        assert_eq!(Value::Object(flatten(only.as_object().unwrap())), json!({"attachment_count": "1"}));
        let own = json!({"attachment_count": "9", "attachments": ["a"]});
        assert_eq!(flatten(own.as_object().unwrap())["attachment_count"], "9");
    }

    #[test]
    fn long_and_many_are_cut() {
        let meta: Map<String, Value> = (0..200).map(|n| (format!("k{n}"), json!("ä".repeat(4000)))).collect();
        let flat = flatten(&meta);
        assert_eq!(flat.len(), MAX_ENTRIES);
        assert!(flat.values().all(|v| v.as_str().unwrap().len() <= MAX_VALUE_BYTES));
    }
}
