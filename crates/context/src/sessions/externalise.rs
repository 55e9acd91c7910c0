//! Large tool results: kept whole in files of their own, with a stub in the message that says what is in them.

use crate::{
    error::{ApiError, Result},
    store::{
        account::Account,
        digest::collapse,
        disk::{self, Keep},
        uri::{Identity, Place},
    },
};
use serde_json::{Map, Value, json};
use toolyard_protocol::canonical::sha256_hex;

/// An output longer than this is kept apart.
pub(crate) const THRESHOLD_CHARS: usize = 20_000;
/// Outputs of one message that stay in it, together; then the largest go first.
pub(crate) const TURN_BUDGET_CHARS: usize = 100_000;
/// A stub's length.
pub(crate) const PREVIEW_CHARS: usize = 2_000;
/// Characters of the beginning and the end that a synopsis shows.
const EXCERPT_CHARS: usize = 480;
/// Characters of a tool's id that a result's name holds.
const MAX_ID_CHARS: usize = 96;
/// The unit of offsets.
const UNIT: &str = "unicode_code_point";

/// The folder of a session's results.
pub(crate) fn folder(who: &Identity, session: &str) -> Place {
    who.home().child("sessions").child(session).child("tool-results")
}

fn text<'a>(part: &'a Map<String, Value>, key: &str) -> &'a str {
    part.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Moves large outputs of a message's parts into files. The message must not be acknowledged before this is done.
pub(crate) fn outputs(account: &Account, who: &Identity, session: &str, message: &mut Value) -> Result<()> {
    let id = message["id"].as_str().unwrap_or_default().to_owned();
    let created = message["created_at"].as_str().unwrap_or_default().to_owned();
    let peer = message.get("peer_id").cloned().unwrap_or(Value::Null);
    let Some(parts) = message.get_mut("parts").and_then(Value::as_array_mut) else { return Ok(()) };
    let lengths: Vec<usize> = parts
        .iter()
        .map(|part| part.get("tool_output").and_then(Value::as_str).map_or(0, |output| output.chars().count()))
        .collect();
    let total: usize = lengths.iter().sum();
    let mut reasons: Vec<Option<&str>> =
        lengths.iter().map(|n| (*n > THRESHOLD_CHARS).then_some("single_threshold")).collect();
    let mut inline: usize = lengths.iter().zip(&reasons).filter(|(_, r)| r.is_none()).map(|(n, _)| n).sum();
    let mut by_size: Vec<usize> = (0..lengths.len()).collect();
    by_size.sort_by_key(|at| std::cmp::Reverse(lengths[*at]));
    for at in by_size {
        if inline > TURN_BUDGET_CHARS && reasons[at].is_none() && lengths[at] > PREVIEW_CHARS {
            reasons[at] = Some("turn_budget");
            inline -= lengths[at];
        }
    }
    for ((part, reason), length) in parts.iter_mut().zip(reasons).zip(lengths) {
        let (Some(reason), Some(part)) = (reason, part.as_object_mut()) else { continue };
        // What was read back from a kept result is there already.
        if text(part, "tool_name") == "openviking_tool_result_read" {
            part.insert("tool_output_externalized_reason".to_owned(), "source_read".into());
            continue;
        }
        let output = text(part, "tool_output").to_owned();
        let hash = sha256_hex(output.as_bytes());
        let tool_id = text(part, "tool_id");
        let safe: String = tool_id
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
            .take(MAX_ID_CHARS)
            .collect();
        let name = if safe.is_empty() { format!("tr_{}", &hash[..24]) } else { format!("tr_{safe}_{}", &hash[..16]) };
        let place = folder(who, session).child(&name);
        let kind = kind_of(&output);
        let synopsis = synopsis(kind, &output);
        let metadata = json!({
            "tool_result_id": name, "session_id": session, "message_id": id, "tool_id": tool_id,
            "tool_name": text(part, "tool_name"), "user_id": who.user, "peer_id": peer, "created_at": created,
            "original_chars": length, "preview_chars": PREVIEW_CHARS, "sha256": hash,
            "mime_type": if kind == "json" { "application/json" } else { "text/plain" },
            "synopsis_kind": kind, "synopsis": synopsis, "storage_uri": place.to_string(),
            "output_uri": place.child("output.txt").to_string(), "offset_unit": UNIT,
        });
        let path = account.path(&place);
        disk::make_folders(&path)?;
        disk::write(&path.join("output.txt"), output.as_bytes(), Keep::Durable)?;
        disk::write(&path.join("metadata.json"), metadata.to_string().as_bytes(), Keep::Durable)?;
        let stub = stub(&metadata, reason);
        part.insert("tool_output_ref".to_owned(), place.to_string().into());
        part.insert("tool_output_truncated".to_owned(), true.into());
        part.insert("tool_output_original_chars".to_owned(), length.into());
        part.insert("tool_output_preview_chars".to_owned(), stub.chars().count().into());
        part.insert("tool_output_sha256".to_owned(), hash.into());
        part.insert("tool_output_storage_uri".to_owned(), place.to_string().into());
        part.insert("tool_output_group_id".to_owned(), id.clone().into());
        part.insert("tool_output_externalized_reason".to_owned(), reason.into());
        part.insert("tool_output_group_original_chars".to_owned(), total.into());
        part.insert("tool_output_group_budget_chars".to_owned(), TURN_BUDGET_CHARS.into());
        part.insert("tool_output".to_owned(), stub.into());
    }
    Ok(())
}

