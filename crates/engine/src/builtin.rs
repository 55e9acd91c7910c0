//! [`BuiltIn`]: the description of a built-in tool. All built-in tools are built here, so that they have the same
//! defaults and the same checks. A wrong description is an error, never a missing tool.

mod schema;

pub use schema::{answer_schema, argument_schema};

use schemars::JsonSchema;
use serde_json::{Map, Value};
use toolyard_protocol::{
    Availability, DEFAULT_TIMEOUT_MS, Idempotency, RiskLevel, Schema, ToolDefinition, ToolDefinitionError, ToolName,
    Undo,
};

/// The longest timeout that a call of a built-in tool may set, unless the tool's definition says otherwise.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// The version of a built-in tool.
const VERSION: &str = "1.0.0";

/// A built-in tool before it has its name. Start with [`BuiltIn::reads`] or [`BuiltIn::writes`], end with
/// [`BuiltIn::build`].
#[derive(Debug, Clone)]
#[must_use]
pub struct BuiltIn {
    title: &'static str,
    description: &'static str,
    category: Option<&'static str>,
    risk: RiskLevel,
    idempotency: Idempotency,
    side_effects: &'static [&'static str],
    permissions: &'static [&'static str],
    requires: &'static [&'static str],
    dry_run: bool,
    undo: Undo,
    timeout_ms: u64,
    max_timeout_ms: Option<u64>,
    arguments: Map<String, Value>,
    answer: Option<Map<String, Value>>,
}

impl BuiltIn {
    /// A tool that changes nothing. It takes no arguments until [`BuiltIn::arguments`] names some.
    pub fn reads(title: &'static str, description: &'static str) -> Self {
        #[derive(JsonSchema)]
        #[schemars(deny_unknown_fields)]
        struct Nothing {}
        Self {
            title,
            description,
            category: None,
            risk: RiskLevel::ReadOnly,
            idempotency: Idempotency::Pure,
            side_effects: &[],
            permissions: &[],
            requires: &[],
            dry_run: false,
            undo: Undo::None,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            max_timeout_ms: Some(MAX_TIMEOUT_MS),
            arguments: argument_schema::<Nothing>(),
            answer: None,
        }
    }

