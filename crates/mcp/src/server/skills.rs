//! Skills as prompts: folders with a `SKILL.md` whose front matter gives a name and a description. Read anew for each
//! list, so that a skill that is added or edited is there at once.

use super::shelf::{Asker, PromptSource};
use crate::RpcError;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use toolyard_engine::BoxFuture;

/// A skill's file is at most this long.
const MAX_SKILL_BYTES: u64 = 256 << 10;
/// Skills in all.
const MAX_SKILLS: usize = 2000;
/// A skill's name is at most this long.
const MAX_NAME: usize = 64;
/// A skill's description is cut here.
const MAX_DESCRIPTION: usize = 1024;
/// The one argument every skill takes; `$ARGUMENTS` in its text stands for it.
const ARGUMENT: &str = "arguments";

/// The skills in some folders.
#[derive(Default)]
pub struct Skills {
    folders: Mutex<Vec<(String, PathBuf)>>,
}

/// One skill.
#[derive(Debug, Clone, PartialEq)]
struct Skill {
    name: String,
    description: String,
    body: String,
    folder: PathBuf,
}

impl Skills {
    /// Folders of skills.
    pub fn new(folders: Vec<PathBuf>) -> Arc<Self> {
        let folders = folders.into_iter().map(|folder| (String::new(), folder)).collect();
        Arc::new(Self { folders: Mutex::new(folders) })
    }

    /// Adds a folder whose skills are called `<owner>__<name>`.
    pub fn add(&self, owner: &str, folder: PathBuf) {
        super::session::lock(&self.folders).push((owner.to_owned(), folder));
    }

    /// Removes an owner's folders.
    pub fn remove(&self, owner: &str) {
        super::session::lock(&self.folders).retain(|(name, _)| name != owner);
    }

    async fn all(&self) -> BTreeMap<String, Skill> {
        let folders = super::session::lock(&self.folders).clone();
        tokio::task::spawn_blocking(move || read_all(&folders)).await.unwrap_or_default()
    }
}

impl PromptSource for Skills {
    fn name(&self) -> &str {
        "skills"
    }

    fn list<'a>(&'a self, _: &'a Asker) -> BoxFuture<'a, Result<Vec<Value>, RpcError>> {
        Box::pin(async move {
            let prompt = |skill: Skill| {
                json!({
                    "name": skill.name, "title": skill.name.replace(['-', '_'], " "), "description": skill.description,
                    "arguments": [{"name": ARGUMENT, "description": "What to do, in your own words.", "required": false}],
                })
            };
            Ok(self.all().await.into_values().map(prompt).collect())
        })
    }

    fn get<'a>(
        &'a self,
        _: &'a Asker,
        name: &'a str,
        arguments: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<Map<String, Value>>, RpcError>> {
        Box::pin(async move {
            let Some(skill) = self.all().await.remove(name) else { return Ok(None) };
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
            let mut result = Map::new();
            result.insert("description".to_owned(), skill.description.into());
            let message = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
            result.insert("messages".to_owned(), message);
            Ok(Some(result))
        })
    }
}

fn read_all(folders: &[(String, PathBuf)]) -> BTreeMap<String, Skill> {
    let mut skills = BTreeMap::new();
    for (owner, folder) in folders {
        // A folder of skills, or a single one.
        let mut places = vec![folder.clone()];
        if let Ok(entries) = std::fs::read_dir(folder) {
            places.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        }
        places.sort();
        for place in places {
            let Some(mut skill) = read(&place) else { continue };
            if !owner.is_empty() {
                skill.name = format!("{owner}__{}", skill.name);
            }
            if skills.len() < MAX_SKILLS {
                // The first of a name stays: a later folder cannot take a name over.
                skills.entry(skill.name.clone()).or_insert(skill);
            }
        }
    }
    skills
}

fn read(folder: &Path) -> Option<Skill> {
    let file = folder.join("SKILL.md");
    let size = std::fs::metadata(&file).ok().filter(std::fs::Metadata::is_file)?.len();
    if size > MAX_SKILL_BYTES {
        tracing::warn!(file = %file.display(), "a skill longer than {MAX_SKILL_BYTES} bytes is left out");
        return None;
    }
    let text = std::fs::read_to_string(&file).ok()?;
    let fallback = folder.file_name()?.to_string_lossy().into_owned();
    Some(parse(&text, &fallback, folder))
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
}
