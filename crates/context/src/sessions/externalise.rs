//! Stores large tool results in separate files and leaves a stub with a synopsis in the message.

use crate::{
    error::{ApiError, Result},
    sessions::message::{Message, Part, Reason, StoredOutput},
    store::{
        account::Account,
        digest::collapse,
        disk::{self, Durability},
        uri::{Identity, StorePath},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolyard_protocol::canonical::sha256_hex;

/// Longer outputs are stored separately.
pub(crate) const THRESHOLD_CHARS: usize = 20_000;
/// Maximum total length of the outputs in one message; beyond it, the largest outputs are stored separately first.
pub(crate) const TURN_BUDGET_CHARS: usize = 100_000;
/// Length of a stub.
pub(crate) const PREVIEW_CHARS: usize = 2_000;
/// Number of characters from the start and the end of an output that a synopsis shows.
const EXCERPT_CHARS: usize = 480;
/// Maximum number of characters of a tool call id in the name of a result.
const MAX_ID_CHARS: usize = 96;
/// The unit of offsets.
const UNIT: &str = "unicode_code_point";

/// The folder of a session's stored results.
pub(crate) fn folder(who: &Identity, session: &str) -> StorePath {
    who.home().child("sessions").child(session).child("tool-results")
}

/// Metadata of a stored result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub(crate) tool_result_id: String,
    pub(crate) session_id: String,
    pub(crate) message_id: String,
    pub(crate) tool_id: String,
    pub(crate) tool_name: String,
    pub(crate) user_id: String,
    pub(crate) peer_id: Option<String>,
    pub(crate) created_at: String,
    pub(crate) original_chars: usize,
    pub(crate) preview_chars: usize,
    pub(crate) sha256: String,
    pub(crate) mime_type: String,
    pub(crate) synopsis_kind: String,
    pub(crate) synopsis: Synopsis,
    pub(crate) storage_uri: String,
    pub(crate) output_uri: String,
    pub(crate) offset_unit: String,
}

/// The synopsis of a stored result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Synopsis {
    kind: String,
    title: String,
    summary: Vec<String>,
    structure: Vec<String>,
    notable_items: Vec<String>,
    sample: String,
}

/// For each output of a message, the reason to store it separately, if any; and the total length of all outputs.
fn reasons(message: &Message) -> (Vec<Option<Reason>>, usize) {
    let length = |part: &Part| if let Part::Tool(tool) = part { tool.tool_output.chars().count() } else { 0 };
    let lengths: Vec<usize> = message.parts.iter().map(length).collect();
    let mut reasons: Vec<Option<Reason>> =
        lengths.iter().map(|n| (*n > THRESHOLD_CHARS).then_some(Reason::SingleThreshold)).collect();
    let mut inline: usize = lengths.iter().zip(&reasons).filter(|(_, r)| r.is_none()).map(|(n, _)| n).sum();
    let mut by_size: Vec<usize> = (0..lengths.len()).collect();
    by_size.sort_by_key(|at| std::cmp::Reverse(lengths[*at]));
    for at in by_size {
        if inline > TURN_BUDGET_CHARS && reasons[at].is_none() && lengths[at] > PREVIEW_CHARS {
            reasons[at] = Some(Reason::TurnBudget);
            inline -= lengths[at];
        }
    }
    (reasons, lengths.iter().sum())
}

