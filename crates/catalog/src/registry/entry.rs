//! [`ToolEntry`]: one tool with its source. It has its own schemas and does not know other tools.

use super::{
    marks::{Mark, MarkFinder},
    schema::{CompiledSchema, Violation, check_shape},
};
use crate::{authority::HostArgument, native::NativeClass, policy::Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};
use toolyard_protocol::{Schema, ToolDefinition, ToolDefinitionError, ToolName, WorkspaceId, canonical};

/// A source's name is at most this long.
const MAX_SOURCE_NAME_BYTES: usize = 128;
/// The name of the one core source.
const CORE_NAME: &str = "core";

/// The kind of source that a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Built into Toolyard.
    Core,
    /// An installed plugin.
    Plugin,
    /// An upstream MCP server.
    Mcp,
    /// A connected client that answers calls itself.
    Client,
}

/// Where a tool comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ToolSource {
    /// The kind of place.
    pub kind: SourceKind,
    /// `core`, the plugin's id, the MCP server's name, or `client` (`client@NAME` in the workspace NAME).
    pub name: Arc<str>,
}

impl ToolSource {
    /// The source of built-in tools.
    pub fn core() -> Self {
        Self { kind: SourceKind::Core, name: CORE_NAME.into() }
    }
    /// An installed plugin.
    pub fn plugin(id: impl Into<Arc<str>>) -> Self {
        Self { kind: SourceKind::Plugin, name: id.into() }
    }
    /// An upstream MCP server.
    pub fn mcp(server: impl Into<Arc<str>>) -> Self {
        Self { kind: SourceKind::Mcp, name: server.into() }
    }
    /// A connected client of the default workspace.
    pub fn client() -> Self {
        Self::client_of(&WorkspaceId::default())
    }
    /// A connected client of a workspace, whose tools have names and ids of their own in each workspace.
    pub fn client_of(workspace: &WorkspaceId) -> Self {
        let name = match workspace.is_default() {
            true => "client".into(),
            false => format!("client@{workspace}").into(),
        };
        Self { kind: SourceKind::Client, name }
    }
    /// The first part of a catalog id.
    pub fn catalog_source(&self) -> &'static str {
        match self.kind {
            SourceKind::Core | SourceKind::Plugin => "openclaw",
            SourceKind::Mcp => "mcp",
            SourceKind::Client => "client",
        }
    }
    /// Whether the tool's own statements (schemas, categories) may be shown to models and relied upon. Those of an MCP
    /// server or a client are not trusted, because the operator did not install them.
    pub fn is_trusted(&self) -> bool {
        matches!(self.kind, SourceKind::Core | SourceKind::Plugin)
    }

    fn check(&self) -> Result<(), RegistryError> {
        let fail = |problem| Err(RegistryError::Source { name: self.name.chars().take(80).collect(), problem });
        let fits = !self.name.is_empty()
            && self.name.len() <= MAX_SOURCE_NAME_BYTES
            && self.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'@'));
        if !fits {
            // No colon: an id could then be read in two ways.
            return fail("use letters, digits or '_-./@', at most 128 bytes");
        }
        match self.kind {
            SourceKind::Core if *self.name != *CORE_NAME => fail("the core source is called \"core\""),
            SourceKind::Plugin if self.name.eq_ignore_ascii_case(CORE_NAME) => {
                fail("a plugin cannot be called \"core\"")
            }
            _ => Ok(()),
        }
    }
}

