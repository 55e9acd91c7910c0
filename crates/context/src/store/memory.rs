//! Memory files: readable Markdown, followed by one comment with metadata.

use crate::{
    error::Result,
    store::{account::Account, disk, uri::StorePath},
};
use serde::{Deserialize, Serialize};
use toolyard_recall::{extract::Memory, index::Role};

/// Start of the metadata comment.
const OPEN: &str = "<!-- MEMORY_FIELDS";
const CLOSE: &str = "-->";

/// Metadata of a memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    /// The category.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Name of the speaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// The speaker's role, so that "I" in a question finds what the user said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// When it was said or when it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The source: the archive of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// When the memory was first written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub created_at: String,
    /// When the memory was last written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub updated_at: String,
    /// Somebody asked to remember it: later extractions never change it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stated: bool,
    /// Number of repetitions.
    #[serde(skip_serializing_if = "is_zero")]
    pub mentions: u32,
    /// The extracted memory, used to match repetitions and corrections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Fields {
    /// Splits a memory file into text and metadata.
    pub(crate) fn split(text: &str) -> (&str, Self) {
        let Some(at) = text.rfind(OPEN) else { return (text, Self::default()) };
        let comment = text[at + OPEN.len()..].trim();
        let Some(json) = comment.strip_suffix(CLOSE) else { return (text, Self::default()) };
        let fields = serde_json::from_str(json.trim()).unwrap_or_else(|error| {
            tracing::warn!(%error, "the metadata of a memory cannot be read; its text is used without it");
            Self::default()
        });
        (text[..at].trim_end(), fields)
    }

    /// The whole file. A text that looks like the metadata comment is escaped first.
    pub(crate) fn join(&self, text: &str) -> Result<String> {
        let text = text.replace(OPEN, "<!- MEMORY_FIELDS");
        // `-->` would end the comment; in JSON it can only occur inside a string.
        let json = serde_json::to_string(self)?.replace("-->", "--\\u003e");
        Ok(format!("{}\n\n{OPEN} {json} {CLOSE}\n", text.trim_end()))
    }

    /// The memory's time in milliseconds.
    pub(crate) fn time_ms(&self) -> Option<i64> {
        let time = self.time.as_deref().or((!self.created_at.is_empty()).then_some(self.created_at.as_str()))?;
        parse_time(time)
    }
}

/// `memories/profile.md`, which clients of the original server read: the content of the files in `profile/`,
/// concatenated.
pub(crate) fn profile(account: &Account, place: &StorePath) -> Result<Option<String>> {
    let names: Vec<&str> = place.names().iter().map(String::as_str).collect();
    if !matches!(
        names.as_slice(),
        ["user", _, "memories", "profile.md"] | ["user", _, "peers", _, "memories", "profile.md"]
    ) {
        return Ok(None);
    }
    let Some(folder) = place.parent().map(|memories| account.path(&memories.child("profile"))) else { return Ok(None) };
    if disk::look(&folder)?.is_none() {
        return Ok(None);
    }
    let files = disk::list(&folder)?;
    let texts = files.iter().filter(|file| !file.is_folder && !file.is_hidden());
    let contents: Vec<String> = texts
        .filter_map(|file| disk::read_text(&folder.join(&file.name)).ok())
        .map(|text| Fields::split(&text).0.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect();
    Ok((!contents.is_empty()).then(|| contents.join("\n\n")))
}

/// Parses a time as clients write it: with or without an offset, or a date alone.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        return Some(stamp.as_millisecond());
    }
    let day =
        text.parse::<jiff::civil::DateTime>().or_else(|_| text.parse::<jiff::civil::Date>().map(Into::into)).ok()?;
    day.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|z| z.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_reads_back_as_it_was_written_whatever_it_says() {
        let fields = Fields { category: "events".into(), speaker: Some("x --> y".into()), ..Fields::default() };
        for text in ["plain", "a <!-- MEMORY_FIELDS {} --> b", "# Title\n\nbody", ""] {
            let file = fields.join(text).unwrap();
            let (read, noted) = Fields::split(&file);
            assert_eq!(read, text.replace(OPEN, "<!- MEMORY_FIELDS"));
            assert_eq!(noted, fields);
        }
        assert_eq!(Fields::split("no comment").0, "no comment");
    }

    #[test]
    fn times_are_read_in_the_forms_clients_use() {
        for text in ["2026-06-05T10:00:00.000Z", "2026-06-05T10:00:00+00:00", "2026-06-05T10:00:00", "2026-06-05"] {
            assert!(parse_time(text).is_some(), "{text}");
        }
        assert!(parse_time("soon").is_none());
    }
}
