//! `tools.catalog` and `tools.effective`: the tools that there are, and those that a session or its model has.

use super::Key;
use crate::{
    AnyJson, Call, Handle, Hub, MethodError, RpcError, Terms, methods,
    params::{Count, Text},
    sessions,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolyard_catalog::{
    Profile, SourceKind, ToolEntry,
    surface::{ShownTool, Turn},
};
use toolyard_engine::{Caller, ModelView, Shown};
use toolyard_protocol::{RiskLevel, Schema};

/// A short description has at most this many characters.
const SHORT: usize = 120;

methods! {
    /// Lists every tool of the catalog in groups, regardless of who may call it.
    ToolsCatalog = "tools.catalog", Terms::read(), CatalogParams => Catalog;
    /// Lists the tools of a session, or what its model is shown of them.
    ToolsEffective = "tools.effective", Terms::read(), EffectiveParams => Effective;
}

/// Which tools the catalog lists.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CatalogParams {
    agent_id: Option<Text>,
    include_plugins: Option<bool>,
    #[serde(default)]
    include_schemas: bool,
}

/// The catalog in groups.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    agent_id: String,
    profiles: [ProfileName; 4],
    groups: Vec<CatalogGroup>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct ProfileName {
    id: &'static str,
    label: &'static str,
}

const PROFILES: [ProfileName; 4] = [
    ProfileName { id: "minimal", label: "Minimal" },
    ProfileName { id: "coding", label: "Coding" },
    ProfileName { id: "messaging", label: "Messaging" },
    ProfileName { id: "full", label: "Full" },
];

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CatalogGroup {
    id: String,
    label: String,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin_id: Option<String>,
    tools: Vec<CatalogTool>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CatalogTool {
    id: String,
    label: String,
    description: String,
    source: &'static str,
    risk: &'static str,
    default_profiles: Vec<Profile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    optional: Option<bool>,
    #[serde(flatten)]
    schemas: Schemas,
}

/// A tool's schemas, where they were asked for.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Schemas {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<AnyJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<AnyJson>,
}

impl Schemas {
    fn of(entry: &ToolEntry, wanted: bool) -> Self {
        let definition = entry.definition();
        Self {
            input_schema: wanted.then(|| definition.input_schema.value()),
            output_schema: definition.output_schema.as_ref().filter(|_| wanted).map(Schema::value),
        }
    }
}

impl Handle<ToolsCatalog> for Hub {
    async fn handle(&self, _: &Call<'_>, params: CatalogParams) -> Result<Catalog, MethodError> {
        let agent = params.agent_id.as_deref().unwrap_or(sessions::DEFAULT_AGENT);
        self.check_agent(agent)?;
        let plugins = params.include_plugins.unwrap_or(true);
        let mut groups: BTreeMap<(bool, String), Vec<CatalogTool>> = BTreeMap::new();
        for entry in self.service().engine().tools().snapshot.iter() {
            let (definition, source) = (entry.definition(), entry.source());
            let is_core = source.kind == SourceKind::Core;
            // Tools of a single session are not part of the catalog.
            if (!is_core && !plugins) || entry.session().is_some() {
                continue;
            }
            let tool = CatalogTool {
                id: definition.name.to_string(),
                label: definition.name.to_string(),
                description: short(&definition.description),
                source: if is_core { "core" } else { "plugin" },
                risk: risk(definition.risk_level),
                default_profiles: entry.profiles().to_vec(),
                plugin_id: (!is_core).then(|| source.name.to_string()),
                optional: entry.optional().then_some(true),
                schemas: Schemas::of(entry, params.include_schemas),
            };
            let group = if is_core { definition.category.to_string() } else { source.name.to_string() };
            groups.entry((!is_core, group)).or_default().push(tool);
        }
        let groups = groups.into_iter().map(|((is_plugin, name), tools)| match is_plugin {
            true => CatalogGroup {
                id: format!("plugin:{name}"),
                label: name.clone(),
                source: "plugin",
                plugin_id: Some(name),
                tools,
            },
            false => CatalogGroup { label: titled(&name), id: name, source: "core", plugin_id: None, tools },
        });
        Ok(Catalog { agent_id: agent.to_owned(), profiles: PROFILES, groups: groups.collect() })
    }
}

/// Whose tools are listed, and how.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectiveParams {
    session_key: Text,
    agent_id: Option<Text>,
    #[serde(default)]
    include_schemas: bool,
    /// Beyond the real gateway: what a model of this session is shown, rather than what the session has.
    #[serde(default)]
    for_model: bool,
    prompt: Option<String>,
    context_tokens: Option<Count>,
    #[serde(default)]
    required_tools: Vec<String>,
}

