//! Skills: each is a folder with a SKILL.md, added as text, as a file or folder, or from the description of an MCP
//! tool.

use crate::{
    error::{ApiError, Result},
    store::{
        account::Account,
        digest,
        disk::{self, Durability},
        fs,
        origin::{self, Origin},
        uri::{Identity, StorePath},
    },
};
use serde::Serialize;
use std::{io, path::Path};
use toolyard_beneath::{Folder, Kind, Links};

/// Maximum length of a skill's name, in characters.
const MAX_NAME_CHARS: usize = 64;
/// Maximum length of a description that is taken from the text of a skill, in characters.
const MAX_DESCRIPTION_CHARS: usize = 256;
/// Maximum number of files besides SKILL.md.
const MAX_FILES: usize = 500;
/// Maximum size of one file, in bytes.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// A parsed skill.
struct Skill {
    name: String,
    text: String,
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::argument(message)
}

/// Parses a SKILL.md.
fn from_text(text: &str) -> Result<Skill> {
    let (front, _) = digest::front_matter(text.trim_start_matches('\u{feff}'));
    let Some(front) = front else { return Err(bad("SKILL.md must have YAML frontmatter")) };
    let name =
        digest::field(front, "name").filter(|n| !n.is_empty()).ok_or_else(|| bad("Skill must have 'name' field"))?;
    digest::field(front, "description")
        .filter(|d| !d.is_empty())
        .ok_or_else(|| bad("Skill must have 'description' field"))?;
    check_name(&name)?;
    Ok(Skill { name, text: text.to_owned() })
}

/// Parses a SKILL.md or plain Markdown: the first heading becomes the name, the first paragraph the description.
fn from_markdown(text: &str) -> Result<Skill> {
    let text = text.trim_start_matches('\u{feff}');
    let heading = text.lines().find_map(|line| line.strip_prefix("# ")).map(str::trim).filter(|h| !h.is_empty());
    let Some(heading) = heading.filter(|_| digest::front_matter(text).0.is_none()) else { return from_text(text) };
    let words = heading.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let name: String = words.collect::<Vec<_>>().join("-").to_lowercase().chars().take(MAX_NAME_CHARS).collect();
    let name = name.trim_end_matches('-').to_owned();
    check_name(&name)?;
    let after = text.split_once(heading).map_or("", |(_, after)| after);
    let paragraph = after.split("\n\n").map(str::trim).find(|part| !part.is_empty() && !part.starts_with('#'));
    let description = digest::clip(&digest::collapse(paragraph.unwrap_or(heading)), MAX_DESCRIPTION_CHARS);
    let front = format!("---\nname: {name}\ndescription: {}\n---\n\n", digest::yaml_text(&description));
    Ok(Skill { name, text: format!("{front}{}", text.trim_start()) })
}

fn check_name(name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && !name.starts_with(['.', '-'])
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if fits {
        Ok(())
    } else {
        Err(bad(format!("Invalid skill name: use letters, digits, '-', '_' and '.', at most {MAX_NAME_CHARS}")))
    }
}

/// Converts `camelCase` and `snake_case` to `kebab-case`.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    let mut before_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && before_lower {
            out.push('-');
        }
        before_lower = c.is_lowercase() || c.is_numeric();
        out.extend(if c == '_' || c == ' ' { vec!['-'] } else { c.to_lowercase().collect() });
    }
    out
}

/// Skill data in a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SkillData {
    /// The text of a SKILL.md with front matter.
    Text(String),
    /// The text of a SKILL.md, or plain Markdown.
    Markdown(String),
    /// Name, description and text; the text may be empty.
    Described { name: String, description: String, content: String },
    /// An MCP tool.
    Tool { name: String, description: String, parameters: Vec<Parameter> },
}

/// A parameter of an MCP tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) required: bool,
    pub(crate) description: Option<String>,
}

impl SkillData {
    fn skill(&self) -> Result<Skill> {
        let (name, description) = match self {
            Self::Text(text) => return from_text(text),
            Self::Markdown(text) => return from_markdown(text),
            Self::Described { name, description, .. } | Self::Tool { name, description, .. } => (name, description),
        };
        if name.is_empty() {
            return Err(bad("Skill must have 'name' field"));
        }
        let description = if description.is_empty() { name } else { description };
        let quoted = digest::yaml_text(&digest::collapse(description));
        match self {
            Self::Tool { parameters, .. } => {
                let kebab = kebab(name);
                check_name(&kebab)?;
                let text = tool_text(&kebab, name, description, &quoted, parameters);
                Ok(Skill { name: kebab, text })
            }
            Self::Described { content, .. } => {
                check_name(name)?;
                let body = if content.is_empty() { format!("# {name}\n\n{description}\n") } else { content.clone() };
                let text = format!("---\nname: {name}\ndescription: {quoted}\n---\n\n{body}");
                Ok(Skill { name: name.clone(), text })
            }
            Self::Text(text) => from_text(text),
            Self::Markdown(text) => from_markdown(text),
        }
    }
}

