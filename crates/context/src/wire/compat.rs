//! [`Compat`]: fields that OpenViking's clients expect but that this store has no data for.

use schemars::JsonSchema;
use serde::Serialize;

/// Fields that OpenViking's clients read in responses and that represent features which this store does not have:
/// queues, locks, token accounting, query rewriting. Their values never change and nothing here reads them. Each
/// response that needs some of them flattens a value of this type, made by the constructor that is named after the
/// response.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Compat {
    /// The queues behind a request. All work completes before the response, so the queues are empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_status: Option<Queues>,
    /// The state of the descriptions, which are built before the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    semantic_status: Option<&'static str>,
    /// The state of the index, which is updated before the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    vector_status: Option<&'static str>,
    /// The state of the overview, which is built on demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    overview_status: Option<&'static str>,
    /// Files have no locks that a client could see.
    #[serde(rename = "isLocked", skip_serializing_if = "Option::is_none")]
    is_locked: Option<bool>,
    /// Requests are not traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'static str>,
    /// A commit has no token budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_exceeded: Option<bool>,
    /// Tokens used by a language model; they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    llm_token_usage: Option<TokenUsage>,
    /// Tokens used by an embedding server; there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding_token_usage: Option<EmbeddingUsage>,
    /// This budget is not used; commits keep messages by count or by turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    retained_message_token_budget: Option<u64>,
    /// The minimum number of steps that stay unarchived; there is no such rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_raw_tail_steps: Option<u64>,
    /// Which memories a session may create; there is no such policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_policy: Option<()>,
    /// Idle sessions are not committed automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_idle_commit_accepted_at: Option<&'static str>,
    /// Labels of extracted events; there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_extraction_config: Option<MemoryExtraction>,
    /// Additional fields of a task; there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Empty>,
    /// Tasks have no stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<()>,
    /// Where an import was staged; the staging folder has no URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    temp_uri: Option<String>,
    /// The duration of an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    telemetry: Option<Telemetry>,
    /// Estimated number of embedded tokens, by the formula of OpenViking.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// Rows of a vector table; the index counts files.
    #[serde(skip_serializing_if = "Option::is_none")]
    vectors: Option<Vectors>,
    /// A digest by a language model; there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'static str>,
    /// Number of entries that a client excluded; excluding is not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    excluded: Option<u64>,
    /// Number of entries that earlier turns contained; turns are not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    deduped: Option<u64>,
    /// Number of entries shown in more detail than requested; this does not happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    fill: Option<Fill>,
    /// Queries are not rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    query_expansion: Option<&'static str>,
    /// Other peers' entries are not penalised.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_peer_penalties: Option<Empty>,
    /// Queries are not rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    rewrite: Option<&'static str>,
    /// Queries are not rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    rewrite_usage: Option<()>,
    /// Number of entries that earlier turns contained; turns are not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup: Option<Dedup>,
    /// The components in the readiness report of OpenViking's server.
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<Checks>,
}

/// An object without fields.
#[derive(Debug, Serialize, JsonSchema)]
struct Empty {}

/// An empty queue.
#[derive(Debug, Serialize, JsonSchema)]
struct Queue {
    processed: usize,
    requeue_count: u64,
    error_count: u64,
    errors: [&'static str; 0],
}

/// The queues that OpenViking's server reports.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Queues {
    #[serde(rename = "Semantic")]
    semantic: Queue,
    #[serde(rename = "Embedding")]
    embedding: Queue,
}

