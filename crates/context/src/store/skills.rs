//! Skills: a folder each with a SKILL.md, brought in as text, as a file or folder, or as an MCP tool's description.

use crate::{
    error::{ApiError, Result},
    store::{
        account::Account,
        digest,
        disk::{self, Keep},
        fs,
        uri::{Identity, Place},
    },
};
use serde_json::{Value, json};
use std::{io, path::Path};
use toolyard_beneath::{Folder, Kind, Links};

/// A skill's name has at most this many characters.
const MAX_NAME_CHARS: usize = 64;
/// Files beside SKILL.md.
const MAX_FILES: usize = 500;
/// Bytes of one file.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// A skill that was read.
struct Skill {
    name: String,
    text: String,
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::argument(message)
}

/// Reads a SKILL.md.
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

fn check_name(name: &str) -> Result<()> {
    let fits = name.chars().count() <= MAX_NAME_CHARS
        && !name.starts_with(['.', '-'])
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if fits {
        Ok(())
    } else {
        Err(bad(format!("Invalid skill name: use letters, digits, '-', '_' and '.', at most {MAX_NAME_CHARS}")))
    }
}

/// `camelCase` and `snake_case` become `kebab-case`.
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

/// Reads a dictionary: a skill's own fields, or an MCP tool.
fn from_object(map: &serde_json::Map<String, Value>) -> Result<Skill> {
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = text("name");
    if name.is_empty() {
        return Err(bad("Skill must have 'name' field"));
    }
    let description = if text("description").is_empty() { name } else { text("description") };
    let quoted = digest::yaml_text(&digest::collapse(description));
    let Some(schema) = map.get("inputSchema") else {
        check_name(name)?;
        let content = text("content");
        let body = if content.is_empty() { format!("# {name}\n\n{description}\n") } else { content.to_owned() };
        return Ok(Skill {
            name: name.to_owned(),
            text: format!("---\nname: {name}\ndescription: {quoted}\n---\n\n{body}"),
        });
    };
    let name = kebab(name);
    check_name(&name)?;
    let mut body = format!("---\nname: {name}\ndescription: {quoted}\n---\n\n# {name}\n\n{description}\n");
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(properties) = schema["properties"].as_object().filter(|p| !p.is_empty()) {
        body.push_str("\n## Parameters\n\n");
        for (key, property) in properties {
            let kind = property["type"].as_str().unwrap_or("any");
            let need = if required.contains(&key.as_str()) { "required" } else { "optional" };
            let about = property["description"].as_str().map(|d| format!(": {d}")).unwrap_or_default();
            body.push_str(&format!("- **{key}** ({kind}, {need}){about}\n"));
        }
    }
    body.push_str(&format!("\n## Usage\n\nCalled as the MCP tool `{}`.\n", text("name")));
    Ok(Skill { name, text: body })
}

/// Keeps a skill that came as data.
pub(crate) fn add_data(account: &Account, who: &Identity, data: &Value) -> Result<Value> {
    let skill = match data {
        Value::String(text) => from_text(text)?,
        Value::Object(map) => from_object(map)?,
        _ => return Err(bad("Skill data must be SKILL.md content or an object")),
    };
    install(account, who, &skill, None)
}

/// Keeps a skill that lies in a file or folder on this machine.
pub(crate) fn add_path(account: &Account, who: &Identity, path: &Path) -> Result<Value> {
    let (skill, folder) = from_path(path)?;
    install(account, who, &skill, folder.as_ref().map(|folder| (path, folder)))
}

/// What a file or folder on this machine would bring in.
pub(crate) fn inspect(path: &Path) -> Result<Value> {
    let (skill, _) = from_path(path)?;
    Ok(json!({"skills": [told(&skill.name, &skill.text)], "total": 1}))
}

/// Reads a skill from a file, or from the `SKILL.md` of a folder, which is given as well.
fn from_path(path: &Path) -> Result<(Skill, Option<Folder>)> {
    let missing = |_| bad("SKILL.md not found");
    if !path.is_dir() {
        return Ok((from_text(&disk::read_text(path).map_err(missing)?)?, None));
    }
    let folder = Folder::open(path).map_err(|e| bad(e.to_string()))?;
    let bytes = folder.read("SKILL.md", Links::Refuse, MAX_FILE_BYTES).map_err(missing)?;
    Ok((from_text(&String::from_utf8_lossy(&bytes))?, Some(folder)))
}

/// What a skill says of itself.
fn told(name: &str, text: &str) -> Value {
    let front = digest::front_matter(text).0.unwrap_or_default();
    json!({
        "name": name, "description": digest::field(front, "description").unwrap_or_default(),
        "tags": digest::list_field(front, "tags"), "allowed_tools": digest::list_field(front, "allowed_tools"),
    })
}

fn roots(who: &Identity) -> Result<[Place; 2]> {
    Ok([who.home().child("skills"), Place::parse("viking://agent/skills", who)?])
}

