//! The context of a session for a model: one archive in full, or a summary of the history with the live messages.

use crate::{
    error::{ApiError, Result},
    sessions::{Message, archives, check_id, externalise, jsonl, number, place, tokens, unknown},
    store::{
        account::{Account, lock},
        disk,
        layers::{self, ABSTRACT, OVERVIEW},
        uri::Identity,
    },
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// The folder of an archive, if it exists.
pub(crate) fn archive_folder(account: &Account, who: &Identity, id: &str, archive: &str) -> Result<PathBuf> {
    check_id(id)?;
    let missing = || ApiError::none_such(format!("Archive {archive} not found"));
    let fits = archive.len() < 40
        && archive.strip_prefix("archive_").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if !fits {
        return Err(missing());
    }
    let folder = account.path(&place(who, id)).join("history").join(archive);
    if disk::look(&folder)?.is_some_and(|found| found.is_folder) { Ok(folder) } else { Err(missing()) }
}

/// A description stored with an archive; empty while there is none.
fn description(folder: &Path, name: &str) -> Result<String> {
    let text = disk::read_if_there(&folder.join(name))?;
    Ok(text.map(|text| layers::body(&text).to_owned()).unwrap_or_default())
}

/// An archive of a session.
#[derive(Debug, Clone, Serialize)]
pub struct Archive {
    /// The archive's name.
    pub archive_id: String,
    /// The abstract; empty while the archive is being summarised.
    #[serde(rename = "abstract")]
    pub abstract_: String,
    /// The overview; empty while the archive is being summarised.
    pub overview: String,
    /// The original messages.
    pub messages: Vec<Message>,
}

/// Reads an archive, even while it is still being summarised.
pub fn archive(account: &Account, who: &Identity, id: &str, archive: &str) -> Result<Archive> {
    let folder = archive_folder(account, who, id, archive)?;
    let mut messages = jsonl::parse(&disk::read_text(&folder.join("messages.jsonl"))?);
    externalise::rename_references(&mut messages);
    Ok(Archive {
        archive_id: archive.to_owned(),
        abstract_: description(&folder, ABSTRACT)?,
        overview: description(&folder, OVERVIEW)?,
        messages,
    })
}

/// The tool call ids of each message. A call and its result may be in different messages; both are kept or both are
/// dropped.
fn pairs(messages: &[Message]) -> Vec<Vec<String>> {
    let ids =
        |message: &Message| message.tools().map(|tool| tool.tool_id.clone()).filter(|id| !id.is_empty()).collect();
    messages.iter().map(ids).collect()
}

/// Index of the first message that is kept so that the rest fits into the budget, without separating a tool call from
/// its result.
fn first_kept(messages: &[Message], budget: u64) -> usize {
    let mut used = 0;
    let mut first = messages.len();
    for (at, message) in messages.iter().enumerate().rev() {
        used += message.tokens();
        if used > budget {
            break;
        }
        first = at;
    }
    let ids = pairs(messages);
    while first < messages.len() {
        let dropped: HashSet<&String> = ids[..first].iter().flatten().collect();
        if first == 0 || !ids[first..].iter().flatten().any(|id| dropped.contains(id)) {
            break;
        }
        // The last kept message that shares an id with a dropped one is dropped too, with all messages before it.
        let last = (first..messages.len()).rev().find(|at| ids[*at].iter().any(|id| dropped.contains(id)));
        first = last.map_or(messages.len(), |at| at + 1);
    }
    first
}

/// The abstract of an archive.
#[derive(Debug, Clone, Serialize)]
pub struct ArchiveAbstract {
    /// The archive's name.
    pub archive_id: String,
    /// Its abstract.
    #[serde(rename = "abstract")]
    pub abstract_: String,
}

/// How much of a session a context contains.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextStats {
    /// Total number of archives.
    pub total_archives: usize,
    /// Number of archives described in the context.
    pub included_archives: usize,
    /// Number of archives left out of the context.
    pub dropped_archives: usize,
    /// Number of archives that could not be summarised.
    pub failed_archives: usize,
    /// Tokens of the messages.
    pub active_tokens: u64,
    /// Tokens of the archive descriptions.
    pub archive_tokens: u64,
}

/// The context of a session for a model.
#[derive(Debug, Clone, Serialize)]
pub struct Context {
    /// The overview of the newest archive.
    pub latest_archive_overview: String,
    /// The abstracts of earlier archives, oldest first.
    pub pre_archive_abstracts: Vec<ArchiveAbstract>,
    /// The live messages that fit into the budget.
    pub messages: Vec<Message>,
    /// Estimated tokens of the whole context.
    #[serde(rename = "estimatedTokens")]
    pub estimated_tokens: u64,
    /// How much of the session the context contains.
    pub stats: ContextStats,
}

/// Builds the context within a token budget: the overview of the newest archive, abstracts of earlier ones, and live
/// messages, with the newest preferred.
pub fn context(account: &Account, who: &Identity, id: &str, budget: u64) -> Result<Context> {
    let session = account.sessions.open(account, who, id)?;
    let session = lock(&session);
    if !session.exists {
        return Err(unknown(id));
    }
    let mut names = archives(account, who, id)?;
    names.retain(|name| number(name) > session.meta.reset_after);
    let first = first_kept(&session.messages, budget);
    let messages = &session.messages[first..];
    let active: u64 = messages.iter().map(Message::tokens).sum();
    let mut left = budget.saturating_sub(active);
    let history = account.path(&place(who, id)).join("history");
    let (mut overview, mut abstracts, mut included) = (String::new(), Vec::new(), 0);
    let mut archive_tokens = 0;
    for (back, name) in names.iter().rev().enumerate() {
        let text = description(&history.join(name), if back == 0 { OVERVIEW } else { ABSTRACT })?;
        let cost = tokens(&text).ceil() as u64;
        if cost > left {
            break;
        }
        if text.is_empty() {
            continue;
        }
        left -= cost;
        archive_tokens += cost;
        included += 1;
        if back == 0 {
            overview = text;
        } else {
            abstracts.push(ArchiveAbstract { archive_id: name.clone(), abstract_: text });
        }
    }
    abstracts.reverse();
    Ok(Context {
        latest_archive_overview: overview,
        pre_archive_abstracts: abstracts,
        messages: messages.to_vec(),
        estimated_tokens: active + archive_tokens,
        stats: ContextStats {
            total_archives: names.len(),
            included_archives: included,
            dropped_archives: names.len() - included,
            failed_archives: names.iter().filter(|n| history.join(n).join(".failed.json").exists()).count(),
            active_tokens: active,
            archive_tokens,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::{Part, message::ToolPart};

    fn message(part: Part) -> Message {
        Message { parts: vec![part], ..Message::default() }
    }
    fn text(n: usize) -> Message {
        message(Part::text("x".repeat(n)))
    }
    fn tool(id: &str, n: usize) -> Message {
        let tool = ToolPart { tool_id: id.to_owned(), tool_output: "x".repeat(n), ..ToolPart::default() };
        message(Part::Tool(Box::new(tool)))
    }

    #[test]
    fn the_oldest_messages_go_first_and_calls_stay_with_their_results() {
        let messages = [text(400), text(400), text(400)];
        assert_eq!(first_kept(&messages, 250), 1);
        assert_eq!(first_kept(&messages, 10_000), 0);
        assert_eq!(first_kept(&messages, 10), 3);
        let torn = [text(400), tool("a", 400), tool("a", 400), text(400)];
        assert_eq!(first_kept(&torn, 200), 3, "the result goes with its call");
        assert_eq!(first_kept(&torn, 300), 1);
    }
}
