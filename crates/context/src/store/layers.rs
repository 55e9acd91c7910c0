//! L0 and L1: the abstract and the overview of every folder, stored as files in the folder with front matter and body.
//!
//! They are built from the folder's content on first use. A change deletes them in all parent folders, so that a
//! description never mentions removed content, even after a crash.

use crate::{
    error::Result,
    find::library::Library,
    store::{
        account::Account,
        digest,
        disk::{self, Durability},
        origin::Origin,
        uri::{Kind, StorePath},
    },
};
use std::path::PathBuf;

/// File name of the abstract.
pub(crate) const ABSTRACT: &str = ".abstract.md";
/// File name of the overview.
pub(crate) const OVERVIEW: &str = ".overview.md";
/// Maximum length of an abstract, in characters.
pub(crate) const MAX_ABSTRACT: usize = 256;
/// Maximum length of an overview, in characters.
pub(crate) const MAX_OVERVIEW: usize = 4000;
/// Maximum number of entries from which an overview is built.
const SAMPLED: usize = 64;

/// The purpose of a fixed folder.
fn purpose(place: &StorePath) -> Option<&'static str> {
    let names: Vec<&str> = place.names().iter().map(String::as_str).collect();
    Some(match names.as_slice() {
        [] => "Everything this account keeps: shared resources, and a folder for each user.",
        ["resources"] => "Documents and knowledge that all users of the account share.",
        ["agent"] => "What all agents of the account share.",
        ["agent", "skills"] => "Skills that every user of the account can call on.",
        ["user"] => "One folder for each user of the account.",
        ["user", _] => "A user's own memories, resources, skills, peers and sessions.",
        ["user", _, "memories"] => "What is remembered about the user: preferences, entities, events and cases.",
        ["user", _, "resources"] => "Documents that only this user sees.",
        ["user", _, "skills"] => "Skills of this user, one folder each.",
        ["user", _, "peers"] => "What is remembered about those the user works with, apart for each.",
        ["user", _, "sessions"] => "Conversations: live messages, archives and large tool results.",
        ["user", _, "privacy"] => "Settings that only this user sees.",
        _ => return None,
    })
}

/// The body of a description file, without the front matter.
pub(crate) fn body(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("---\n") else { return text.trim() };
    rest.split_once("\n---\n").map_or(rest, |(_, body)| body).trim()
}

/// Deletes the descriptions of all folders above a place and returns the folders that changed.
pub(crate) fn invalidate(account: &Account, place: &StorePath) -> Vec<PathBuf> {
    account.note_change(place);
    let mut changed = Vec::new();
    let mut at = place.parent();
    while let Some(folder) = at {
        if folder.is_root() || folder.kind() == Kind::Session {
            break;
        }
        let path = account.path(&folder);
        let abstracts = take_away(&path.join(ABSTRACT));
        if take_away(&path.join(OVERVIEW)) || abstracts {
            changed.push(path);
        }
        at = folder.parent();
    }
    changed
}

/// Deletes a file; returns whether it existed.
fn take_away(path: &std::path::Path) -> bool {
    match std::fs::remove_file(path) {
        Ok(()) => true,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => false,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the outdated description of a folder could not be deleted");
            false
        }
    }
}

/// A folder's abstract and overview.
pub(crate) struct Layers {
    pub(crate) abstract_: String,
    pub(crate) overview: String,
}

/// Reads the descriptions, or builds them.
pub(crate) fn of(account: &Account, place: &StorePath) -> Result<Layers> {
    if let Some(layers) = read(account, place) {
        return Ok(layers);
    }
    if place.is_root() || place.kind() == Kind::Session {
        // Sessions change with every message and are not searched by meaning, so they have no stored descriptions.
        let text = purpose(place).map_or_else(|| place.name().to_owned(), str::to_owned);
        return Ok(Layers { overview: format!("# {}\n\n{text}", place.name()), abstract_: text });
    }
    make(account, place, "write", None)
}

/// Reads the descriptions, if they exist.
fn read(account: &Account, place: &StorePath) -> Option<Layers> {
    let path = account.path(place);
    let abstract_ = disk::read_text(&path.join(ABSTRACT)).ok()?;
    let overview = disk::read_text(&path.join(OVERVIEW)).unwrap_or_else(|_| abstract_.clone());
    Some(Layers { abstract_: body(&abstract_).to_owned(), overview: body(&overview).to_owned() })
}

/// Builds the descriptions from the folder's content; `said` is a description provided by somebody.
pub(crate) fn make(account: &Account, place: &StorePath, trigger: &str, said: Option<&str>) -> Result<Layers> {
    let path = account.path(place);
    let origin = Origin::read(&path);
    // The description of `user` must not reveal which users exist.
    let is_users = place.names().len() == 1 && place.name() == "user";
    let mut seen = if is_users { Vec::new() } else { disk::list(&path)? };
    seen.retain(|found| !found.is_hidden());
    let mut entries = Vec::new();
    for found in seen.iter().take(SAMPLED) {
        let child = place.child(&found.name);
        let text = if found.is_folder {
            of(account, &child)?.abstract_
        } else {
            account.library.abstract_of(&child).unwrap_or_else(|| file_abstract(account, &child))
        };
        entries.push(digest::Entry { name: found.name.clone(), is_folder: found.is_folder, abstract_text: text });
    }
    let heading = if place.is_root() { "viking" } else { place.name() };
    let noted = origin.as_ref().and_then(|origin| origin.description.clone());
    let said = said.or(noted.as_deref()).or_else(|| purpose(place));
    let overview = digest::overview(heading, said, &entries, seen.len());
    let layers = Layers { abstract_: digest::abstract_of_overview(&overview), overview };
    write(account, place, &layers, trigger, (seen.len(), entries.len()), origin.as_ref());
    account.library.describe(place, &layers);
    Ok(layers)
}

fn file_abstract(account: &Account, place: &StorePath) -> String {
    let text = disk::read_text(&account.path(place)).unwrap_or_default();
    digest::abstract_of(place.name(), Library::readable(place, &text))
}

fn write(
    account: &Account,
    place: &StorePath,
    layers: &Layers,
    trigger: &str,
    (total, sampled): (usize, usize),
    origin: Option<&Origin>,
) {
    let source = origin.filter(|origin| !origin.uri.is_empty()).map_or_else(String::new, |origin| {
        format!("source:\n  kind: {}\n  uri: {}\n", origin.kind.as_str(), digest::yaml_text(&origin.uri))
    });
    let head = format!(
        "---\ndirectory: {place}/\n{source}generated_by:\n  component: Extractor\n  trigger: {trigger}\nfreshness:\n  \
         total_entries: {total}\n  sampled_entries: {sampled}\n  unsampled_entries: {}\n  pending_child_changes: 0\n---\n\n",
        total.saturating_sub(sampled)
    );
    for (name, body) in [(OVERVIEW, &layers.overview), (ABSTRACT, &layers.abstract_)] {
        let path = account.path(place).join(name);
        // The description is derived from other files and can be rebuilt, so a failed write is not an error.
        if let Err(error) = disk::write(&path, format!("{head}{body}\n").as_bytes(), Durability::Derived) {
            tracing::debug!(%error, %place, "the description of a folder could not be stored");
        }
    }
}
