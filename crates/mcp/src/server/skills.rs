//! Skills as prompts: folders with a `SKILL.md` whose front matter has a name and a description. They are read for each
//! list, so that a new or edited skill is available at once.
//!
//! A `SKILL.md` is opened beneath its folder. In a plugin's package no symbolic link is followed; in a folder that the
//! configuration names, links inside that folder are followed.

use super::sources::{ListedPrompt, PromptSource, Requester};
use crate::{
    RpcError,
    jsonrpc::INTERNAL_ERROR,
    wire::{
        Arguments, Item,
        answers::{Prompt, PromptArgument, PromptMessage, PromptResult, TextContent},
    },
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use toolyard_beneath::{Folder, Kind, Links};
use toolyard_engine::BoxFuture;

/// A skill's file is at most this long.
const MAX_SKILL_BYTES: u64 = 256 << 10;
/// Skills in all.
const MAX_SKILLS: usize = 2000;
/// A skill's name is at most this long.
const MAX_NAME: usize = 64;
/// A skill's description is cut here.
const MAX_DESCRIPTION: usize = 1024;
/// The one argument of every skill; it replaces `$ARGUMENTS` in the text.
const ARGUMENT: &str = "arguments";

/// The skills in some folders.
#[derive(Default)]
pub struct Skills {
    sources: Mutex<Vec<SkillSource>>,
}

/// A folder of skills, or of a single one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SkillSource {
    /// The plugin it belongs to; `None` for a folder that the configuration names.
    owner: Option<String>,
    /// The folder that no file may lead out of: the plugin's package, or the configured folder.
    root: PathBuf,
    /// The folder of skills, relative to `root`.
    below: String,
}

/// One skill.
#[derive(Debug, Clone, PartialEq)]
struct Skill {
    name: String,
    description: String,
    body: String,
    folder: PathBuf,
}

impl Skill {
    /// The skill as an entry in a list of prompts.
    fn listed(self) -> ListedPrompt {
        let description = "What to do, in your own words.";
        Item::Own(Prompt {
            title: self.name.replace(['-', '_'], " "),
            name: self.name,
            description: self.description,
            arguments: vec![PromptArgument { name: ARGUMENT, description, required: false }],
        })
    }
}

impl Skills {
    /// Folders of skills that the configuration names.
    pub fn new(folders: Vec<PathBuf>) -> Arc<Self> {
        let source = |root| SkillSource { owner: None, root, below: ".".to_owned() };
        Arc::new(Self { sources: Mutex::new(folders.into_iter().map(source).collect()) })
    }

    /// Adds a folder of a plugin's package, relative to the package. Its skills are called `<owner>__<name>`.
    pub fn add(&self, owner: &str, package: &Path, below: &str) {
        let source = SkillSource { owner: Some(owner.to_owned()), root: package.to_owned(), below: below.to_owned() };
        super::session::lock(&self.sources).push(source);
    }

    /// Removes an owner's folders.
    pub fn remove(&self, owner: &str) {
        super::session::lock(&self.sources).retain(|source| source.owner.as_deref() != Some(owner));
    }

    async fn all(&self) -> Result<BTreeMap<String, Skill>, RpcError> {
        let sources = super::session::lock(&self.sources).clone();
        let read = tokio::task::spawn_blocking(move || read_all(&sources)).await;
        read.map_err(|error| RpcError::new(INTERNAL_ERROR, format!("the skills could not be read: {error}")))
    }
}

impl PromptSource for Skills {
    fn name(&self) -> &str {
        "skills"
    }

    fn list<'a>(&'a self, _: &'a Requester) -> BoxFuture<'a, Result<Vec<ListedPrompt>, RpcError>> {
        Box::pin(async move { Ok(self.all().await?.into_values().map(Skill::listed).collect()) })
    }

