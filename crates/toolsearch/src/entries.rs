//! Descriptions of a tool for a model: short in a search result, complete in `tool_describe`.

use serde::Serialize;
use serde_json::Value;
use toolyard_catalog::{
    SourceKind, ToolEntry,
    search::{Explanation, Hit},
    surface::one_line,
};
use toolyard_protocol::{Schema, ToolName};

/// Characters of a title.
const MAX_LABEL_CHARS: usize = 80;
/// Characters of a description in a search result.
const MAX_DESCRIPTION_CHARS: usize = 300;
/// Characters of a signature.
const MAX_SIGNATURE_CHARS: usize = 240;
/// Parameters named in a signature.
const MAX_SIGNATURE_PARAMETERS: usize = 12;

/// A tool in a search result. If space is short, everything except the id may be left out.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchEntry {
    id: String,
    #[serde(flatten)]
    about: Option<ToolSummary>,
    /// Why it was found, for people who ask.
    #[serde(flatten)]
    reasons: Option<Reasons>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolSummary {
    source: &'static str,
    #[serde(flatten)]
    origin: Option<Origin>,
    name: ToolName,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Origin {
    source_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp: Option<McpOrigin>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct McpOrigin {
    server_name: String,
    safe_server_name: String,
    tool_name: ToolName,
    operation: &'static str,
}

#[derive(Debug, Clone, Serialize)]
struct Reasons {
    score: f32,
    exact: bool,
    explain: Option<Explanation>,
}

/// A tool with its exact schemas.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribedTool {
    #[serde(flatten)]
    tool: SearchEntry,
    parameters: Schema,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Schema>,
}

impl SearchEntry {
    /// The compact form: enough to choose by.
    pub(crate) fn compact(entry: &ToolEntry) -> Self {
        let (definition, source) = (entry.definition(), entry.source());
        let mcp = (source.kind == SourceKind::Mcp).then(|| McpOrigin {
            server_name: source.name.to_string(),
            safe_server_name: source.name.chars().map(|c| if is_safe(c) { c } else { '_' }).collect(),
            tool_name: entry.name().clone(),
            operation: "tool",
        });
        let about = ToolSummary {
            source: source.catalog_source(),
            origin: Some(Origin { source_name: source.name.to_string(), mcp }),
            name: entry.name().clone(),
            label: Some(one_line(&definition.title, MAX_LABEL_CHARS)),
            description: one_line(&definition.description, MAX_DESCRIPTION_CHARS),
            input: None,
        };
        Self { id: entry.id().to_owned(), about: Some(about), reasons: None }
    }

    /// The compact form in a search result, with a signature if the schema is trusted.
    pub(crate) fn found(hit: Hit, explain: bool) -> Self {
        let mut found = Self::compact(&hit.entry);
        if let Some(about) = &mut found.about {
            about.input = Some(signature(&hit.entry));
        }
        found.reasons = explain.then_some(Reasons { score: hit.score, exact: hit.exact, explain: hit.explain });
        found
    }

    /// Reduces the entry to its id and a description of this many characters. The signature is removed with the last of
    /// the description, because the model then needs `tool_describe` anyway.
    pub(crate) fn shortened(&self, chars: usize) -> Self {
        let mut short = self.clone();
        match &mut short.about {
            Some(about) if chars > 0 => {
                (about.label, about.origin) = (None, None);
                about.description = one_line(&about.description, chars);
            }
            _ => (short.about, short.reasons) = (None, None),
        }
        short
    }
}

impl DescribedTool {
    /// Everything, with the exact schema.
    pub(crate) fn of(entry: &ToolEntry) -> Self {
        let definition = entry.definition();
        let mut tool = SearchEntry::compact(entry);
        if let Some(about) = &mut tool.about {
            about.description.clone_from(&definition.description);
        }
        let output_schema = definition.output_schema.clone().filter(|_| entry.source().is_trusted());
        Self { tool, parameters: definition.input_schema.clone(), output_schema }
    }
}

fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A signature in the manner of TypeScript. Names in the schema of an untrusted source are not shown, because they are
/// text of that source.
fn signature(entry: &ToolEntry) -> String {
    if !entry.source().is_trusted() {
        return "unknown".to_owned();
    }
    let schema = entry.definition().input_schema.parse();
    let Some(Value::Object(properties)) = schema.get("properties") else { return "{}".to_owned() };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut parts: Vec<String> = Vec::new();
    // What must be given comes first, so that it survives the cut.
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort_by_key(|name| !required.contains(&name.as_str()));
    for name in names.iter().take(MAX_SIGNATURE_PARAMETERS) {
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        let kind = properties.get(name.as_str()).map_or("any", type_word);
        parts.push(format!("{name}{mark}: {kind}"));
    }
    if names.len() > MAX_SIGNATURE_PARAMETERS {
        parts.push("...".to_owned());
    }
    one_line(&format!("{{ {} }}", parts.join(", ")), MAX_SIGNATURE_CHARS)
}

fn type_word(property: &Value) -> &'static str {
    match property.get("type").and_then(Value::as_str) {
        Some("string") => "string",
        Some("integer" | "number" | "float") => "number",
        Some("boolean") => "boolean",
        Some("array") => "array",
        Some("object" | "dict") => "object",
        Some("null") => "null",
        _ => "any",
    }
}
