//! The answer of every `obsidian_rag_*` tool: `{status, data, error, meta}`. Problems are reported with a few codes
//! that an agent can act on; details go to the log, never to the agent.

use crate::{
    embed::EmbedError,
    index::{IndexError, ProgramError},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolyard_engine::redact::redactor;

/// The health of the notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Everything works.
    Healthy,
    /// Searches work, but something is missing or out of date.
    Degraded,
    /// Searches are impossible.
    Unavailable,
}

impl Health {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The error code that an agent branches on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProblemCode {
    /// Ollama does not respond, or lacks the model.
    OllamaUnreachable,
    /// Another embedding server does not respond.
    EmbedderUnreachable,
    /// Nothing has been indexed, or there is nothing to index.
    IndexNotFound,
    /// The index cannot be read, or does not match the embedder.
    IndexCorrupted,
    /// A path that leads out of the vault or is not allowed.
    SecurityViolation,
    /// Results are withheld until the user confirms.
    SensitiveFiltered,
    /// The indexer stopped before it was done.
    IndexerFailed,
    /// The index is out of date and the vault has changed.
    IndexStale,
    /// The index program is not installed; a smaller in-memory index is used instead.
    IndexProgramMissing,
    /// The index program does not start, ended before it responded, or has another version.
    IndexProgramFailed,
    /// The vault or the disk cannot be reached.
    VaultUnavailable,
    /// An argument that matches the schema but is still invalid.
    ValidationError,
}

impl ProblemCode {
    /// The code as written in a response.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OllamaUnreachable => "OLLAMA_UNREACHABLE",
            Self::EmbedderUnreachable => "EMBEDDER_UNREACHABLE",
            Self::IndexNotFound => "INDEX_NOT_FOUND",
            Self::IndexCorrupted => "INDEX_CORRUPTED",
            Self::SecurityViolation => "SECURITY_VIOLATION",
            Self::SensitiveFiltered => "SENSITIVE_FILTERED",
            Self::IndexerFailed => "INDEXER_FAILED",
            Self::IndexStale => "INDEX_STALE",
            Self::IndexProgramMissing => "INDEX_PROGRAM_MISSING",
            Self::IndexProgramFailed => "INDEX_PROGRAM_FAILED",
            Self::VaultUnavailable => "VAULT_UNAVAILABLE",
            Self::ValidationError => "VALIDATION_ERROR",
        }
    }

    /// The codes that only these tools have, each with its page. `VALIDATION_ERROR` has the page of the engine's code.
    pub const PAGES: [(&'static str, &'static str); 11] = [
        ("OLLAMA_UNREACHABLE", include_str!("../../../docs/reference/errors/notes/OLLAMA_UNREACHABLE.md")),
        ("EMBEDDER_UNREACHABLE", include_str!("../../../docs/reference/errors/notes/EMBEDDER_UNREACHABLE.md")),
        ("INDEX_NOT_FOUND", include_str!("../../../docs/reference/errors/notes/INDEX_NOT_FOUND.md")),
        ("INDEX_CORRUPTED", include_str!("../../../docs/reference/errors/notes/INDEX_CORRUPTED.md")),
        ("SECURITY_VIOLATION", include_str!("../../../docs/reference/errors/notes/SECURITY_VIOLATION.md")),
        ("SENSITIVE_FILTERED", include_str!("../../../docs/reference/errors/notes/SENSITIVE_FILTERED.md")),
        ("INDEXER_FAILED", include_str!("../../../docs/reference/errors/notes/INDEXER_FAILED.md")),
        ("INDEX_STALE", include_str!("../../../docs/reference/errors/notes/INDEX_STALE.md")),
        ("INDEX_PROGRAM_MISSING", include_str!("../../../docs/reference/errors/notes/INDEX_PROGRAM_MISSING.md")),
        ("INDEX_PROGRAM_FAILED", include_str!("../../../docs/reference/errors/notes/INDEX_PROGRAM_FAILED.md")),
        ("VAULT_UNAVAILABLE", include_str!("../../../docs/reference/errors/notes/VAULT_UNAVAILABLE.md")),
    ];
}