/// The tools of a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effective {
    agent_id: String,
    profile: String,
    /// How the tools that a model is shown were chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_search: Option<AnyJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notices: Option<[Notice; 1]>,
    groups: Vec<EffectiveGroup>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Notice {
    id: &'static str,
    severity: &'static str,
    message: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct EffectiveGroup {
    id: &'static str,
    label: &'static str,
    source: &'static str,
    tools: Vec<EffectiveTool>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EffectiveTool {
    id: String,
    label: String,
    description: String,
    raw_description: String,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_server: Option<String>,
    #[serde(flatten)]
    schemas: Schemas,
}

impl EffectiveTool {
    fn of(entry: &ToolEntry) -> Self {
        let (definition, source) = (entry.definition(), entry.source());
        let name = || Some(source.name.to_string());
        let (source, plugin_id, mcp_server) = match source.kind {
            SourceKind::Core => ("core", None, None),
            SourceKind::Plugin | SourceKind::Client => ("plugin", name(), None),
            SourceKind::Mcp => ("mcp", None, name()),
        };
        Self {
            id: definition.name.to_string(),
            label: definition.title.clone(),
            description: short(&definition.description),
            raw_description: definition.description.clone(),
            source,
            risk: Some(risk(definition.risk_level)),
            plugin_id,
            mcp_server,
            schemas: Schemas::default(),
        }
    }

    /// A tool that a model is shown, with its schema and in the model's own name for it.
    fn shown(tool: &ShownTool) -> Self {
        let row = Self::of(&tool.entry);
        let input_schema = Some(tool.input_schema().value());
        let row = match tool.is_control() {
            false => row,
            true => {
                Self { label: tool.name.clone(), source: "core", risk: None, plugin_id: None, mcp_server: None, ..row }
            }
        };
        Self { id: tool.name.clone(), schemas: Schemas { input_schema, output_schema: None }, ..row }
    }
}

impl Handle<ToolsEffective> for Hub {
    async fn handle(&self, call: &Call<'_>, params: EffectiveParams) -> Result<Effective, MethodError> {
        let key = Key::read(&call.caller.workspace, &params.session_key, params.agent_id.as_deref())?;
        if !sessions::exists(self, &key).await? {
            return Err(sessions::unknown(&params.session_key).into());
        }
        // The tools are listed for a caller with `operator.write`: a client that only reads asks for the session's
        // tools, not for its own.
        let connection = call.connection()?;
        let mut caller = Caller::clone(&connection.caller(&key.agent, Some(key.full)));
        if !connection.has("operator.write") {
            caller.scopes.push("operator.write".to_owned());
        }
        let profile = self.settings().profile.clone().unwrap_or_else(|| "full".to_owned());
        let mut answer =
            Effective { agent_id: key.agent, profile, tool_search: None, notices: None, groups: Vec::new() };
        let tools = match self.service().models().filter(|_| params.for_model) {
            Some(view) => {
                let shown = self.for_model(&caller, &params, &**view).await?;
                let tools = shown.surface.tools.iter().map(EffectiveTool::shown).collect();
                let summary = serde_json::to_value(shown.surface.summary());
                let unwritten = |e| RpcError::unavailable(format!("the answer cannot be written: {e}"));
                answer.tool_search = Some(summary.map_err(unwritten)?);
                answer.notices =
                    shown.notice.map(|message| [Notice { id: "tool-search", severity: "warning", message }]);
                tools
            }
            None => {
                let visible = self.service().engine().visible_tools(&caller);
                let tool = |entry: &ToolEntry| {
                    let schemas = Schemas::of(entry, params.include_schemas);
                    EffectiveTool { schemas, ..EffectiveTool::of(entry) }
                };
                visible.iter().map(|entry| tool(entry)).collect()
            }
        };
        answer.groups = grouped(tools);
        Ok(answer)
    }
}

impl Hub {
    /// The tools that a model of the session is shown.
    async fn for_model(
        &self,
        caller: &Caller,
        params: &EffectiveParams,
        view: &dyn ModelView,
    ) -> Result<Shown, MethodError> {
        let turn = Turn {
            prompt: params.prompt.as_deref(),
            context_tokens: params.context_tokens.map(Count::as_usize),
            required: &params.required_tools,
        };
        let shown = view.show(self.service().engine(), caller, turn).await;
        Ok(shown.map_err(|failure| RpcError::invalid(failure.message))?)
    }
}

/// Tools by where they come from; only groups that have any.
fn grouped(tools: Vec<EffectiveTool>) -> Vec<EffectiveGroup> {
    let mut groups: Vec<EffectiveGroup> =
        [("core", "Built-in tools"), ("plugin", "Connected tools"), ("mcp", "MCP tools")]
            .map(|(id, label)| EffectiveGroup { id, label, source: id, tools: Vec::new() })
            .into();
    for tool in tools {
        if let Some(group) = groups.iter_mut().find(|group| group.source == tool.source) {
            group.tools.push(tool);
        }
    }
    groups.retain(|group| !group.tools.is_empty());
    groups
}

fn risk(level: RiskLevel) -> &'static str {
    match level {
        RiskLevel::ReadOnly => "low",
        RiskLevel::Writes => "medium",
        RiskLevel::Commands => "high",
    }
}

/// The first sentence, or as much of it as fits.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or(line).trim_end();
    if sentence.chars().count() <= SHORT {
        return sentence.to_owned();
    }
    sentence.chars().take(SHORT - 1).chain(['…']).collect()
}

fn titled(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_cut_at_a_sentence() {
        assert_eq!(short("Reads a note. Gives its etag."), "Reads a note.");
        assert_eq!(short(&"x".repeat(300)).chars().count(), SHORT);
    }
}