impl Queues {
    /// Reports this many described folders and indexed texts.
    pub(crate) fn done(described: usize, indexed: usize) -> Self {
        let queue = |processed| Queue { processed, requeue_count: 0, error_count: 0, errors: [] };
        Self { semantic: queue(described), embedding: queue(indexed) }
    }
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct TokenUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    cached_tokens: u64,
    reasoning_tokens: u64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct EmbeddingUsage {
    total_tokens: u64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct MemoryExtraction {
    events: EventTags,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct EventTags {
    tags: [&'static str; 0],
}

/// The duration of an import.
#[derive(Debug, Serialize, JsonSchema)]
struct Telemetry {
    id: String,
    summary: TelemetrySummary,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TelemetrySummary {
    operation: &'static str,
    status: &'static str,
    duration_ms: f64,
    resource: TelemetryResource,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TelemetryResource {
    total: TelemetryTotal,
    flags: TelemetryFlags,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TelemetryTotal {
    duration_ms: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TelemetryFlags {
    wait: bool,
    build_index: bool,
    summarize: bool,
    watch_enabled: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Usage {
    tokens: UsageTokens,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UsageTokens {
    total: u64,
    embedding: Total,
    stages: UsageStages,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UsageStages {
    embed_resource: UsageStage,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UsageStage {
    embedding: Total,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Total {
    total: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Vectors {
    scanned: usize,
    written: usize,
    deleted: u64,
    restored: u64,
    batches: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Fill {
    floor_tokens: u64,
    overview_upgrades: u64,
    full_upgrades: u64,
    spare_upgrades: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Dedup {
    turns: u64,
    status: &'static str,
    cooled: u64,
    turn: Option<u64>,
}

/// The components in the readiness report of OpenViking's server. This store's files and index are one component.
#[derive(Debug, Serialize, JsonSchema)]
struct Checks {
    agfs: FileSystem,
    vectordb: &'static str,
    api_key_manager: &'static str,
    embedding: &'static str,
    ollama: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FileSystem {
    status: &'static str,
    checks: FileSystemChecks,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FileSystemChecks {
    filesystem: &'static str,
}

impl Compat {
    /// `GET /ready`.
    pub(crate) fn ready() -> Self {
        Self {
            checks: Some(Checks {
                agfs: FileSystem { status: "ok", checks: FileSystemChecks { filesystem: "ok" } },
                vectordb: "ok",
                api_key_manager: "not_configured",
                embedding: "ok",
                ollama: "not_configured",
            }),
            ..Self::default()
        }
    }

    /// `GET /fs/stat`.
    pub(crate) fn stat() -> Self {
        Self { is_locked: Some(false), ..Self::default() }
    }

    /// `POST /content/write`.
    pub(crate) fn written() -> Self {
        Self {
            semantic_status: Some("complete"),
            vector_status: Some("complete"),
            overview_status: Some("complete"),
            queue_status: Some(Queues::done(0, 1)),
            ..Self::default()
        }
    }

    /// `POST /fs/cp`.
    pub(crate) fn copied(indexed: usize) -> Self {
        let vectors = Vectors { scanned: indexed, written: indexed, deleted: 0, restored: 0, batches: 1 };
        Self { vectors: Some(vectors), semantic_status: Some("complete"), ..Self::default() }
    }

    /// `POST /skills`.
    pub(crate) fn skill(indexed: usize) -> Self {
        Self { queue_status: Some(Queues::done(1, indexed + 2)), ..Self::default() }
    }

    /// A new session, or a session's configuration.
    pub(crate) fn new_session() -> Self {
        Self { memory_extraction_config: Some(MemoryExtraction::default()), ..Self::default() }
    }

    /// `GET /sessions/{id}`.
    pub(crate) fn session() -> Self {
        Self {
            llm_token_usage: Some(TokenUsage::default()),
            embedding_token_usage: Some(EmbeddingUsage::default()),
            retained_message_token_budget: Some(0),
            min_raw_tail_steps: Some(1),
            memory_policy: Some(()),
            last_idle_commit_accepted_at: Some(""),
            ..Self::new_session()
        }
    }

    /// `POST /sessions/{id}/commit`.
    pub(crate) fn commit() -> Self {
        Self { trace_id: Some(""), budget_exceeded: Some(false), ..Self::default() }
    }

    /// A task.
    pub(crate) fn task() -> Self {
        Self { meta: Some(Empty {}), stage: Some(()), ..Self::default() }
    }

    /// A recalled context.
    pub(crate) fn recall() -> Self {
        Self { digest: Some(""), ..Self::default() }
    }

    /// The statistics of a recalled context.
    pub(crate) fn recall_stats(used_tokens: u64) -> Self {
        Self {
            excluded: Some(0),
            deduped: Some(0),
            fill: Some(Fill { floor_tokens: used_tokens, overview_upgrades: 0, full_upgrades: 0, spare_upgrades: 0 }),
            query_expansion: Some("off"),
            other_peer_penalties: Some(Empty {}),
            rewrite: Some("off"),
            rewrite_usage: Some(()),
            dedup: Some(Dedup { turns: 0, status: "off", cooled: 0, turn: None }),
            ..Self::default()
        }
    }

    /// `POST /resources`. `tokens` is set for a single file only.
    pub(crate) fn import(import: &Import<'_>) -> Self {
        let duration_ms = import.duration_ms;
        let stamp = jiff::Timestamp::now().strftime("%m%d%H%M").to_string();
        let random = crate::find::trace::base36(6);
        Self {
            temp_uri: Some(format!("viking://temp/{}/{stamp}_{random}/{}", import.user, import.name)),
            queue_status: Some(Queues::done(import.described, import.indexed)),
            telemetry: Some(Telemetry {
                id: format!("tm_{}", uuid::Uuid::new_v4().simple()),
                summary: TelemetrySummary {
                    operation: "add_resource_job",
                    status: "ok",
                    duration_ms,
                    resource: TelemetryResource {
                        total: TelemetryTotal { duration_ms },
                        flags: TelemetryFlags {
                            wait: false,
                            build_index: true,
                            summarize: import.described > 0,
                            watch_enabled: import.watched,
                        },
                    },
                },
            }),
            usage: import.tokens.map(|total| Usage {
                tokens: UsageTokens {
                    total,
                    embedding: Total { total },
                    stages: UsageStages { embed_resource: UsageStage { embedding: Total { total } } },
                },
            }),
            ..Self::default()
        }
    }
}

/// The values of an import that [`Compat::import`] repeats.
pub(crate) struct Import<'a> {
    pub(crate) user: &'a str,
    pub(crate) name: &'a str,
    pub(crate) described: usize,
    pub(crate) indexed: usize,
    pub(crate) duration_ms: f64,
    pub(crate) watched: bool,
    pub(crate) tokens: Option<u64>,
}