/// A problem and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Problem {
    /// The error code that an agent branches on.
    pub code: ProblemCode,
    /// A message for people.
    pub message: String,
    /// Whether a retry can help.
    pub recoverable: bool,
    /// What to do.
    pub suggestion: String,
    /// The underlying causes, for the result's `debugMessage`; an agent never sees them.
    #[serde(skip)]
    pub(crate) causes: Option<String>,
}

impl Problem {
    fn new(code: ProblemCode, message: impl Into<String>, recoverable: bool, suggestion: impl Into<String>) -> Self {
        // An index or a server may quote its URL.
        let hide = |text: String| redactor().text(&text).into_owned();
        Self { code, message: hide(message.into()), recoverable, suggestion: hide(suggestion.into()), causes: None }
    }

    fn with_causes(self, causes: Option<String>) -> Self {
        Self { causes, ..self }
    }

    /// The health status for this problem, by the error matrix.
    pub fn status(&self) -> Health {
        match self.code {
            ProblemCode::OllamaUnreachable
            | ProblemCode::EmbedderUnreachable
            | ProblemCode::SensitiveFiltered
            | ProblemCode::IndexProgramMissing
            | ProblemCode::IndexStale => Health::Degraded,
            ProblemCode::IndexNotFound
            | ProblemCode::IndexCorrupted
            | ProblemCode::IndexProgramFailed
            | ProblemCode::SecurityViolation
            | ProblemCode::IndexerFailed
            | ProblemCode::VaultUnavailable
            | ProblemCode::ValidationError => Health::Unavailable,
        }
    }

    /// The embedder failed.
    pub fn of_embedder(error: &EmbedError) -> Self {
        let code = match error {
            EmbedError::Unreachable { service, .. }
            | EmbedError::ModelMissing { service, .. }
            | EmbedError::Refused { service, .. }
                if *service != "Ollama" =>
            {
                ProblemCode::EmbedderUnreachable
            }
            EmbedError::NotAllowed(_) => ProblemCode::EmbedderUnreachable,
            _ => ProblemCode::OllamaUnreachable,
        };
        let suggestion = match error {
            EmbedError::Unreachable { service: "Ollama", .. } => {
                "Start Ollama (`ollama serve`) and search again; until then only words are matched.".to_owned()
            }
            EmbedError::ModelMissing { service: "Ollama", model } => {
                format!("Run `ollama pull {model}`, then call obsidian_rag_index with mode sync.")
            }
            EmbedError::NotAllowed(_) => "Correct [knowledge.embedding] in config.toml.".to_owned(),
            _ => "Check the server named in knowledge.embedding and search again; until then only words are matched."
                .to_owned(),
        };
        let causes = match error {
            EmbedError::Unreachable { causes, .. } => causes.clone(),
            _ => None,
        };
        Self::new(code, capital(&error.to_string()), true, suggestion).with_causes(causes)
    }

    /// The vectors in the index were made with another embedder.
    pub fn other_embedder(rebuilding: bool) -> Self {
        let suggestion = if rebuilding {
            "The index is being rebuilt; until it is done only words are matched. Poll obsidian_rag_status."
        } else {
            "Call obsidian_rag_index with mode reindex; until then only words are matched."
        };
        let message = "The index was made with another embedding model, whose vectors cannot be compared.";
        Self::new(ProblemCode::IndexCorrupted, message, true, suggestion)
    }

    /// There is no index.
    pub fn no_index() -> Self {
        let message = "There is no index of this vault yet.";
        let suggestion = "Call obsidian_rag_index with mode full (or run `toolyard vault index`), then poll \
                          obsidian_rag_status until it is done.";
        Self::new(ProblemCode::IndexNotFound, message, true, suggestion)
    }