/// Moves large outputs of a message into files. This must complete before the message is acknowledged.
pub(crate) fn outputs(account: &Account, who: &Identity, session: &str, message: &mut Message) -> Result<()> {
    let (reasons, total) = reasons(message);
    let (id, created, peer) = (message.id.clone(), message.created_at.clone(), message.peer_id.clone());
    for (part, reason) in message.parts.iter_mut().zip(reasons) {
        let (Some(reason), Part::Tool(tool)) = (reason, part) else { continue };
        // Text read back from a stored result is already stored.
        if tool.tool_name == "openviking_tool_result_read" {
            tool.reason = Some(Reason::SourceRead);
            continue;
        }
        let output = std::mem::take(&mut tool.tool_output);
        let hash = sha256_hex(output.as_bytes());
        let name = result_name(&tool.tool_id, &hash);
        let place = folder(who, session).child(&name);
        let kind = kind_of(&output);
        let metadata = Metadata {
            session_id: session.to_owned(),
            message_id: id.clone(),
            tool_id: tool.tool_id.clone(),
            tool_name: tool.tool_name.clone(),
            user_id: who.user.clone(),
            peer_id: peer.clone(),
            created_at: created.clone(),
            original_chars: output.chars().count(),
            preview_chars: PREVIEW_CHARS,
            sha256: hash.clone(),
            mime_type: if kind == "json" { "application/json" } else { "text/plain" }.to_owned(),
            synopsis_kind: kind.to_owned(),
            synopsis: synopsis(kind, &output),
            storage_uri: place.to_string(),
            output_uri: place.child("output.txt").to_string(),
            offset_unit: UNIT.to_owned(),
            tool_result_id: name,
        };
        let path = account.path(&place);
        disk::make_folders(&path)?;
        disk::write(&path.join("output.txt"), output.as_bytes(), Durability::Durable)?;
        disk::write(&path.join("metadata.json"), &serde_json::to_vec(&metadata)?, Durability::Durable)?;
        tool.tool_output = stub(&metadata, reason);
        tool.reason = Some(reason);
        tool.kept = Some(StoredOutput {
            reference: reference(session, &metadata.tool_result_id),
            truncated: true,
            original_chars: metadata.original_chars,
            preview_chars: tool.tool_output.chars().count(),
            sha256: hash,
            storage_uri: metadata.storage_uri,
            group_id: id.clone(),
            group_original_chars: total,
            group_budget_chars: TURN_BUDGET_CHARS,
        });
    }
    Ok(())
}

fn result_name(tool_id: &str, hash: &str) -> String {
    let safe: String = tool_id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .take(MAX_ID_CHARS)
        .collect();
    if safe.is_empty() { format!("tr_{}", &hash[..24]) } else { format!("tr_{safe}_{}", &hash[..16]) }
}

/// The reference to a stored result. It is not a canonical URI: only the tools that read results back and OpenViking's
/// plugin use this form.
pub(crate) fn reference(session: &str, id: &str) -> String {
    format!("viking://session/{session}/tool-results/{id}")
}

/// Replaces canonical URIs of stored results in messages of older versions by [`reference`]s.
pub(crate) fn rename_references(messages: &mut [Message]) {
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        let Part::Tool(tool) = part else { continue };
        let Some(kept) = &mut tool.kept else { continue };
        let names: Vec<&str> = kept.reference.split('/').collect();
        let [.., "sessions", session, "tool-results", id] = names.as_slice() else { continue };
        let named = reference(session, id);
        tool.tool_output = tool.tool_output.replacen(&kept.reference, &named, 1);
        kept.reference = named;
    }
}

/// Guesses the kind of text.
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

/// Maximum number of fields that a synopsis lists.
const SHOWN_FIELDS: usize = 20;

fn structure(output: &str) -> Vec<String> {
    let fields = |prefix: &str, map: &serde_json::Map<String, serde_json::Value>| -> Vec<String> {
        map.iter().take(SHOWN_FIELDS).map(|(key, value)| format!("{prefix}{key}: {}", type_name(value))).collect()
    };
    if let Ok(map) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(output) {
        return fields("", &map);
    }
    let Ok(items) = serde_json::from_str::<Vec<Value>>(output) else { return Vec::new() };
    let mut lines = vec![format!("array of {} items", items.len())];
    lines.extend(items.first().and_then(Value::as_object).map(|first| fields("[].", first)).unwrap_or_default());
    lines
}