    fn get<'a>(
        &'a self,
        _: &'a Requester,
        name: &'a str,
        arguments: &'a Arguments,
    ) -> BoxFuture<'a, Result<Option<Item<PromptResult>>, RpcError>> {
        Box::pin(async move {
            let Some(skill) = self.all().await?.remove(name) else { return Ok(None) };
            let said = match arguments.get(ARGUMENT) {
                None => "",
                Some(Value::String(text)) => text,
                Some(_) => return Err(RpcError::params(format!("{ARGUMENT} must be a string"))),
            };
            let text = if skill.body.contains("$ARGUMENTS") {
                skill.body.replace("$ARGUMENTS", said)
            } else if said.is_empty() {
                skill.body
            } else {
                format!("{}\n\n{said}", skill.body.trim_end())
            };
            let text = format!("{text}\n\nThis skill's folder: {}", skill.folder.display());
            let messages = vec![PromptMessage { role: "user", content: TextContent { text } }];
            Ok(Some(Item::Own(PromptResult { description: skill.description, messages })))
        })
    }
}

fn read_all(sources: &[SkillSource]) -> BTreeMap<String, Skill> {
    let mut skills = BTreeMap::new();
    for source in sources {
        for mut skill in source.read() {
            if let Some(owner) = &source.owner {
                skill.name = format!("{owner}__{}", skill.name);
            }
            if skills.len() < MAX_SKILLS {
                // The first skill with a name is used: a later folder cannot replace it.
                skills.entry(skill.name.clone()).or_insert(skill);
            }
        }
    }
    skills
}

impl SkillSource {
    /// The skill of the folder itself, and those of the folders in it.
    fn read(&self) -> Vec<Skill> {
        let links = if self.owner.is_some() { Links::Refuse } else { Links::FollowInside };
        let place = match self.below.trim_start_matches("./") {
            "" | "." => self.root.clone(),
            below => self.root.join(below),
        };
        let Ok(root) = Folder::open(&self.root) else { return Vec::new() };
        let folder = match root.folder(&self.below, links) {
            Ok(folder) => folder,
            Err(errno) => {
                let why = toolyard_beneath::explained(errno);
                tracing::warn!(folder = %place.display(), %why, "a folder of skills is left out");
                return Vec::new();
            }
        };
        let entries = folder.entries().unwrap_or_else(|error| {
            tracing::warn!(folder = %place.display(), %error, "a folder of skills could not be listed");
            Vec::new()
        });
        let mut names: Vec<String> = entries.into_iter().filter_map(skill_folder).collect();
        names.sort();
        let own = read(&folder, "SKILL.md", links, &place);
        let inner =
            names.iter().filter_map(|name| read(&folder, &format!("{name}/SKILL.md"), links, &place.join(name)));
        own.into_iter().chain(inner).collect()
    }
}

/// The name of an entry that may be the folder of a skill.
fn skill_folder(entry: toolyard_beneath::Entry) -> Option<String> {
    matches!(entry.kind, Kind::Folder | Kind::Link).then(|| entry.name.into_string().ok()).flatten()
}

/// Reads the skill at a path beneath `folder`; `place` is the skill's own folder, for people.
fn read(folder: &Folder, path: &str, links: Links, place: &Path) -> Option<Skill> {
    let text = match folder.read(path, links, MAX_SKILL_BYTES) {
        Ok(bytes) => String::from_utf8(bytes).ok()?,
        Err(error) => {
            if !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) {
                tracing::warn!(folder = %place.display(), why = %error, "a skill is left out");
            }
            return None;
        }
    };
    let fallback = place.file_name()?.to_string_lossy().into_owned();
    Some(parse(&text, &fallback, place))
}

fn parse(text: &str, fallback: &str, folder: &Path) -> Skill {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let (front, body) = match text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---")) {
        Some((front, body)) => (front, body.split_once('\n').map_or("", |(_, body)| body)),
        None => ("", text.as_str()),
    };
    let field = |key: &str| value_of(front, key).filter(|value| !value.is_empty());
    let first_line = || body.lines().map(|l| l.trim_start_matches('#').trim()).find(|l| !l.is_empty());
    let name = field("name").unwrap_or_else(|| fallback.to_owned());
    let description = field("description").or_else(|| first_line().map(str::to_owned));
    Skill {
        name: plain(&name),
        description: description.unwrap_or_else(|| name.clone()).chars().take(MAX_DESCRIPTION).collect(),
        body: body.trim().to_owned(),
        folder: folder.to_owned(),
    }
}