/// A skill's folder: the user's own, or one that all share.
fn folder(account: &Account, who: &Identity, name: &str) -> Result<Place> {
    check_name(name)?;
    for root in roots(who)? {
        let place = root.child(name);
        if disk::look(&account.path(&place))?.is_some_and(|found| found.is_folder) {
            return Ok(place);
        }
    }
    Err(ApiError::none_such(format!("Skill {name} not found")))
}

/// `GET /skills/{name}`.
pub(crate) fn show(account: &Account, who: &Identity, name: &str, content: bool, files: bool) -> Result<Value> {
    let place = folder(account, who, name)?;
    let text = fs::read(account, &place.child("SKILL.md"))?;
    let layers = fs::layers_of(account, &place)?;
    let mut skill = told(name, &text);
    skill["type"] = "skill".into();
    skill["uri"] = place.to_string().into();
    skill["root_uri"] = place.to_string().into();
    skill["skill_md_uri"] = place.child("SKILL.md").to_string().into();
    skill["abstract"] = layers.abstract_.into();
    skill["overview"] = layers.overview.into();
    if content {
        skill["content_sha256"] = toolyard_protocol::canonical::sha256_hex(text.as_bytes()).into();
        skill["content"] = text.into();
    }
    if files {
        let entries = disk::list(&account.path(&place))?
            .into_iter()
            .filter(|found| found.name != crate::store::resources::SOURCE);
        let entries = entries.map(|found| {
            let kind = match found.name.as_str() {
                _ if found.is_folder => "directory",
                "SKILL.md" => "definition",
                name if name.starts_with('.') => "summary",
                _ => "auxiliary",
            };
            let uri = place.child(&found.name).to_string();
            json!({"name": found.name, "path": found.name, "uri": uri, "is_dir": found.is_folder, "kind": kind})
        });
        skill["files"] = entries.collect();
    }
    Ok(skill)
}

/// `DELETE /skills/{name}`.
pub(crate) fn remove(account: &Account, who: &Identity, name: &str) -> Result<Value> {
    let place = folder(account, who, name)?;
    let count = fs::remove(account, &place, true)?;
    Ok(json!({"name": name, "uri": place.to_string(), "root_uri": place.to_string(), "estimated_deleted_count": count}))
}

fn install(account: &Account, who: &Identity, skill: &Skill, beside: Option<(&Path, &Folder)>) -> Result<Value> {
    let place = who.home().child("skills").child(&skill.name);
    let staged = account.staging()?;
    let put = |path: &Path, bytes: &[u8]| disk::write(path, bytes, Keep::Derived);
    put(&staged.join("SKILL.md"), skill.text.as_bytes())?;
    let source = beside.map(|(path, _)| path.display().to_string()).unwrap_or_default();
    put(
        &staged.join(crate::store::resources::SOURCE),
        json!({"kind": if beside.is_some() { "local" } else { "data" }, "uri": source}).to_string().as_bytes(),
    )?;
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
    let files = fs::learn_below(account, &place)?;
    fs::layers_of(account, &place)?;
    let uri = place.to_string();
    Ok(json!({
        "status": "success", "root_uri": uri, "uri": uri, "name": skill.name, "auxiliary_files": auxiliary,
        "queue_status": fs::queue_status(1, files + 2),
    }))
}

/// Copies the files beside SKILL.md. Links and hidden files are left out.
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
                std::fs::write(target, bytes)?;
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

/// `GET /skills`.
pub(crate) fn list(account: &Account, who: &Identity) -> Result<Value> {
    let roots = roots(who)?;
    let mut skills = Vec::new();
    for root in &roots {
        for found in disk::list(&account.path(root))?.into_iter().filter(|found| found.is_folder) {
            let place = root.child(&found.name);
            let text = disk::read_text(&account.path(&place).join("SKILL.md")).unwrap_or_default();
            let mut skill = told(&found.name, &text);
            skill["uri"] = place.to_string().into();
            skill["modTime"] = fs::millis(found.modified).into();
            skills.push(skill);
        }
    }
    let total = skills.len();
    Ok(json!({"root_uris": roots.map(|root| root.to_string()), "skills": skills, "total": total}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skills_are_read_from_text_and_from_mcp_tools() {
        assert_eq!(from_text("no frontmatter").err().unwrap().message, "SKILL.md must have YAML frontmatter");
        assert!(from_text("---\nname: a\n---\nx").is_err());
        assert!(from_text("---\nname: ../a\ndescription: d\n---\nx").is_err());
        let tool = json!({"name": "calcAdd_two", "description": "Add two: numbers", "inputSchema": {
            "type": "object", "properties": {"a": {"type": "number", "description": "first"}}, "required": ["a"]}});
        let skill = from_object(tool.as_object().unwrap()).unwrap();
        assert_eq!(skill.name, "calc-add-two");
        assert!(skill.text.contains("- **a** (number, required): first"));
        assert_eq!(from_text(&skill.text).unwrap().name, "calc-add-two");
    }
}