fn synopsis(kind: &str, output: &str) -> Synopsis {
    let chars = output.chars().count();
    let head: String = collapse(&output.chars().take(EXCERPT_CHARS).collect::<String>());
    let tail: String = collapse(&output.chars().skip(chars.saturating_sub(EXCERPT_CHARS)).collect::<String>());
    let headings: Vec<&str> = output.lines().filter(|l| l.starts_with('#')).take(8).collect();
    let headers = if headings.is_empty() { "none detected".to_owned() } else { headings.join("; ") };
    let notable = |line: &&str| {
        let line = line.to_ascii_lowercase();
        kind == "log" && (line.contains("error") || line.contains("fail") || line.contains("panic"))
    };
    let mut title = kind.to_owned();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Synopsis {
        kind: kind.to_owned(),
        summary: vec![
            format!("{title} exploration summary:"),
            format!("Characters: {chars}."),
            format!("Words: {}.", output.split_whitespace().count()),
            format!("Lines: {}.", output.lines().count()),
            format!("Detected section headers: {headers}."),
            format!("Opening excerpt: {head}."),
            format!("Closing excerpt: {tail}."),
        ],
        title: format!("{title} output"),
        structure: if kind == "json" { structure(output) } else { Vec::new() },
        notable_items: output.lines().filter(notable).take(5).map(|l| l.trim().chars().take(160).collect()).collect(),
        sample: String::new(),
    }
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

fn stub(metadata: &Metadata, reason: Reason) -> String {
    let mut out = format!(
        "[OpenViking tool result externalized]\ntool_name: {}\nkind: {}\noriginal_chars: {}\npreview_chars: {PREVIEW_CHARS}\nref: {}\n\
         sha256: {}\nreason: {}\n\nSynopsis:\n",
        metadata.tool_name,
        metadata.synopsis_kind,
        metadata.original_chars,
        reference(&metadata.session_id, &metadata.tool_result_id),
        metadata.sha256.get(..16).unwrap_or(&metadata.sha256),
        reason.as_str(),
    );
    let synopsis = &metadata.synopsis;
    for (heading, items) in
        [("", &synopsis.summary), ("Structure:", &synopsis.structure), ("Notable items:", &synopsis.notable_items)]
    {
        if !items.is_empty() && !heading.is_empty() {
            out.push_str(&format!("\n{heading}\n"));
        }
        for item in items {
            out.push_str(&format!("- {item}\n"));
        }
    }
    let explore = "\nExplore:\n- openviking_tool_result_search finds words in it.\n- openviking_tool_result_read reads it by offset and limit.";
    let room = PREVIEW_CHARS.saturating_sub(explore.chars().count());
    let mut stub: String = out.chars().take(room).collect();
    stub.push_str(explore);
    stub
}

/// The stored results of a session, oldest first.
pub(crate) fn list(
    account: &Account,
    who: &Identity,
    session: &str,
    tool: Option<&str>,
    limit: usize,
) -> Result<Vec<Metadata>> {
    let path = account.path(&folder(who, session));
    if disk::look(&path)?.is_none() {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for found in disk::list(&path)?.iter().filter(|found| found.is_folder) {
        // A crash can leave a folder without metadata; its message was never acknowledged.
        let Ok(text) = disk::read_text(&path.join(&found.name).join("metadata.json")) else { continue };
        match serde_json::from_str::<Metadata>(&text) {
            Ok(metadata) => all.push(metadata),
            Err(error) => tracing::warn!(%error, name = found.name, "the metadata of a tool result cannot be read"),
        }
    }
    all.retain(|metadata| tool.is_none_or(|tool| metadata.tool_name == tool));
    all.sort_by(|a, b| a.created_at.cmp(&b.created_at));
    all.truncate(limit);
    Ok(all)
}

/// The text and the metadata of a stored result.
pub(crate) fn load(account: &Account, who: &Identity, session: &str, id: &str) -> Result<(String, Metadata)> {
    let fits = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let missing = || ApiError::no_file(&folder(who, session).child(id).child("metadata.json").to_string());
    if !fits {
        return Err(missing());
    }
    let path = account.path(&folder(who, session).child(id));
    let metadata = disk::read_text(&path.join("metadata.json")).map_err(|_| missing())?;
    let output = disk::read_text(&path.join("output.txt")).map_err(|_| missing())?;
    Ok((output, serde_json::from_str(&metadata)?))
}

/// A range of a stored result.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Chunk {
    pub(crate) tool_result_id: String,
    pub(crate) content: String,
    pub(crate) offset: usize,
    pub(crate) limit: i64,
    pub(crate) offset_unit: &'static str,
    pub(crate) total_chars: usize,
    pub(crate) has_more: bool,
}

/// Reads a range of a stored result. A `limit` of -1 means everything.
pub(crate) fn read(id: &str, output: &str, offset: usize, limit: i64) -> Chunk {
    let total = output.chars().count();
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let content: String = output.chars().skip(offset).take(most).collect();
    let end = offset.saturating_add(content.chars().count());
    Chunk {
        tool_result_id: id.to_owned(),
        content,
        offset,
        limit,
        offset_unit: UNIT,
        total_chars: total,
        has_more: end < total,
    }
}

/// An occurrence of a text in a stored result.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Match {
    pub(crate) offset: usize,
    pub(crate) offset_unit: &'static str,
    pub(crate) snippet: String,
}