/// The SKILL.md of an MCP tool.
fn tool_text(name: &str, tool: &str, description: &str, quoted: &str, parameters: &[Parameter]) -> String {
    let mut body = format!("---\nname: {name}\ndescription: {quoted}\n---\n\n# {name}\n\n{description}\n");
    if !parameters.is_empty() {
        body.push_str("\n## Parameters\n\n");
    }
    for parameter in parameters {
        let need = if parameter.required { "required" } else { "optional" };
        let about = parameter.description.as_ref().map(|about| format!(": {about}")).unwrap_or_default();
        body.push_str(&format!("- **{}** ({}, {need}){about}\n", parameter.name, parameter.kind));
    }
    body.push_str(&format!("\n## Usage\n\nCalled as the MCP tool `{tool}`.\n"));
    body
}

/// Adds a skill from data.
pub(crate) fn add_data(account: &Account, who: &Identity, data: &SkillData) -> Result<Installed> {
    install(account, who, &data.skill()?, None)
}

/// The accepted form of a SKILL.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Front matter is required, as OpenViking's server demands.
    FrontMatter,
    /// Plain Markdown is also accepted, as the tool does.
    PlainToo,
}

/// Adds a skill from a local file or folder.
pub(crate) fn add_path(account: &Account, who: &Identity, path: &Path, form: Form) -> Result<Installed> {
    let (skill, folder) = from_path(path, form)?;
    install(account, who, &skill, folder.as_ref().map(|folder| (path, folder)))
}

/// Reads the metadata of a skill in a local file or folder.
pub(crate) fn inspect(path: &Path) -> Result<About> {
    let (skill, _) = from_path(path, Form::FrontMatter)?;
    Ok(About::of(&skill.name, &skill.text))
}

/// Reads a skill from a file, or from the `SKILL.md` of a folder, which is returned as well.
fn from_path(path: &Path, form: Form) -> Result<(Skill, Option<Folder>)> {
    let missing = |_| bad("SKILL.md not found");
    let from_text = |text: &str| match form {
        Form::FrontMatter => from_text(text),
        Form::PlainToo => from_markdown(text),
    };
    if !path.is_dir() {
        return Ok((from_text(&disk::read_text(path).map_err(missing)?)?, None));
    }
    let folder = Folder::open(path).map_err(|e| bad(e.to_string()))?;
    let bytes = folder.read("SKILL.md", Links::Refuse, MAX_FILE_BYTES).map_err(missing)?;
    Ok((from_text(&String::from_utf8_lossy(&bytes))?, Some(folder)))
}

/// The metadata that a skill declares.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) tags: Vec<String>,
    pub(crate) allowed_tools: Vec<String>,
}

impl About {
    fn of(name: &str, text: &str) -> Self {
        let front = digest::front_matter(text).0.unwrap_or_default();
        Self {
            name: name.to_owned(),
            description: digest::field(front, "description").unwrap_or_default(),
            tags: digest::list_field(front, "tags"),
            allowed_tools: digest::list_field(front, "allowed_tools"),
        }
    }
}

/// The folders of skills: the user's own, and the shared one.
pub(crate) fn roots(who: &Identity) -> Result<[StorePath; 2]> {
    Ok([who.home().child("skills"), StorePath::parse("viking://agent/skills", who)?])
}

/// The folder of a skill: the user's own, or the shared one.
fn folder(account: &Account, who: &Identity, name: &str) -> Result<StorePath> {
    check_name(name)?;
    for root in roots(who)? {
        let place = root.child(name);
        if disk::look(&account.path(&place))?.is_some_and(|found| found.is_folder) {
            return Ok(place);
        }
    }
    Err(ApiError::none_such(format!("Skill {name} not found")))
}

/// A skill with its content.
pub(crate) struct SkillContent {
    pub(crate) about: About,
    pub(crate) place: StorePath,
    pub(crate) abstract_: String,
    pub(crate) overview: String,
    /// SKILL.md.
    pub(crate) text: String,
    /// The names of its files and folders, and whether each is a folder.
    pub(crate) files: Vec<(String, bool)>,
}

/// Reads a skill.
pub(crate) fn show(account: &Account, who: &Identity, name: &str) -> Result<SkillContent> {
    let place = folder(account, who, name)?;
    let text = fs::read(account, &place.child("SKILL.md"))?;
    let layers = fs::layers_of(account, &place)?;
    let files = disk::list(&account.path(&place))?.into_iter().filter(|found| found.name != origin::FILE);
    Ok(SkillContent {
        about: About::of(name, &text),
        abstract_: layers.abstract_,
        overview: layers.overview,
        text,
        files: files.map(|found| (found.name, found.is_folder)).collect(),
        place,
    })
}

/// Removes a skill and returns its place and number of files.
pub(crate) fn remove(account: &Account, who: &Identity, name: &str) -> Result<(StorePath, usize)> {
    let place = folder(account, who, name)?;
    let count = fs::remove(account, &place, true)?;
    Ok((place, count))
}

/// An installed skill.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    pub(crate) name: String,
    pub(crate) uri: String,
    /// Number of files besides SKILL.md.
    pub(crate) auxiliary_files: usize,
    /// Number of indexed files.
    pub(crate) indexed: usize,
}