    /// A tool that changes something. After a crash, nothing is assumed about a call of it, unless
    /// [`BuiltIn::idempotency`] is set.
    pub fn writes(title: &'static str, description: &'static str, side_effects: &'static [&'static str]) -> Self {
        Self {
            risk: RiskLevel::Writes,
            idempotency: Idempotency::None,
            side_effects,
            ..Self::reads(title, description)
        }
    }

    /// The arguments are a `T`; the comments on its fields are what models read.
    pub fn arguments<T: JsonSchema>(self) -> Self {
        self.argument_schema(argument_schema::<T>())
    }

    /// Sets the schema of the arguments, for a tool whose schema comes from another project.
    pub fn argument_schema(mut self, schema: Map<String, Value>) -> Self {
        self.arguments = schema;
        self
    }

    /// Adds the fields of `T` to the arguments set by [`BuiltIn::arguments`].
    pub fn also_takes<T: JsonSchema>(mut self) -> Self {
        let mut more = argument_schema::<T>();
        if let (Some(Value::Object(properties)), Some(Value::Object(more))) =
            (self.arguments.get_mut("properties"), more.remove("properties"))
        {
            properties.extend(more);
        }
        self
    }

    /// The data of the answer is a `T`.
    pub fn answers<T: JsonSchema>(self) -> Self {
        self.answer_schema(answer_schema::<T>())
    }

    /// The data of the answer has this schema.
    pub fn answer_schema(mut self, schema: Map<String, Value>) -> Self {
        self.answer = Some(schema);
        self
    }

    /// The family the tool belongs to. Without it, the part of its name before the first dot.
    pub fn category(mut self, category: &'static str) -> Self {
        self.category = Some(category);
        self
    }

    /// How much harm it can do.
    pub fn risk(mut self, risk: RiskLevel) -> Self {
        self.risk = risk;
        self
    }

    /// Sets how a call whose result is unknown after a crash may be handled.
    pub fn idempotency(mut self, idempotency: Idempotency) -> Self {
        self.idempotency = idempotency;
        self
    }

    /// What a caller needs, for example `vault:write`.
    pub fn permissions(mut self, permissions: &'static [&'static str]) -> Self {
        self.permissions = permissions;
        self
    }

    /// What has to be there for the tool to work, for example `vault`.
    pub fn requires(mut self, requires: &'static [&'static str]) -> Self {
        self.requires = requires;
        self
    }

    /// Whether the tool can predict its effects without having them.
    pub fn dry_run(mut self, supported: bool) -> Self {
        self.dry_run = supported;
        self
    }

    /// How a call is taken back.
    pub fn undo(mut self, undo: Undo) -> Self {
        self.undo = undo;
        self
    }

    /// The time a call gets, and the most it may ask for.
    pub fn timeout_ms(mut self, default: u64, most: Option<u64>) -> Self {
        (self.timeout_ms, self.max_timeout_ms) = (default, most);
        self
    }

    /// The definition under this name, checked.
    ///
    /// # Errors
    /// A name that is no tool name, and whatever [`ToolDefinition::check`] refuses. Registering a crate's tools fails
    /// with it: a tool is never left out because it was described wrongly.
    pub fn build(self, name: &str) -> Result<ToolDefinition, ToolDefinitionError> {
        let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        let misnamed = |error: &dyn std::fmt::Display| ToolDefinitionError {
            tool: name.chars().take(80).collect(),
            problem: format!("this cannot be the name of a tool: {error}"),
        };
        let category = match self.category {
            Some(category) => category.into(),
            None => name.split('.').next().unwrap_or(name).to_owned().into(),
        };
        let definition = ToolDefinition {
            name: ToolName::parse(name).map_err(|error| misnamed(&error))?,
            title: self.title.to_owned(),
            description: self.description.to_owned(),
            category,
            risk_level: self.risk,
            version: VERSION.into(),
            input_schema: Schema::from(self.arguments),
            output_schema: self.answer.map(Schema::from),
            side_effects: self.side_effects.iter().map(|effect| (*effect).into()).collect(),
            idempotency: self.idempotency,
            required_permissions: strings(self.permissions),
            availability: Availability { requires: strings(self.requires) },
            cancellable: true,
            supports_dry_run: self.dry_run,
            default_timeout_ms: self.timeout_ms,
            max_timeout_ms: self.max_timeout_ms,
            undo: self.undo,
        };
        definition.check()?;
        Ok(definition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Input {
        /// What to greet.
        who: String,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Common {
        /// Why this is done.
        #[schemars(length(max = 20))]
        note: Option<String>,
    }

    #[test]
    fn a_misnamed_tool_is_an_error_that_names_it() {
        for name in ["", "has spaces", "ünïcode", &"x".repeat(200)] {
            let error = BuiltIn::reads("Greet", "Greets.").build(name).unwrap_err();
            assert!(error.to_string().contains("cannot be the name of a tool"), "{error}");
            assert!(name.starts_with(&error.tool), "{error}");
        }
    }

    #[test]
    fn a_contradictory_description_is_an_error() {
        let error = BuiltIn::reads("Greet", " ").build("greet").unwrap_err();
        assert_eq!(error.to_string(), "tool greet: a description is required");
        let error = BuiltIn::reads("Greet", "Greets.").risk(RiskLevel::ReadOnly).idempotency(Idempotency::None);
        assert!(error.build("greet").is_err());
    }

    #[test]
    fn arguments_are_strict_and_carry_the_fields_of_both_types() {
        let definition = BuiltIn::writes("Greet", "Greets.", &["speak"])
            .arguments::<Input>()
            .also_takes::<Common>()
            .build("people.greet")
            .unwrap();
        assert_eq!((definition.category.as_ref(), definition.idempotency), ("people", Idempotency::None));
        let schema = definition.input_schema.value();
        assert_eq!(schema["properties"]["who"]["description"], "What to greet.");
        assert_eq!(schema["properties"]["note"]["type"], "string", "an optional argument is left out, never null");
        assert_eq!((&schema["additionalProperties"], &schema["required"][0]), (&Value::Bool(false), &"who".into()));
    }
}