/// Why a tool is not taken into the registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The definition contradicts itself or is too large.
    #[error(transparent)]
    Definition(#[from] ToolDefinitionError),
    /// The source's name cannot be used in an id.
    #[error("tool source {name:?}: {problem}")]
    Source {
        /// The name given.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A schema can never be checked against.
    #[error("tool {tool}: {schema} {problem}")]
    Schema {
        /// The name of the tool.
        tool: String,
        /// `inputSchema` or `outputSchema`.
        schema: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A tool with this id is already registered.
    #[error("tool {id} is registered already")]
    Duplicate {
        /// The id of the tool.
        id: String,
    },
}

/// A hash that distinguishes two entries.
pub type Fingerprint = [u8; 32];

/// A tool in the registry. Immutable; shared between snapshots.
#[derive(Debug)]
pub struct ToolEntry {
    id: Arc<str>,
    definition: Arc<ToolDefinition>,
    source: ToolSource,
    optional: bool,
    checks_itself: bool,
    reports_invalid_arguments_itself: bool,
    host_arguments: &'static [HostArgument],
    host_paths_granted: bool,
    session: Option<Box<str>>,
    profiles: Box<[Profile]>,
    native: Option<NativeClass>,
    /// Whether the tool works on what belongs to the owner of the installation.
    is_owners: bool,
    /// SHA-256 over the definition.
    described: Fingerprint,
    fingerprint: Fingerprint,
    // Boxed: most tools of a large catalog never need them.
    paths: Option<Box<MarkFinder>>,
    secrets: Option<Box<MarkFinder>>,
    input: OnceLock<Box<CompiledSchema>>,
    output: OnceLock<Box<CompiledSchema>>,
}

/// Without spare capacity, because the value does not change any more.
fn fitted(mut definition: ToolDefinition) -> ToolDefinition {
    let ToolDefinition { title, description, side_effects, required_permissions, .. } = &mut definition;
    side_effects.shrink_to_fit();
    required_permissions.iter_mut().for_each(String::shrink_to_fit);
    required_permissions.shrink_to_fit();
    title.shrink_to_fit();
    description.shrink_to_fit();
    definition
}

impl ToolEntry {
    /// Checks the definition and computes derived values. Schemas are compiled when first needed, because most tools of
    /// a large catalog are never called.
    pub fn new(definition: ToolDefinition, source: ToolSource) -> Result<Self, RegistryError> {
        definition.check()?;
        source.check()?;
        let input = definition.input_schema.parse();
        let output = definition.output_schema.as_ref().map(Schema::parse);
        for (schema, map) in [("inputSchema", Some(&input)), ("outputSchema", output.as_ref())] {
            if let Some(Err(problem)) = map.map(check_shape) {
                return Err(RegistryError::Schema { tool: definition.name.to_string(), schema, problem });
            }
        }
        let marked = |mark| match MarkFinder::new(mark, &input) {
            Ok(finder) if finder.is_empty() => Ok(None),
            Ok(finder) => Ok(Some(Box::new(finder))),
            Err(problem) => {
                Err(RegistryError::Schema { tool: definition.name.to_string(), schema: "inputSchema", problem })
            }
        };
        let (paths, secrets) = (marked(Mark::VaultPath)?, marked(Mark::Secret)?);
        // An upstream tool is called `<server>__<tool>`; its id names the server already.
        let local = match source.kind {
            SourceKind::Mcp => definition.name.as_str().strip_prefix(&*source.name).and_then(|n| n.strip_prefix("__")),
            _ => None,
        };
        let local = local.unwrap_or(definition.name.as_str());
        let described = canonical::to_vec(&definition).map_err(|error| {
            let problem = format!("the definition cannot be written: {error}");
            ToolDefinitionError { tool: definition.name.to_string(), problem }
        })?;
        let mut entry = Self {
            id: format!("{}:{}:{local}", source.catalog_source(), source.name).into(),
            paths,
            secrets,
            definition: Arc::new(fitted(definition)),
            source,
            optional: false,
            checks_itself: false,
            reports_invalid_arguments_itself: false,
            host_arguments: &[],
            host_paths_granted: false,
            session: None,
            profiles: Box::default(),
            native: None,
            is_owners: false,
            described: canonical::sha256(&described),
            fingerprint: [0; 32],
            input: OnceLock::new(),
            output: OnceLock::new(),
        };
        entry.refresh_fingerprint();
        Ok(entry)
    }

    /// Restricts the tool to one session; for all other sessions it does not exist.
    #[must_use]
    pub fn with_session(mut self, session: impl Into<Box<str>>) -> Self {
        self.session = Some(session.into());
        self.refresh_fingerprint();
        self
    }

    /// Marks the tool as one that is off until an allow list names it (or the profile is `full`).
    #[must_use]
    pub fn with_optional(mut self, optional: bool) -> Self {
        self.optional = optional;
        self.refresh_fingerprint();
        self
    }

    /// Marks a tool that checks its own arguments: its schema is for models only, because the texts of its error
    /// messages are part of its contract.
    #[must_use]
    pub fn with_own_checks(mut self, checks_itself: bool) -> Self {
        self.checks_itself = checks_itself;
        self.refresh_fingerprint();
        self
    }

    /// Marks the tool as one that answers arguments which do not fit its schema itself, in the shape of all its answers. The
    /// schema stays what plans are checked by before they run.
    #[must_use]
    pub fn reporting_invalid_arguments_itself(mut self) -> Self {
        self.reports_invalid_arguments_itself = true;
        self
    }

    /// Whether the tool is called with arguments that do not fit its schema, to answer that itself.
    pub fn reports_invalid_arguments_itself(&self) -> bool {
        self.reports_invalid_arguments_itself
    }

    /// Names the arguments that are paths of the host. Agents are refused when they name one, unless `granted` says that
    /// the configuration grants folders; then the tool itself checks that the path lies in one of them.
    #[must_use]
    pub fn with_host_arguments(mut self, arguments: &'static [HostArgument], granted: bool) -> Self {
        self.host_arguments = arguments;
        self.host_paths_granted = granted;
        self.refresh_fingerprint();
        self
    }

    /// Marks a tool that works on what belongs to the owner of the installation: the notes' vault. It is there for callers
    /// of the default workspace, and for others that were given access. Not part of the fingerprint, because it changes
    /// nothing for the owner.
    #[must_use]
    pub fn of_owner(mut self) -> Self {
        self.is_owners = true;
        self
    }

    /// Whether the tool works on what belongs to the owner of the installation.
    pub fn is_owners(&self) -> bool {
        self.is_owners
    }

    /// Marks a tool of coding agents, which only their hooks can call.
    #[must_use]
    pub fn with_native(mut self, class: NativeClass) -> Self {
        self.native = Some(class);
        self.refresh_fingerprint();
        self
    }

    /// Says which profiles the tool belongs to. Empty means: by its groups.
    #[must_use]
    pub fn with_profiles(mut self, profiles: Vec<Profile>) -> Self {
        self.profiles = profiles.into();
        self.refresh_fingerprint();
        self
    }

    /// `<source>:<source name>:<tool>`, for example `openclaw:core:vault.readFile`.
    pub fn id(&self) -> &str {
        &self.id
    }
    /// The same as a shared string, so that a catalog of thousands of tools holds each id once.
    pub fn shared_id(&self) -> &Arc<str> {
        &self.id
    }
    /// The tool's name.
    pub fn name(&self) -> &ToolName {
        &self.definition.name
    }
    /// The tool's definition.
    pub fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }
    /// The only session that has the tool; `None` if all sessions have it.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }
    /// The workspace of that session.
    pub fn workspace(&self) -> Option<WorkspaceId> {
        self.session().map(|session| WorkspaceId::of(session).0)
    }
    /// Whether a session of the workspace has the tool, or all sessions have it.
    pub fn is_in(&self, workspace: &WorkspaceId) -> bool {
        self.session().is_none_or(|session| workspace.owns(session))
    }
    /// Where it comes from.
    pub fn source(&self) -> &ToolSource {
        &self.source
    }
    /// Whether it is off until an allow list names it.
    pub fn optional(&self) -> bool {
        self.optional
    }
    /// The arguments that are paths of the host.
    pub fn host_arguments(&self) -> &'static [HostArgument] {
        self.host_arguments
    }
    /// Whether agents may name paths of the host in folders that the configuration grants.
    pub fn host_paths_granted(&self) -> bool {
        self.host_paths_granted
    }
    /// The class of native calls that the tool represents, if any.
    pub fn native(&self) -> Option<NativeClass> {
        self.native
    }
    /// The profiles it declares.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }
    /// SHA-256 over everything above: two entries with the same fingerprint behave the same.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Checks arguments against the input schema. Changes nothing and fills in no defaults.
    pub fn check_input(&self, args: &Value) -> Result<(), Vec<Violation>> {
        if self.checks_itself && args.is_object() {
            return Ok(());
        }
        self.input
            .get_or_init(|| Box::new(CompiledSchema::new("input", self.definition.input_schema.value())))
            .check(args)
    }

    /// Checks data against the output schema; a tool without one may answer anything.
    pub fn check_output(&self, data: &Value) -> Result<(), Vec<Violation>> {
        match &self.definition.output_schema {
            Some(schema) => {
                self.output.get_or_init(|| Box::new(CompiledSchema::new("output", schema.value()))).check(data)
            }
            None => Ok(()),
        }
    }

    /// Every string in the arguments that the input schema calls a vault path (`"format":"vault-path"`), with its
    /// JSON Pointer, in the order of the arguments.
    pub fn path_arguments<'a>(&self, args: &'a Map<String, Value>) -> Vec<(String, &'a str)> {
        let found = self.paths.as_ref().map(|paths| paths.find(args)).unwrap_or_default();
        found.into_iter().filter_map(|(pointer, value)| Some((pointer, value.as_str()?))).collect()
    }

    /// The JSON Pointers of every argument that the input schema marks as secret: `"writeOnly":true`,
    /// `"format":"password"` or `"x-toolyard-secret":true`.
    pub fn secret_arguments(&self, args: &Map<String, Value>) -> Vec<String> {
        let found = self.secrets.as_ref().map(|secrets| secrets.find(args)).unwrap_or_default();
        found.into_iter().map(|(pointer, _)| pointer).collect()
    }

    /// Whether the input schema has vault paths.
    pub fn has_path_arguments(&self) -> bool {
        self.paths.is_some()
    }

    fn refresh_fingerprint(&mut self) {
        let flags = json!([self.optional, self.checks_itself, self.profiles]);
        let mut bytes = self.described.to_vec();
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.extend_from_slice(flags.to_string().as_bytes());
        bytes.extend_from_slice(self.session.as_deref().unwrap_or_default().as_bytes());
        if let Some(class) = self.native {
            bytes.extend_from_slice(class.describe().as_bytes());
        }
        if !self.host_arguments.is_empty() {
            let names: Vec<&str> = self.host_arguments.iter().map(|argument| argument.name).collect();
            bytes.extend_from_slice(json!([names, self.host_paths_granted]).to_string().as_bytes());
        }
        self.fingerprint = canonical::sha256(&bytes);
    }
}
