//! Prepares a file for the index: its passages, and the text shown in a result.

use crate::store::{
    digest,
    memory::Fields,
    uri::{Kind, StorePath},
};
use toolyard_recall::index::{self, Category, Document};

/// Longer files are split into passages.
const MAX_PASSAGE: usize = 2400;
/// Maximum number of indexed passages of one file.
const MAX_PASSAGES: usize = 512;
/// Separates a file's URI from the number of a passage; no file name contains it.
pub(crate) const PASSAGE: char = '\u{1}';

#[derive(Default)]
pub(crate) struct IndexedText {
    pub(crate) abstract_text: String,
    /// Length of the memory's own text; the rest records who said it and when.
    pub(crate) own: usize,
    pub(crate) passages: usize,
}

pub(crate) fn owner(place: &StorePath) -> String {
    match place.names() {
        [scope, user, folder, peer, ..] if scope == "user" && folder == "peers" => format!("peer:{user}/{peer}"),
        [scope, user, ..] if scope == "user" => format!("user:{user}"),
        _ => "shared".to_owned(),
    }
}

pub(crate) fn index_kind(kind: Kind) -> index::Kind {
    match kind {
        Kind::Memory => index::Kind::Memory,
        Kind::Skill => index::Kind::Skill,
        Kind::Resource => index::Kind::Resource,
        Kind::Session => index::Kind::Turn,
    }
}

/// A file prepared for indexing, without holding a lock.
pub(crate) struct PreparedFile {
    pub(crate) documents: Vec<Document>,
    pub(crate) known: IndexedText,
    /// The labels that a skill declares. Other files declare none.
    pub(crate) labels: Option<Vec<String>>,
}

impl PreparedFile {
    pub(crate) fn from(place: &StorePath, text: &str) -> Self {
        let uri = place.to_string();
        let (readable, fields) = match place.kind() {
            Kind::Memory => Fields::split(text),
            _ => (text, Fields::default()),
        };
        let abstract_text = digest::abstract_of(place.name(), readable);
        let own = fields
            .memory
            .as_ref()
            .filter(|memory| abstract_text.starts_with(&memory.text))
            .map_or(abstract_text.len(), |m| m.text.len());
        // The notes about speaker and time are left out, because they are separate fields.
        let readable = fields.memory.as_ref().map_or(readable, |memory| memory.text.as_str());
        let scope = place.parent().map(|p| p.to_string()).unwrap_or_default();
        let base = Document {
            kind: index_kind(place.kind()),
            category: place.category().and_then(Category::of_name),
            owner: owner(place),
            scope,
            title: title(place, readable),
            also: place.names().iter().rev().nth(1).map(|name| name.replace(['_', '-'], " ")).unwrap_or_default(),
            speaker: fields.speaker.clone(),
            // Files of earlier versions store the role only in the extracted memory.
            role: fields.role.or(fields.memory.as_ref().and_then(|memory| memory.role)),
            time_ms: fields.time_ms(),
            level: index::LEAF,
            ..Document::default()
        };
        let passages = passages(readable);
        let group = (passages.len() > 1).then(|| uri.clone());
        let documents: Vec<Document> = passages
            .into_iter()
            .enumerate()
            .map(|(at, passage)| Document {
                id: if at == 0 { uri.clone() } else { format!("{uri}{PASSAGE}{at}") },
                text: passage.to_owned(),
                group: group.clone(),
                position: at as u64,
                ..base.clone()
            })
            .collect();
        let labels = (place.kind() == Kind::Skill && place.name() == "SKILL.md").then(|| digest::tags(readable));
        Self { known: IndexedText { abstract_text, own, passages: documents.len() }, documents, labels }
    }
}

/// A file's first heading with its name, or the name in words.
fn title(place: &StorePath, text: &str) -> String {
    let heading = text.lines().take(40).find_map(|line| line.strip_prefix("# ")).map(str::trim);
    let name = place.name().rsplit_once('.').map_or(place.name(), |(stem, _)| stem).replace(['_', '-'], " ");
    match heading {
        Some(heading) if !heading.is_empty() => format!("{heading} {name}"),
        _ => name,
    }
}

/// Splits a long text between paragraphs.
fn passages(text: &str) -> Vec<&str> {
    if text.len() <= MAX_PASSAGE {
        return vec![text];
    }
    let mut out = Vec::new();
    let mut rest = text;
    while rest.len() > MAX_PASSAGE && out.len() + 1 < MAX_PASSAGES {
        let mut end = MAX_PASSAGE;
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let window = &rest[..end];
        let cut = ["\n\n", "\n", ". ", " "]
            .iter()
            .find_map(|mark| window.rfind(mark).filter(|at| *at > MAX_PASSAGE / 3).map(|at| at + mark.len()))
            .unwrap_or(end);
        out.push(&rest[..cut]);
        rest = &rest[cut..];
    }
    if !rest.trim().is_empty() {
        out.push(rest);
    }
    out
}