    /// The index is empty.
    pub fn empty_vault() -> Self {
        let message = "The vault has no notes that could be searched.";
        let suggestion = "Add notes, or check the folders in [knowledge.indexing], then call obsidian_rag_index with \
                          mode sync.";
        Self::new(ProblemCode::IndexNotFound, message, true, suggestion)
    }

    /// The index failed.
    pub fn of_index(error: &IndexError) -> Self {
        match error {
            IndexError::Corrupted(why) => {
                let suggestion = "Call obsidian_rag_index with mode reindex: it is built anew from the notes, which are \
                                  not affected.";
                Self::new(ProblemCode::IndexCorrupted, "The index is damaged and cannot be read.", true, suggestion)
                    .with_causes(Some(why.clone()))
            }
            IndexError::NoEarlierVersion => Self::new(
                ProblemCode::IndexNotFound,
                "There is no earlier complete version to return to; the index stays as it is.",
                false,
                "Go on with the index as it is. Call obsidian_rag_index with mode reindex if it should be built anew.",
            ),
            IndexError::Busy => Self::new(
                ProblemCode::IndexerFailed,
                "Another process is indexing this vault.",
                true,
                "Poll obsidian_rag_status until its job is done, then call again.",
            ),
            IndexError::Unavailable(why) => Self::new(
                ProblemCode::VaultUnavailable,
                "The place where the index lies cannot be reached or written.",
                true,
                "Check the disk (or the object store) with `toolyard doctor`, then try again.",
            )
            .with_causes(Some(why.clone())),
            IndexError::Program(error) => Self::of_program(error),
        }
    }

    /// The index program failed. The index itself is not affected.
    pub fn of_program(error: &ProgramError) -> Self {
        let message = capital(&error.to_string());
        match error {
            ProgramError::Missing(_) => Self::new(
                ProblemCode::IndexProgramMissing,
                message,
                true,
                "Install toolyard-index beside toolyard (`make build` builds both). Until then notes are indexed in \
                 memory, up to 5,000 chunks, and lost when Toolyard stops; they are indexed again by themselves as soon \
                 as the program is there.",
            ),
            ProgramError::TooMany(_) => Self::new(
                ProblemCode::IndexProgramMissing,
                message,
                true,
                "Install toolyard-index beside toolyard (`make build` builds both), then call obsidian_rag_index.",
            ),
            ProgramError::OtherVersion(_) => Self::new(
                ProblemCode::IndexProgramFailed,
                message,
                true,
                "Install toolyard and toolyard-index from one release, then call again.",
            ),
            ProgramError::NotStarted(_)
            | ProgramError::Ended(_)
            | ProgramError::Replaced(_)
            | ProgramError::Protocol(_) => Self::new(
                ProblemCode::IndexProgramFailed,
                message,
                true,
                "Call again: the program is started anew. If this goes on, look at `toolyard doctor` and the log.",
            ),
        }
    }

    /// An invalid or forbidden path.
    pub fn path(which: &str) -> Self {
        let message = format!("{which} is not a path inside the vault that may be read.");
        let suggestion = "Give a path from the vault's root with forward slashes, for example Projects/Plan.md.";
        Self::new(ProblemCode::SecurityViolation, message, false, suggestion)
    }

    /// An argument that the schema cannot reject. `place` is a JSON Pointer, empty for the arguments as a whole.
    pub fn argument(place: &str, message: &str, suggestion: &str) -> Self {
        let place = if place.is_empty() { String::new() } else { format!(" at {place}") };
        let message = format!("The arguments do not fit{place}: {message}.");
        Self::new(ProblemCode::ValidationError, message, true, suggestion)
    }

    /// Results are withheld.
    pub fn sensitive(count: usize, categories: &str) -> Self {
        let subject = if count == 1 { "1 result is".to_owned() } else { format!("{count} results are") };
        let message = format!("{subject} withheld, for touching on: {categories}.");
        let suggestion = "Ask the user, and search again with confirm_sensitive true if they agree.";
        Self::new(ProblemCode::SensitiveFiltered, message, true, suggestion)
    }

