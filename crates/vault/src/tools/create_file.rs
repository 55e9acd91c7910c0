//! `vault.createFile`: creates a note with its folders. Replaces an existing file only if the arguments say so
//! explicitly.

use super::{
    Args, PlanContext, Run, Tool, parse,
    schema::PathArg,
    support::{check_etag, check_no_etag, etag_of, free_name, put_new, put_over, shrink_warning},
    to_map, writes,
};
use crate::{
    change::WritePlan,
    error::{VaultResult, is_folder, validation},
    etag::etag,
    locks::LockScope,
    markdown::{scan::Scan, yaml},
    path::VaultPath,
    text::{dominant_eol, keep_habits, with_eol},
    view::{Purpose, check_creatable},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolyard_protocol::{ErrorCode, Failure};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// Where the file goes, for example "Projects/Plan.md". Missing folders are made.
    path: PathArg,
    /// The content, without front matter when `frontmatter` is given.
    content: String,
    /// Only create (default). False allows replacing an existing file, which then needs expectedEtag.
    #[serde(default)]
    if_not_exists: Option<bool>,
    /// When the file exists: "error" (default), "create-unique" for a free name like "Plan (2).md", or "overwrite".
    #[serde(default)]
    collision_strategy: Option<CollisionStrategy>,
    /// Properties, written as YAML front matter at the top.
    #[serde(default)]
    frontmatter: Option<Map<String, Value>>,
    /// When replacing: the etag that the existing file must have.
    #[serde(default)]
    expected_etag: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum CollisionStrategy {
    Error,
    CreateUnique,
    Overwrite,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    /// Where the file really is: differs from what was asked with "create-unique".
    path: String,
    /// False when an existing file was replaced.
    created: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.createFile",
    define: || {
        writes::<Input, Data>(
            "Create note",
            "Creates a file with the given content, and its folders. An existing file is left alone (CONFLICT with its \
             current etag) unless collisionStrategy says otherwise.",
            &["create-file", "create-folder", "modify-file"],
        )
    },
    run: Run::Write { scope, plan },
};

fn scope(args: Args) -> VaultResult<LockScope> {
    let input: Input = parse(args)?;
    let path = VaultPath::parse(&input.path.0)?;
    let mut paths = vec![path.clone()];
    // Which free name will be taken is not known yet: others that look for one in the same folder must wait.
    if input.collision_strategy == Some(CollisionStrategy::CreateUnique) {
        paths.extend(path.parent());
    }
    Ok(LockScope::Paths(paths))
}

fn plan(context: &PlanContext<'_>, args: Args) -> VaultResult<WritePlan> {
    let input: Input = parse(args)?;
    let path = VaultPath::parse(&input.path.0)?;
    let strategy = input.collision_strategy.unwrap_or(CollisionStrategy::Error);
    if strategy == CollisionStrategy::Overwrite && input.if_not_exists == Some(true) {
        return Err(validation("ifNotExists: true and collisionStrategy: \"overwrite\" contradict each other"));
    }
    let content = with_front_matter(input.frontmatter.as_ref(), input.content)?;
    let expected = input.expected_etag.as_deref();
    let Some(stat) = context.view.stat(&path, Purpose::Write)? else {
        check_no_etag(&path, expected)?;
        match check_creatable(context.view, &path, None) {
            Ok(missing) => return created(path, missing, content),
            Err(failure) if strategy == CollisionStrategy::CreateUnique && is_twin(&failure) => {
                return created(free_name(context.view, &path)?, Vec::new(), content);
            }
            Err(failure) => return Err(failure),
        }
    };
    if strategy == CollisionStrategy::CreateUnique {
        let free = free_name(context.view, &path)?;
        free.check_new_name()?;
        return created(free, Vec::new(), content);
    }
    if !stat.is_file() {
        return Err(is_folder(&path));
    }
    let Some(old) = context.view.read(&path, Purpose::Write)? else { return Err(crate::error::not_found(&path)) };
    let current = etag(&old.bytes);
    let may_replace =
        strategy == CollisionStrategy::Overwrite || input.if_not_exists == Some(false) && expected.is_some();
    if !may_replace {
        return Err(Failure::new(ErrorCode::Conflict, format!("{path} already exists"))
            .suggest(
                "Use vault.patchFile to edit it, collisionStrategy \"create-unique\" for another name, or \"overwrite\".",
            )
            .detail("path", path.as_str())
            .detail("currentEtag", current));
    }
    check_etag(&path, expected, &current)?;
    let new = keep_habits(&old.bytes, &content).into_bytes();
    let warning = shrink_warning(old.bytes.len(), new.len());
    let data = Data { path: path.to_string(), created: false, etag: etag_of(&new), mtime_ms: None, mtime: None };
    let changes = put_over(&path, &old, new);
    let message = if changes.is_empty() {
        format!("{path} already had this content")
    } else {
        format!("Replaced {path}.{warning}")
    };
    Ok(WritePlan { changes, data: to_map(&data)?, stat: Some(path), message })
}

fn is_twin(failure: &Failure) -> bool {
    failure.details.as_ref().is_some_and(|details| details.contains_key("existing"))
}

fn created(path: VaultPath, missing: Vec<VaultPath>, content: String) -> VaultResult<WritePlan> {
    let content = content.into_bytes();
    let data = Data { path: path.to_string(), created: true, etag: etag_of(&content), mtime_ms: None, mtime: None };
    Ok(WritePlan {
        data: to_map(&data)?,
        message: format!("Created {path}"),
        changes: put_new(&path, missing, content),
        stat: Some(path),
    })
}

fn with_front_matter(properties: Option<&Map<String, Value>>, content: String) -> VaultResult<String> {
    let Some(properties) = properties.filter(|p| !p.is_empty()) else { return Ok(content) };
    if Scan::new(&content).front_matter.is_some() {
        return Err(validation(
            "content already begins with front matter; give it there or in frontmatter, not in both",
        ));
    }
    let block = format!("---\n{}---\n", yaml::mapping(properties));
    Ok(format!("{}{content}", with_eol(&block, dominant_eol(&content))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn front_matter_goes_on_top_in_the_contents_line_ending() {
        let properties = json!({"tags":["a"],"when":"2024-01-01"});
        let text = with_front_matter(properties.as_object(), "x\r\ny\r\n".into()).unwrap();
        assert_eq!(text, "---\r\ntags:\r\n  - a\r\nwhen: \"2024-01-01\"\r\n---\r\nx\r\ny\r\n");
        assert!(with_front_matter(properties.as_object(), "---\na: 1\n---\n".into()).is_err());
        assert_eq!(with_front_matter(Some(&Map::new()), "x".into()).unwrap(), "x");
    }
}
