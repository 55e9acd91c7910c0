//! Memory files: Markdown that a person can read, then one comment with what is known about it.

use crate::{
    error::Result,
    store::{account::Account, disk, uri::Place},
};
use serde::{Deserialize, Serialize};
use toolyard_recall::{extract::Memory, index::Role};

/// How the comment begins.
const OPEN: &str = "<!-- MEMORY_FIELDS";
const CLOSE: &str = "-->";

/// What is noted about a memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    /// The kind of memory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Who said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// Which part they had in the conversation, so that "I" in a question finds what the user said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// When it was said or happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Where it comes from: a session's archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// When it was first written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub created_at: String,
    /// When it was last written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub updated_at: String,
    /// Somebody called it a memory: it stays as it is, whatever is extracted later.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stated: bool,
    /// How often it was said again.
    #[serde(skip_serializing_if = "is_zero")]
    pub mentions: u32,
    /// What was extracted, so that repetitions and corrections find it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Fields {
    /// A memory file's text, and what is noted in it.
    pub(crate) fn split(text: &str) -> (&str, Self) {
        let Some(at) = text.rfind(OPEN) else { return (text, Self::default()) };
        let comment = text[at + OPEN.len()..].trim();
        let Some(json) = comment.strip_suffix(CLOSE) else { return (text, Self::default()) };
        let fields = serde_json::from_str(json.trim()).unwrap_or_else(|error| {
            tracing::warn!(%error, "what is noted about a memory cannot be read; its text can");
            Self::default()
        });
        (text[..at].trim_end(), fields)
    }

    /// The whole file. What looks like our comment in the text is broken up first.
    pub(crate) fn join(&self, text: &str) -> Result<String> {
        let text = text.replace(OPEN, "<!- MEMORY_FIELDS");
        // `-->` would end the comment early; in JSON it can only stand inside a string.
        let json = serde_json::to_string(self)?.replace("-->", "--\\u003e");
        Ok(format!("{}\n\n{OPEN} {json} {CLOSE}\n", text.trim_end()))
    }

    /// Its time in milliseconds.
    pub(crate) fn time_ms(&self) -> Option<i64> {
        let time = self.time.as_deref().or((!self.created_at.is_empty()).then_some(self.created_at.as_str()))?;
        parse_time(time)
    }
}

/// `memories/profile.md`, which clients of the original read: what the files in `profile/` say, one after the other.
pub(crate) fn profile(account: &Account, place: &Place) -> Result<Option<String>> {
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
    let told: Vec<String> = texts
        .filter_map(|file| disk::read_text(&folder.join(&file.name)).ok())
        .map(|text| Fields::split(&text).0.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect();
    Ok((!told.is_empty()).then(|| told.join("\n\n")))
}

/// A time as clients write it: with or without a zone, or a day alone.
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
