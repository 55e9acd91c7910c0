//! A language model, asked for summaries and memories. What it says is checked before it is used; nothing is lost when it
//! does not answer, because the messages are archived before it is asked.

use crate::config::{LlmConfig, LlmKind};
use serde_json::{Value, json};
use std::time::Duration;
use toolyard_recall::{
    extract::{MAX_ABSTRACT_CHARS, MAX_OVERVIEW_CHARS, Memory, Message, Summary},
    index::Category,
};

/// Characters of a conversation that are sent, from its end.
const MAX_SENT_CHARS: usize = 60_000;
/// An answer is at most this long.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Memories of one answer, at most.
const MAX_MEMORIES: usize = 200;
/// Characters of a memory.
const MAX_MEMORY_CHARS: usize = 2_000;

/// See the module's description.
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
        // Conversations must not take a detour: neither a proxy nor a redirect may choose where they go.
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_millis(config.timeout_ms))
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self { config: config.clone(), client, runtime })
    }

    pub(crate) fn summary(&self, messages: &[Message<'_>]) -> Result<Summary, String> {
        let answer = self.ask(
            "Summarise the conversation. Answer with one JSON object: {\"abstract\": one or two sentences, at most 250 characters, \
             \"overview\": Markdown that begins with a title line '# ', then what was asked, decided, done and left open}. \
             Use only what was said.",
            messages,
        )?;
        let text = |key: &str, most: usize| {
            let text: String = answer[key].as_str().unwrap_or_default().trim().chars().take(most).collect();
            if text.is_empty() { Err(format!("the model gave no {key}")) } else { Ok(text) }
        };
        Ok(Summary { summary: text("abstract", MAX_ABSTRACT_CHARS)?, overview: text("overview", MAX_OVERVIEW_CHARS)? })
    }

    pub(crate) fn memories(&self, messages: &[Message<'_>]) -> Result<Vec<Memory>, String> {
        let answer = self.ask(
            "List what is worth remembering for later conversations. Answer with one JSON object: {\"memories\": [{\"category\": \
             \"profile\" | \"preferences\" | \"entities\" | \"events\" | \"cases\", \"text\": one self-contained sentence}]}. Use only what \
             was said; an empty list is fine.",
            messages,
        )?;
        let list = answer["memories"].as_array().ok_or("the model gave no list of memories")?;
        let said_ms = messages.iter().filter_map(|m| m.time_ms).max();
        Ok(list
            .iter()
            .take(MAX_MEMORIES)
            .filter_map(|item| {
                let category = Category::of_name(item["category"].as_str()?)?;
                let text: String = item["text"].as_str()?.trim().chars().take(MAX_MEMORY_CHARS).collect();
                (!text.is_empty()).then(|| Memory { said_ms, ..Memory::plain(category, text) })
            })
            .collect())
    }

    fn ask(&self, task: &str, messages: &[Message<'_>]) -> Result<Value, String> {
        let told: String = messages.iter().map(|m| format!("{}: {}\n", m.speaker.unwrap_or(m.role), m.text)).collect();
        let skip = told.chars().count().saturating_sub(MAX_SENT_CHARS);
        let told: String = told.chars().skip(skip).collect();
        let words = json!([{"role": "system", "content": task}, {"role": "user", "content": told}]);
        let base = self.config.url.trim_end_matches('/');
        let (url, body) = match self.config.kind {
            LlmKind::Ollama => (
                format!("{base}/api/chat"),
                json!({"model": self.config.model, "messages": words, "stream": false, "format": "json", "options": {"temperature": 0}}),
            ),
            LlmKind::Openai => (
                format!("{base}/chat/completions"),
                json!({"model": self.config.model, "messages": words, "temperature": 0, "response_format": {"type": "json_object"}}),
            ),
        };
        let key = self.config.api_key_env.as_ref().and_then(|name| std::env::var(name).ok());
        let answer = self.runtime.block_on(self.send(&url, &body, key))?;
        let content = match self.config.kind {
            LlmKind::Ollama => &answer["message"]["content"],
            LlmKind::Openai => &answer["choices"][0]["message"]["content"],
        };
        let text = content.as_str().ok_or("the model's answer has no content")?;
        let start = text.find('{').ok_or("the model's answer is no JSON object")?;
        let end = text.rfind('}').ok_or("the model's answer is no JSON object")?;
        serde_json::from_str(text.get(start..=end).unwrap_or_default())
            .map_err(|_| "the model's answer is no JSON object".to_owned())
    }

    async fn send(&self, url: &str, body: &Value, key: Option<String>) -> Result<Value, String> {
        let mut request = self.client.post(url).json(body);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
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
}