/// A kept result's name in the only form that the plugin reads back. It is no canonical URI, so only references have it.
pub(crate) fn client_name(session: &str, id: &str) -> String {
    format!("viking://session/{session}/tool-results/{id}")
}

/// Puts references of messages, and those in their stubs, into the form that the plugin reads back.
pub(crate) fn name_for_clients(messages: &mut Value) {
    let messages = messages.as_array_mut().into_iter().flatten();
    for part in messages.filter_map(|message| message["parts"].as_array_mut()).flatten() {
        let Some(part) = part.as_object_mut() else { continue };
        let canonical = text(part, "tool_output_ref").to_owned();
        let names: Vec<&str> = canonical.split('/').collect();
        let [.., "sessions", session, "tool-results", id] = names.as_slice() else { continue };
        let named = client_name(session, id);
        let output = text(part, "tool_output").replacen(&canonical, &named, 1);
        part.insert("tool_output".to_owned(), output.into());
        part.insert("tool_output_ref".to_owned(), named.into());
    }
}

/// What sort of text it looks like.
fn kind_of(output: &str) -> &'static str {
    let start = output.trim_start();
    if start.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(output).is_ok() {
        return "json";
    }
    let lines: Vec<&str> = output.lines().take(200).filter(|l| !l.trim().is_empty()).collect();
    let share = |fits: &dyn Fn(&str) -> bool| lines.iter().filter(|l| fits(l)).count() * 10 > lines.len() * 7;
    if lines.len() > 2 && (share(&|l| l.matches('|').count() >= 2) || share(&|l| l.contains('\t'))) {
        "table"
    } else if lines.len() > 2 && share(&|l| looks_logged(l)) {
        "log"
    } else if share(&|l| l.trim_end().ends_with(['{', '}', ';', ')']) || l.trim_start().starts_with("//")) {
        "code"
    } else {
        "text"
    }
}

fn looks_logged(line: &str) -> bool {
    let head: String = line.chars().take(40).collect();
    ["INFO", "WARN", "ERROR", "DEBUG", "TRACE"].iter().any(|level| head.contains(level))
        || (head.chars().take(4).all(|c| c.is_ascii_digit()) && head.chars().nth(4) == Some('-'))
}