fn install(account: &Account, who: &Identity, skill: &Skill, beside: Option<(&Path, &Folder)>) -> Result<Installed> {
    let place = who.home().child("skills").child(&skill.name);
    let staged = account.staging()?;
    disk::write(&staged.join("SKILL.md"), skill.text.as_bytes(), Durability::Derived)?;
    let origin = match beside {
        Some((path, _)) => Origin { kind: origin::Kind::Local, uri: path.display().to_string(), ..Origin::default() },
        None => Origin::default(),
    };
    origin.write(&staged, Durability::Derived)?;
    let mut auxiliary = 0;
    if let Some((_, folder)) = beside {
        copy_below(folder, &staged, &mut auxiliary)?;
    }
    disk::sync_staged(&staged, auxiliary + 2)?;
    {
        let _held = account.restructure();
        if let Some(old) = disk::install(&staged, &account.path(&place))? {
            disk::discard(&old);
        }
        crate::store::layers::invalidate(account, &place);
    }
    account.library.forget(&place);
    let indexed = fs::learn_below(account, &place)?;
    fs::layers_of(account, &place)?;
    Ok(Installed { name: skill.name.clone(), uri: place.to_string(), auxiliary_files: auxiliary, indexed })
}

/// Copies the files besides SKILL.md, without links and hidden files.
fn copy_below(from: &Folder, to: &Path, count: &mut usize) -> Result<()> {
    for found in from.entries().map_err(io::Error::from)? {
        let Some(name) = found.name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        if name == "SKILL.md" && to.join("SKILL.md").exists() {
            continue;
        }
        let target = to.join(name);
        match found.kind {
            Kind::Folder => {
                std::fs::create_dir(&target)?;
                copy_below(&from.folder(name, Links::Refuse).map_err(io::Error::from)?, &target, count)?;
            }
            Kind::File if *count >= MAX_FILES => return Err(too_large()),
            Kind::File => {
                let bytes = from.read(name, Links::Refuse, MAX_FILE_BYTES).map_err(|error| match error.kind() {
                    io::ErrorKind::FileTooLarge => too_large(),
                    _ => error.into(),
                })?;
                toolyard_faults::write(&target, bytes)?;
                *count += 1;
            }
            Kind::Link | Kind::Other => {}
        }
    }
    Ok(())
}

fn too_large() -> ApiError {
    ApiError::new(
        crate::error::Code::ResourceExhausted,
        format!("a skill has at most {MAX_FILES} files of {MAX_FILE_BYTES} bytes"),
    )
}

/// A skill in a list.
pub(crate) struct SkillEntry {
    pub(crate) about: About,
    pub(crate) uri: String,
    pub(crate) modified: jiff::Timestamp,
}

/// All skills that the caller can use.
pub(crate) fn list(account: &Account, who: &Identity) -> Result<Vec<SkillEntry>> {
    let mut skills = Vec::new();
    for root in roots(who)? {
        for found in disk::list(&account.path(&root))?.into_iter().filter(|found| found.is_folder) {
            let place = root.child(&found.name);
            let text = disk::read_if_there(&account.path(&place).join("SKILL.md"))?.unwrap_or_default();
            skills.push(SkillEntry {
                about: About::of(&found.name, &text),
                uri: place.to_string(),
                modified: found.modified,
            });
        }
    }
    Ok(skills)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_markdown_is_named_by_its_heading_and_described_by_its_first_paragraph() {
        let skill = from_markdown("# My Skill\n\nBrews tea:\nboil water.\n\n## Steps\n\nOne.\n").unwrap();
        assert_eq!(skill.name, "my-skill");
        assert!(
            skill.text.starts_with("---\nname: my-skill\ndescription: \"Brews tea: boil water.\"\n---\n\n# My Skill\n")
        );
        assert_eq!(from_text(&skill.text).unwrap().name, "my-skill");
        assert_eq!(from_markdown("# Tea\n").unwrap().name, "tea");
        let own = "---\nname: a\ndescription: d\n---\n# Other\n";
        assert_eq!(from_markdown(own).unwrap().text, own);
        assert!(from_markdown("no heading").is_err() && from_markdown("# ///\n").is_err());
    }

    #[test]
    fn skills_are_read_from_text_and_from_mcp_tools() {
        assert_eq!(from_text("no frontmatter").err().unwrap().message, "SKILL.md must have YAML frontmatter");
        assert!(from_text("---\nname: a\n---\nx").is_err());
        assert!(from_text("---\nname: ../a\ndescription: d\n---\nx").is_err());
        let parameter =
            Parameter { name: "a".into(), kind: "number".into(), required: true, description: Some("first".into()) };
        let tool = SkillData::Tool {
            name: "calcAdd_two".into(),
            description: "Add two: numbers".into(),
            parameters: vec![parameter],
        };
        let skill = tool.skill().unwrap();
        assert_eq!(skill.name, "calc-add-two");
        assert!(skill.text.contains("- **a** (number, required): first"));
        assert_eq!(from_text(&skill.text).unwrap().name, "calc-add-two");
    }
}
