//! `obsidian_rag_memory_store`: stores a fact, which searches return first.

use super::{Args, Call, Tool, answer, parse, writes};
use crate::{
    envelope::Problem,
    facts::{MAX_KEY_CHARS, MAX_VALUE_CHARS},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::Output;
use toolyard_protocol::Failure;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The subject of the fact, short: "anna-birthday". Storing a key again replaces its value; the old value is kept
    /// as history.
    #[schemars(length(min = 1, max = 200))]
    key: String,
    /// The fact itself.
    #[schemars(length(min = 1, max = 4000))]
    value: String,
    /// The path of the note that states it, from the vault's root.
    #[schemars(length(min = 1, max = 4096))]
    source: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Data {
    stored: bool,
    key: String,
    /// Whether anything changed: false when the same value was already stored.
    changed: bool,
    /// Earlier values of this key, oldest first.
    history: Vec<Past>,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Past {
    value: String,
    source: String,
    created_at: String,
}

/// Maximum number of past values in a response.
const MAX_HISTORY: usize = 20;

pub(super) const TOOL: Tool = Tool {
    name: "obsidian_rag_memory_store",
    define: || {
        writes::<Input, Data>("Remember a fact", "Remembers a fact from the user's notes, so that obsidian_rag_search finds it first. Ask the user before you \
                  store anything, also after a memory_suggestion.", &["memory.write"]).permissions(&["vault:read", "memory:write"])
    },
    run: |call, args| Box::pin(run(call, args)),
};

async fn run(call: Call<'_>, args: Args) -> Result<Output, Failure> {
    let input: Input = parse(args)?;
    let (key, value) = (input.key.trim().to_owned(), input.value.trim().to_owned());
    if !(1..=MAX_KEY_CHARS).contains(&key.chars().count()) || !(1..=MAX_VALUE_CHARS).contains(&value.chars().count()) {
        let message = format!("key has 1 to {MAX_KEY_CHARS} characters, value 1 to {MAX_VALUE_CHARS}, spaces aside");
        return call.refused::<Data>(Problem::argument("", &message, "Give both, within these lengths.")).await;
    }
    let source = match call.path(&input.source, "source").await {
        Ok(path) => path.to_string(),
        Err(problem) => return call.refused::<Data>(problem).await,
    };
    let (knowledge, own) = (call.knowledge.clone(), key.clone());
    let stored = tokio::task::spawn_blocking(move || {
        crate::indexer::private_folder(&knowledge.jobs.workshop().folder)?;
        let changed = knowledge.facts.store(&own, &value, &source)?;
        Ok::<_, std::io::Error>((changed, knowledge.facts.history(&own)?))
    });
    let (changed, mut history) = match stored.await {
        Ok(Ok(stored)) => stored,
        failed => {
            tracing::warn!(?failed, "a fact could not be stored");
            return call.refused::<Data>(Problem::memory("The fact could not be stored.")).await;
        }
    };
    history.pop();
    let past = history.into_iter().rev().take(MAX_HISTORY).map(|fact| Past {
        value: fact.value,
        source: fact.source,
        created_at: fact.created_at.to_string(),
    });
    let mut past: Vec<Past> = past.collect();
    past.reverse();
    let library = call.knowledge.library().await;
    let meta = call.knowledge.meta(call.started, library.as_deref().ok(), 0);
    let data = Data { stored: true, key: key.clone(), changed, history: past };
    answer(crate::envelope::Health::Healthy, Some(data), None, meta, format!("Remembered {key}"))
}