/// The occurrences of an exact text, in order, with the surrounding text.
pub(crate) fn search(output: &str, query: &str, limit: usize, context: usize) -> Vec<Match> {
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
        matches.push(Match { offset: counted, offset_unit: UNIT, snippet });
        counted += length;
        from += at + query.len();
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searching_is_exact_and_counts_characters() {
        let text = "aé error aé error";
        let found = search(text, "error", 10, 2);
        assert_eq!(found.iter().map(|m| m.offset).collect::<Vec<_>>(), [3, 12]);
        assert_eq!(found[0].snippet, "é error a");
        assert!(search(text, "Error", 10, 2).is_empty());
    }

    #[test]
    fn reading_goes_by_characters_and_says_whether_there_is_more() {
        let chunk = read("t", "äbcdef", 1, 3);
        assert_eq!((chunk.content.as_str(), chunk.has_more), ("bcd", true));
        assert!(!read("t", "abc", 0, -1).has_more);
        assert_eq!(read("t", "abc", 9, 5).content, "");
    }

    #[test]
    fn the_structure_of_json_is_told_by_its_fields() {
        assert_eq!(structure(r#"{"a": 1, "b": [1]}"#), ["a: number", "b: array"]);
        assert_eq!(structure(r#"[{"a": null}, 2]"#), ["array of 2 items", "[].a: null"]);
        assert!(structure("7").is_empty());
    }

    #[test]
    fn references_of_an_older_version_get_the_form_that_everything_prints() {
        let old = "viking://user/anna/sessions/s1/tool-results/tr_1";
        let line = format!(
            r#"{{"id":"m","role":"assistant","parts":[{{"type":"tool","tool_output":"ref: {old}","tool_output_ref":"{old}","tool_output_truncated":true,"tool_output_original_chars":1,"tool_output_preview_chars":1,"tool_output_sha256":"x","tool_output_storage_uri":"{old}","tool_output_group_id":"m","tool_output_group_original_chars":1,"tool_output_group_budget_chars":1}}]}}"#
        );
        let mut messages: Vec<Message> = crate::sessions::jsonl::parse(&line);
        rename_references(&mut messages);
        let tool = messages[0].tools().next().unwrap();
        assert_eq!(tool.tool_output, "ref: viking://session/s1/tool-results/tr_1");
        assert_eq!(tool.kept.as_ref().unwrap().reference, "viking://session/s1/tool-results/tr_1");
        assert_eq!(tool.kept.as_ref().unwrap().storage_uri, old);
    }

    #[test]
    fn kinds_are_told_apart() {
        assert_eq!(kind_of("{\"a\": 1}"), "json");
        assert_eq!(kind_of("a\tb\nc\td\ne\tf"), "table");
        assert_eq!(kind_of("2026-01-01 INFO x\n2026-01-01 ERROR y\n2026-01-01 INFO z"), "log");
        assert_eq!(kind_of("line 0 error code 0\nline 1"), "text");
    }
}
