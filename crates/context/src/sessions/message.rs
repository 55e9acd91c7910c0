//! A message of a conversation, as `messages.jsonl` keeps it.

use crate::{
    error::{ApiError, Result},
    sessions::{jsonl, tokens},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person.
    #[default]
    User,
    /// A model.
    Assistant,
    /// The program around them.
    System,
    /// A tool.
    Tool,
}

impl Role {
    const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::System, Self::Tool];

    /// The word on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::Tool => "tool",
        }
    }

    /// Reads the word.
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
    /// What was said.
    Text {
        /// In words.
        #[serde(default)]
        text: String,
    },
    /// Something of the store that the speaker was shown.
    Context(ContextPart),
    /// A tool call and its result.
    Tool(Box<ToolPart>),
    /// An image; its fields are the sender's.
    Image(serde_json::Map<String, serde_json::Value>),
}

impl Part {
    /// Words alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// Something of the store that the speaker was shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextPart {
    /// Where it is.
    pub uri: String,
    /// `memory`, `resource` or `skill`.
    pub context_type: String,
    /// In few words.
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
    /// Where the tool is described, if it is.
    pub tool_uri: String,
    /// Where the skill is that called it.
    pub skill_uri: String,
    /// `completed`, `error` and others of the sender's.
    pub tool_status: String,
    /// The tool's arguments.
    pub tool_input: Value,
    /// What the tool said, or a stub where that is kept apart.
    pub tool_output: String,
    /// Why the output is kept apart, or why it did not have to be.
    #[serde(rename = "tool_output_externalized_reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Where the whole output is kept.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptOutput>,
}

/// Why an output is kept apart from its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is long.
    SingleThreshold,
    /// The outputs of the message are long together.
    TurnBudget,
    /// It was read from a kept output, which is there already; so it stays in the message.
    SourceRead,
}

impl Reason {
    /// The word on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SingleThreshold => "single_threshold",
            Self::TurnBudget => "turn_budget",
            Self::SourceRead => "source_read",
        }
    }
}

/// Where the whole of a long output is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptOutput {
    /// What the tools that read it back are called with.
    #[serde(rename = "tool_output_ref")]
    pub reference: String,
    /// The message holds a stub.
    #[serde(rename = "tool_output_truncated")]
    pub truncated: bool,
    /// Characters of the whole output.
    #[serde(rename = "tool_output_original_chars")]
    pub original_chars: usize,
    /// Characters of the stub.
    #[serde(rename = "tool_output_preview_chars")]
    pub preview_chars: usize,
    /// Of the whole output.
    #[serde(rename = "tool_output_sha256")]
    pub sha256: String,
    /// Its folder.
    #[serde(rename = "tool_output_storage_uri")]
    pub storage_uri: String,
    /// The message it belongs to.
    #[serde(rename = "tool_output_group_id")]
    pub group_id: String,
    /// Characters of all outputs of the message.
    #[serde(rename = "tool_output_group_original_chars")]
    pub group_original_chars: usize,
    /// Characters of outputs that a message may hold.
    #[serde(rename = "tool_output_group_budget_chars")]
    pub group_budget_chars: usize,
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    /// Made by the store.
    pub id: String,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// When it was said.
    pub created_at: String,
    /// Which peer speaks or is spoken of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_id: Option<String>,
    /// Its text is a memory because somebody says so; `memory_store` sets it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remember: bool,
}

impl Message {
    /// Its calls and results.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &ToolPart> {
        self.parts.iter().filter_map(|part| if let Part::Tool(tool) = part { Some(&**tool) } else { None })
    }

    /// What is said in words.
    pub(crate) fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| if let Part::Text { text } = part { Some(text) } else { None });
        texts.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// How long it is for a model, as the contract estimates.
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

/// Arguments as the line of a file shows them.
fn spaced(input: &Value) -> String {
    let line = jsonl::lines(std::slice::from_ref(input)).unwrap_or_else(|_| input.to_string());
    line.trim_end().to_owned()
}

/// A message as it comes in.
#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// Which peer speaks or is spoken of.
    pub peer_id: Option<String>,
    /// When; now if unset.
    pub created_at: Option<String>,
    /// Its text is a memory because somebody says so, whoever speaks and whatever it says.
    pub remember: bool,
}

impl NewMessage {
    /// A user's words.
    pub(crate) fn said(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::text(text)], ..Self::default() }
    }
}
