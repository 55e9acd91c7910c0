//! A language model that writes summaries and memories. Its output is validated before use. Nothing is lost when it
//! fails, because the messages are archived before it is called.

use crate::config::{LlmConfig, LlmKind};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;
use toolyard_recall::{
    extract::{MAX_ABSTRACT_CHARS, MAX_OVERVIEW_CHARS, Memory, Message, Summary},
    index::Category,
};

/// Maximum number of characters of a conversation that are sent, from its end.
const MAX_SENT_CHARS: usize = 60_000;
/// Maximum size of a response, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Maximum number of memories in one response.
const MAX_MEMORIES: usize = 200;
/// Maximum length of a memory, in characters.
const MAX_MEMORY_CHARS: usize = 2_000;

/// A chat message, in the form that both interfaces accept.
#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: &'a str,
}

/// A request to Ollama.
#[derive(Serialize)]
struct OllamaChat<'a> {
    model: &'a str,
    messages: [Turn<'a>; 2],
    stream: bool,
    format: &'static str,
    options: OllamaOptions,
}

#[derive(Serialize)]
struct OllamaOptions {
    temperature: u8,
}

/// A request to a server with OpenAI's interface.
#[derive(Serialize)]
struct OpenAiChat<'a> {
    model: &'a str,
    messages: [Turn<'a>; 2],
    temperature: u8,
    response_format: ResponseFormat,
}

#[derive(Serialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: &'static str,
}

/// A response of either interface: Ollama returns one message, OpenAI a list of choices.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ChatAnswer {
    message: ChatReply,
    choices: Vec<Choice>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice {
    message: ChatReply,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ChatReply {
    content: Option<String>,
}

/// A field of the model's output: a text, or something else that is ignored.
#[derive(Deserialize)]
#[serde(untagged)]
enum Field {
    Text(String),
    Other(serde::de::IgnoredAny),
}

impl Field {
    /// The trimmed and truncated text; `None` when it is empty or not a text.
    fn text(field: Option<&Self>, most: usize) -> Option<String> {
        let Some(Self::Text(text)) = field else { return None };
        let text: String = text.trim().chars().take(most).collect();
        (!text.is_empty()).then_some(text)
    }
}

#[derive(Deserialize)]
struct SummaryAnswer {
    #[serde(rename = "abstract")]
    abstract_: Option<Field>,
    overview: Option<Field>,
}

#[derive(Deserialize)]
struct MemoriesAnswer {
    memories: Option<Vec<MemoryAnswer>>,
}

/// A memory in the model's output. Invalid ones are skipped.
#[derive(Deserialize)]
struct MemoryAnswer {
    category: Option<Field>,
    text: Option<Field>,
}

/// A client of the configured language model.
pub(crate) struct Model {
    config: LlmConfig,
    client: reqwest::Client,
    runtime: tokio::runtime::Handle,
}

impl Model {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(config: &LlmConfig) -> Result<Self, String> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|e| e.to_string())?;
        toolyard_import::fetch::settle_cryptography();
        // Conversations are private, so neither a proxy nor a redirect may send them elsewhere.
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_millis(config.timeout_ms))
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self { config: config.clone(), client, runtime })
    }

    pub(crate) fn summary(&self, messages: &[Message<'_>]) -> Result<Summary, String> {
        let answer: SummaryAnswer = self.ask(
            "Summarise the conversation. Answer with one JSON object: {\"abstract\": one or two sentences, at most 250 characters, \
             \"overview\": Markdown that begins with a title line '# ', then what was asked, decided, done and left open}. \
             Use only what was said.",
            messages,
        )?;
        let given = |key: &str, field: Option<&Field>, most: usize| {
            Field::text(field, most).ok_or_else(|| format!("the model gave no {key}"))
        };
        Ok(Summary {
            summary: given("abstract", answer.abstract_.as_ref(), MAX_ABSTRACT_CHARS)?,
            overview: given("overview", answer.overview.as_ref(), MAX_OVERVIEW_CHARS)?,
        })
    }

    pub(crate) fn memories(&self, messages: &[Message<'_>]) -> Result<Vec<Memory>, String> {
        let answer: MemoriesAnswer = self.ask(
            "List what is worth remembering for later conversations. Answer with one JSON object: {\"memories\": [{\"category\": \
             \"profile\" | \"preferences\" | \"entities\" | \"events\" | \"cases\", \"text\": one self-contained sentence}]}. Use only what \
             was said; an empty list is fine.",
            messages,
        )?;
        let list = answer.memories.ok_or("the model gave no list of memories")?;
        let said_ms = messages.iter().filter_map(|m| m.time_ms).max();
        Ok(list
            .iter()
            .take(MAX_MEMORIES)
            .filter_map(|item| {
                let category = Category::of_name(&Field::text(item.category.as_ref(), MAX_MEMORY_CHARS)?)?;
                let text = Field::text(item.text.as_ref(), MAX_MEMORY_CHARS)?;
                Some(Memory { said_ms, ..Memory::plain(category, text) })
            })
            .collect())
    }

    fn ask<T: DeserializeOwned>(&self, task: &str, messages: &[Message<'_>]) -> Result<T, String> {
        let conversation: String =
            messages.iter().map(|m| format!("{}: {}\n", m.speaker.unwrap_or(m.role), m.text)).collect();
        let skip = conversation.chars().count().saturating_sub(MAX_SENT_CHARS);
        let conversation: String = conversation.chars().skip(skip).collect();
        let messages = [Turn { role: "system", content: task }, Turn { role: "user", content: &conversation }];
        let (base, model) = (self.config.url.trim_end_matches('/'), self.config.model.as_str());
        let request = match self.config.kind {
            LlmKind::Ollama => self.client.post(format!("{base}/api/chat")).json(&OllamaChat {
                model,
                messages,
                stream: false,
                format: "json",
                options: OllamaOptions { temperature: 0 },
            }),
            LlmKind::Openai => self.client.post(format!("{base}/chat/completions")).json(&OpenAiChat {
                model,
                messages,
                temperature: 0,
                response_format: ResponseFormat { kind: "json_object" },
            }),
        };
        let key = self.config.api_key_env.as_ref().and_then(|name| std::env::var(name).ok());
        let request = match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let answer = self.runtime.block_on(send(request))?;
        let spoken = match self.config.kind {
            LlmKind::Ollama => answer.message,
            LlmKind::Openai => answer.choices.into_iter().next().unwrap_or_default().message,
        };
        let text = spoken.content.ok_or("the model's answer has no content")?;
        let json = text.find('{').zip(text.rfind('}')).and_then(|(start, end)| text.get(start..=end));
        let json = json.ok_or("the model's answer is no JSON object")?;
        serde_json::from_str(json).map_err(|_| "the model's answer is no JSON object".to_owned())
    }
}

async fn send(request: reqwest::RequestBuilder) -> Result<ChatAnswer, String> {
    let mut response = request.send().await.map_err(|_| "the model could not be reached".to_owned())?;
    if !response.status().is_success() {
        return Err(format!("the model's server answered {}", response.status().as_u16()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "the model's answer broke off".to_owned())? {
        if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err("the model's answer is too long".to_owned());
        }
        bytes.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&bytes).map_err(|_| "the model's answer is not JSON".to_owned())
}