    /// The indexer stopped.
    pub fn indexer(message: impl Into<String>, recoverable: bool) -> Self {
        let suggestion = "Call obsidian_rag_index with mode sync once: it goes on where the last one stopped. If it fails \
                          again, tell the user and look at the log.";
        Self::new(ProblemCode::IndexerFailed, message, recoverable, suggestion)
    }

    /// The index is out of date.
    pub fn stale() -> Self {
        let message = "Notes have changed since the index was last brought up to date.";
        Self::new(ProblemCode::IndexStale, message, true, "Call obsidian_rag_index with mode sync.")
    }

    /// The vault cannot be read.
    pub fn no_vault() -> Self {
        let message = "The vault's folder cannot be read.";
        let suggestion = "Check that it is mounted and that vault.path in config.toml is right.";
        Self::new(ProblemCode::VaultUnavailable, message, true, suggestion)
    }

    /// Facts cannot be stored.
    pub fn memory(message: impl Into<String>) -> Self {
        let suggestion = "Check the disk and the permissions of TOOLYARD_HOME, then call again.";
        Self::new(ProblemCode::VaultUnavailable, message, true, suggestion)
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}

/// Metadata of the response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Meta {
    /// Duration in milliseconds.
    pub query_time_ms: f64,
    /// Number of chunks that were searched.
    pub chunks_scanned: u64,
    /// The table's version; empty without an index.
    pub index_version: String,
    /// When the newest note was written (ISO 8601); in a vault without notes, when its folder last changed.
    pub vault_mtime: String,
}

/// The response of every tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Envelope<T> {
    /// The health of the notes.
    pub status: Health,
    /// The data; null when there is none.
    pub data: Option<T>,
    /// The problem, if any. Data may be present as well.
    pub error: Option<Problem>,
    /// Metadata of the response.
    pub meta: Meta,
}

impl<T: Serialize> Envelope<T> {
    /// The response in the form that the engine expects.
    pub fn into_map(self) -> Map<String, Value> {
        match serde_json::to_value(&self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[toolyard_shows::shows("000-2-02", "000-2-05")]
    #[test]
    fn every_code_has_a_page_and_every_row_of_the_matrix_its_status() {
        use ProblemCode::{
            EmbedderUnreachable, IndexCorrupted, IndexNotFound, IndexProgramFailed, IndexProgramMissing, IndexStale,
            IndexerFailed, OllamaUnreachable, SecurityViolation, SensitiveFiltered, VaultUnavailable,
        };
        let all = [
            (OllamaUnreachable, Health::Degraded),
            (EmbedderUnreachable, Health::Degraded),
            (IndexNotFound, Health::Unavailable),
            (IndexCorrupted, Health::Unavailable),
            (SecurityViolation, Health::Unavailable),
            (SensitiveFiltered, Health::Degraded),
            (IndexerFailed, Health::Unavailable),
            (IndexStale, Health::Degraded),
            (IndexProgramMissing, Health::Degraded),
            (IndexProgramFailed, Health::Unavailable),
            (VaultUnavailable, Health::Unavailable),
        ];
        assert_eq!(all.len(), ProblemCode::PAGES.len());
        for (code, status) in all {
            let word = serde_json::to_value(code).unwrap();
            let (_, page) = ProblemCode::PAGES.iter().find(|(name, _)| word == *name).unwrap();
            assert!(
                page.starts_with(&format!("# {}\n", word.as_str().unwrap())) && page.contains("## What to do"),
                "{word}"
            );
            assert_eq!(Problem::new(code, "m", true, "s").status(), status, "{word}");
        }
        assert_eq!(Problem::argument("/tags/0", "this is no tag", "s").status(), Health::Unavailable);
    }

    #[toolyard_shows::shows("000-5-01")]
    #[test]
    fn an_envelope_costs_little() {
        let envelope: Envelope<()> =
            Envelope { status: Health::Healthy, data: None, error: None, meta: Meta::default() };
        assert!(serde_json::to_string(&envelope.into_map()).unwrap().len() < 200);
    }
}
