//! A message of a conversation, as stored in `messages.jsonl`.

use crate::{
    error::{ApiError, Result},
    sessions::{jsonl, tokens},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The role of the sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person.
    #[default]
    User,
    /// A model.
    Assistant,
    /// The host program.
    System,
    /// A tool.
    Tool,
}

impl Role {
    const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::System, Self::Tool];

    /// The name on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::Tool => "tool",
        }
    }

    /// Parses the name.
    pub fn parse(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word).ok_or_else(|| {
            let shown: String = word.chars().take(40).collect();
            let words: Vec<&str> = Self::ALL.iter().map(|role| role.as_str()).collect();
            ApiError::argument(format!("Invalid role {shown:?}: use one of {}", words.join(", ")))
        })
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        #[serde(default)]
        text: String,
    },
    /// A resource of the store that was shown to the sender.
    Context(ContextPart),
    /// A tool call and its result.
    Tool(Box<ToolPart>),
    /// An image; the sender defines its fields.
    Image(serde_json::Map<String, serde_json::Value>),
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// A resource of the store that was shown to the sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextPart {
    /// The URI.
    pub uri: String,
    /// `memory`, `resource` or `skill`.
    pub context_type: String,
    /// The abstract.
    #[serde(rename = "abstract")]
    pub abstract_: String,
}

/// A tool call and its result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolPart {
    /// The call's id.
    pub tool_id: String,
    /// The tool's name.
    pub tool_name: String,
    /// URI of the tool's description, if there is one.
    pub tool_uri: String,
    /// URI of the skill that called the tool.
    pub skill_uri: String,
    /// `completed`, `error`, or another status set by the sender.
    pub tool_status: String,
    /// The tool's arguments.
    pub tool_input: Value,
    /// The tool's output, or a stub when the output is stored separately.
    pub tool_output: String,
    /// Why the output is stored separately, or why it need not be.
    #[serde(rename = "tool_output_externalized_reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Where the full output is stored.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub kept: Option<StoredOutput>,
}

/// Why an output is stored separately from its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The output is long.
    SingleThreshold,
    /// The outputs of the message are long in total.
    TurnBudget,
    /// The output was read from a stored output, so it stays in the message.
    SourceRead,
}

impl Reason {
    /// The name on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SingleThreshold => "single_threshold",
            Self::TurnBudget => "turn_budget",
            Self::SourceRead => "source_read",
        }
    }
}

/// Where the full text of a long output is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredOutput {
    /// The reference that the reading tools take.
    #[serde(rename = "tool_output_ref")]
    pub reference: String,
    /// Whether the message contains a stub.
    #[serde(rename = "tool_output_truncated")]
    pub truncated: bool,
    /// Length of the full output, in characters.
    #[serde(rename = "tool_output_original_chars")]
    pub original_chars: usize,
    /// Length of the stub, in characters.
    #[serde(rename = "tool_output_preview_chars")]
    pub preview_chars: usize,
    /// SHA-256 of the full output.
    #[serde(rename = "tool_output_sha256")]
    pub sha256: String,
    /// The URI of its folder.
    #[serde(rename = "tool_output_storage_uri")]
    pub storage_uri: String,
    /// The id of its message.
    #[serde(rename = "tool_output_group_id")]
    pub group_id: String,
    /// Total length of all outputs of the message, in characters.
    #[serde(rename = "tool_output_group_original_chars")]
    pub group_original_chars: usize,
    /// Maximum total length of the outputs in a message, in characters.
    #[serde(rename = "tool_output_group_budget_chars")]
    pub group_budget_chars: usize,
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    /// Id assigned by the store.
    pub id: String,
    /// The role of the sender.
    pub role: Role,
    /// The content.
    pub parts: Vec<Part>,
    /// When it was sent.
    pub created_at: String,
    /// The peer that sent the message or that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_id: Option<String>,
    /// Somebody asked to remember this text; set by `memory_store`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remember: bool,
}

impl Message {
    /// Its tool calls and results.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &ToolPart> {
        self.parts.iter().filter_map(|part| if let Part::Tool(tool) = part { Some(&**tool) } else { None })
    }

    /// Its text parts.
    pub(crate) fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| if let Part::Text { text } = part { Some(text) } else { None });
        texts.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Estimated number of tokens, by the formula of OpenViking.
    pub(crate) fn tokens(&self) -> u64 {
        let sum: f64 = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Text { text } => tokens(text),
                Part::Context(context) => tokens(&context.abstract_),
                Part::Tool(tool) => {
                    let input = if tool.tool_input.is_null() { String::new() } else { spaced(&tool.tool_input) };
                    tokens(&tool.tool_name) + tokens(&tool.tool_output) + tokens(&input)
                }
                Part::Image(_) => 0.0,
            })
            .sum();
        sum.ceil() as u64
    }
}

/// Arguments in the format of the file.
fn spaced(input: &Value) -> String {
    let line = jsonl::lines(std::slice::from_ref(input)).unwrap_or_else(|_| input.to_string());
    line.trim_end().to_owned()
}

/// A new message.
#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    /// The role of the sender.
    pub role: Role,
    /// The content.
    pub parts: Vec<Part>,
    /// The peer that sent the message or that it is about.
    pub peer_id: Option<String>,
    /// When it was sent; the current time if unset.
    pub created_at: Option<String>,
    /// Store the text as a memory, regardless of sender and content.
    pub remember: bool,
}

impl NewMessage {
    /// A text message of the user.
    pub(crate) fn said(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::text(text)], ..Self::default() }
    }
}