/// The value of a top-level key: plain, quoted, or folded over indented lines.
fn value_of(front: &str, key: &str) -> Option<String> {
    let mut lines = front.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((found, value)) = line.split_once(':') else { continue };
        if found != key {
            continue;
        }
        let value = value.trim();
        let mut parts: Vec<&str> =
            if matches!(value, "" | ">" | ">-" | ">+" | "|" | "|-" | "|+") { Vec::new() } else { vec![value] };
        while let Some(more) = lines.next_if(|next| next.starts_with([' ', '\t'])) {
            parts.push(more.trim());
        }
        let joined = parts.join(" ");
        let unquoted = joined
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .map(|inside| inside.replace("\\\"", "\""))
            .or_else(|| {
                let inside = joined.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''))?;
                Some(inside.replace("''", "'"))
            });
        return Some(unquoted.unwrap_or(joined));
    }
    None
}

fn plain(name: &str) -> String {
    let spelled = name.trim().chars().take(MAX_NAME);
    spelled.map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_gives_name_and_description() {
        let skill = parse(
            "---\nname: \"weekly review\"\ndescription: >-\n  Goes through\n  the week.\nlicense: x\n---\n# Review\n\nDo it.",
            "folder",
            Path::new("/s/x"),
        );
        assert_eq!((skill.name.as_str(), skill.description.as_str()), ("weekly-review", "Goes through the week."));
        assert_eq!(skill.body, "# Review\n\nDo it.");
        let bare = parse("# Just text\n\nmore", "my-skill", Path::new("/s/x"));
        assert_eq!((bare.name.as_str(), bare.description.as_str()), ("my-skill", "Just text"));
    }

    /// A package whose `SKILL.md`, skill folder or whole folder of skills is a link to a file of the host.
    #[test]
    fn a_skill_of_a_package_is_never_read_through_a_link() {
        use std::os::unix::fs::symlink;
        let host = tempfile::tempdir().unwrap();
        std::fs::write(host.path().join("SKILL.md"), "---\nname: stolen\n---\nsecret").unwrap();
        let package = tempfile::tempdir().unwrap();
        let skills = package.path().join("skills");
        for name in ["good", "file-link", "hard"] {
            std::fs::create_dir_all(skills.join(name)).unwrap();
        }
        std::fs::write(skills.join("good/SKILL.md"), "# Good").unwrap();
        symlink(host.path().join("SKILL.md"), skills.join("file-link/SKILL.md")).unwrap();
        symlink(host.path(), skills.join("folder-link")).unwrap();
        symlink("good", skills.join("inner-link")).unwrap();
        symlink(host.path(), package.path().join("linked-skills")).unwrap();
        symlink(host.path().join("SKILL.md"), package.path().join("SKILL.md")).unwrap();
        let source = |owner: Option<&str>, below: &str| SkillSource {
            owner: owner.map(str::to_owned),
            root: package.path().to_owned(),
            below: below.to_owned(),
        };
        for below in ["skills", "./skills", "linked-skills", ".", "../x", "skills/../../x"] {
            let names: Vec<String> = read_all(&[source(Some("p"), below)]).into_keys().collect();
            let expected: &[&str] = if below.trim_start_matches("./") == "skills" { &["p__good"] } else { &[] };
            assert_eq!(names, expected, "{below}");
        }
        // A person's own folder: links inside it are followed, links out of it are not.
        let own = SkillSource { owner: None, root: skills.clone(), below: ".".to_owned() };
        let read: Vec<PathBuf> = own.read().into_iter().map(|skill| skill.folder).collect();
        assert_eq!(read, [skills.join("good"), skills.join("inner-link")]);
    }
}