fn synopsis(kind: &str, output: &str) -> Value {
    let chars = output.chars().count();
    let head: String = collapse(&output.chars().take(EXCERPT_CHARS).collect::<String>());
    let tail: String = collapse(&output.chars().skip(chars.saturating_sub(EXCERPT_CHARS)).collect::<String>());
    let headings: Vec<&str> = output.lines().filter(|l| l.starts_with('#')).take(8).collect();
    let headers = if headings.is_empty() { "none detected".to_owned() } else { headings.join("; ") };
    let mut structure = Vec::new();
    if kind == "json" {
        match serde_json::from_str::<Value>(output) {
            Ok(Value::Object(map)) => {
                structure.extend(map.iter().take(20).map(|(key, value)| format!("{key}: {}", type_name(value))));
            }
            Ok(Value::Array(items)) => {
                structure.push(format!("array of {} items", items.len()));
                if let Some(Value::Object(first)) = items.first() {
                    structure
                        .extend(first.iter().take(20).map(|(key, value)| format!("[].{key}: {}", type_name(value))));
                }
            }
            _ => {}
        }
    }
    let notable: Vec<String> = output
        .lines()
        .filter(|l| {
            let l = l.to_ascii_lowercase();
            kind == "log" && (l.contains("error") || l.contains("fail") || l.contains("panic"))
        })
        .take(5)
        .map(|l| l.trim().chars().take(160).collect())
        .collect();
    let mut title = kind.to_owned();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    json!({
        "kind": kind, "title": format!("{title} output"),
        "summary": [
            format!("{title} exploration summary:"), format!("Characters: {chars}."),
            format!("Words: {}.", output.split_whitespace().count()), format!("Lines: {}.", output.lines().count()),
            format!("Detected section headers: {headers}."), format!("Opening excerpt: {head}."),
            format!("Closing excerpt: {tail}."),
        ],
        "structure": structure, "notable_items": notable, "sample": "",
    })
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn stub(metadata: &Value, reason: &str) -> String {
    let word = |key: &str| metadata[key].as_str().unwrap_or_default();
    let mut out = format!(
        "[OpenViking tool result externalized]\ntool_name: {}\nkind: {}\noriginal_chars: {}\npreview_chars: {PREVIEW_CHARS}\nref: {}\n\
         sha256: {}\nreason: {reason}\n\nSynopsis:\n",
        word("tool_name"),
        word("synopsis_kind"),
        metadata["original_chars"],
        word("storage_uri"),
        &word("sha256")[..word("sha256").len().min(16)],
    );
    for (heading, key) in [("", "summary"), ("Structure:", "structure"), ("Notable items:", "notable_items")] {
        let items = metadata["synopsis"][key].as_array().map(Vec::as_slice).unwrap_or_default();
        if !items.is_empty() && !heading.is_empty() {
            out.push_str(&format!("\n{heading}\n"));
        }
        for item in items {
            out.push_str(&format!("- {}\n", item.as_str().unwrap_or_default()));
        }
    }
    let explore = "\nExplore:\n- openviking_tool_result_search finds words in it.\n- openviking_tool_result_read reads it by offset and limit.";
    let room = PREVIEW_CHARS.saturating_sub(explore.chars().count());
    let mut stub: String = out.chars().take(room).collect();
    stub.push_str(explore);
    stub
}

/// All kept results of a session, the oldest first.
pub(crate) fn list(
    account: &Account,
    who: &Identity,
    session: &str,
    tool: Option<&str>,
    limit: usize,
) -> Result<Vec<Value>> {
    let place = folder(who, session);
    let path = account.path(&place);
    if disk::look(&path)?.is_none() {
        return Ok(Vec::new());
    }
    let mut all: Vec<Value> = disk::list(&path)?
        .iter()
        .filter(|found| found.is_folder)
        .filter_map(|found| disk::read_text(&path.join(&found.name).join("metadata.json")).ok())
        .filter_map(|text| serde_json::from_str(&text).ok())
        .filter(|meta: &Value| tool.is_none_or(|tool| meta["tool_name"] == tool))
        .collect();
    all.sort_by(|a, b| a["created_at"].as_str().cmp(&b["created_at"].as_str()));
    all.truncate(limit);
    Ok(all)
}

/// A kept result: its text and what is noted about it.
pub(crate) fn load(account: &Account, who: &Identity, session: &str, id: &str) -> Result<(String, Value)> {
    let fits = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let place = folder(who, session).child(if fits { id } else { "unknown" });
    let missing = || ApiError::no_file(&folder(who, session).child(id).child("metadata.json").to_string());
    if !fits {
        return Err(missing());
    }
    let path = account.path(&place);
    let metadata = disk::read_text(&path.join("metadata.json")).map_err(|_| missing())?;
    let output = disk::read_text(&path.join("output.txt")).map_err(|_| missing())?;
    Ok((output, serde_json::from_str(&metadata).unwrap_or_default()))
}

/// A part of a kept result. `limit` -1 means all.
pub(crate) fn read(id: &str, output: &str, metadata: Option<Value>, offset: usize, limit: i64) -> Value {
    let total = output.chars().count();
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let content: String = output.chars().skip(offset).take(most).collect();
    let end = offset.saturating_add(content.chars().count());
    let mut told = json!({
        "tool_result_id": id, "content": content, "offset": offset, "limit": limit, "offset_unit": UNIT,
        "total_chars": total, "has_more": end < total,
    });
    if let Some(metadata) = metadata {
        told["metadata"] = metadata;
    }
    told
}

/// Where an exact text stands, one after the other, with what is around it.
pub(crate) fn search(id: &str, output: &str, query: &str, limit: usize, context: usize) -> Value {
    let mut matches = Vec::new();
    let chars: Vec<char> = output.chars().collect();
    let length = query.chars().count();
    let (mut from, mut counted) = (0, 0);
    while matches.len() < limit
        && !query.is_empty()
        && let Some(at) = output[from..].find(query)
    {
        counted += output[from..from + at].chars().count();
        let start = counted.saturating_sub(context);
        let end = (counted + length).saturating_add(context).min(chars.len());
        let snippet: String = chars[start..end].iter().collect();
        matches.push(json!({"offset": counted, "offset_unit": UNIT, "snippet": snippet}));
        counted += length;
        from += at + query.len();
    }
    json!({"tool_result_id": id, "matches": matches})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searching_is_exact_and_counts_characters() {
        let text = "aé error aé error";
        let told = search("t", text, "error", 10, 2);
        let offsets: Vec<u64> =
            told["matches"].as_array().unwrap().iter().map(|m| m["offset"].as_u64().unwrap()).collect();
        assert_eq!(offsets, [3, 12]);
        assert_eq!(told["matches"][0]["snippet"], "é error a");
        assert_eq!(search("t", text, "Error", 10, 2)["matches"], json!([]));
    }

    #[test]
    fn reading_goes_by_characters_and_says_whether_there_is_more() {
        let told = read("t", "äbcdef", None, 1, 3);
        assert_eq!((told["content"].as_str(), &told["has_more"]), (Some("bcd"), &json!(true)));
        assert_eq!(read("t", "abc", None, 0, -1)["has_more"], json!(false));
        assert_eq!(read("t", "abc", None, 9, 5)["content"], "");
    }

    #[test]
    fn kinds_are_told_apart() {
        assert_eq!(kind_of("{\"a\": 1}"), "json");
        assert_eq!(kind_of("a\tb\nc\td\ne\tf"), "table");
        assert_eq!(kind_of("2026-01-01 INFO x\n2026-01-01 ERROR y\n2026-01-01 INFO z"), "log");
        assert_eq!(kind_of("line 0 error code 0\nline 1"), "text");
    }
}
