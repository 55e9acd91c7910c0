// Written by `make docs` from the list of methods in crates/service.

/** JSON without a type of its own. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A question by id. */
export type ApprovalGetParams = { "id": string };

/** A question of any kind, with its outcome. */
export type ApprovalGetAnswerSnapshot = { "id": string; "status": string; "presentation": ApprovalGetAnswerPresentation; "urlPath": string; "createdAtMs": number; "expiresAtMs": number; "reason"?: string | null; "resolvedAtMs"?: number | null; "source"?: ApprovalGetAnswerQuestionSource | null; "decision"?: ApprovalGetAnswerDecisionWord | null; "resolver"?: ApprovalGetAnswerResolver | null };

export type ApprovalGetAnswerPresentation = { "kind": "exec"; "commandText": string; "agentId": string; "allowedDecisions": Array<ApprovalGetAnswerDecisionWord> } | { "kind": "plugin"; "title": string; "description": string; "severity": string; "pluginId": string | null; "toolName": string | null; "agentId": string; "allowedDecisions": Array<ApprovalGetAnswerDecisionWord> };

/** The possible answers. */
export type ApprovalGetAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

export type ApprovalGetAnswerQuestionSource = { "agentId": string; "sessionKey"?: string | null };

export type ApprovalGetAnswerResolver = { "kind": string; "id": string };

/** Shows a question of any kind with its outcome. */
export type ApprovalGetAnswer = { "approval": ApprovalGetAnswerSnapshot };

/** Kinds of question that clients name. */
export type ApprovalHistoryParamsKind = "exec" | "plugin" | "system-agent";

/** Which part of the history is shown. */
export type ApprovalHistoryParams = { "cursor"?: string | null; "limit"?: number | null; "kind"?: ApprovalHistoryParamsKind | null };

/** A question of any kind, with its outcome. */
export type ApprovalHistoryAnswerSnapshot = { "id": string; "status": string; "presentation": ApprovalHistoryAnswerPresentation; "urlPath": string; "createdAtMs": number; "expiresAtMs": number; "reason"?: string | null; "resolvedAtMs"?: number | null; "source"?: ApprovalHistoryAnswerQuestionSource | null; "decision"?: ApprovalHistoryAnswerDecisionWord | null; "resolver"?: ApprovalHistoryAnswerResolver | null };

export type ApprovalHistoryAnswerPresentation = { "kind": "exec"; "commandText": string; "agentId": string; "allowedDecisions": Array<ApprovalHistoryAnswerDecisionWord> } | { "kind": "plugin"; "title": string; "description": string; "severity": string; "pluginId": string | null; "toolName": string | null; "agentId": string; "allowedDecisions": Array<ApprovalHistoryAnswerDecisionWord> };

/** The possible answers. */
export type ApprovalHistoryAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

export type ApprovalHistoryAnswerQuestionSource = { "agentId": string; "sessionKey"?: string | null };

export type ApprovalHistoryAnswerResolver = { "kind": string; "id": string };

/** Lists questions of any kind with their outcomes, newest first. */
export type ApprovalHistoryAnswer = { "items": Array<ApprovalHistoryAnswerSnapshot>; "nextCursor"?: string | null };

/** Kinds of question that clients name. */
export type ApprovalResolveParamsKind = "exec" | "plugin" | "system-agent";

/** A person behind a messaging channel, in whose name a channel answers. */
export type ApprovalResolveParamsReviewer = { "channel": string; "accountId": string; "senderId": string };

/** Which calls a grant covers, beyond its agent and its tool. */
export type ApprovalResolveParamsGrantScope = { "kind": "arguments"; "argsHash"?: string } | { "kind": "run"; "runId"?: ApprovalResolveParamsRunId | null } | { "kind": "folder"; "path": string } | { "kind": "tool" };

export type ApprovalResolveParamsRunId = string;

/** An answer to a question. */
export type ApprovalResolveParams = { "id": string; "decision": string; "kind"?: ApprovalResolveParamsKind | null; "reviewer"?: ApprovalResolveParamsReviewer | null; "grantExpiresInDays"?: number | null; "grantExpiresInMs"?: number | null; "grantScope"?: ApprovalResolveParamsGrantScope | null; "shown"?: string | null };

/** A question of any kind, with its outcome. */
export type ApprovalResolveAnswerSnapshot = { "id": string; "status": string; "presentation": ApprovalResolveAnswerPresentation; "urlPath": string; "createdAtMs": number; "expiresAtMs": number; "reason"?: string | null; "resolvedAtMs"?: number | null; "source"?: ApprovalResolveAnswerQuestionSource | null; "decision"?: ApprovalResolveAnswerDecisionWord | null; "resolver"?: ApprovalResolveAnswerResolver | null };

export type ApprovalResolveAnswerPresentation = { "kind": "exec"; "commandText": string; "agentId": string; "allowedDecisions": Array<ApprovalResolveAnswerDecisionWord> } | { "kind": "plugin"; "title": string; "description": string; "severity": string; "pluginId": string | null; "toolName": string | null; "agentId": string; "allowedDecisions": Array<ApprovalResolveAnswerDecisionWord> };

/** The possible answers. */
export type ApprovalResolveAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

export type ApprovalResolveAnswerQuestionSource = { "agentId": string; "sessionKey"?: string | null };

export type ApprovalResolveAnswerResolver = { "kind": string; "id": string };

/** Answers a question of any kind. */
export type ApprovalResolveAnswer = { "applied": boolean; "approval": ApprovalResolveAnswerSnapshot };

/** The possible answers. */
export type ApprovalsAnswerParamsDecision = "allow-once" | "allow-always" | "deny";

/** What a lasting permission covers, and for how long. */
export type ApprovalsAnswerParamsGrantParams = { "scope"?: ApprovalsAnswerParamsGrantScope; "expiresInMs"?: number | null };

/** Which calls a grant covers, beyond its agent and its tool. */
export type ApprovalsAnswerParamsGrantScope = { "kind": "arguments"; "argsHash"?: string } | { "kind": "run"; "runId"?: ApprovalsAnswerParamsRunId | null } | { "kind": "folder"; "path": string } | { "kind": "tool" };

export type ApprovalsAnswerParamsRunId = string;

/** An answer to a question. */
export type ApprovalsAnswerParams = { "id": string; "decision": ApprovalsAnswerParamsDecision; "shown"?: string | null; "note"?: string | null; "grant"?: ApprovalsAnswerParamsGrantParams | null };

/** Everything that a person needs to answer a question. */
export type ApprovalsAnswerAnswerQuestion = { "id": string; "kind": string; "title": string; "description": string; "severity": string; "tool": string; "args": { [key: string]: Json }; "argsCut"?: boolean; "argsHash": string; "preview": ApprovalsAnswerAnswerPreviewState; "diff"?: string | null; "diffCut"?: boolean; "effects"?: ApprovalsAnswerAnswerEffects | null; "problem"?: string | null; "rule": string; "policyHash"?: string | null; "shown": string; "agent": string; "session"?: string | null; "runId"?: ApprovalsAnswerAnswerRunId | null; "callId"?: ApprovalsAnswerAnswerCallId | null; "askedAt": string; "expiresAt": string; "waiting": boolean; "paths"?: Array<string>; "decisions": Array<string>; "scopes": Array<ApprovalsAnswerAnswerScopeWord>; "answer"?: ApprovalsAnswerAnswerGivenAnswer | null };

/** Whether a question shows what the call would do. */
export type ApprovalsAnswerAnswerPreviewState = "made" | "none" | "failed";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type ApprovalsAnswerAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<ApprovalsAnswerAnswerCreated>; "modified"?: Array<ApprovalsAnswerAnswerModified>; "deleted"?: Array<ApprovalsAnswerAnswerDeleted>; "renamed"?: Array<ApprovalsAnswerAnswerRenamed> };

/** A new file or folder. */
export type ApprovalsAnswerAnswerCreated = { "path": string; "kind": ApprovalsAnswerAnswerEntryKind };

/** A file or a folder. */
export type ApprovalsAnswerAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type ApprovalsAnswerAnswerModified = { "path": string; "kind": ApprovalsAnswerAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type ApprovalsAnswerAnswerFileKind = "file";

/** A file or folder that is gone. */
export type ApprovalsAnswerAnswerDeleted = { "path": string; "kind": ApprovalsAnswerAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type ApprovalsAnswerAnswerRenamed = { "from": string; "to": string };

export type ApprovalsAnswerAnswerRunId = string;

export type ApprovalsAnswerAnswerCallId = string;

/** The scopes of grants, by name. */
export type ApprovalsAnswerAnswerScopeWord = "arguments" | "run" | "folder" | "tool";

/** The answer to a question. */
export type ApprovalsAnswerAnswerGivenAnswer = { "decision": string; "by"?: string | null; "client"?: string | null; "door"?: string | null; "at"?: string | null; "reason"?: string | null; "note"?: string | null; "grantId"?: string | null };

/** Answers a question; the answer is bound to what was shown. */
export type ApprovalsAnswerAnswer = { "applied": boolean; "approval": ApprovalsAnswerAnswerQuestion };

/** Which state of the list the caller knows. */
export type ApprovalsListParams = { "known"?: Array<string> | null; "waitMs"?: number | null };

/** Everything that a person needs to answer a question. */
export type ApprovalsListAnswerQuestion = { "id": string; "kind": string; "title": string; "description": string; "severity": string; "tool": string; "args": { [key: string]: Json }; "argsCut"?: boolean; "argsHash": string; "preview": ApprovalsListAnswerPreviewState; "diff"?: string | null; "diffCut"?: boolean; "effects"?: ApprovalsListAnswerEffects | null; "problem"?: string | null; "rule": string; "policyHash"?: string | null; "shown": string; "agent": string; "session"?: string | null; "runId"?: ApprovalsListAnswerRunId | null; "callId"?: ApprovalsListAnswerCallId | null; "askedAt": string; "expiresAt": string; "waiting": boolean; "paths"?: Array<string>; "decisions": Array<string>; "scopes": Array<ApprovalsListAnswerScopeWord>; "answer"?: ApprovalsListAnswerGivenAnswer | null };

/** Whether a question shows what the call would do. */
export type ApprovalsListAnswerPreviewState = "made" | "none" | "failed";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type ApprovalsListAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<ApprovalsListAnswerCreated>; "modified"?: Array<ApprovalsListAnswerModified>; "deleted"?: Array<ApprovalsListAnswerDeleted>; "renamed"?: Array<ApprovalsListAnswerRenamed> };

/** A new file or folder. */
export type ApprovalsListAnswerCreated = { "path": string; "kind": ApprovalsListAnswerEntryKind };

/** A file or a folder. */
export type ApprovalsListAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type ApprovalsListAnswerModified = { "path": string; "kind": ApprovalsListAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type ApprovalsListAnswerFileKind = "file";

/** A file or folder that is gone. */
export type ApprovalsListAnswerDeleted = { "path": string; "kind": ApprovalsListAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type ApprovalsListAnswerRenamed = { "from": string; "to": string };

export type ApprovalsListAnswerRunId = string;

export type ApprovalsListAnswerCallId = string;

/** The scopes of grants, by name. */
export type ApprovalsListAnswerScopeWord = "arguments" | "run" | "folder" | "tool";

/** The answer to a question. */
export type ApprovalsListAnswerGivenAnswer = { "decision": string; "by"?: string | null; "client"?: string | null; "door"?: string | null; "at"?: string | null; "reason"?: string | null; "note"?: string | null; "grantId"?: string | null };

/** Lists the open questions with arguments, diff and rule, oldest first; can wait until the list changes. */
export type ApprovalsListAnswer = { "approvals": Array<ApprovalsListAnswerQuestion> };

/** A question by id. */
export type ApprovalsShowParams = { "id": string };

/** Everything that a person needs to answer a question. */
export type ApprovalsShowAnswerQuestion = { "id": string; "kind": string; "title": string; "description": string; "severity": string; "tool": string; "args": { [key: string]: Json }; "argsCut"?: boolean; "argsHash": string; "preview": ApprovalsShowAnswerPreviewState; "diff"?: string | null; "diffCut"?: boolean; "effects"?: ApprovalsShowAnswerEffects | null; "problem"?: string | null; "rule": string; "policyHash"?: string | null; "shown": string; "agent": string; "session"?: string | null; "runId"?: ApprovalsShowAnswerRunId | null; "callId"?: ApprovalsShowAnswerCallId | null; "askedAt": string; "expiresAt": string; "waiting": boolean; "paths"?: Array<string>; "decisions": Array<string>; "scopes": Array<ApprovalsShowAnswerScopeWord>; "answer"?: ApprovalsShowAnswerGivenAnswer | null };

/** Whether a question shows what the call would do. */
export type ApprovalsShowAnswerPreviewState = "made" | "none" | "failed";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type ApprovalsShowAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<ApprovalsShowAnswerCreated>; "modified"?: Array<ApprovalsShowAnswerModified>; "deleted"?: Array<ApprovalsShowAnswerDeleted>; "renamed"?: Array<ApprovalsShowAnswerRenamed> };

/** A new file or folder. */
export type ApprovalsShowAnswerCreated = { "path": string; "kind": ApprovalsShowAnswerEntryKind };

/** A file or a folder. */
export type ApprovalsShowAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type ApprovalsShowAnswerModified = { "path": string; "kind": ApprovalsShowAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type ApprovalsShowAnswerFileKind = "file";

/** A file or folder that is gone. */
export type ApprovalsShowAnswerDeleted = { "path": string; "kind": ApprovalsShowAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type ApprovalsShowAnswerRenamed = { "from": string; "to": string };

export type ApprovalsShowAnswerRunId = string;

export type ApprovalsShowAnswerCallId = string;

/** The scopes of grants, by name. */
export type ApprovalsShowAnswerScopeWord = "arguments" | "run" | "folder" | "tool";

/** The answer to a question. */
export type ApprovalsShowAnswerGivenAnswer = { "decision": string; "by"?: string | null; "client"?: string | null; "door"?: string | null; "at"?: string | null; "reason"?: string | null; "note"?: string | null; "grantId"?: string | null };

/** Shows one question with arguments, diff and rule, and its answer. */
export type ApprovalsShowAnswer = { "approval": ApprovalsShowAnswerQuestion };

/** A session by key. */
export type BridgeCloseParams = { "sessionKey": string; "agentId"?: string | null };

/** Closes a session of Claude Code. */
export type BridgeCloseAnswer = { "ok": boolean; "sessionKey": string; "closed": boolean };

/** A message for Claude. */
export type BridgeInboundParams = { "sessionKey": string; "agentId"?: string | null; "content": string; "meta"?: { [key: string]: Json } };

/** Sends a message to Claude Code; the message is durable when the method returns. */
export type BridgeInboundAnswer = { "ok": boolean; "request_id": string; "outcome": string } | { "ok": boolean; "outcome": string; "behavior"?: string | null; "reason"?: string | null };

/** Which session is opened, and for whom. */
export type BridgeOpenParams = { "sessionKey": string; "agentId"?: string | null; "sourceChannel"?: string | null; "chatId"?: string | null; "user"?: string | null; "claudeSession"?: string | null; "allowedSenders"?: Array<string>; "command"?: string | null };

/** The environment of Claude Code's plugin. */
export type BridgeOpenAnswerPluginEnv = { "SYNTHESIS_BRIDGE_URL": string; "SYNTHESIS_BRIDGE_TOKEN": string; "SYNTHESIS_OPENCLAW_SESSION": string; "SYNTHESIS_CLAUDE_SESSION": string };

export type BridgeOpenAnswerMcpConfig = { "mcpServers": Record<string, BridgeOpenAnswerStdioServer> };

export type BridgeOpenAnswerStdioServer = { "type": string; "command": string; "args": Array<string>; "env": BridgeOpenAnswerPluginEnv };

/** Prepares a session for Claude Code and returns its token, environment and MCP configuration. */
export type BridgeOpenAnswer = { "ok": boolean; "sessionKey": string; "claudeSession": string; "server": string; "env": BridgeOpenAnswerPluginEnv; "mcpConfig": BridgeOpenAnswerMcpConfig };

/** Which of Claude's messages are shown. */
export type BridgeOutboundParams = { "sessionKey": string; "agentId"?: string | null; "after"?: number | null };

export type BridgeOutboundAnswerSentMessage = { "seq": number; "chatId": string; "text": string; "replyTo": string | null; "files": Array<string>; "requestId": string | null };

/** Shows Claude's latest messages. */
export type BridgeOutboundAnswer = { "sessionKey": string; "messages": Array<BridgeOutboundAnswerSentMessage> };

/** A person's answer. */
export type BridgePermissionReplyParamsBehaviorWord = "allow" | "deny";

/** An answer to a permission question. */
export type BridgePermissionReplyParams = { "sessionKey": string; "agentId"?: string | null; "request_id": string; "behavior": BridgePermissionReplyParamsBehaviorWord };

/** Answers a permission question of Claude Code. */
export type BridgePermissionReplyAnswer = { "ok": boolean; "request_id": string; "behavior": string };

/** Which session is shown; all without one. */
export type BridgeStatusParams = { "sessionKey"?: string | null; "agentId"?: string | null };

/** Lists the sessions of Claude Code. */
export type BridgeStatusAnswer = { "sessions": Array<{ [key: string]: Json }> };

/** Parameters of a method that takes none. */
export type ConfigGetParams = Record<string, never>;

/** Shows the configuration; secrets are hidden. */
export type ConfigGetAnswer = { "path": string; "exists": boolean; "raw": string; "hash": string; "parsed": Json; "config": Json; "valid": boolean; "issues": Array<Json>; "warnings": Array<Json> };

/** A change. */
export type ConfigPatchParams = { "baseHash"?: string | null; "patch": { [key: string]: Json } };

/** Changes the configuration: a JSON merge patch over the file that has the given hash. */
export type ConfigPatchAnswer = { "hash": string; "changed": Array<string>; "applied": Array<string>; "needsRestart": Array<string>; "version"?: number | null };

/** What is done with this node's settings. */
export type ConfigPushParams = { "dryRun"?: boolean };

/** Makes the shared settings of this node's `config.toml` the cluster's configuration. */
export type ConfigPushAnswer = { "hash": string; "changed": Array<string>; "applied": Array<string>; "needsRestart": Array<string>; "version"?: number | null };

/** The version to go back to. */
export type ConfigRollbackParams = { "version": number };

/** Makes an earlier version of the cluster's configuration the newest. */
export type ConfigRollbackAnswer = { "hash": string; "changed": Array<string>; "applied": Array<string>; "needsRestart": Array<string>; "version"?: number | null };

/** Which version. */
export type ConfigVersionParams = { "version"?: number | null };

/** Shows a version of the configuration that the nodes of a cluster share; secrets are hidden. */
export type ConfigVersionAnswer = { "version": number; "at": string; "by": string; "node": string; "changed": Array<string>; "restores"?: number | null; "config": { [key: string]: Json } };

/** Parameters of a method that takes none. */
export type ConfigVersionsParams = Record<string, never>;

/** About a version of the shared configuration. */
export type ConfigVersionsAnswerVersionInfo = { "version": number; "at": string; "by": string; "node": string; "changed": Array<string>; "restores"?: number | null };

/** Lists the versions of the configuration that the nodes of a cluster share. */
export type ConfigVersionsAnswer = { "versions": Array<ConfigVersionsAnswerVersionInfo>; "ignored": Array<string> };

/** What a paired browser may do. */
export type ConsoleCodeParamsRights = "owner" | "approver" | "viewer";

/** What the browser may do, and how it gets the code. */
export type ConsoleCodeParams = { "rights"?: ConsoleCodeParamsRights; "phone"?: boolean };

/** Makes a one-use code and the address with which one browser is paired. */
export type ConsoleCodeAnswer = { "url": string; "expiresAt": string };

/** A place in the feed. */
export type ConsoleSubscribeParamsFeedPosition = { "bootId": string; "seq": number };

/** Where a connection was lost. */
export type ConsoleSubscribeParams = { "after"?: ConsoleSubscribeParamsFeedPosition | null };

/** Sends changes of runs, questions and devices in order, from now on or from the position where a connection was lost. */
export type ConsoleSubscribeAnswer = { "bootId": string; "seq": number; "resumed": boolean };

/** The source and the target of an import. */
export type ContextAddParams = { "source": string; "to"?: string | null; "parent"?: string | null; "reason"?: string | null; "watch"?: number | null };

export type ContextAddAnswerImportMeta = ContextAddAnswerFolderMeta | { [key: string]: Json };

export type ContextAddAnswerFolderMeta = { "file_count": number; "dir_name": string; "total_processable": number; "processed_files": Array<ContextAddAnswerProcessedFile>; "failed_files": Array<ContextAddAnswerFailedFile>; "unsupported_files": Array<string>; "skipped_files": Array<string> };

export type ContextAddAnswerProcessedFile = { "path": string; "parser": string };

export type ContextAddAnswerFailedFile = { "path": string; "error": string };

export type ContextAddAnswerMemoryLink = { "status": string; "session_id": string; "commit_task_id": string | null; "archive_uri": string | null };

export type ContextAddAnswerWatchLink = { "task_id": string; "to_uri": string; "interval_minutes": number };

/** The queues that OpenViking's server reports. */
export type ContextAddAnswerQueues = { "Semantic": ContextAddAnswerQueue; "Embedding": ContextAddAnswerQueue };

/** An empty queue. */
export type ContextAddAnswerQueue = { "processed": number; "requeue_count": number; "error_count": number; "errors": Array<Json> };

export type ContextAddAnswerTokenUsage = { "prompt_tokens": number; "completion_tokens": number; "total_tokens": number; "cached_tokens": number; "reasoning_tokens": number };

export type ContextAddAnswerEmbeddingUsage = { "total_tokens": number };

export type ContextAddAnswerMemoryExtraction = { "events": ContextAddAnswerEventTags };

export type ContextAddAnswerEventTags = { "tags": Array<Json> };

/** An object without fields. */
export type ContextAddAnswerEmpty = { [key: string]: Json };

/** The duration of an import. */
export type ContextAddAnswerTelemetry = { "id": string; "summary": ContextAddAnswerTelemetrySummary };

export type ContextAddAnswerTelemetrySummary = { "operation": string; "status": string; "duration_ms": number; "resource": ContextAddAnswerTelemetryResource };

export type ContextAddAnswerTelemetryResource = { "total": ContextAddAnswerTelemetryTotal; "flags": ContextAddAnswerTelemetryFlags };

export type ContextAddAnswerTelemetryTotal = { "duration_ms": number };

export type ContextAddAnswerTelemetryFlags = { "wait": boolean; "build_index": boolean; "summarize": boolean; "watch_enabled": boolean };

export type ContextAddAnswerUsage = { "tokens": ContextAddAnswerUsageTokens };

export type ContextAddAnswerUsageTokens = { "total": number; "embedding": ContextAddAnswerTotal; "stages": ContextAddAnswerUsageStages };

export type ContextAddAnswerTotal = { "total": number };

export type ContextAddAnswerUsageStages = { "embed_resource": ContextAddAnswerUsageStage };

export type ContextAddAnswerUsageStage = { "embedding": ContextAddAnswerTotal };

export type ContextAddAnswerVectors = { "scanned": number; "written": number; "deleted": number; "restored": number; "batches": number };

export type ContextAddAnswerFill = { "floor_tokens": number; "overview_upgrades": number; "full_upgrades": number; "spare_upgrades": number };

export type ContextAddAnswerDedup = { "turns": number; "status": string; "cooled": number; "turn": number | null };

/** The components in the readiness report of OpenViking's server. This store's files and index are one component. */
export type ContextAddAnswerChecks = { "agfs": ContextAddAnswerFileSystem; "vectordb": string; "api_key_manager": string; "embedding": string; "ollama": string };

export type ContextAddAnswerFileSystem = { "status": string; "checks": ContextAddAnswerFileSystemChecks };

export type ContextAddAnswerFileSystemChecks = { "filesystem": string };

/** Imports a path of this machine. */
export type ContextAddAnswer = { "status": string; "errors": Array<string>; "source_path": string; "meta": ContextAddAnswerEmpty | null; "root_uri": string; "context_count": number; "warnings"?: Array<string>; "memory_linking"?: ContextAddAnswerMemoryLink | null; "watch"?: ContextAddAnswerWatchLink | null; "queue_status"?: ContextAddAnswerQueues | null; "semantic_status"?: string | null; "vector_status"?: string | null; "overview_status"?: string | null; "isLocked"?: boolean | null; "trace_id"?: string | null; "budget_exceeded"?: boolean | null; "llm_token_usage"?: ContextAddAnswerTokenUsage | null; "embedding_token_usage"?: ContextAddAnswerEmbeddingUsage | null; "retained_message_token_budget"?: number | null; "min_raw_tail_steps"?: number | null; "memory_policy"?: null; "last_idle_commit_accepted_at"?: string | null; "memory_extraction_config"?: ContextAddAnswerMemoryExtraction | null; "stage"?: null; "temp_uri"?: string | null; "telemetry"?: ContextAddAnswerTelemetry | null; "usage"?: ContextAddAnswerUsage | null; "vectors"?: ContextAddAnswerVectors | null; "digest"?: string | null; "excluded"?: number | null; "deduped"?: number | null; "fill"?: ContextAddAnswerFill | null; "query_expansion"?: string | null; "other_peer_penalties"?: ContextAddAnswerEmpty | null; "rewrite"?: string | null; "rewrite_usage"?: null; "dedup"?: ContextAddAnswerDedup | null; "checks"?: ContextAddAnswerChecks | null };

/** A turn that is about to begin. */
export type ContextAssembleParams = { "prompt"?: string | null; "tokenBudget"?: number | null; "session"?: string | null };

/** A message in the form for models. */
export type ContextAssembleAnswerTurn = { "role": string; "content": string } | { "role": string; "toolCall": ContextAssembleAnswerToolCall } | { "role": string; "toolCallId": string; "content": string; "isError": boolean };

export type ContextAssembleAnswerToolCall = { "id": string; "name": string; "input": Json };

/** How much of a session a context contains. */
export type ContextAssembleAnswerContextStats = { "totalArchives": number; "includedArchives": number; "droppedArchives": number; "failedArchives": number; "activeTokens": number; "archiveTokens": number };

/** Assembles the context for a model's turn. */
export type ContextAssembleAnswer = { "reason": string; "ovSessionId"?: string | null; "messages": Array<ContextAssembleAnswerTurn>; "systemPromptAddition"?: string | null; "estimatedTokens"?: number | null; "stats"?: ContextAssembleAnswerContextStats | null; "prompt"?: string | null; "recalledTokens"?: number | null };

/** The messages of a turn. */
export type ContextCaptureParams = { "messages"?: Array<Json>; "tokenBudget"?: number | null; "session"?: string | null };

/** `POST /sessions/{id}/commit`. */
export type ContextCaptureAnswerCommitShape = { "session_id": string; "status": string; "reason"?: string | null; "task_id": string | null; "archive_uri": string | null; "archived": boolean; "estimated_active_tokens": number; "effective_enable_working_memory": boolean; "reset_context"?: boolean | null; "queue_status"?: ContextCaptureAnswerQueues | null; "semantic_status"?: string | null; "vector_status"?: string | null; "overview_status"?: string | null; "isLocked"?: boolean | null; "trace_id"?: string | null; "budget_exceeded"?: boolean | null; "llm_token_usage"?: ContextCaptureAnswerTokenUsage | null; "embedding_token_usage"?: ContextCaptureAnswerEmbeddingUsage | null; "retained_message_token_budget"?: number | null; "min_raw_tail_steps"?: number | null; "memory_policy"?: null; "last_idle_commit_accepted_at"?: string | null; "memory_extraction_config"?: ContextCaptureAnswerMemoryExtraction | null; "meta"?: ContextCaptureAnswerEmpty | null; "stage"?: null; "temp_uri"?: string | null; "telemetry"?: ContextCaptureAnswerTelemetry | null; "usage"?: ContextCaptureAnswerUsage | null; "vectors"?: ContextCaptureAnswerVectors | null; "digest"?: string | null; "excluded"?: number | null; "deduped"?: number | null; "fill"?: ContextCaptureAnswerFill | null; "query_expansion"?: string | null; "other_peer_penalties"?: ContextCaptureAnswerEmpty | null; "rewrite"?: string | null; "rewrite_usage"?: null; "dedup"?: ContextCaptureAnswerDedup | null; "checks"?: ContextCaptureAnswerChecks | null };

/** The queues that OpenViking's server reports. */
export type ContextCaptureAnswerQueues = { "Semantic": ContextCaptureAnswerQueue; "Embedding": ContextCaptureAnswerQueue };

/** An empty queue. */
export type ContextCaptureAnswerQueue = { "processed": number; "requeue_count": number; "error_count": number; "errors": Array<Json> };

export type ContextCaptureAnswerTokenUsage = { "prompt_tokens": number; "completion_tokens": number; "total_tokens": number; "cached_tokens": number; "reasoning_tokens": number };

export type ContextCaptureAnswerEmbeddingUsage = { "total_tokens": number };

export type ContextCaptureAnswerMemoryExtraction = { "events": ContextCaptureAnswerEventTags };

export type ContextCaptureAnswerEventTags = { "tags": Array<Json> };

/** An object without fields. */
export type ContextCaptureAnswerEmpty = { [key: string]: Json };

/** The duration of an import. */
export type ContextCaptureAnswerTelemetry = { "id": string; "summary": ContextCaptureAnswerTelemetrySummary };

export type ContextCaptureAnswerTelemetrySummary = { "operation": string; "status": string; "duration_ms": number; "resource": ContextCaptureAnswerTelemetryResource };

export type ContextCaptureAnswerTelemetryResource = { "total": ContextCaptureAnswerTelemetryTotal; "flags": ContextCaptureAnswerTelemetryFlags };

export type ContextCaptureAnswerTelemetryTotal = { "duration_ms": number };

export type ContextCaptureAnswerTelemetryFlags = { "wait": boolean; "build_index": boolean; "summarize": boolean; "watch_enabled": boolean };

export type ContextCaptureAnswerUsage = { "tokens": ContextCaptureAnswerUsageTokens };

export type ContextCaptureAnswerUsageTokens = { "total": number; "embedding": ContextCaptureAnswerTotal; "stages": ContextCaptureAnswerUsageStages };

export type ContextCaptureAnswerTotal = { "total": number };

export type ContextCaptureAnswerUsageStages = { "embed_resource": ContextCaptureAnswerUsageStage };

export type ContextCaptureAnswerUsageStage = { "embedding": ContextCaptureAnswerTotal };

export type ContextCaptureAnswerVectors = { "scanned": number; "written": number; "deleted": number; "restored": number; "batches": number };

export type ContextCaptureAnswerFill = { "floor_tokens": number; "overview_upgrades": number; "full_upgrades": number; "spare_upgrades": number };

export type ContextCaptureAnswerDedup = { "turns": number; "status": string; "cooled": number; "turn": number | null };

/** The components in the readiness report of OpenViking's server. This store's files and index are one component. */
export type ContextCaptureAnswerChecks = { "agfs": ContextCaptureAnswerFileSystem; "vectordb": string; "api_key_manager": string; "embedding": string; "ollama": string };

export type ContextCaptureAnswerFileSystem = { "status": string; "checks": ContextCaptureAnswerFileSystemChecks };

export type ContextCaptureAnswerFileSystemChecks = { "filesystem": string };

/** Captures the messages of a turn. */
export type ContextCaptureAnswer = { "captured": number; "reason"?: string | null; "ovSessionId"?: string | null; "pendingTokens"?: number | null; "commit"?: ContextCaptureAnswerCommitShape | null };

/** A slash command. */
export type ContextCommandParams = { "text": string; "session"?: string | null };

/** Runs a slash command of the context store. */
export type ContextCommandAnswer = { "text": string; "details"?: Json };

/** The session, if a person names one. */
export type ContextCompactParams = { "session"?: string | null };

export type ContextCompactAnswerCompaction = { "summary": string; "firstKeptEntryId": string; "tokensBefore": number; "tokensAfter": number; "details": ContextCompactAnswerCompactionDetails };

export type ContextCompactAnswerCompactionDetails = { "archiveUri": string };

/** Archives the captured messages of a session. */
export type ContextCompactAnswer = { "ok": boolean; "compacted": boolean; "reason": string; "result"?: ContextCompactAnswerCompaction | null };

/** A request to the store's own HTTP interface. */
export type ContextRequestParams = { "method": string; "path": string; "body"?: Json };

/** Sends a request to the context store's HTTP interface. */
export type ContextRequestAnswer = Json;

/** A pairing request by id. */
export type DevicePairApproveParams = { "requestId": string };

export type DevicePairApproveAnswerPairedDevice = { "deviceId": string; "role": string; "scopes": Array<string>; "approvedAtMs": number };

/** Approves a pairing request. */
export type DevicePairApproveAnswer = { "requestId": string; "device": DevicePairApproveAnswerPairedDevice };

/** Parameters of a method that takes none. */
export type DevicePairListParams = Record<string, never>;

/** A device that waits for approval, as doors show it. */
export type DevicePairListAnswerPendingDevice = { "deviceId": string; "publicKey": string; "clientId": string; "clientMode": string; "platform": string; "displayName"?: string | null; "role": string; "scopes": Array<string>; "approvedBy": string; "createdAtMs": number; "issuedAtMs": number; "tokens": Array<DevicePairListAnswerShownToken>; "console"?: DevicePairListAnswerPairedBrowser | null; "requestId": string; "remoteIp": string; "ts": number };

/** A device's token, without its secret. */
export type DevicePairListAnswerShownToken = { "role": string; "scopes": Array<string>; "createdAtMs": number; "rotatedAtMs": number };

/** What makes a device a person's browser, as lists show it. */
export type DevicePairListAnswerPairedBrowser = { "rights": DevicePairListAnswerRights; "expiresAt": string; "lastSeenAt"?: string | null };

/** What a paired browser may do. */
export type DevicePairListAnswerRights = "owner" | "approver" | "viewer";

/** A device as doors show it. */
export type DevicePairListAnswerShownDevice = { "deviceId": string; "publicKey": string; "clientId": string; "clientMode": string; "platform": string; "displayName"?: string | null; "role": string; "scopes": Array<string>; "approvedBy": string; "createdAtMs": number; "issuedAtMs": number; "tokens": Array<DevicePairListAnswerShownToken>; "console"?: DevicePairListAnswerPairedBrowser | null };

/** Lists paired devices and pairing requests. */
export type DevicePairListAnswer = { "pending": Array<DevicePairListAnswerPendingDevice>; "paired": Array<DevicePairListAnswerShownDevice> };

/** A pairing request by id. */
export type DevicePairRejectParams = { "requestId": string };

/** Rejects a pairing request. */
export type DevicePairRejectAnswer = { "requestId": string; "deviceId": string };

/** A device by id. */
export type DevicePairRemoveParams = { "deviceId": string };

/** Removes a paired device and closes its connections. */
export type DevicePairRemoveAnswer = { "deviceId": string };

/** Which token is revoked. */
export type DeviceTokenRevokeParams = { "deviceId": string; "role": string };

/** Invalidates a device's token. */
export type DeviceTokenRevokeAnswer = { "deviceId": string; "role": string; "revokedAtMs": number };

/** Which token is rotated, and for which scopes. */
export type DeviceTokenRotateParams = { "deviceId": string; "role": string; "scopes"?: Array<string> | null };

/** Issues a new token for a device, with the same or fewer scopes. */
export type DeviceTokenRotateAnswer = { "deviceId": string; "role": string; "scopes": Array<string>; "rotatedAtMs": number; "token"?: string | null; "tokenDelivery": string };

/** A device or a pairing request, as a person names it. */
export type DevicesApproveParams = { "id": string };

/** Approves a pairing request. */
export type DevicesApproveAnswer = { "deviceId": string; "role": string; "scopes": Array<string> };

/** Parameters of a method that takes none. */
export type DevicesListParams = Record<string, never>;

/** A device that waits for approval, as doors show it. */
export type DevicesListAnswerPendingDevice = { "deviceId": string; "publicKey": string; "clientId": string; "clientMode": string; "platform": string; "displayName"?: string | null; "role": string; "scopes": Array<string>; "approvedBy": string; "createdAtMs": number; "issuedAtMs": number; "tokens": Array<DevicesListAnswerShownToken>; "console"?: DevicesListAnswerPairedBrowser | null; "requestId": string; "remoteIp": string; "ts": number };

/** A device's token, without its secret. */
export type DevicesListAnswerShownToken = { "role": string; "scopes": Array<string>; "createdAtMs": number; "rotatedAtMs": number };

/** What makes a device a person's browser, as lists show it. */
export type DevicesListAnswerPairedBrowser = { "rights": DevicesListAnswerRights; "expiresAt": string; "lastSeenAt"?: string | null };

/** What a paired browser may do. */
export type DevicesListAnswerRights = "owner" | "approver" | "viewer";

/** A device as doors show it. */
export type DevicesListAnswerShownDevice = { "deviceId": string; "publicKey": string; "clientId": string; "clientMode": string; "platform": string; "displayName"?: string | null; "role": string; "scopes": Array<string>; "approvedBy": string; "createdAtMs": number; "issuedAtMs": number; "tokens": Array<DevicesListAnswerShownToken>; "console"?: DevicesListAnswerPairedBrowser | null };

/** Lists paired devices and pairing requests. */
export type DevicesListAnswer = { "pending": Array<DevicesListAnswerPendingDevice>; "paired": Array<DevicesListAnswerShownDevice> };

/** A device or a pairing request, as a person names it. */
export type DevicesRejectParams = { "id": string };

/** Rejects a pairing request. */
export type DevicesRejectAnswer = { "deviceId": string; "rejected": boolean };

/** A device or a pairing request, as a person names it. */
export type DevicesRevokeParams = { "id": string };

/** Removes a paired device and closes its connections. */
export type DevicesRevokeAnswer = { "deviceId": string; "revoked": boolean };

export type DownloadsTicketParamsRunId = string;

/** What is downloaded of a run. */
export type DownloadsTicketParamsDownloadForm = "export" | "transcript" | "receipt";

/** What is downloaded. */
export type DownloadsTicketParams = { "runId": DownloadsTicketParamsRunId; "form": DownloadsTicketParamsDownloadForm };

/** Makes a link with which one browser can download a run's file once, within a minute. */
export type DownloadsTicketAnswer = { "path": string; "name": string; "expiresAt": string };

/** A question by id. */
export type ExecApprovalGetParams = { "id": string };

/** The possible answers. */
export type ExecApprovalGetAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

/** Shows an open question about a command. */
export type ExecApprovalGetAnswer = { "id": string; "commandText": string | null; "commandPreview": string | null; "allowedDecisions": Array<ExecApprovalGetAnswerDecisionWord>; "host": string | null; "nodeId": string | null; "agentId": string | null; "expiresAtMs": number };

/** Parameters of a method that takes none. */
export type ExecApprovalListParams = Record<string, never>;

/** A question as lists and events show it. */
export type ExecApprovalListAnswerRequested = { "approvalKind": string; "id": string; "request": ExecApprovalListAnswerShownQuestion; "createdAtMs": number; "expiresAtMs": number };

/** The question itself, as it was asked. */
export type ExecApprovalListAnswerShownQuestion = ExecApprovalListAnswerPluginShown | ExecApprovalListAnswerExecShown;

/** A plugin's question as events and lists show it. */
export type ExecApprovalListAnswerPluginShown = { "pluginId": string | null; "title": string | null; "description": string | null; "scope": { [key: string]: Json } | null; "detail": string | null; "severity": string | null; "toolName": string | null; "toolCallId": string | null; "agentId": string | null; "sessionKey": string | null; "runId": string | null; "turnSourceChannel": string | null; "turnSourceTo": string | null; "turnSourceAccountId": string | null; "turnSourceThreadId": Json; "allowedDecisions"?: Array<ExecApprovalListAnswerDecisionWord> | null };

/** The possible answers. */
export type ExecApprovalListAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

/** A command's question as events and lists show it. */
export type ExecApprovalListAnswerExecShown = { "command": string | null; "systemRunPlan": { [key: string]: Json } | null; "cwd": string | null; "nodeId": string | null; "host": string | null; "security": string | null; "ask": string | null; "warningText": string | null; "scope": { [key: string]: Json } | null; "commandSpans": Json; "allowedDecisions": Array<ExecApprovalListAnswerDecisionWord>; "agentId": string | null; "resolvedPath": string | null; "sessionKey": string | null; "sessionId": string | null; "runId": string | null; "toolCallId": string | null; "turnSourceChannel": string | null; "turnSourceTo": string | null; "turnSourceAccountId": string | null; "turnSourceThreadId": Json; "commandArgv"?: Array<string> | null; "envKeys"?: Array<string> | null; "unavailableDecisions"?: Array<ExecApprovalListAnswerUnavailable> | null };

/** The one decision that a command's question can rule out. */
export type ExecApprovalListAnswerUnavailable = "allow-always";

/** Lists the open questions about commands. */
export type ExecApprovalListAnswer = Array<ExecApprovalListAnswerRequested>;

/** The one decision that a command's question can rule out. */
export type ExecApprovalRequestParamsUnavailable = "allow-always";

/** A question whether a command may run. */
export type ExecApprovalRequestParams = { "id"?: string | null; "command"?: string | null; "commandArgv"?: Array<string> | null; "systemRunPlan"?: { [key: string]: Json } | null; "env"?: { [key: string]: Json } | null; "cwd"?: string | null; "nodeId"?: string | null; "host"?: string | null; "security"?: string | null; "ask"?: string | null; "warningText"?: string | null; "scope"?: { [key: string]: Json } | null; "unavailableDecisions"?: Array<ExecApprovalRequestParamsUnavailable> | null; "commandSpans"?: Json; "agentId"?: string | null; "resolvedPath"?: string | null; "sessionKey"?: string | null; "sessionId"?: string | null; "runId"?: string | null; "toolCallId"?: string | null; "turnSourceChannel"?: string | null; "turnSourceTo"?: string | null; "turnSourceAccountId"?: string | null; "turnSourceThreadId"?: Json; "approvalReviewerDeviceIds"?: Array<string> | null; "requireDeliveryRoute"?: boolean | null; "deliverToApprovalClientsOnly"?: boolean; "timeoutMs"?: number | null; "twoPhase"?: boolean };

/** The possible answers. */
export type ExecApprovalRequestAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

/** Asks whether a command may run, and waits for the answer. */
export type ExecApprovalRequestAnswer = { "id": string; "decision": ExecApprovalRequestAnswerDecisionWord | null; "createdAtMs": number; "expiresAtMs": number };

/** Kinds of question that clients name. */
export type ExecApprovalResolveParamsKind = "exec" | "plugin" | "system-agent";

/** A person behind a messaging channel, in whose name a channel answers. */
export type ExecApprovalResolveParamsReviewer = { "channel": string; "accountId": string; "senderId": string };

/** Which calls a grant covers, beyond its agent and its tool. */
export type ExecApprovalResolveParamsGrantScope = { "kind": "arguments"; "argsHash"?: string } | { "kind": "run"; "runId"?: ExecApprovalResolveParamsRunId | null } | { "kind": "folder"; "path": string } | { "kind": "tool" };

export type ExecApprovalResolveParamsRunId = string;

/** An answer to a question. */
export type ExecApprovalResolveParams = { "id": string; "decision": string; "kind"?: ExecApprovalResolveParamsKind | null; "reviewer"?: ExecApprovalResolveParamsReviewer | null; "grantExpiresInDays"?: number | null; "grantExpiresInMs"?: number | null; "grantScope"?: ExecApprovalResolveParamsGrantScope | null; "shown"?: string | null };

/** Answers a question about a command. */
export type ExecApprovalResolveAnswer = { "ok": boolean };

/** A question by id. */
export type ExecApprovalWaitDecisionParams = { "id": string };

/** The possible answers. */
export type ExecApprovalWaitDecisionAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

/** Waits for the answer to a command's question. */
export type ExecApprovalWaitDecisionAnswer = { "id": string; "decision": ExecApprovalWaitDecisionAnswerDecisionWord | null; "createdAtMs": number; "expiresAtMs": number; "terminalReason": string | null };

/** Which grants are listed. */
export type GrantsListParams = { "agent"?: string | null; "tool"?: string | null };

/** A lasting permission. */
export type GrantsListAnswerGrant = { "id": string; "agent": string; "tool": string; "scope": GrantsListAnswerGrantScope; "givenBy": string; "door"?: string | null; "givenAt"?: string | null; "until"?: string | null; "approvalId"?: string | null; "workspace"?: GrantsListAnswerWorkspaceId };

/** Which calls a grant covers, beyond its agent and its tool. */
export type GrantsListAnswerGrantScope = { "kind": "arguments"; "argsHash"?: string } | { "kind": "run"; "runId"?: GrantsListAnswerRunId | null } | { "kind": "folder"; "path": string } | { "kind": "tool" };

export type GrantsListAnswerRunId = string;

export type GrantsListAnswerWorkspaceId = string;

/** Lists the lasting permissions that have not ended, oldest first. */
export type GrantsListAnswer = { "grants": Array<GrantsListAnswerGrant> };

/** A grant by id. */
export type GrantsRevokeParams = { "id": string };

/** Revokes a lasting permission. */
export type GrantsRevokeAnswer = { "id": string; "revoked": boolean };

/** The parameters of a health request. */
export type HealthParams = { "probe"?: boolean };

export type HealthAnswerPluginsHealth = { "loaded": Array<string>; "errors": Array<HealthAnswerPluginReport>; "unavailable": Array<string> };

/** A plugin's state, as `health` reports it. */
export type HealthAnswerPluginReport = { "id": string; "status": string; "problems": Array<string>; "leftOut": Array<HealthAnswerOmittedTool> };

/** A tool of a plugin that cannot be called. */
export type HealthAnswerOmittedTool = { "tool": string; "reason": string };

export type HealthAnswerSessionsHealth = { "path": string; "count": number; "recent": Array<HealthAnswerRecentSession> };

/** A session in a summary. */
export type HealthAnswerRecentSession = { "key": string; "updatedAt": number; "age": number };

/** How late this process is with its own work. */
export type HealthAnswerEventLoop = { "degraded": boolean; "degradedSinceMs": number | null; "reasons": Array<string>; "intervalMs": number; "delayP99Ms": number; "delayMaxMs": number; "utilization": number; "cpuCoreRatio": number; "cpuBreakdown": HealthAnswerCpuBreakdown };

export type HealthAnswerCpuBreakdown = { "hostCpuCount": number };

/** Reports the health of this gateway. */
export type HealthAnswer = { "ok": boolean; "ts": number; "durationMs": number; "runtimeVersion": string; "plugins": HealthAnswerPluginsHealth; "defaultAgentId": string; "sessions": HealthAnswerSessionsHealth; "eventLoop": HealthAnswerEventLoop };

/** A coding agent with hooks. */
export type HooksEventParamsClient = "claude" | "codex" | "gemini" | "opencode";

/** An event of a hook. */
export type HooksEventParams = { "client": HooksEventParamsClient; "attended"?: boolean; "payload": Json };

/** Handles an event of a coding agent's hook: decides whether a call of its own tools may run, or records the outcome of the call. */
export type HooksEventAnswer = { "exit": number; "stdout": string; "stderr": string };

/** Parameters of a method that takes none. */
export type KeysChainParams = Record<string, never>;

/** A key, and the entries of the ledger that it signed. */
export type KeysChainAnswerKeySpan = { "key": string; "from": number; "to"?: number | null };

/** One change of the signing key. */
export type KeysChainAnswerKeyChange = { "leaf": string; "index": number; "announced": KeysChainAnswerSignedInclusion; "accepted"?: KeysChainAnswerSignedInclusion | null };

/** A leaf's place in a tree, and the tree's signed head. */
export type KeysChainAnswerSignedInclusion = { "proof": Array<string>; "checkpoint": string };

/** Shows the keys that signed the record, with the proof of each change, so that a pinned key leads to the others. */
export type KeysChainAnswer = { "keys": Array<KeysChainAnswerKeySpan>; "changes": Array<KeysChainAnswerKeyChange> };

/** Parameters of a method that takes none. */
export type KeysListParams = Record<string, never>;

/** A key, and the entries of the ledger that it signed. */
export type KeysListAnswerKeySpan = { "key": string; "from": number; "to"?: number | null };

/** Lists the keys that signed the record. */
export type KeysListAnswer = { "keys": Array<KeysListAnswerKeySpan> };

/** Parameters of a method that takes none. */
export type KeysRotateParams = Record<string, never>;

/** A key, and the entries of the ledger that it signed. */
export type KeysRotateAnswerKeySpan = { "key": string; "from": number; "to"?: number | null };

/** Replaces the key that signs the record; the old key signs the new one. */
export type KeysRotateAnswer = { "keys": Array<KeysRotateAnswerKeySpan> };

/** Where log lines begin. */
export type LogsSubscribeParams = { "cursor"?: number | null };

/** Sends log lines as they are written, until the connection ends or unsubscribes with `runs.unsubscribe`. */
export type LogsSubscribeAnswer = { "subscriptionId": string; "cursor": number };

/** Which log lines are shown. */
export type LogsTailParams = { "cursor"?: number | null; "limit"?: number | null; "maxBytes"?: number | null };

/** Shows the last log lines, or those after a cursor. */
export type LogsTailAnswer = { "file": string; "cursor": number; "size": number; "lines": Array<string>; "truncated": boolean; "reset": boolean };

/** What a server that is started as a child may access, in addition to the system's programs and libraries. */
export type McpAddParamsSandboxConfig = { "enabled"?: boolean; "read"?: Array<string>; "write"?: Array<string>; "network"?: boolean; "env"?: Array<string>; "limits"?: McpAddParamsLimitsConfig };

/** How much a program may use, with everything it starts. */
export type McpAddParamsLimitsConfig = { "processes"?: number; "memoryMb"?: number };

/** A server to add: a program, or a URL. */
export type McpAddParams = { "name"?: string; "command"?: string | null; "args"?: Array<string>; "url"?: string | null; "sandbox"?: McpAddParamsSandboxConfig | null };

/** A server as people are shown it. */
export type McpAddAnswerServerStatus = { "name": string; "status": McpAddAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<McpAddAnswerWithheldTool>; "leftOut": Array<McpAddAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: McpAddAnswerServerSandbox | null };

/** The health of a server. */
export type McpAddAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool held back. */
export type McpAddAnswerWithheldTool = { "tool": string; "why": McpAddAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type McpAddAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** A tool left out. */
export type McpAddAnswerOmittedTool = { "tool": string; "reason": string };

/** Whether a server that is a child process runs in the sandbox. */
export type McpAddAnswerServerSandbox = "on" | "off" | "unset";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type McpAddAnswerFailure = { "code": McpAddAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type McpAddAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Adds an upstream MCP server to the configuration and starts it. */
export type McpAddAnswer = { "ok": boolean; "status": McpAddAnswerServerStatus; "error"?: McpAddAnswerFailure | null; "log"?: string | null };

/** A definition that a person was shown, as it is named when it is approved. */
export type McpApproveParamsShownDefinition = { "tool": string; "hash": string };

/** Definitions that a person has seen. */
export type McpApproveParams = { "server": string; "definitions"?: Array<McpApproveParamsShownDefinition> };

/** A definition that was approved. */
export type McpApproveAnswerApproved = { "tool": string; "hash": string; "diff": string };

/** Approves withheld tool definitions of an upstream server, each by the hash that was shown. */
export type McpApproveAnswer = { "approved": Array<McpApproveAnswerApproved> };

/** A server by name. */
export type McpForgetParams = { "server": string };

/** Forgets the approved tool definitions of an upstream server. */
export type McpForgetAnswer = { "forgotten": string };

/** A server by name. */
export type McpLogParams = { "server": string };

/** Shows the last lines that the process of an upstream MCP server wrote to standard error. */
export type McpLogAnswer = { "server": string; "log": string };

/** A server by name. */
export type McpRemoveParams = { "server": string };

/** Stops an upstream MCP server and removes it from the configuration. */
export type McpRemoveAnswer = { "removed": string };

/** Parameters of a method that takes none. */
export type McpServersParams = Record<string, never>;

/** A server as people are shown it. */
export type McpServersAnswerServerStatus = { "name": string; "status": McpServersAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<McpServersAnswerWithheldTool>; "leftOut": Array<McpServersAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: McpServersAnswerServerSandbox | null };

/** The health of a server. */
export type McpServersAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool held back. */
export type McpServersAnswerWithheldTool = { "tool": string; "why": McpServersAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type McpServersAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** A tool left out. */
export type McpServersAnswerOmittedTool = { "tool": string; "reason": string };

/** Whether a server that is a child process runs in the sandbox. */
export type McpServersAnswerServerSandbox = "on" | "off" | "unset";

/** Lists upstream MCP servers. */
export type McpServersAnswer = { "servers": Array<McpServersAnswerServerStatus> };

/** A server by name. */
export type McpStartParams = { "server": string };

/** The health of a server. */
export type McpStartAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool held back. */
export type McpStartAnswerWithheldTool = { "tool": string; "why": McpStartAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type McpStartAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** A tool left out. */
export type McpStartAnswerOmittedTool = { "tool": string; "reason": string };

/** Whether a server that is a child process runs in the sandbox. */
export type McpStartAnswerServerSandbox = "on" | "off" | "unset";

/** Starts an upstream MCP server. */
export type McpStartAnswer = { "name": string; "status": McpStartAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<McpStartAnswerWithheldTool>; "leftOut": Array<McpStartAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: McpStartAnswerServerSandbox | null };

/** A server by name. */
export type McpStopParams = { "server": string };

/** The health of a server. */
export type McpStopAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool held back. */
export type McpStopAnswerWithheldTool = { "tool": string; "why": McpStopAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type McpStopAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** A tool left out. */
export type McpStopAnswerOmittedTool = { "tool": string; "reason": string };

/** Whether a server that is a child process runs in the sandbox. */
export type McpStopAnswerServerSandbox = "on" | "off" | "unset";

/** Stops an upstream MCP server. */
export type McpStopAnswer = { "name": string; "status": McpStopAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<McpStopAnswerWithheldTool>; "leftOut": Array<McpStopAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: McpStopAnswerServerSandbox | null };

/** A server by name. */
export type McpTestParams = { "server": string };

/** A server as people are shown it. */
export type McpTestAnswerServerStatus = { "name": string; "status": McpTestAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<McpTestAnswerWithheldTool>; "leftOut": Array<McpTestAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: McpTestAnswerServerSandbox | null };

/** The health of a server. */
export type McpTestAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool held back. */
export type McpTestAnswerWithheldTool = { "tool": string; "why": McpTestAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type McpTestAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** A tool left out. */
export type McpTestAnswerOmittedTool = { "tool": string; "reason": string };

/** Whether a server that is a child process runs in the sandbox. */
export type McpTestAnswerServerSandbox = "on" | "off" | "unset";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type McpTestAnswerFailure = { "code": McpTestAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type McpTestAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Starts an upstream MCP server, lists its tools, and returns the error if that fails. */
export type McpTestAnswer = { "ok": boolean; "status": McpTestAnswerServerStatus; "error"?: McpTestAnswerFailure | null; "log"?: string | null };

/** A node by id. */
export type NodeDescribeParams = { "nodeId": string };

/** Shows one node and what it announced. */
export type NodeDescribeAnswer = { "nodeId": string; "platform": string; "version": string; "clientId": string; "clientMode": string; "remoteIp": string; "caps": Array<string>; "commands": Array<string>; "permissions": { [key: string]: Json }; "paired": boolean; "connected": boolean; "connectedAtMs": number; "displayName"?: string | null; "deviceFamily"?: string | null; "modelIdentifier"?: string | null; "pathEnv"?: string | null; "ts": number };

/** A node's answer. */
export type NodeInvokeResultParams = { "id": string; "nodeId": string; "ok": boolean; "payload"?: Json; "payloadJSON"?: string | null; "error"?: { "code"?: Json; "message"?: Json } };

/** Accepts a node's answer to a command. */
export type NodeInvokeResultAnswer = { "ok": boolean; "ignored"?: boolean | null };

/** Parameters of a method that takes none. */
export type NodeListParams = Record<string, never>;

/** A node as doors show it. */
export type NodeListAnswerShownNode = { "nodeId": string; "platform": string; "version": string; "clientId": string; "clientMode": string; "remoteIp": string; "caps": Array<string>; "commands": Array<string>; "permissions": { [key: string]: Json }; "paired": boolean; "connected": boolean; "connectedAtMs": number; "displayName"?: string | null; "deviceFamily"?: string | null; "modelIdentifier"?: string | null; "pathEnv"?: string | null };

/** Lists the connected nodes. */
export type NodeListAnswer = { "ts": number; "nodes": Array<NodeListAnswerShownNode> };

/** Parameters of a method that takes none. */
export type NotifyPushParams = Record<string, never>;

/** Shows the key for Web Push and whether the calling browser has subscribed. */
export type NotifyPushAnswer = { "enabled": boolean; "publicKey": string; "subscribed": boolean; "why"?: string | null };

/** Parameters of a method that takes none. */
export type NotifyStatusParams = Record<string, never>;

/** The state of a channel. */
export type NotifyStatusAnswerChannelStatus = { "name": string; "kind": NotifyStatusAnswerChannelKindWord; "to": string; "minSeverity": NotifyStatusAnswerSeverity; "details": boolean; "sent": number; "failed": number; "waiting": number; "lastSentAt"?: string | null; "lastError"?: NotifyStatusAnswerLastError | null; "problem"?: string | null };

/** The word for a kind of channel. */
export type NotifyStatusAnswerChannelKindWord = "push" | "ntfy" | "webhook" | "slack" | "desktop";

/** How much a notification matters. A channel receives notifications that are at least as severe as its `minSeverity`. */
export type NotifyStatusAnswerSeverity = "info" | "warn" | "ask";

/** What went wrong with a message. */
export type NotifyStatusAnswerLastError = { "at": string; "message": string };

/** Quiet hours. */
export type NotifyStatusAnswerQuietStatus = { "from": string; "to": string; "timeZone"?: string | null; "now": boolean; "urgent": boolean };

/** Shows the channels of notifications, with what each has sent and its last error. */
export type NotifyStatusAnswer = { "channels": Array<NotifyStatusAnswerChannelStatus>; "quiet"?: NotifyStatusAnswerQuietStatus | null; "coalesceSeconds": number; "askedAfterSeconds": number; "subscriptions": number; "running": boolean; "dropped": number };

/** The keys of a browser's subscription, in base64url. */
export type NotifySubscribeParamsSubscriptionKeys = { "p256dh": string; "auth": string };

/** A browser's subscription, as `PushSubscription.toJSON()` writes it. */
export type NotifySubscribeParams = { "endpoint": string; "keys": NotifySubscribeParamsSubscriptionKeys };

/** Subscribes the calling browser to Web Push. */
export type NotifySubscribeAnswer = { "subscribed": boolean };

/** Which channel is tried. */
export type NotifyTestParams = { "channel"?: string | null };

/** How the test of a channel went. */
export type NotifyTestAnswerTestResult = { "channel": string; "kind": NotifyTestAnswerChannelKindWord; "ok": boolean; "tookMs": number; "error"?: NotifyTestAnswerFailure | null };

/** The word for a kind of channel. */
export type NotifyTestAnswerChannelKindWord = "push" | "ntfy" | "webhook" | "slack" | "desktop";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type NotifyTestAnswerFailure = { "code": NotifyTestAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type NotifyTestAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Sends a test message by one channel or by all. */
export type NotifyTestAnswer = { "results": Array<NotifyTestAnswerTestResult> };

/** Parameters of a method that takes none. */
export type NotifyUnsubscribeParams = Record<string, never>;

/** Ends the calling browser's subscription to Web Push. */
export type NotifyUnsubscribeAnswer = { "unsubscribed": boolean };

/** Parameters of a method that takes none. */
export type OpenvikingFeatureGatesParams = Record<string, never>;

export type OpenvikingFeatureGatesAnswerCommandUsage = { "name": string; "usage": string };

/** Reports which tools and commands of the context store are enabled. */
export type OpenvikingFeatureGatesAnswer = { "plugin": string; "enabled": boolean; "tools": Array<string>; "commands": Array<OpenvikingFeatureGatesAnswerCommandUsage>; "traceRecall": boolean; "addResourceTool": boolean };

export type PlansCancelParamsRunId = string;

/** A run by id. */
export type PlansCancelParams = { "runId": PlansCancelParamsRunId };

export type PlansCancelAnswerRunId = string;

/** Cancels the run of a plan. */
export type PlansCancelAnswer = { "runId": PlansCancelAnswerRunId; "cancelled": boolean };

/** A person's approval in a request. */
export type PlansCheckParamsConsentParams = { "approved"?: boolean; "ask"?: boolean; "planHash"?: string | null; "policyHash"?: string | null; "previewHash"?: string | null };

/** A plan and the options of its run. */
export type PlansCheckParams = { "plan": Json; "context"?: { [key: string]: Json }; "consent"?: PlansCheckParamsConsentParams; "detach"?: boolean; "plannerVersion"?: string | null };

/** One error or warning. */
export type PlansCheckAnswerIssue = { "type": string; "path": string; "step"?: string | null; "message": string };

/** What a plan would do, as far as it is known without running it. */
export type PlansCheckAnswerPlanSummary = { "goal": string; "riskLevel": PlansCheckAnswerRiskLevel | null; "estimatedSteps": number; "filesCreated": Array<string>; "filesModified": Array<string>; "filesDeleted": Array<string>; "foldersCreated": Array<string>; "commandsExecuted": Array<string>; "toolsUsed": Array<string>; "hasLoops": boolean; "hasDependencies": boolean; "estimatedComplexity": string };

/** How much harm a tool can do. */
export type PlansCheckAnswerRiskLevel = "read-only" | "writes" | "commands";

/** Checks a plan without running it. */
export type PlansCheckAnswer = { "ok": boolean; "planHash": string; "errors": Array<PlansCheckAnswerIssue>; "warnings": Array<PlansCheckAnswerIssue>; "summary": PlansCheckAnswerPlanSummary };

/** A person's approval in a request. */
export type PlansDryRunParamsConsentParams = { "approved"?: boolean; "ask"?: boolean; "planHash"?: string | null; "policyHash"?: string | null; "previewHash"?: string | null };

/** A plan and the options of its run. */
export type PlansDryRunParams = { "plan": Json; "context"?: { [key: string]: Json }; "consent"?: PlansDryRunParamsConsentParams; "detach"?: boolean; "plannerVersion"?: string | null };

/** How far a run is. */
export type PlansDryRunAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** A step's outcome. */
export type PlansDryRunAnswerStepReport = { "id": PlansDryRunAnswerStepId; "tool": string; "status"?: PlansDryRunAnswerResultStatus | null; "attempts": number; "iterations"?: Array<PlansDryRunAnswerIterationReport> | null; "data"?: { [key: string]: Json } | null; "error"?: PlansDryRunAnswerFailure | null; "userMessage"?: string | null; "durationMs"?: number | null };

export type PlansDryRunAnswerStepId = string;

/** How a call ended. */
export type PlansDryRunAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** One iteration's outcome: also what `$steps.<id>.results` holds. */
export type PlansDryRunAnswerIterationReport = { "index": number; "status": PlansDryRunAnswerResultStatus; "data"?: { [key: string]: Json } | null; "error"?: PlansDryRunAnswerFailure | null };

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type PlansDryRunAnswerFailure = { "code": PlansDryRunAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type PlansDryRunAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type PlansDryRunAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<PlansDryRunAnswerCreated>; "modified"?: Array<PlansDryRunAnswerModified>; "deleted"?: Array<PlansDryRunAnswerDeleted>; "renamed"?: Array<PlansDryRunAnswerRenamed> };

/** A new file or folder. */
export type PlansDryRunAnswerCreated = { "path": string; "kind": PlansDryRunAnswerEntryKind };

/** A file or a folder. */
export type PlansDryRunAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type PlansDryRunAnswerModified = { "path": string; "kind": PlansDryRunAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type PlansDryRunAnswerFileKind = "file";

/** A file or folder that is gone. */
export type PlansDryRunAnswerDeleted = { "path": string; "kind": PlansDryRunAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type PlansDryRunAnswerRenamed = { "from": string; "to": string };

/** Predicts the effects of a plan, step by step. */
export type PlansDryRunAnswer = { "status": PlansDryRunAnswerRunStatus; "planHash": string; "policyHash": string; "previewHash": string; "steps": Array<PlansDryRunAnswerStepReport>; "effects": PlansDryRunAnswerEffects; "diff": string; "error"?: PlansDryRunAnswerFailure | null };

export type PlansForkParamsRunId = string;

export type PlansForkParamsStepId = string;

/** A person's approval in a request. */
export type PlansForkParamsConsentParams = { "approved"?: boolean; "ask"?: boolean; "planHash"?: string | null; "policyHash"?: string | null; "previewHash"?: string | null };

/** The parameters of a fork. */
export type PlansForkParams = { "runId": PlansForkParamsRunId; "from": PlansForkParamsStepId; "plan"?: Json; "context"?: { [key: string]: Json }; "consent"?: PlansForkParamsConsentParams };

/** A run's outcome. */
export type PlansForkAnswerRunReport = { "runId": PlansForkAnswerRunId; "status": PlansForkAnswerRunStatus; "goal": string; "outputs": PlansForkAnswerPlanOutputs; "steps": Array<PlansForkAnswerStepReport>; "effects": PlansForkAnswerEffects; "error"?: PlansForkAnswerFailure | null; "startedAt": string; "endedAt"?: string | null; "deviation"?: PlansForkAnswerDeviation | null };

export type PlansForkAnswerRunId = string;

/** How far a run is. */
export type PlansForkAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** What the closing report shows. */
export type PlansForkAnswerPlanOutputs = { "showCreatedFiles": boolean; "showModifiedFiles": boolean; "showCommandRuns": boolean };

/** A step's outcome. */
export type PlansForkAnswerStepReport = { "id": PlansForkAnswerStepId; "tool": string; "status"?: PlansForkAnswerResultStatus | null; "attempts": number; "iterations"?: Array<PlansForkAnswerIterationReport> | null; "data"?: { [key: string]: Json } | null; "error"?: PlansForkAnswerFailure | null; "userMessage"?: string | null; "durationMs"?: number | null };

export type PlansForkAnswerStepId = string;

/** How a call ended. */
export type PlansForkAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** One iteration's outcome: also what `$steps.<id>.results` holds. */
export type PlansForkAnswerIterationReport = { "index": number; "status": PlansForkAnswerResultStatus; "data"?: { [key: string]: Json } | null; "error"?: PlansForkAnswerFailure | null };

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type PlansForkAnswerFailure = { "code": PlansForkAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type PlansForkAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type PlansForkAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<PlansForkAnswerCreated>; "modified"?: Array<PlansForkAnswerModified>; "deleted"?: Array<PlansForkAnswerDeleted>; "renamed"?: Array<PlansForkAnswerRenamed> };

/** A new file or folder. */
export type PlansForkAnswerCreated = { "path": string; "kind": PlansForkAnswerEntryKind };

/** A file or a folder. */
export type PlansForkAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type PlansForkAnswerModified = { "path": string; "kind": PlansForkAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type PlansForkAnswerFileKind = "file";

/** A file or folder that is gone. */
export type PlansForkAnswerDeleted = { "path": string; "kind": PlansForkAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type PlansForkAnswerRenamed = { "from": string; "to": string };

/** Predicted and observed effects that do not match. */
export type PlansForkAnswerDeviation = { "missing": Array<string>; "unexpected": Array<string> };

/** A run that has begun. */
export type PlansForkAnswerBegunRun = { "runId": PlansForkAnswerRunId; "status": PlansForkAnswerRunStatus };

/** Starts a new run from one step of a recorded run, with the results of the earlier steps. */
export type PlansForkAnswer = PlansForkAnswerRunReport | PlansForkAnswerBegunRun;

export type PlansReplayParamsRunId = string;

/** A run by id. */
export type PlansReplayParams = { "runId": PlansReplayParamsRunId };

export type PlansReplayAnswerRunId = string;

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type PlansReplayAnswerFailure = { "code": PlansReplayAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type PlansReplayAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Resolves the arguments of a recorded run again and compares them with the record. */
export type PlansReplayAnswer = { "runId": PlansReplayAnswerRunId; "ok": boolean; "callsChecked": number; "error"?: PlansReplayAnswerFailure | null };

/** A person's approval in a request. */
export type PlansRunParamsConsentParams = { "approved"?: boolean; "ask"?: boolean; "planHash"?: string | null; "policyHash"?: string | null; "previewHash"?: string | null };

/** A plan and the options of its run. */
export type PlansRunParams = { "plan": Json; "context"?: { [key: string]: Json }; "consent"?: PlansRunParamsConsentParams; "detach"?: boolean; "plannerVersion"?: string | null };

/** A run's outcome. */
export type PlansRunAnswerRunReport = { "runId": PlansRunAnswerRunId; "status": PlansRunAnswerRunStatus; "goal": string; "outputs": PlansRunAnswerPlanOutputs; "steps": Array<PlansRunAnswerStepReport>; "effects": PlansRunAnswerEffects; "error"?: PlansRunAnswerFailure | null; "startedAt": string; "endedAt"?: string | null; "deviation"?: PlansRunAnswerDeviation | null };

export type PlansRunAnswerRunId = string;

/** How far a run is. */
export type PlansRunAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** What the closing report shows. */
export type PlansRunAnswerPlanOutputs = { "showCreatedFiles": boolean; "showModifiedFiles": boolean; "showCommandRuns": boolean };

/** A step's outcome. */
export type PlansRunAnswerStepReport = { "id": PlansRunAnswerStepId; "tool": string; "status"?: PlansRunAnswerResultStatus | null; "attempts": number; "iterations"?: Array<PlansRunAnswerIterationReport> | null; "data"?: { [key: string]: Json } | null; "error"?: PlansRunAnswerFailure | null; "userMessage"?: string | null; "durationMs"?: number | null };

export type PlansRunAnswerStepId = string;

/** How a call ended. */
export type PlansRunAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** One iteration's outcome: also what `$steps.<id>.results` holds. */
export type PlansRunAnswerIterationReport = { "index": number; "status": PlansRunAnswerResultStatus; "data"?: { [key: string]: Json } | null; "error"?: PlansRunAnswerFailure | null };

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type PlansRunAnswerFailure = { "code": PlansRunAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type PlansRunAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type PlansRunAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<PlansRunAnswerCreated>; "modified"?: Array<PlansRunAnswerModified>; "deleted"?: Array<PlansRunAnswerDeleted>; "renamed"?: Array<PlansRunAnswerRenamed> };

/** A new file or folder. */
export type PlansRunAnswerCreated = { "path": string; "kind": PlansRunAnswerEntryKind };

/** A file or a folder. */
export type PlansRunAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type PlansRunAnswerModified = { "path": string; "kind": PlansRunAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type PlansRunAnswerFileKind = "file";

/** A file or folder that is gone. */
export type PlansRunAnswerDeleted = { "path": string; "kind": PlansRunAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type PlansRunAnswerRenamed = { "from": string; "to": string };

/** Predicted and observed effects that do not match. */
export type PlansRunAnswerDeviation = { "missing": Array<string>; "unexpected": Array<string> };

/** A run that has begun. */
export type PlansRunAnswerBegunRun = { "runId": PlansRunAnswerRunId; "status": PlansRunAnswerRunStatus };

/** Runs a plan. */
export type PlansRunAnswer = PlansRunAnswerRunReport | PlansRunAnswerBegunRun;

export type PlansUndoParamsRunId = string;

export type PlansUndoParamsStepId = string;

/** A person's approval in a request. */
export type PlansUndoParamsConsentParams = { "approved"?: boolean; "ask"?: boolean; "planHash"?: string | null; "policyHash"?: string | null; "previewHash"?: string | null };

/** The parameters of an undo. */
export type PlansUndoParams = { "runId": PlansUndoParamsRunId; "dryRun"?: boolean; "partial"?: boolean; "only"?: Array<PlansUndoParamsStepId> | null; "consent"?: PlansUndoParamsConsentParams };

/** A run's outcome. */
export type PlansUndoAnswerRunReport = { "runId": PlansUndoAnswerRunId; "status": PlansUndoAnswerRunStatus; "goal": string; "outputs": PlansUndoAnswerPlanOutputs; "steps": Array<PlansUndoAnswerStepReport>; "effects": PlansUndoAnswerEffects; "error"?: PlansUndoAnswerFailure | null; "startedAt": string; "endedAt"?: string | null; "deviation"?: PlansUndoAnswerDeviation | null };

export type PlansUndoAnswerRunId = string;

/** How far a run is. */
export type PlansUndoAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** What the closing report shows. */
export type PlansUndoAnswerPlanOutputs = { "showCreatedFiles": boolean; "showModifiedFiles": boolean; "showCommandRuns": boolean };

/** A step's outcome. */
export type PlansUndoAnswerStepReport = { "id": PlansUndoAnswerStepId; "tool": string; "status"?: PlansUndoAnswerResultStatus | null; "attempts": number; "iterations"?: Array<PlansUndoAnswerIterationReport> | null; "data"?: { [key: string]: Json } | null; "error"?: PlansUndoAnswerFailure | null; "userMessage"?: string | null; "durationMs"?: number | null };

export type PlansUndoAnswerStepId = string;

/** How a call ended. */
export type PlansUndoAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** One iteration's outcome: also what `$steps.<id>.results` holds. */
export type PlansUndoAnswerIterationReport = { "index": number; "status": PlansUndoAnswerResultStatus; "data"?: { [key: string]: Json } | null; "error"?: PlansUndoAnswerFailure | null };

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type PlansUndoAnswerFailure = { "code": PlansUndoAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type PlansUndoAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type PlansUndoAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<PlansUndoAnswerCreated>; "modified"?: Array<PlansUndoAnswerModified>; "deleted"?: Array<PlansUndoAnswerDeleted>; "renamed"?: Array<PlansUndoAnswerRenamed> };

/** A new file or folder. */
export type PlansUndoAnswerCreated = { "path": string; "kind": PlansUndoAnswerEntryKind };

/** A file or a folder. */
export type PlansUndoAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type PlansUndoAnswerModified = { "path": string; "kind": PlansUndoAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type PlansUndoAnswerFileKind = "file";

/** A file or folder that is gone. */
export type PlansUndoAnswerDeleted = { "path": string; "kind": PlansUndoAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type PlansUndoAnswerRenamed = { "from": string; "to": string };

/** Predicted and observed effects that do not match. */
export type PlansUndoAnswerDeviation = { "missing": Array<string>; "unexpected": Array<string> };

/** What an undo would do. */
export type PlansUndoAnswerUndoPreview = { "plan": PlansUndoAnswerActionPlan; "notUndoable": Array<PlansUndoAnswerNotUndoable>; "preview": PlansUndoAnswerDryRunReport };

/** A whole plan. */
export type PlansUndoAnswerActionPlan = { "version": string; "goal": string; "assumptions"?: Array<string>; "riskLevel": PlansUndoAnswerRiskLevel; "contextRequests"?: Array<PlansUndoAnswerContextRequest>; "defaults"?: PlansUndoAnswerPlanDefaults; "steps": Array<PlansUndoAnswerStep>; "outputs"?: PlansUndoAnswerPlanOutputs; "uiHints"?: PlansUndoAnswerUiHints };

/** How much harm a tool can do. */
export type PlansUndoAnswerRiskLevel = "read-only" | "writes" | "commands";

/** Something only a connected client knows. */
export type PlansUndoAnswerContextRequest = { "kind": PlansUndoAnswerContextKind; "options"?: { [key: string]: Json } };

/** Kinds of context a plan can ask for. */
export type PlansUndoAnswerContextKind = "activeFilePath" | "selection" | "cursor" | "workspaceContext" | "commandList" | "vaultFileList";

/** Defaults for all steps of a plan. */
export type PlansUndoAnswerPlanDefaults = { "onError"?: PlansUndoAnswerOnError | null; "retry"?: PlansUndoAnswerRetryPolicy | null };

/** What happens to the rest of the plan when a step fails. */
export type PlansUndoAnswerOnError = "stop" | "skip" | "retry";

/** How often to try and how long to wait. */
export type PlansUndoAnswerRetryPolicy = { "maxAttempts": number; "backoffMs": number };

/** One step of a plan. */
export type PlansUndoAnswerStep = { "id": PlansUndoAnswerStepId; "tool": string; "args": { [key: string]: Json }; "preview"?: string | null; "dependsOn"?: Array<PlansUndoAnswerStepId>; "foreach"?: PlansUndoAnswerForeach | null; "captureAs"?: string | null; "onError"?: PlansUndoAnswerOnError | null; "retry"?: PlansUndoAnswerRetryPolicy | null; "timeoutMs"?: number | null; "tags"?: Array<string> };

/** Run a step once for each item of a list. */
export type PlansUndoAnswerForeach = { "from": string; "itemName": string; "indexName"?: string | null; "concurrency"?: number | null };

/** For display only. */
export type PlansUndoAnswerUiHints = { "title"?: string | null; "summary"?: string | null };

/** A call that cannot be undone. */
export type PlansUndoAnswerNotUndoable = { "callId": PlansUndoAnswerCallId; "stepId": PlansUndoAnswerStepId; "reason": string };

export type PlansUndoAnswerCallId = string;

/** What a dry run predicts. */
export type PlansUndoAnswerDryRunReport = { "status": PlansUndoAnswerRunStatus; "planHash": string; "policyHash": string; "previewHash": string; "steps": Array<PlansUndoAnswerStepReport>; "effects": PlansUndoAnswerEffects; "diff": string; "error"?: PlansUndoAnswerFailure | null };

/** The answer for a run that changed nothing. */
export type PlansUndoAnswerNothingToUndo = { "runId": PlansUndoAnswerRunId | null; "status": PlansUndoAnswerRunStatus; "steps": Array<Json>; "effects": PlansUndoAnswerEffects; "message": string };

/** Undoes a run with a plan of inverse calls. */
export type PlansUndoAnswer = PlansUndoAnswerRunReport | PlansUndoAnswerUndoPreview | PlansUndoAnswerNothingToUndo;

/** Parameters of a method that takes none. */
export type PluginApprovalListParams = Record<string, never>;

/** A question as lists and events show it. */
export type PluginApprovalListAnswerRequested = { "approvalKind": string; "id": string; "request": PluginApprovalListAnswerShownQuestion; "createdAtMs": number; "expiresAtMs": number };

/** The question itself, as it was asked. */
export type PluginApprovalListAnswerShownQuestion = PluginApprovalListAnswerPluginShown | PluginApprovalListAnswerExecShown;

/** A plugin's question as events and lists show it. */
export type PluginApprovalListAnswerPluginShown = { "pluginId": string | null; "title": string | null; "description": string | null; "scope": { [key: string]: Json } | null; "detail": string | null; "severity": string | null; "toolName": string | null; "toolCallId": string | null; "agentId": string | null; "sessionKey": string | null; "runId": string | null; "turnSourceChannel": string | null; "turnSourceTo": string | null; "turnSourceAccountId": string | null; "turnSourceThreadId": Json; "allowedDecisions"?: Array<PluginApprovalListAnswerDecisionWord> | null };

/** The possible answers. */
export type PluginApprovalListAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

/** A command's question as events and lists show it. */
export type PluginApprovalListAnswerExecShown = { "command": string | null; "systemRunPlan": { [key: string]: Json } | null; "cwd": string | null; "nodeId": string | null; "host": string | null; "security": string | null; "ask": string | null; "warningText": string | null; "scope": { [key: string]: Json } | null; "commandSpans": Json; "allowedDecisions": Array<PluginApprovalListAnswerDecisionWord>; "agentId": string | null; "resolvedPath": string | null; "sessionKey": string | null; "sessionId": string | null; "runId": string | null; "toolCallId": string | null; "turnSourceChannel": string | null; "turnSourceTo": string | null; "turnSourceAccountId": string | null; "turnSourceThreadId": Json; "commandArgv"?: Array<string> | null; "envKeys"?: Array<string> | null; "unavailableDecisions"?: Array<PluginApprovalListAnswerUnavailable> | null };

/** The one decision that a command's question can rule out. */
export type PluginApprovalListAnswerUnavailable = "allow-always";

/** Lists the open questions of plugins, policy and hooks. */
export type PluginApprovalListAnswer = Array<PluginApprovalListAnswerRequested>;

/** The severity of a question. */
export type PluginApprovalRequestParamsSeverity = "info" | "warning" | "critical";

/** The possible answers. */
export type PluginApprovalRequestParamsDecisionWord = "allow-once" | "allow-always" | "deny";

/** A question that a plugin's client asks. */
export type PluginApprovalRequestParams = { "title": string; "description": string; "pluginId"?: string | null; "detail"?: string | null; "severity"?: PluginApprovalRequestParamsSeverity | null; "scope"?: { [key: string]: Json } | null; "toolName"?: string | null; "toolCallId"?: string | null; "allowedDecisions"?: Array<PluginApprovalRequestParamsDecisionWord> | null; "agentId"?: string | null; "sessionKey"?: string | null; "approvalReviewerDeviceIds"?: Array<string> | null; "turnSourceChannel"?: string | null; "turnSourceTo"?: string | null; "turnSourceAccountId"?: string | null; "turnSourceThreadId"?: Json; "timeoutMs"?: number | null; "twoPhase"?: boolean };

/** The possible answers. */
export type PluginApprovalRequestAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

/** Asks a plugin's question and waits for the answer. */
export type PluginApprovalRequestAnswer = { "id": string; "decision": PluginApprovalRequestAnswerDecisionWord | null; "createdAtMs": number; "expiresAtMs": number };

/** Kinds of question that clients name. */
export type PluginApprovalResolveParamsKind = "exec" | "plugin" | "system-agent";

/** A person behind a messaging channel, in whose name a channel answers. */
export type PluginApprovalResolveParamsReviewer = { "channel": string; "accountId": string; "senderId": string };

/** Which calls a grant covers, beyond its agent and its tool. */
export type PluginApprovalResolveParamsGrantScope = { "kind": "arguments"; "argsHash"?: string } | { "kind": "run"; "runId"?: PluginApprovalResolveParamsRunId | null } | { "kind": "folder"; "path": string } | { "kind": "tool" };

export type PluginApprovalResolveParamsRunId = string;

/** An answer to a question. */
export type PluginApprovalResolveParams = { "id": string; "decision": string; "kind"?: PluginApprovalResolveParamsKind | null; "reviewer"?: PluginApprovalResolveParamsReviewer | null; "grantExpiresInDays"?: number | null; "grantExpiresInMs"?: number | null; "grantScope"?: PluginApprovalResolveParamsGrantScope | null; "shown"?: string | null };

/** Answers a question of a plugin, a policy or a hook. */
export type PluginApprovalResolveAnswer = { "ok": boolean };

/** A question by id. */
export type PluginApprovalWaitDecisionParams = { "id": string };

/** The possible answers. */
export type PluginApprovalWaitDecisionAnswerDecisionWord = "allow-once" | "allow-always" | "deny";

/** Waits for the answer to a plugin's question. */
export type PluginApprovalWaitDecisionAnswer = { "id": string; "decision": PluginApprovalWaitDecisionAnswerDecisionWord | null; "createdAtMs": number; "expiresAtMs": number; "terminalReason": string | null };

/** A plugin by id. */
export type PluginsDisableParams = { "id": string };

/** The health of a server. */
export type PluginsDisableAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool left out. */
export type PluginsDisableAnswerOmittedTool = { "tool": string; "reason": string };

/** The permissions that a plugin asks for. */
export type PluginsDisableAnswerPermissions = { "network": boolean; "read": Array<string>; "write": Array<string>; "env": Array<string> };

/** What a plugin may touch. */
export type PluginsDisableAnswerGrant = { "network": boolean; "read"?: Array<string>; "write"?: Array<string>; "env"?: Array<string> };

/** A sandbox feature that this kernel lacks, and the consequence. */
export type PluginsDisableAnswerMissingSandboxFeature = { "wall": string; "consequence": string };

/** A server as people are shown it. */
export type PluginsDisableAnswerServerStatus = { "name": string; "status": PluginsDisableAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<PluginsDisableAnswerWithheldTool>; "leftOut": Array<PluginsDisableAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: PluginsDisableAnswerServerSandbox | null };

/** A tool held back. */
export type PluginsDisableAnswerWithheldTool = { "tool": string; "why": PluginsDisableAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type PluginsDisableAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** Whether a server that is a child process runs in the sandbox. */
export type PluginsDisableAnswerServerSandbox = "on" | "off" | "unset";

/** Disables a plugin. */
export type PluginsDisableAnswer = { "id": string; "name": string; "description": string; "version": string; "source": string; "folder": string; "enabled": boolean; "status": PluginsDisableAnswerHealth; "problems": Array<string>; "declared": Array<string>; "tools": number; "leftOut": Array<PluginsDisableAnswerOmittedTool>; "hooks": Array<string>; "skills": Array<string>; "asks"?: PluginsDisableAnswerPermissions | null; "grant": PluginsDisableAnswerGrant; "confined": boolean; "missingWalls"?: Array<PluginsDisableAnswerMissingSandboxFeature>; "processes": Array<PluginsDisableAnswerServerStatus> };

/** Parameters of a method that takes none. */
export type PluginsDoctorParams = Record<string, never>;

/** A plugin as people are shown it. */
export type PluginsDoctorAnswerPluginInfo = { "id": string; "name": string; "description": string; "version": string; "source": string; "folder": string; "enabled": boolean; "status": PluginsDoctorAnswerHealth; "problems": Array<string>; "declared": Array<string>; "tools": number; "leftOut": Array<PluginsDoctorAnswerOmittedTool>; "hooks": Array<string>; "skills": Array<string>; "asks"?: PluginsDoctorAnswerPermissions | null; "grant": PluginsDoctorAnswerGrant; "confined": boolean; "missingWalls"?: Array<PluginsDoctorAnswerMissingSandboxFeature>; "processes": Array<PluginsDoctorAnswerServerStatus> };

/** The health of a server. */
export type PluginsDoctorAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool left out. */
export type PluginsDoctorAnswerOmittedTool = { "tool": string; "reason": string };

/** The permissions that a plugin asks for. */
export type PluginsDoctorAnswerPermissions = { "network": boolean; "read": Array<string>; "write": Array<string>; "env": Array<string> };

/** What a plugin may touch. */
export type PluginsDoctorAnswerGrant = { "network": boolean; "read"?: Array<string>; "write"?: Array<string>; "env"?: Array<string> };

/** A sandbox feature that this kernel lacks, and the consequence. */
export type PluginsDoctorAnswerMissingSandboxFeature = { "wall": string; "consequence": string };

/** A server as people are shown it. */
export type PluginsDoctorAnswerServerStatus = { "name": string; "status": PluginsDoctorAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<PluginsDoctorAnswerWithheldTool>; "leftOut": Array<PluginsDoctorAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: PluginsDoctorAnswerServerSandbox | null };

/** A tool held back. */
export type PluginsDoctorAnswerWithheldTool = { "tool": string; "why": PluginsDoctorAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type PluginsDoctorAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** Whether a server that is a child process runs in the sandbox. */
export type PluginsDoctorAnswerServerSandbox = "on" | "off" | "unset";

/** Checks every plugin, starting those that do not run. */
export type PluginsDoctorAnswer = { "plugins": Array<PluginsDoctorAnswerPluginInfo> };

/** The parameters for enabling a plugin. */
export type PluginsEnableParams = { "id": string; "grant"?: Array<string> };

/** The health of a server. */
export type PluginsEnableAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool left out. */
export type PluginsEnableAnswerOmittedTool = { "tool": string; "reason": string };

/** The permissions that a plugin asks for. */
export type PluginsEnableAnswerPermissions = { "network": boolean; "read": Array<string>; "write": Array<string>; "env": Array<string> };

/** What a plugin may touch. */
export type PluginsEnableAnswerGrant = { "network": boolean; "read"?: Array<string>; "write"?: Array<string>; "env"?: Array<string> };

/** A sandbox feature that this kernel lacks, and the consequence. */
export type PluginsEnableAnswerMissingSandboxFeature = { "wall": string; "consequence": string };

/** A server as people are shown it. */
export type PluginsEnableAnswerServerStatus = { "name": string; "status": PluginsEnableAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<PluginsEnableAnswerWithheldTool>; "leftOut": Array<PluginsEnableAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: PluginsEnableAnswerServerSandbox | null };

/** A tool held back. */
export type PluginsEnableAnswerWithheldTool = { "tool": string; "why": PluginsEnableAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type PluginsEnableAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** Whether a server that is a child process runs in the sandbox. */
export type PluginsEnableAnswerServerSandbox = "on" | "off" | "unset";

/** Enables a plugin, optionally with more grants. */
export type PluginsEnableAnswer = { "id": string; "name": string; "description": string; "version": string; "source": string; "folder": string; "enabled": boolean; "status": PluginsEnableAnswerHealth; "problems": Array<string>; "declared": Array<string>; "tools": number; "leftOut": Array<PluginsEnableAnswerOmittedTool>; "hooks": Array<string>; "skills": Array<string>; "asks"?: PluginsEnableAnswerPermissions | null; "grant": PluginsEnableAnswerGrant; "confined": boolean; "missingWalls"?: Array<PluginsEnableAnswerMissingSandboxFeature>; "processes": Array<PluginsEnableAnswerServerStatus> };

/** A plugin by id. */
export type PluginsInfoParams = { "id": string };

/** The health of a server. */
export type PluginsInfoAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool left out. */
export type PluginsInfoAnswerOmittedTool = { "tool": string; "reason": string };

/** The permissions that a plugin asks for. */
export type PluginsInfoAnswerPermissions = { "network": boolean; "read": Array<string>; "write": Array<string>; "env": Array<string> };

/** What a plugin may touch. */
export type PluginsInfoAnswerGrant = { "network": boolean; "read"?: Array<string>; "write"?: Array<string>; "env"?: Array<string> };

/** A sandbox feature that this kernel lacks, and the consequence. */
export type PluginsInfoAnswerMissingSandboxFeature = { "wall": string; "consequence": string };

/** A server as people are shown it. */
export type PluginsInfoAnswerServerStatus = { "name": string; "status": PluginsInfoAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<PluginsInfoAnswerWithheldTool>; "leftOut": Array<PluginsInfoAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: PluginsInfoAnswerServerSandbox | null };

/** A tool held back. */
export type PluginsInfoAnswerWithheldTool = { "tool": string; "why": PluginsInfoAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type PluginsInfoAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** Whether a server that is a child process runs in the sandbox. */
export type PluginsInfoAnswerServerSandbox = "on" | "off" | "unset";

/** Shows one plugin. */
export type PluginsInfoAnswer = { "id": string; "name": string; "description": string; "version": string; "source": string; "folder": string; "enabled": boolean; "status": PluginsInfoAnswerHealth; "problems": Array<string>; "declared": Array<string>; "tools": number; "leftOut": Array<PluginsInfoAnswerOmittedTool>; "hooks": Array<string>; "skills": Array<string>; "asks"?: PluginsInfoAnswerPermissions | null; "grant": PluginsInfoAnswerGrant; "confined": boolean; "missingWalls"?: Array<PluginsInfoAnswerMissingSandboxFeature>; "processes": Array<PluginsInfoAnswerServerStatus> };

/** The parameters of an installation. */
export type PluginsInstallParams = { "source": string; "grant"?: Array<string> };

/** The result of an installation. */
export type PluginsInstallAnswerInstallation = { "plugin": PluginsInstallAnswerPluginInfo; "notGranted": Array<string> };

/** A plugin as people are shown it. */
export type PluginsInstallAnswerPluginInfo = { "id": string; "name": string; "description": string; "version": string; "source": string; "folder": string; "enabled": boolean; "status": PluginsInstallAnswerHealth; "problems": Array<string>; "declared": Array<string>; "tools": number; "leftOut": Array<PluginsInstallAnswerOmittedTool>; "hooks": Array<string>; "skills": Array<string>; "asks"?: PluginsInstallAnswerPermissions | null; "grant": PluginsInstallAnswerGrant; "confined": boolean; "missingWalls"?: Array<PluginsInstallAnswerMissingSandboxFeature>; "processes": Array<PluginsInstallAnswerServerStatus> };

/** The health of a server. */
export type PluginsInstallAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool left out. */
export type PluginsInstallAnswerOmittedTool = { "tool": string; "reason": string };

/** The permissions that a plugin asks for. */
export type PluginsInstallAnswerPermissions = { "network": boolean; "read": Array<string>; "write": Array<string>; "env": Array<string> };

/** What a plugin may touch. */
export type PluginsInstallAnswerGrant = { "network": boolean; "read"?: Array<string>; "write"?: Array<string>; "env"?: Array<string> };

/** A sandbox feature that this kernel lacks, and the consequence. */
export type PluginsInstallAnswerMissingSandboxFeature = { "wall": string; "consequence": string };

/** A server as people are shown it. */
export type PluginsInstallAnswerServerStatus = { "name": string; "status": PluginsInstallAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<PluginsInstallAnswerWithheldTool>; "leftOut": Array<PluginsInstallAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: PluginsInstallAnswerServerSandbox | null };

/** A tool held back. */
export type PluginsInstallAnswerWithheldTool = { "tool": string; "why": PluginsInstallAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type PluginsInstallAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** Whether a server that is a child process runs in the sandbox. */
export type PluginsInstallAnswerServerSandbox = "on" | "off" | "unset";

/** The result of installing a built-in set of tools. */
export type PluginsInstallAnswerBuiltIn = { "builtIn": string; "enabled": boolean; "status": string; "tools": Array<string>; "next": Array<string> };

/** Installs a plugin from a folder, an archive, npm or Git. */
export type PluginsInstallAnswer = PluginsInstallAnswerInstallation | PluginsInstallAnswerBuiltIn;

/** Parameters of a method that takes none. */
export type PluginsListParams = Record<string, never>;

/** A plugin as people are shown it. */
export type PluginsListAnswerPluginInfo = { "id": string; "name": string; "description": string; "version": string; "source": string; "folder": string; "enabled": boolean; "status": PluginsListAnswerHealth; "problems": Array<string>; "declared": Array<string>; "tools": number; "leftOut": Array<PluginsListAnswerOmittedTool>; "hooks": Array<string>; "skills": Array<string>; "asks"?: PluginsListAnswerPermissions | null; "grant": PluginsListAnswerGrant; "confined": boolean; "missingWalls"?: Array<PluginsListAnswerMissingSandboxFeature>; "processes": Array<PluginsListAnswerServerStatus> };

/** The health of a server. */
export type PluginsListAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool left out. */
export type PluginsListAnswerOmittedTool = { "tool": string; "reason": string };

/** The permissions that a plugin asks for. */
export type PluginsListAnswerPermissions = { "network": boolean; "read": Array<string>; "write": Array<string>; "env": Array<string> };

/** What a plugin may touch. */
export type PluginsListAnswerGrant = { "network": boolean; "read"?: Array<string>; "write"?: Array<string>; "env"?: Array<string> };

/** A sandbox feature that this kernel lacks, and the consequence. */
export type PluginsListAnswerMissingSandboxFeature = { "wall": string; "consequence": string };

/** A server as people are shown it. */
export type PluginsListAnswerServerStatus = { "name": string; "status": PluginsListAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<PluginsListAnswerWithheldTool>; "leftOut": Array<PluginsListAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: PluginsListAnswerServerSandbox | null };

/** A tool held back. */
export type PluginsListAnswerWithheldTool = { "tool": string; "why": PluginsListAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type PluginsListAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** Whether a server that is a child process runs in the sandbox. */
export type PluginsListAnswerServerSandbox = "on" | "off" | "unset";

/** Lists plugins. */
export type PluginsListAnswer = { "plugins": Array<PluginsListAnswerPluginInfo> };

/** The parameters for removing a plugin. */
export type PluginsRemoveParams = { "id": string; "data"?: boolean };

/** Removes a plugin, optionally with its data. */
export type PluginsRemoveAnswer = { "removed": string };

/** A plugin by id. */
export type PluginsUpdateParams = { "id": string };

/** A plugin as people are shown it. */
export type PluginsUpdateAnswerPluginInfo = { "id": string; "name": string; "description": string; "version": string; "source": string; "folder": string; "enabled": boolean; "status": PluginsUpdateAnswerHealth; "problems": Array<string>; "declared": Array<string>; "tools": number; "leftOut": Array<PluginsUpdateAnswerOmittedTool>; "hooks": Array<string>; "skills": Array<string>; "asks"?: PluginsUpdateAnswerPermissions | null; "grant": PluginsUpdateAnswerGrant; "confined": boolean; "missingWalls"?: Array<PluginsUpdateAnswerMissingSandboxFeature>; "processes": Array<PluginsUpdateAnswerServerStatus> };

/** The health of a server. */
export type PluginsUpdateAnswerHealth = "healthy" | "degraded" | "unavailable";

/** A tool left out. */
export type PluginsUpdateAnswerOmittedTool = { "tool": string; "reason": string };

/** The permissions that a plugin asks for. */
export type PluginsUpdateAnswerPermissions = { "network": boolean; "read": Array<string>; "write": Array<string>; "env": Array<string> };

/** What a plugin may touch. */
export type PluginsUpdateAnswerGrant = { "network": boolean; "read"?: Array<string>; "write"?: Array<string>; "env"?: Array<string> };

/** A sandbox feature that this kernel lacks, and the consequence. */
export type PluginsUpdateAnswerMissingSandboxFeature = { "wall": string; "consequence": string };

/** A server as people are shown it. */
export type PluginsUpdateAnswerServerStatus = { "name": string; "status": PluginsUpdateAnswerHealth; "running": boolean; "pid"?: number | null; "tools": number; "prompts": number; "resources": number; "withheld": Array<PluginsUpdateAnswerWithheldTool>; "leftOut": Array<PluginsUpdateAnswerOmittedTool>; "error"?: string | null; "retryInMs"?: number | null; "starts": number; "plugin"?: string | null; "health"?: Json; "protocol"?: string | null; "walls"?: PluginsUpdateAnswerServerSandbox | null };

/** A tool held back. */
export type PluginsUpdateAnswerWithheldTool = { "tool": string; "why": PluginsUpdateAnswerWithheldReason; "description": string; "approvedDescription"?: string | null; "hash": string; "diff": string };

/** Why a tool is held back. */
export type PluginsUpdateAnswerWithheldReason = "changed" | "new" | "approved-in-part";

/** Whether a server that is a child process runs in the sandbox. */
export type PluginsUpdateAnswerServerSandbox = "on" | "off" | "unset";

/** Installs the newest version of a plugin from its source. */
export type PluginsUpdateAnswer = { "plugin": PluginsUpdateAnswerPluginInfo; "notGranted": Array<string> };

/** The call and its caller. */
export type PolicyExplainParams = { "tool"?: string; "args"?: { [key: string]: Json } | null; "agent"?: string | null; "door"?: string | null; "session"?: string | null };

/** How much harm a tool can do. */
export type PolicyExplainAnswerRiskLevel = "read-only" | "writes" | "commands";

/** Explains what the policy decides about a call, for an agent and a door, and which rule decides it. */
export type PolicyExplainAnswer = { "tool": string; "agent": string; "door": string; "decision": string; "reason"?: string | null; "rule"?: string | null; "riskLevel": PolicyExplainAnswerRiskLevel; "hostPath": boolean };

/** Where something is looked for. */
export type RecallWhyParamsCorpus = "notes" | "memory" | "tools";

/** The query, and the expected result. */
export type RecallWhyParams = { "corpus": RecallWhyParamsCorpus; "query": string; "expect": string };

/** A step that a search goes through. */
export type RecallWhyAnswerStep = { "check": string; "ok": boolean; "detail": string };

/** A result with its place. */
export type RecallWhyAnswerRankedHit = { "rank": number; "id": string; "score": number; "parts": Array<RecallWhyAnswerScorePart>; "matched"?: Array<string>; "expected": boolean };

/** One part of a score. */
export type RecallWhyAnswerScorePart = { "name": string; "value": number; "raw"?: number | null };

/** Explains why a note, a memory or a tool was found for a question, or was not. */
export type RecallWhyAnswer = { "found": boolean; "steps": Array<RecallWhyAnswerStep>; "hits": Array<RecallWhyAnswerRankedHit>; "rank"?: number | null; "sentence": string };

export type RunsCallParamsRunId = string;

export type RunsCallParamsCallId = string;

/** A call of a run. */
export type RunsCallParams = { "runId": RunsCallParamsRunId; "callId": RunsCallParamsCallId };

/** The fields of a [`ToolCall`]. A bag of parts may be anything; only [`ToolCall::new`] makes it a call. */
export type RunsCallAnswerToolCall = { "callId": RunsCallAnswerCallId; "runId": RunsCallAnswerRunId; "stepId": RunsCallAnswerStepId; "tool": RunsCallAnswerToolName; "attempt": number; "args": { [key: string]: Json }; "argsHash"?: string | null; "timeoutMs"?: number | null; "deadlineAt"?: string | null; "cancellable": boolean; "iteration"?: RunsCallAnswerIteration | null; "loopId"?: string | null; "createdAt": string; "plannerVersion"?: string | null; "executorVersion": string; "toolRegistryVersion": string; "preview"?: string | null; "riskLevel": RunsCallAnswerRiskLevel; "category"?: string | null; "policy": RunsCallAnswerPolicySnapshot; "confirmationId"?: RunsCallAnswerConfirmationId | null };

export type RunsCallAnswerCallId = string;

export type RunsCallAnswerRunId = string;

export type RunsCallAnswerStepId = string;

export type RunsCallAnswerToolName = string;

/** Where in a foreach a call belongs. */
export type RunsCallAnswerIteration = { "index": number; "itemName": string; "itemValue": Json };

/** How much harm a tool can do. */
export type RunsCallAnswerRiskLevel = "read-only" | "writes" | "commands";

/** The policy that applied when the call was made. */
export type RunsCallAnswerPolicySnapshot = { "confirmationsRequired": boolean; "sandbox": RunsCallAnswerSandbox; "limits": RunsCallAnswerPolicyLimits; "allowedTools"?: Array<string>; "deniedTools"?: Array<string>; "allowCommands": boolean; "allowDelete": boolean };

/** Path rules, matched on vault-relative paths. `/` is the vault's root. */
export type RunsCallAnswerSandbox = { "enabled": boolean; "allowedRoots": Array<string>; "denyPatterns": Array<string>; "denyGlobs": Array<string>; "followSymlinks": boolean };

/** Every limit has a number. */
export type RunsCallAnswerPolicyLimits = { "maxConcurrency": number; "maxAttempts": number; "maxSteps": number; "maxIterations": number; "maxRunMs": number; "maxCallMs": number; "maxRetryDelayMs"?: number; "maxBytesWritten": number; "maxDeletes": number; "maxArgsBytes": number; "maxOutputBytes": number };

export type RunsCallAnswerConfirmationId = string;

/** The fields of a [`ToolResult`]. */
export type RunsCallAnswerToolResult = { "callId": RunsCallAnswerCallId; "runId": RunsCallAnswerRunId; "stepId": RunsCallAnswerStepId; "tool": RunsCallAnswerToolName; "attempt": number; "status": RunsCallAnswerResultStatus; "ok": boolean; "data"?: { [key: string]: Json } | null; "dataHash"?: string | null; "error"?: RunsCallAnswerFailure | null; "startedAt": string; "endedAt": string; "durationMs": number; "effects"?: RunsCallAnswerEffects | null; "userMessage"?: string | null; "debugMessage"?: string | null };

/** How a call ended. */
export type RunsCallAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type RunsCallAnswerFailure = { "code": RunsCallAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type RunsCallAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type RunsCallAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<RunsCallAnswerCreated>; "modified"?: Array<RunsCallAnswerModified>; "deleted"?: Array<RunsCallAnswerDeleted>; "renamed"?: Array<RunsCallAnswerRenamed> };

/** A new file or folder. */
export type RunsCallAnswerCreated = { "path": string; "kind": RunsCallAnswerEntryKind };

/** A file or a folder. */
export type RunsCallAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type RunsCallAnswerModified = { "path": string; "kind": RunsCallAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type RunsCallAnswerFileKind = "file";

/** A file or folder that is gone. */
export type RunsCallAnswerDeleted = { "path": string; "kind": RunsCallAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type RunsCallAnswerRenamed = { "from": string; "to": string };

/** Shows one call of a run in full. */
export type RunsCallAnswer = { "call"?: RunsCallAnswerToolCall | null; "result"?: RunsCallAnswerToolResult | null };

export type RunsCallsParamsRunId = string;

/** Which calls are listed. */
export type RunsCallsParams = { "runId": RunsCallsParamsRunId; "after"?: number | null; "limit"?: number | null; "failed"?: boolean; "tool"?: string | null };

export type RunsCallsAnswerRunId = string;

/** A call in a list. */
export type RunsCallsAnswerCallRow = { "seq": number; "callId": RunsCallsAnswerCallId; "stepId": RunsCallsAnswerStepId; "tool": RunsCallsAnswerToolName; "attempt": number; "index"?: number | null; "at": string; "startedAt"?: string | null; "tookUs"?: number | null; "status"?: RunsCallsAnswerResultStatus | null; "error"?: RunsCallsAnswerFailure | null; "args"?: { [key: string]: Json } | null; "changes"?: Array<RunsCallsAnswerFileChange>; "refused"?: boolean; "recovered"?: boolean };

export type RunsCallsAnswerCallId = string;

export type RunsCallsAnswerStepId = string;

export type RunsCallsAnswerToolName = string;

/** How a call ended. */
export type RunsCallsAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type RunsCallsAnswerFailure = { "code": RunsCallsAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type RunsCallsAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** A file or folder that changed. */
export type RunsCallsAnswerFileChange = { "kind": RunsCallsAnswerChangeKind; "path": string; "from"?: string | null };

/** What happened to a file or folder. */
export type RunsCallsAnswerChangeKind = "created" | "modified" | "deleted" | "renamed";

/** Lists the calls of a run, page by page. */
export type RunsCallsAnswer = { "runId": RunsCallsAnswerRunId; "calls": Array<RunsCallsAnswerCallRow>; "next"?: number | null; "total": number; "failed": number };

export type RunsCancelParamsRunId = string;

/** A run by id. */
export type RunsCancelParams = { "runId": RunsCancelParamsRunId };

export type RunsCancelAnswerRunId = string;

/** Cancels a run. */
export type RunsCancelAnswer = { "runId": RunsCancelAnswerRunId; "cancelled": boolean };

/** Since when, and until when. */
export type RunsDigestParams = { "since": string; "until"?: string | null };

/** What one agent did. */
export type RunsDigestAnswerDigestAgent = { "agent": string; "title": string; "runs": number; "failed": number; "created": number; "modified": number; "deleted": number; "renamed": number; "changingRuns": number; "lastChange"?: RunsDigestAnswerRunId | null };

export type RunsDigestAnswerRunId = string;

/** A file that was changed. */
export type RunsDigestAnswerDigestFile = { "kind": RunsDigestAnswerChangeKind; "path": string; "from"?: string | null; "runId": RunsDigestAnswerRunId; "times": number };

/** What happened to a file or folder. */
export type RunsDigestAnswerChangeKind = "created" | "modified" | "deleted" | "renamed";

/** A run that failed. */
export type RunsDigestAnswerDigestFailure = { "runId": RunsDigestAnswerRunId; "title": string; "at"?: string | null; "error"?: RunsDigestAnswerFailure | null };

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type RunsDigestAnswerFailure = { "code": RunsDigestAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type RunsDigestAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** A question that nobody answered in time. */
export type RunsDigestAnswerDigestQuestion = { "id": string; "title": string; "tool": string; "askedAt": string; "runId"?: RunsDigestAnswerRunId | null };

/** Summarises what happened since a time: runs, changed files, failures, expired questions. */
export type RunsDigestAnswer = { "since": string; "until": string; "runs": Record<string, number>; "total": number; "agents": Array<RunsDigestAnswerDigestAgent>; "files": Array<RunsDigestAnswerDigestFile>; "filesTotal": number; "failures": Array<RunsDigestAnswerDigestFailure>; "expired": Array<RunsDigestAnswerDigestQuestion>; "truncated": boolean };

export type RunsEventsParamsRunId = string;

/** Which events are shown. */
export type RunsEventsParams = { "runId": RunsEventsParamsRunId; "after"?: number | null; "limit"?: number | null };

export type RunsEventsAnswerRunId = string;

/** One event of a run's stream. */
export type RunsEventsAnswerExecutionEvent = { "seq": number; "runId": RunsEventsAnswerRunId; "type": RunsEventsAnswerEventType; "timestamp": string; "level": RunsEventsAnswerEventLevel; "message": string; "callId"?: RunsEventsAnswerCallId | null; "stepId"?: RunsEventsAnswerStepId | null; "tool"?: RunsEventsAnswerToolName | null; "payload"?: { [key: string]: Json } | null };

/** The kind of an event. */
export type RunsEventsAnswerEventType = "run.started" | "run.confirmationRequested" | "run.confirmed" | "run.cancelled" | "step.scheduled" | "step.started" | "step.progress" | "step.finished" | "step.failed" | "run.finished";

/** The severity of an event. */
export type RunsEventsAnswerEventLevel = "info" | "warn" | "error";

export type RunsEventsAnswerCallId = string;

export type RunsEventsAnswerStepId = string;

export type RunsEventsAnswerToolName = string;

/** Shows the recorded events of a run, page by page. */
export type RunsEventsAnswer = { "runId": RunsEventsAnswerRunId; "events": Array<RunsEventsAnswerExecutionEvent>; "hasMore": boolean };

export type RunsExportParamsRunId = string;

/** A run by id. */
export type RunsExportParams = { "runId": RunsExportParamsRunId };

/** The content of `run.json`. */
export type RunsExportAnswerRunManifest = { "runId": RunsExportAnswerRunId; "planHash"?: string | null; "plan"?: RunsExportAnswerActionPlan | null; "policy": RunsExportAnswerPolicySnapshot; "policyHash": string; "registryVersion": string; "executorVersion": string; "caller"?: { [key: string]: Json }; "context"?: { [key: string]: Json }; "startedAt": string; "endedAt"?: string | null; "status": RunsExportAnswerRunStatus; "confirmation"?: RunsExportAnswerConfirmation | null; "parentRunId"?: RunsExportAnswerRunId | null; "replayOf"?: RunsExportAnswerRunId | null; "head": RunsExportAnswerLogHead };

export type RunsExportAnswerRunId = string;

/** A whole plan. */
export type RunsExportAnswerActionPlan = { "version": string; "goal": string; "assumptions"?: Array<string>; "riskLevel": RunsExportAnswerRiskLevel; "contextRequests"?: Array<RunsExportAnswerContextRequest>; "defaults"?: RunsExportAnswerPlanDefaults; "steps": Array<RunsExportAnswerStep>; "outputs"?: RunsExportAnswerPlanOutputs; "uiHints"?: RunsExportAnswerUiHints };

/** How much harm a tool can do. */
export type RunsExportAnswerRiskLevel = "read-only" | "writes" | "commands";

/** Something only a connected client knows. */
export type RunsExportAnswerContextRequest = { "kind": RunsExportAnswerContextKind; "options"?: { [key: string]: Json } };

/** Kinds of context a plan can ask for. */
export type RunsExportAnswerContextKind = "activeFilePath" | "selection" | "cursor" | "workspaceContext" | "commandList" | "vaultFileList";

/** Defaults for all steps of a plan. */
export type RunsExportAnswerPlanDefaults = { "onError"?: RunsExportAnswerOnError | null; "retry"?: RunsExportAnswerRetryPolicy | null };

/** What happens to the rest of the plan when a step fails. */
export type RunsExportAnswerOnError = "stop" | "skip" | "retry";

/** How often to try and how long to wait. */
export type RunsExportAnswerRetryPolicy = { "maxAttempts": number; "backoffMs": number };

/** One step of a plan. */
export type RunsExportAnswerStep = { "id": RunsExportAnswerStepId; "tool": string; "args": { [key: string]: Json }; "preview"?: string | null; "dependsOn"?: Array<RunsExportAnswerStepId>; "foreach"?: RunsExportAnswerForeach | null; "captureAs"?: string | null; "onError"?: RunsExportAnswerOnError | null; "retry"?: RunsExportAnswerRetryPolicy | null; "timeoutMs"?: number | null; "tags"?: Array<string> };

export type RunsExportAnswerStepId = string;

/** Run a step once for each item of a list. */
export type RunsExportAnswerForeach = { "from": string; "itemName": string; "indexName"?: string | null; "concurrency"?: number | null };

/** What the closing report shows. */
export type RunsExportAnswerPlanOutputs = { "showCreatedFiles": boolean; "showModifiedFiles": boolean; "showCommandRuns": boolean };

/** For display only. */
export type RunsExportAnswerUiHints = { "title"?: string | null; "summary"?: string | null };

/** The policy that applied when the call was made. */
export type RunsExportAnswerPolicySnapshot = { "confirmationsRequired": boolean; "sandbox": RunsExportAnswerSandbox; "limits": RunsExportAnswerPolicyLimits; "allowedTools"?: Array<string>; "deniedTools"?: Array<string>; "allowCommands": boolean; "allowDelete": boolean };

/** Path rules, matched on vault-relative paths. `/` is the vault's root. */
export type RunsExportAnswerSandbox = { "enabled": boolean; "allowedRoots": Array<string>; "denyPatterns": Array<string>; "denyGlobs": Array<string>; "followSymlinks": boolean };

/** Every limit has a number. */
export type RunsExportAnswerPolicyLimits = { "maxConcurrency": number; "maxAttempts": number; "maxSteps": number; "maxIterations": number; "maxRunMs": number; "maxCallMs": number; "maxRetryDelayMs"?: number; "maxBytesWritten": number; "maxDeletes": number; "maxArgsBytes": number; "maxOutputBytes": number };

/** How far a run is. */
export type RunsExportAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** A person's approval of one run, bound to exactly what they were shown. */
export type RunsExportAnswerConfirmation = { "confirmationId": RunsExportAnswerConfirmationId; "planHash": string; "policyHash": string; "previewHash"?: string | null; "decision": RunsExportAnswerConfirmationDecision; "by": string; "via"?: RunsExportAnswerApprovedVia; "at": string; "expiresAt"?: string | null; "scope": string; "door"?: string | null; "approvalId"?: string | null; "shown"?: string | null; "grantId"?: string | null };

export type RunsExportAnswerConfirmationId = string;

/** What a person decided. */
export type RunsExportAnswerConfirmationDecision = "approved" | "denied" | "edited";

/** Who gave an approval, as far as Toolyard can vouch for it. */
export type RunsExportAnswerApprovedVia = "operator" | "client-user";

/** The end of a run's record chain. */
export type RunsExportAnswerLogHead = { "seq": number; "hash": string };

/** The fields of a [`ToolCall`]. A bag of parts may be anything; only [`ToolCall::new`] makes it a call. */
export type RunsExportAnswerToolCall = { "callId": RunsExportAnswerCallId; "runId": RunsExportAnswerRunId; "stepId": RunsExportAnswerStepId; "tool": RunsExportAnswerToolName; "attempt": number; "args": { [key: string]: Json }; "argsHash"?: string | null; "timeoutMs"?: number | null; "deadlineAt"?: string | null; "cancellable": boolean; "iteration"?: RunsExportAnswerIteration | null; "loopId"?: string | null; "createdAt": string; "plannerVersion"?: string | null; "executorVersion": string; "toolRegistryVersion": string; "preview"?: string | null; "riskLevel": RunsExportAnswerRiskLevel; "category"?: string | null; "policy": RunsExportAnswerPolicySnapshot; "confirmationId"?: RunsExportAnswerConfirmationId | null };

export type RunsExportAnswerCallId = string;

export type RunsExportAnswerToolName = string;

/** Where in a foreach a call belongs. */
export type RunsExportAnswerIteration = { "index": number; "itemName": string; "itemValue": Json };

/** The fields of a [`ToolResult`]. */
export type RunsExportAnswerToolResult = { "callId": RunsExportAnswerCallId; "runId": RunsExportAnswerRunId; "stepId": RunsExportAnswerStepId; "tool": RunsExportAnswerToolName; "attempt": number; "status": RunsExportAnswerResultStatus; "ok": boolean; "data"?: { [key: string]: Json } | null; "dataHash"?: string | null; "error"?: RunsExportAnswerFailure | null; "startedAt": string; "endedAt": string; "durationMs": number; "effects"?: RunsExportAnswerEffects | null; "userMessage"?: string | null; "debugMessage"?: string | null };

/** How a call ended. */
export type RunsExportAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type RunsExportAnswerFailure = { "code": RunsExportAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type RunsExportAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type RunsExportAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<RunsExportAnswerCreated>; "modified"?: Array<RunsExportAnswerModified>; "deleted"?: Array<RunsExportAnswerDeleted>; "renamed"?: Array<RunsExportAnswerRenamed> };

/** A new file or folder. */
export type RunsExportAnswerCreated = { "path": string; "kind": RunsExportAnswerEntryKind };

/** A file or a folder. */
export type RunsExportAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type RunsExportAnswerModified = { "path": string; "kind": RunsExportAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type RunsExportAnswerFileKind = "file";

/** A file or folder that is gone. */
export type RunsExportAnswerDeleted = { "path": string; "kind": RunsExportAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type RunsExportAnswerRenamed = { "from": string; "to": string };

/** One event of a run's stream. */
export type RunsExportAnswerExecutionEvent = { "seq": number; "runId": RunsExportAnswerRunId; "type": RunsExportAnswerEventType; "timestamp": string; "level": RunsExportAnswerEventLevel; "message": string; "callId"?: RunsExportAnswerCallId | null; "stepId"?: RunsExportAnswerStepId | null; "tool"?: RunsExportAnswerToolName | null; "payload"?: { [key: string]: Json } | null };

/** The kind of an event. */
export type RunsExportAnswerEventType = "run.started" | "run.confirmationRequested" | "run.confirmed" | "run.cancelled" | "step.scheduled" | "step.started" | "step.progress" | "step.finished" | "step.failed" | "run.finished";

/** The severity of an event. */
export type RunsExportAnswerEventLevel = "info" | "warn" | "error";

/** Shows a run with its calls, results and events, as in its four files. */
export type RunsExportAnswer = { "run": RunsExportAnswerRunManifest; "calls": Array<RunsExportAnswerToolCall>; "results": Array<RunsExportAnswerToolResult>; "events": Array<RunsExportAnswerExecutionEvent>; "approvals"?: Array<RunsExportAnswerConfirmation> };

/** How long runs are followed. */
export type RunsFollowParams = { "waitMs"?: number | null };

/** Sends the events of all runs for a while: each event of a run, and at most one of a step in a second. */
export type RunsFollowAnswer = { "events": number; "lost": boolean };

export type RunsGetParamsRunId = string;

/** A run by id. */
export type RunsGetParams = { "runId": RunsGetParamsRunId };

/** The content of `run.json`. */
export type RunsGetAnswerRunManifest = { "runId": RunsGetAnswerRunId; "planHash"?: string | null; "plan"?: RunsGetAnswerActionPlan | null; "policy": RunsGetAnswerPolicySnapshot; "policyHash": string; "registryVersion": string; "executorVersion": string; "caller"?: { [key: string]: Json }; "context"?: { [key: string]: Json }; "startedAt": string; "endedAt"?: string | null; "status": RunsGetAnswerRunStatus; "confirmation"?: RunsGetAnswerConfirmation | null; "parentRunId"?: RunsGetAnswerRunId | null; "replayOf"?: RunsGetAnswerRunId | null; "head": RunsGetAnswerLogHead };

export type RunsGetAnswerRunId = string;

/** A whole plan. */
export type RunsGetAnswerActionPlan = { "version": string; "goal": string; "assumptions"?: Array<string>; "riskLevel": RunsGetAnswerRiskLevel; "contextRequests"?: Array<RunsGetAnswerContextRequest>; "defaults"?: RunsGetAnswerPlanDefaults; "steps": Array<RunsGetAnswerStep>; "outputs"?: RunsGetAnswerPlanOutputs; "uiHints"?: RunsGetAnswerUiHints };

/** How much harm a tool can do. */
export type RunsGetAnswerRiskLevel = "read-only" | "writes" | "commands";

/** Something only a connected client knows. */
export type RunsGetAnswerContextRequest = { "kind": RunsGetAnswerContextKind; "options"?: { [key: string]: Json } };

/** Kinds of context a plan can ask for. */
export type RunsGetAnswerContextKind = "activeFilePath" | "selection" | "cursor" | "workspaceContext" | "commandList" | "vaultFileList";

/** Defaults for all steps of a plan. */
export type RunsGetAnswerPlanDefaults = { "onError"?: RunsGetAnswerOnError | null; "retry"?: RunsGetAnswerRetryPolicy | null };

/** What happens to the rest of the plan when a step fails. */
export type RunsGetAnswerOnError = "stop" | "skip" | "retry";

/** How often to try and how long to wait. */
export type RunsGetAnswerRetryPolicy = { "maxAttempts": number; "backoffMs": number };

/** One step of a plan. */
export type RunsGetAnswerStep = { "id": RunsGetAnswerStepId; "tool": string; "args": { [key: string]: Json }; "preview"?: string | null; "dependsOn"?: Array<RunsGetAnswerStepId>; "foreach"?: RunsGetAnswerForeach | null; "captureAs"?: string | null; "onError"?: RunsGetAnswerOnError | null; "retry"?: RunsGetAnswerRetryPolicy | null; "timeoutMs"?: number | null; "tags"?: Array<string> };

export type RunsGetAnswerStepId = string;

/** Run a step once for each item of a list. */
export type RunsGetAnswerForeach = { "from": string; "itemName": string; "indexName"?: string | null; "concurrency"?: number | null };

/** What the closing report shows. */
export type RunsGetAnswerPlanOutputs = { "showCreatedFiles": boolean; "showModifiedFiles": boolean; "showCommandRuns": boolean };

/** For display only. */
export type RunsGetAnswerUiHints = { "title"?: string | null; "summary"?: string | null };

/** The policy that applied when the call was made. */
export type RunsGetAnswerPolicySnapshot = { "confirmationsRequired": boolean; "sandbox": RunsGetAnswerSandbox; "limits": RunsGetAnswerPolicyLimits; "allowedTools"?: Array<string>; "deniedTools"?: Array<string>; "allowCommands": boolean; "allowDelete": boolean };

/** Path rules, matched on vault-relative paths. `/` is the vault's root. */
export type RunsGetAnswerSandbox = { "enabled": boolean; "allowedRoots": Array<string>; "denyPatterns": Array<string>; "denyGlobs": Array<string>; "followSymlinks": boolean };

/** Every limit has a number. */
export type RunsGetAnswerPolicyLimits = { "maxConcurrency": number; "maxAttempts": number; "maxSteps": number; "maxIterations": number; "maxRunMs": number; "maxCallMs": number; "maxRetryDelayMs"?: number; "maxBytesWritten": number; "maxDeletes": number; "maxArgsBytes": number; "maxOutputBytes": number };

/** How far a run is. */
export type RunsGetAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** A person's approval of one run, bound to exactly what they were shown. */
export type RunsGetAnswerConfirmation = { "confirmationId": RunsGetAnswerConfirmationId; "planHash": string; "policyHash": string; "previewHash"?: string | null; "decision": RunsGetAnswerConfirmationDecision; "by": string; "via"?: RunsGetAnswerApprovedVia; "at": string; "expiresAt"?: string | null; "scope": string; "door"?: string | null; "approvalId"?: string | null; "shown"?: string | null; "grantId"?: string | null };

export type RunsGetAnswerConfirmationId = string;

/** What a person decided. */
export type RunsGetAnswerConfirmationDecision = "approved" | "denied" | "edited";

/** Who gave an approval, as far as Toolyard can vouch for it. */
export type RunsGetAnswerApprovedVia = "operator" | "client-user";

/** The end of a run's record chain. */
export type RunsGetAnswerLogHead = { "seq": number; "hash": string };

/** The fields of a [`ToolCall`]. A bag of parts may be anything; only [`ToolCall::new`] makes it a call. */
export type RunsGetAnswerToolCall = { "callId": RunsGetAnswerCallId; "runId": RunsGetAnswerRunId; "stepId": RunsGetAnswerStepId; "tool": RunsGetAnswerToolName; "attempt": number; "args": { [key: string]: Json }; "argsHash"?: string | null; "timeoutMs"?: number | null; "deadlineAt"?: string | null; "cancellable": boolean; "iteration"?: RunsGetAnswerIteration | null; "loopId"?: string | null; "createdAt": string; "plannerVersion"?: string | null; "executorVersion": string; "toolRegistryVersion": string; "preview"?: string | null; "riskLevel": RunsGetAnswerRiskLevel; "category"?: string | null; "policy": RunsGetAnswerPolicySnapshot; "confirmationId"?: RunsGetAnswerConfirmationId | null };

export type RunsGetAnswerCallId = string;

export type RunsGetAnswerToolName = string;

/** Where in a foreach a call belongs. */
export type RunsGetAnswerIteration = { "index": number; "itemName": string; "itemValue": Json };

/** The fields of a [`ToolResult`]. */
export type RunsGetAnswerToolResult = { "callId": RunsGetAnswerCallId; "runId": RunsGetAnswerRunId; "stepId": RunsGetAnswerStepId; "tool": RunsGetAnswerToolName; "attempt": number; "status": RunsGetAnswerResultStatus; "ok": boolean; "data"?: { [key: string]: Json } | null; "dataHash"?: string | null; "error"?: RunsGetAnswerFailure | null; "startedAt": string; "endedAt": string; "durationMs": number; "effects"?: RunsGetAnswerEffects | null; "userMessage"?: string | null; "debugMessage"?: string | null };

/** How a call ended. */
export type RunsGetAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type RunsGetAnswerFailure = { "code": RunsGetAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type RunsGetAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type RunsGetAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<RunsGetAnswerCreated>; "modified"?: Array<RunsGetAnswerModified>; "deleted"?: Array<RunsGetAnswerDeleted>; "renamed"?: Array<RunsGetAnswerRenamed> };

/** A new file or folder. */
export type RunsGetAnswerCreated = { "path": string; "kind": RunsGetAnswerEntryKind };

/** A file or a folder. */
export type RunsGetAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type RunsGetAnswerModified = { "path": string; "kind": RunsGetAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type RunsGetAnswerFileKind = "file";

/** A file or folder that is gone. */
export type RunsGetAnswerDeleted = { "path": string; "kind": RunsGetAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type RunsGetAnswerRenamed = { "from": string; "to": string };

/** Shows a run: its manifest, calls and results. */
export type RunsGetAnswer = { "run": RunsGetAnswerRunManifest; "calls": Array<RunsGetAnswerToolCall>; "results": Array<RunsGetAnswerToolResult>; "approvals"?: Array<RunsGetAnswerConfirmation> };

/** Parameters of a method that takes none. */
export type RunsHeadParams = Record<string, never>;

/** Returns the signed head of the ledger, which should be stored elsewhere. */
export type RunsHeadAnswer = { "size": number; "root": string; "at": number; "note": string; "key": string };

/** How far a run is. */
export type RunsListParamsRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** A plan's run, or a single direct call. */
export type RunsListParamsRunKind = "plan" | "call";

export type RunsListParamsRunId = string;

/** Which runs are listed. */
export type RunsListParams = { "status"?: Array<RunsListParamsRunStatus>; "kind"?: RunsListParamsRunKind | null; "session"?: string | null; "before"?: RunsListParamsRunId | null; "limit"?: number | null; "agent"?: string | null; "tool"?: string | null; "door"?: string | null; "text"?: string | null; "from"?: string | null; "to"?: string | null; "counts"?: boolean; "total"?: boolean };

/** A run in a list. */
export type RunsListAnswerRunSummary = { "runId": RunsListAnswerRunId; "kind": RunsListAnswerRunKind; "status": RunsListAnswerRunStatus; "title": string; "startedAt": string; "endedAt"?: string | null; "durationMs"?: number | null; "session"?: string | null; "agent"?: string; "door"?: string; "principal"?: string; "tools"?: Array<string>; "calls"?: number; "failed"?: number; "changed"?: number; "waiting"?: number; "subject"?: string | null };

export type RunsListAnswerRunId = string;

/** A plan's run, or a single direct call. */
export type RunsListAnswerRunKind = "plan" | "call";

/** How far a run is. */
export type RunsListAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** Lists runs, newest first. */
export type RunsListAnswer = { "runs": Array<RunsListAnswerRunSummary>; "next"?: RunsListAnswerRunId | null; "searchedTo"?: string | null; "total"?: number | null };

export type RunsProveParamsRunId = string;

/** The subject of a receipt. */
export type RunsProveParams = { "id": RunsProveParamsRunId };

export type RunsProveAnswerRunId = string;

export type RunsProveAnswerCallId = string;

/** One record of a run. */
export type RunsProveAnswerReceiptRecord = { "seq": number; "kind": number; "payload": string };

/** Makes the receipt of a run or of a call: the proof that it is in the ledger. */
export type RunsProveAnswer = { "form": string; "runId": RunsProveAnswerRunId; "callId"?: RunsProveAnswerCallId | null; "leaf": string; "index": number; "proof": Array<string>; "checkpoint": string; "key": string; "keyPem": string; "cose": string; "previous"?: string | null; "records"?: Array<RunsProveAnswerReceiptRecord> };

export type RunsRecordParamsRunId = string;

/** Which records are shown. */
export type RunsRecordParams = { "runId": RunsRecordParamsRunId; "from"?: number | null; "limit"?: number | null };

export type RunsRecordAnswerRunId = string;

/** A record as it is stored. */
export type RunsRecordAnswerShownFrame = { "seq": number; "kind": number; "kindName": string; "payload": string; "chain": string };

/** A key, and the entries of the ledger that it signed. */
export type RunsRecordAnswerKeySpan = { "key": string; "from": number; "to"?: number | null };

/** Shows the records of a run as bytes, with their hashes and the keys that signed them, to be verified elsewhere. */
export type RunsRecordAnswer = { "runId": RunsRecordAnswerRunId; "genesis": string; "frames": Array<RunsRecordAnswerShownFrame>; "total": number; "next"?: number | null; "keys": Array<RunsRecordAnswerKeySpan> };

export type RunsResumeParamsRunId = string;

/** A person's decision about a call whose outcome is unknown. */
export type RunsResumeParamsSettlement = "assume-done" | "rerun" | "abort";

/** The parameters for resuming a run. */
export type RunsResumeParams = { "runId": RunsResumeParamsRunId; "settle"?: RunsResumeParamsSettlement | null; "approve"?: boolean };

export type RunsResumeAnswerRunId = string;

/** How far a run is. */
export type RunsResumeAnswerRunStatus = "pending" | "running" | "paused" | "finished" | "failed" | "cancelled";

/** What the closing report shows. */
export type RunsResumeAnswerPlanOutputs = { "showCreatedFiles": boolean; "showModifiedFiles": boolean; "showCommandRuns": boolean };

/** A step's outcome. */
export type RunsResumeAnswerStepReport = { "id": RunsResumeAnswerStepId; "tool": string; "status"?: RunsResumeAnswerResultStatus | null; "attempts": number; "iterations"?: Array<RunsResumeAnswerIterationReport> | null; "data"?: { [key: string]: Json } | null; "error"?: RunsResumeAnswerFailure | null; "userMessage"?: string | null; "durationMs"?: number | null };

export type RunsResumeAnswerStepId = string;

/** How a call ended. */
export type RunsResumeAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** One iteration's outcome: also what `$steps.<id>.results` holds. */
export type RunsResumeAnswerIterationReport = { "index": number; "status": RunsResumeAnswerResultStatus; "data"?: { [key: string]: Json } | null; "error"?: RunsResumeAnswerFailure | null };

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type RunsResumeAnswerFailure = { "code": RunsResumeAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type RunsResumeAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type RunsResumeAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<RunsResumeAnswerCreated>; "modified"?: Array<RunsResumeAnswerModified>; "deleted"?: Array<RunsResumeAnswerDeleted>; "renamed"?: Array<RunsResumeAnswerRenamed> };

/** A new file or folder. */
export type RunsResumeAnswerCreated = { "path": string; "kind": RunsResumeAnswerEntryKind };

/** A file or a folder. */
export type RunsResumeAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type RunsResumeAnswerModified = { "path": string; "kind": RunsResumeAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type RunsResumeAnswerFileKind = "file";

/** A file or folder that is gone. */
export type RunsResumeAnswerDeleted = { "path": string; "kind": RunsResumeAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type RunsResumeAnswerRenamed = { "from": string; "to": string };

/** Predicted and observed effects that do not match. */
export type RunsResumeAnswerDeviation = { "missing": Array<string>; "unexpected": Array<string> };

/** Resumes a run that is paused or was interrupted. */
export type RunsResumeAnswer = { "runId": RunsResumeAnswerRunId; "status": RunsResumeAnswerRunStatus; "goal": string; "outputs": RunsResumeAnswerPlanOutputs; "steps": Array<RunsResumeAnswerStepReport>; "effects": RunsResumeAnswerEffects; "error"?: RunsResumeAnswerFailure | null; "startedAt": string; "endedAt"?: string | null; "deviation"?: RunsResumeAnswerDeviation | null };

export type RunsSubscribeParamsRunId = string;

/** A run, or a session. */
export type RunsSubscribeParams = { "runId"?: RunsSubscribeParamsRunId | null; "sessionKey"?: string | null };

/** Sends the events of a run, or of a session's runs, until the connection ends or unsubscribes. */
export type RunsSubscribeAnswer = { "ok": boolean; "subscriptionId": string };

/** The target of the tree's files. */
export type RunsTilesParams = { "out": string };

/** The signed head of the ledger. */
export type RunsTilesAnswerSignedHead = { "size": number; "root": string; "at": number; "note": string; "key": string };

/** Writes the ledger's tree as files, in the layout of C2SP tlog-tiles. */
export type RunsTilesAnswer = { "size": number; "files": number; "head"?: RunsTilesAnswerSignedHead | null };

export type RunsTranscriptParamsRunId = string;

/** A run by id. */
export type RunsTranscriptParams = { "runId": RunsTranscriptParamsRunId };

export type RunsTranscriptAnswerRunId = string;

/** A message of a session, in the form that models' interfaces know. */
export type RunsTranscriptAnswerSessionMessage = { "role": "assistant"; "timestamp": string; "content": Array<RunsTranscriptAnswerToolCall>; "approval"?: RunsTranscriptAnswerCallApproval | null } | { "role": "toolResult"; "toolCallId": string; "toolName": RunsTranscriptAnswerToolName; "isError": boolean; "content": Array<RunsTranscriptAnswerText>; "details": { [key: string]: Json }; "timestamp": string };

/** A call of a tool, in a message. */
export type RunsTranscriptAnswerToolCall = { "id": string; "name": RunsTranscriptAnswerToolName; "arguments": { [key: string]: Json } };

export type RunsTranscriptAnswerToolName = string;

/** Who allowed a call, and what that person was shown. */
export type RunsTranscriptAnswerCallApproval = { "by": string; "door"?: string | null; "at": string; "shown"?: string | null; "approvalId"?: string | null; "grantId"?: string | null };

/** Text in a message. */
export type RunsTranscriptAnswerText = { "text": string };

/** Shows the calls and results of a run as messages. */
export type RunsTranscriptAnswer = { "runId": RunsTranscriptAnswerRunId; "messages": Array<RunsTranscriptAnswerSessionMessage> };

/** A subscription by id. */
export type RunsUnsubscribeParams = { "subscriptionId": string };

/** Ends a subscription. */
export type RunsUnsubscribeAnswer = { "ok": boolean; "removed": boolean };

export type RunsVerifyParamsRunId = string;

/** What is verified: one run, a receipt, or everything. */
export type RunsVerifyParams = { "runId"?: RunsVerifyParamsRunId | null; "head"?: string | null; "receipt"?: string | null; "secret"?: string | null };

/** What verifying a receipt found. */
export type RunsVerifyAnswerReceiptReport = { "ok": boolean; "runId": RunsVerifyAnswerRunId; "callId"?: RunsVerifyAnswerCallId | null; "size": number; "records": number; "firstBad"?: RunsVerifyAnswerReceiptProblem | null };

export type RunsVerifyAnswerRunId = string;

export type RunsVerifyAnswerCallId = string;

/** Why a receipt proves nothing. */
export type RunsVerifyAnswerReceiptProblem = { "seq": number; "problem": string };

/** What verifying a run found. */
export type RunsVerifyAnswerVerifyReport = { "runId": RunsVerifyAnswerRunId; "ok": boolean; "records": number; "head": string; "signedSeq": number; "ledgerEntry"?: number | null; "unsigned"?: Array<RunsVerifyAnswerUnsignedRecords>; "approvals"?: number; "firstBad"?: RunsVerifyAnswerBadRecord | null; "secretArguments"?: Array<RunsVerifyAnswerProvenSecret> | null };

/** Records that no tag, signature or leaf covers. Their content may still be true. */
export type RunsVerifyAnswerUnsignedRecords = { "from": number; "to": number };

/** The first record whose chain value, tag or signature is wrong. */
export type RunsVerifyAnswerBadRecord = { "seq": number; "problem": string };

/** An argument that is known to have held a certain secret. */
export type RunsVerifyAnswerProvenSecret = { "callId": RunsVerifyAnswerCallId; "path": string };

/** What verifying the whole store found. */
export type RunsVerifyAnswerLedgerReport = { "ok": boolean; "entries": number; "size": number; "root": string; "runs": number; "pruned": number; "keys": number; "heads": number; "records": number; "blobs": number; "facts": number; "firstBad"?: RunsVerifyAnswerFirstBad | null; "missingRuns"?: Array<RunsVerifyAnswerRunId>; "bad": number; "badRuns"?: Array<RunsVerifyAnswerBadRun>; "unsigned": number; "unsignedRuns"?: Array<RunsVerifyAnswerUnsignedRun>; "sealedAtStart": number };

/** The first problem. */
export type RunsVerifyAnswerFirstBad = { "place": RunsVerifyAnswerProblemLocation; "runId"?: RunsVerifyAnswerRunId | null; "name"?: string | null; "seq": number; "problem": string };

/** The kind of object in which the first problem was found. */
export type RunsVerifyAnswerProblemLocation = "ledger" | "run" | "head" | "blob" | "fact" | "store";

/** A run whose verification failed. */
export type RunsVerifyAnswerBadRun = { "runId": RunsVerifyAnswerRunId; "seq": number; "problem": string };

/** A run with records that nothing proves. */
export type RunsVerifyAnswerUnsignedRun = { "runId": RunsVerifyAnswerRunId; "from": number; "to": number };

/** Verifies one run, a receipt, or everything: records, chains, signatures, the ledger's tree and kept heads. */
export type RunsVerifyAnswer = RunsVerifyAnswerReceiptReport | RunsVerifyAnswerVerifyReport | RunsVerifyAnswerLedgerReport;

/** The parameters of a new session. */
export type SessionsCreateParams = { "key"?: string | null; "idempotencyKey"?: string | null; "agentId"?: string | null; "label"?: string | null; "displayName"?: string | null; "category"?: string | null };

/** A session. */
export type SessionsCreateAnswerSession = { "key": string; "sessionId": string; "agentId": string; "lifecycleRevision": string; "createdAt": number; "updatedAt": number; "createdVia": string; "label"?: string | null; "displayName"?: string | null; "category"?: string | null; "archived": boolean; "pinned": boolean };

/** The model that a session's fields resolve to; this program runs none. */
export type SessionsCreateAnswerResolved = { [key: string]: Json };

/** Creates a session, or returns the existing one with the same key. */
export type SessionsCreateAnswer = { "ok": boolean; "key": string; "sessionId": string; "entry": SessionsCreateAnswerSession; "runStarted": boolean; "resolved": SessionsCreateAnswerResolved };

/** The session to delete. */
export type SessionsDeleteParams = { "key": string; "agentId"?: string | null; "deleteTranscript"?: boolean; "expectedSessionId"?: string | null; "expectedLifecycleRevision"?: string | null };

/** Deletes a session. The records of its runs are kept. */
export type SessionsDeleteAnswer = { "ok": boolean; "key": string; "deleted": boolean; "archived": Array<string> };

/** A session by key. */
export type SessionsGetParams = { "key": string; "agentId"?: string | null };

/** A session. */
export type SessionsGetAnswerSession = { "key": string; "sessionId": string; "agentId": string; "lifecycleRevision": string; "createdAt": number; "updatedAt": number; "createdVia": string; "label"?: string | null; "displayName"?: string | null; "category"?: string | null; "archived": boolean; "pinned": boolean };

/** Shows a session. */
export type SessionsGetAnswer = { "key": string; "sessionId": string; "entry": SessionsGetAnswerSession };

/** The order of a list. */
export type SessionsListParamsSortBy = "updatedAt" | "lastInteractionAt";

/** Which sessions are listed, and how. */
export type SessionsListParams = { "limit"?: number | null; "offset"?: number | null; "activeMinutes"?: number | null; "agentId"?: string | null; "label"?: string | null; "search"?: string | null; "archived"?: boolean | "all" | null; "sortBy"?: SessionsListParamsSortBy | null; "requireLastInteraction"?: boolean; "configuredAgentsOnly"?: boolean; "includeGlobal"?: boolean; "includeUnknown"?: boolean };

/** The model a session would use; this program runs none. */
export type SessionsListAnswerDefaults = { "modelProvider": string | null; "model": string | null; "contextTokens": number | null };

/** A session in a list. */
export type SessionsListAnswerListedSession = { "key": string; "sessionId": string; "agentId": string; "lifecycleRevision": string; "createdAt": number; "updatedAt": number; "createdVia": string; "label"?: string | null; "displayName"?: string | null; "category"?: string | null; "archived": boolean; "pinned": boolean; "lastInteractionAt"?: number | null };

/** Lists sessions, filtered and sorted. */
export type SessionsListAnswer = { "ts": number; "path": string; "count": number; "totalCount": number; "limitApplied": number; "nextOffset": number | null; "hasMore": boolean; "owners": Array<string>; "defaults": SessionsListAnswerDefaults; "sessions": Array<SessionsListAnswerListedSession> };

/** The changes to a session. */
export type SessionsPatchParams = { "key": string; "agentId"?: string | null; "expectedSessionId"?: string | null; "expectedLifecycleRevision"?: string | null; "label"?: string | null; "displayName"?: string | null; "category"?: string | null; "archived"?: boolean | null; "pinned"?: boolean | null };

/** A session. */
export type SessionsPatchAnswerSession = { "key": string; "sessionId": string; "agentId": string; "lifecycleRevision": string; "createdAt": number; "updatedAt": number; "createdVia": string; "label"?: string | null; "displayName"?: string | null; "category"?: string | null; "archived": boolean; "pinned": boolean };

/** The model that a session's fields resolve to; this program runs none. */
export type SessionsPatchAnswerResolved = { [key: string]: Json };

/** Changes a session's label, name, category or flags. */
export type SessionsPatchAnswer = { "ok": boolean; "key": string; "entry": SessionsPatchAnswerSession; "resolved": SessionsPatchAnswerResolved };

/** The parameters of a status request. */
export type StatusParams = { "includeChannelSummary"?: boolean };

export type StatusAnswerHeartbeats = { "defaultAgentId": string; "agents": Array<StatusAnswerHeartbeat> };

export type StatusAnswerHeartbeat = { "agentId": string; "enabled": boolean; "every"?: string | null; "everyMs"?: number | null };

export type StatusAnswerTasks = { "active": number; "byStatus": Record<string, number> };

export type StatusAnswerSessionsStatus = { "paths": Array<string>; "count": number; "defaults": StatusAnswerModelDefaults; "recent": Array<StatusAnswerRecentSession>; "byAgent": Array<StatusAnswerAgentSessions> };

/** The model a session would use; this program runs none. */
export type StatusAnswerModelDefaults = { "model": string | null; "contextTokens": number | null };

/** A session in a summary. */
export type StatusAnswerRecentSession = { "key": string; "updatedAt": number; "age": number };

export type StatusAnswerAgentSessions = { "agentId": string; "path": string; "count": number; "recent": Array<StatusAnswerRecentSession> };

/** How late this process is with its own work. */
export type StatusAnswerEventLoop = { "degraded": boolean; "degradedSinceMs": number | null; "reasons": Array<string>; "intervalMs": number; "delayP99Ms": number; "delayMaxMs": number; "utilization": number; "cpuCoreRatio": number; "cpuBreakdown": StatusAnswerCpuBreakdown };

export type StatusAnswerCpuBreakdown = { "hostCpuCount": number };

export type StatusAnswerProcessMemory = { "rssBytes": number };

export type StatusAnswerToolsStatus = { "count": number; "registryVersion": string };

/** Reports the state of this gateway: agents, sessions, runs, connections, tools. */
export type StatusAnswer = { "runtimeVersion": string; "defaultAgentId": string; "mainHeartbeatEnabled": boolean; "eventLoopDegraded": boolean; "heartbeat": StatusAnswerHeartbeats; "tasks": StatusAnswerTasks; "sessions": StatusAnswerSessionsStatus; "eventLoop": StatusAnswerEventLoop; "processMemory": StatusAnswerProcessMemory; "connections": number; "tools": StatusAnswerToolsStatus; "uptimeMs": number; "pid": number; "sessionKey"?: string | null };

/** The parameters of a backup. */
export type StoreBackupParams = { "out": string; "withoutKeys"?: boolean };

/** Copies the store, the context store, the configuration and the keys into a folder, while Toolyard runs. */
export type StoreBackupAnswer = { "path": string; "at": string; "databaseBytes": number; "blobFiles": number; "blobBytes": number; "files": number; "bytes": number; "keys": boolean };

/** Parameters of a method that takes none. */
export type StoreCheckParams = Record<string, never>;

/** Checks the store: structure of the database, frames, blobs, journals. */
export type StoreCheckAnswer = { "ok": boolean; "version": number; "runs": number; "frames": number; "blobs": number; "journals": number; "problems": Array<string>; "problemCount": number };

/** Which runs are removed. Without either, the configuration decides. */
export type StorePruneParams = { "olderThan"?: string | null; "maxMegabytes"?: number | null };

/** What was removed. */
export type StorePruneAnswerPrunedSnapshots = { "projects": number; "bytes": number };

/** Removes ended runs that are older than an age, and the oldest ones while the store exceeds a size. */
export type StorePruneAnswer = { "endedBefore"?: string | null; "runs": number; "blobs": number; "blobBytes": number; "usedBytes"?: number | null; "snapshots": StorePruneAnswerPrunedSnapshots };

/** Parameters of a method that takes none. */
export type StoreStatsParams = Record<string, never>;

/** Reports the size of the store and the numbers of its entries. */
export type StoreStatsAnswer = { "version": number; "runs": number; "openRuns": number; "frames": number; "facts": number; "ledgerEntries": number; "blobs": number; "processes": number; "databaseBytes": number; "freeBytes": number; "logBytes": number; "blobFileBytes": number; "journalBytes": number; "usedBytes": number; "oldestRun": string | null };

/** Parameters of a method that takes none. */
export type SystemPresenceParams = Record<string, never>;

/** An entry of the presence list: this gateway, or a client. */
export type SystemPresenceAnswerPresenceEntry = SystemPresenceAnswerOwnPresence | SystemPresenceAnswerPresence;

/** This gateway's entry in the presence list. */
export type SystemPresenceAnswerOwnPresence = { "host": string; "version": string; "platform": string; "deviceFamily": string; "mode": string; "reason": string; "instanceId": string; "text": string; "ts": number; "ip"?: string | null };

/** A client's entry in the presence list. */
export type SystemPresenceAnswerPresence = { "host": string; "ip": string | null; "version": string; "platform": string; "mode": string; "reason": string; "roles": Array<string>; "scopes": Array<string>; "onlineSince": number; "ts": number; "text": string; "deviceFamily"?: string | null; "modelIdentifier"?: string | null; "timeZone"?: string | null; "deviceId"?: string | null; "instanceId"?: string | null };

/** Lists this gateway and the clients that are connected to it. */
export type SystemPresenceAnswer = Array<SystemPresenceAnswerPresenceEntry>;

/** A call of a tool. */
export type ToolsCallParams = { "name": string; "args"?: { [key: string]: Json }; "timeoutMs"?: number | null; "idempotencyKey"?: string | null; "dryRun"?: boolean };

/** The fields of a [`ToolResult`]. */
export type ToolsCallAnswerToolResult = { "callId": ToolsCallAnswerCallId; "runId": ToolsCallAnswerRunId; "stepId": ToolsCallAnswerStepId; "tool": ToolsCallAnswerToolName; "attempt": number; "status": ToolsCallAnswerResultStatus; "ok": boolean; "data"?: { [key: string]: Json } | null; "dataHash"?: string | null; "error"?: ToolsCallAnswerFailure | null; "startedAt": string; "endedAt": string; "durationMs": number; "effects"?: ToolsCallAnswerEffects | null; "userMessage"?: string | null; "debugMessage"?: string | null };

export type ToolsCallAnswerCallId = string;

export type ToolsCallAnswerRunId = string;

export type ToolsCallAnswerStepId = string;

export type ToolsCallAnswerToolName = string;

/** How a call ended. */
export type ToolsCallAnswerResultStatus = "ok" | "error" | "timeout" | "cancelled" | "skipped";

/** A structured error: a code to branch on, a sentence to show, what to do next. */
export type ToolsCallAnswerFailure = { "code": ToolsCallAnswerErrorCode; "message": string; "details"?: { [key: string]: Json } | null; "retryable"?: boolean | null; "suggestion"?: string | null };

/** Every way a call, a run or a command can fail. */
export type ToolsCallAnswerErrorCode = "VALIDATION_ERROR" | "POLICY_DENIED" | "NOT_FOUND" | "CONFLICT" | "PRECONDITION_FAILED" | "TIMEOUT" | "CANCELLED" | "INTERNAL_ERROR" | "CONFIRMATION_REQUIRED" | "APPROVAL_DENIED" | "LIMIT_EXCEEDED" | "UNAVAILABLE" | "IN_DOUBT" | "RECORD_CORRUPTED" | "REPLAY_MISMATCH" | "STORE_UNAVAILABLE" | "CONFIG_INVALID" | "USAGE_ERROR";

/** Changes that a tool observed itself make, in the shape of the specification's `effects`. */
export type ToolsCallAnswerEffects = { "sideEffectsObserved"?: Array<string>; "created"?: Array<ToolsCallAnswerCreated>; "modified"?: Array<ToolsCallAnswerModified>; "deleted"?: Array<ToolsCallAnswerDeleted>; "renamed"?: Array<ToolsCallAnswerRenamed> };

/** A new file or folder. */
export type ToolsCallAnswerCreated = { "path": string; "kind": ToolsCallAnswerEntryKind };

/** A file or a folder. */
export type ToolsCallAnswerEntryKind = "file" | "folder";

/** A file whose content changed. */
export type ToolsCallAnswerModified = { "path": string; "kind": ToolsCallAnswerFileKind; "beforeEtag"?: string | null; "afterEtag"?: string | null };

/** Always `file`: only files have content to modify. */
export type ToolsCallAnswerFileKind = "file";

/** A file or folder that is gone. */
export type ToolsCallAnswerDeleted = { "path": string; "kind": ToolsCallAnswerEntryKind; "trashed"?: boolean | null };

/** A renamed or moved file or folder. */
export type ToolsCallAnswerRenamed = { "from": string; "to": string };

/** Calls a tool and returns its result. */
export type ToolsCallAnswer = { "result": ToolsCallAnswerToolResult; "deduplicated": boolean };

export type ToolsCancelParamsCallId = string;

export type ToolsCancelParamsRunId = string;

/** The call to cancel. */
export type ToolsCancelParams = { "callId"?: ToolsCancelParamsCallId | null; "runId"?: ToolsCancelParamsRunId | null; "requestId"?: string | null };

/** Cancels a call, by its id, its run's id, or the id of the request that made it on this connection. */
export type ToolsCancelAnswer = { "ok": boolean; "cancelled": boolean };

/** Which tools the catalog lists. */
export type ToolsCatalogParams = { "agentId"?: string | null; "includePlugins"?: boolean | null; "includeSchemas"?: boolean };

export type ToolsCatalogAnswerProfileName = { "id": string; "label": string };

export type ToolsCatalogAnswerCatalogGroup = { "id": string; "label": string; "source": string; "pluginId"?: string | null; "tools": Array<ToolsCatalogAnswerCatalogTool> };

/** A tool's schemas, where they were asked for. */
export type ToolsCatalogAnswerCatalogTool = { "id": string; "label": string; "description": string; "source": string; "risk": string; "defaultProfiles": Array<ToolsCatalogAnswerProfile>; "pluginId"?: string | null; "optional"?: boolean | null; "inputSchema"?: Json; "outputSchema"?: Json };

/** A ready-made selection of tools. */
export type ToolsCatalogAnswerProfile = "minimal" | "coding" | "messaging" | "full";

/** Lists every tool of the catalog in groups, regardless of who may call it. */
export type ToolsCatalogAnswer = { "agentId": string; "profiles": Array<ToolsCatalogAnswerProfileName>; "groups": Array<ToolsCatalogAnswerCatalogGroup> };

/** A tool by name. */
export type ToolsDescribeParams = { "name": string };

export type ToolsDescribeAnswerToolName = string;

/** How much harm a tool can do. */
export type ToolsDescribeAnswerRiskLevel = "read-only" | "writes" | "commands";

/** How a call whose result is unknown after a crash may be handled. */
export type ToolsDescribeAnswerIdempotency = "pure" | "idempotent" | "etag" | "key" | "none";

/** What has to be there for the tool to work. */
export type ToolsDescribeAnswerAvailability = { "requires"?: Array<string> };

/** How a call can be taken back. */
export type ToolsDescribeAnswerUndo = "none" | "restore-blob";

/** Where a tool comes from. */
export type ToolsDescribeAnswerToolSource = { "kind": ToolsDescribeAnswerSourceKind; "name": string };

/** The kind of source that a tool comes from. */
export type ToolsDescribeAnswerSourceKind = "core" | "plugin" | "mcp" | "client";

/** The policy's decision about a tool. */
export type ToolsDescribeAnswerPolicyView = { "decision": string; "reason": string | null };

/** Describes one tool: its definition, its source, and the policy's decision. */
export type ToolsDescribeAnswer = { "name": ToolsDescribeAnswerToolName; "title": string; "description": string; "category": string; "riskLevel": ToolsDescribeAnswerRiskLevel; "version": string; "inputSchema": { [key: string]: Json }; "outputSchema"?: { [key: string]: Json } | null; "sideEffects"?: Array<string>; "idempotency": ToolsDescribeAnswerIdempotency; "requiredPermissions"?: Array<string>; "availability"?: ToolsDescribeAnswerAvailability; "cancellable": boolean; "supportsDryRun": boolean; "defaultTimeoutMs": number; "maxTimeoutMs"?: number | null; "undo"?: ToolsDescribeAnswerUndo; "id": string; "source": ToolsDescribeAnswerToolSource; "policy": ToolsDescribeAnswerPolicyView };

/** Whose tools are listed, and how. */
export type ToolsEffectiveParams = { "sessionKey": string; "agentId"?: string | null; "includeSchemas"?: boolean; "forModel"?: boolean; "prompt"?: string | null; "contextTokens"?: number | null; "requiredTools"?: Array<string> };

export type ToolsEffectiveAnswerNotice = { "id": string; "severity": string; "message": string };

export type ToolsEffectiveAnswerEffectiveGroup = { "id": string; "label": string; "source": string; "tools": Array<ToolsEffectiveAnswerEffectiveTool> };

/** A tool's schemas, where they were asked for. */
export type ToolsEffectiveAnswerEffectiveTool = { "id": string; "label": string; "description": string; "rawDescription": string; "source": string; "risk"?: string | null; "pluginId"?: string | null; "mcpServer"?: string | null; "inputSchema"?: Json; "outputSchema"?: Json };

/** Lists the tools of a session, or what its model is shown of them. */
export type ToolsEffectiveAnswer = { "agentId": string; "profile": string; "toolSearch"?: Json; "notices"?: Array<ToolsEffectiveAnswerNotice> | null; "groups": Array<ToolsEffectiveAnswerEffectiveGroup> };

/** Where a call came from in a conversation. */
export type ToolsInvokeParamsReadOrigin = "direct-operator";

/** A call of a tool. */
export type ToolsInvokeParams = { "name": string; "args"?: { [key: string]: Json }; "sessionKey"?: string | null; "agentId"?: string | null; "confirm"?: boolean; "idempotencyKey"?: string | null; "conversationReadOrigin"?: ToolsInvokeParamsReadOrigin | null; "timeoutMs"?: number | null; "dryRun"?: boolean };

/** A tool's output, as `{content, details, meta}`. */
export type ToolsInvokeAnswerOutput = { "content": ToolsInvokeAnswerContent; "details": Json; "meta": ToolsInvokeAnswerMeta };

/** Parts as the tool gave them, or one part of text. */
export type ToolsInvokeAnswerContent = Json | Array<ToolsInvokeAnswerTextPart>;

export type ToolsInvokeAnswerTextPart = { "type": string; "text": string };

/** The run and the call in the record. */
export type ToolsInvokeAnswerMeta = { "callId": ToolsInvokeAnswerCallId; "runId": ToolsInvokeAnswerRunId };

export type ToolsInvokeAnswerCallId = string;

export type ToolsInvokeAnswerRunId = string;

/** Why a call failed or was refused. */
export type ToolsInvokeAnswerToolError = { "code": string; "message": string; "details"?: { [key: string]: Json } };

/** Calls a tool. */
export type ToolsInvokeAnswer = { "ok": boolean; "toolName": string; "requiresApproval"?: boolean | null; "output"?: ToolsInvokeAnswerOutput | null; "source"?: string | null; "error"?: ToolsInvokeAnswerToolError | null; "deduplicated"?: boolean | null };

/** Which tools are listed, and how. */
export type ToolsListParams = { "category"?: string | null; "schemas"?: boolean };

/** A tool in a list. */
export type ToolsListAnswerToolRow = { "name": string; "id": string; "title": string; "description": string; "category": string; "riskLevel": ToolsListAnswerRiskLevel; "needsApproval": boolean; "inputSchema"?: Json; "outputSchema"?: Json };

/** How much harm a tool can do. */
export type ToolsListAnswerRiskLevel = "read-only" | "writes" | "commands";

/** Lists the tools that the caller may see. */
export type ToolsListAnswer = { "tools": Array<ToolsListAnswerToolRow>; "registryVersion": string };

/** A tool that a client answers itself. */
export type ToolsOfferParamsOfferedTool = { "name": string; "title"?: string | null; "description"?: string | null; "inputSchema"?: { [key: string]: Json } | null; "outputSchema"?: { [key: string]: Json } | null; "readOnly"?: boolean; "timeoutMs"?: number | null };

/** Tools that a client answers itself. */
export type ToolsOfferParams = { "sessionKey": string; "agentId"?: string | null; "tools": Array<ToolsOfferParamsOfferedTool> };

/** Offers the client's own tools for a session, replacing those it offered before. */
export type ToolsOfferAnswer = { "sessionKey": string; "tools": Array<string> };

/** A client's answer to a call of one of its tools. */
export type ToolsResultParams = { "id": string; "ok": boolean; "output"?: { [key: string]: Json } | null; "error"?: { "code"?: Json; "message"?: Json } };

/** Accepts a client's answer to a call of one of its tools. */
export type ToolsResultAnswer = { "ok": boolean; "ignored"?: boolean | null };

/** How many days are shown. */
export type ToolsSavingsParams = { "days"?: number | null };

/** The savings of one day, in UTC. */
export type ToolsSavingsAnswerDaySavings = { "date": string; "doors": Array<ToolsSavingsAnswerDoorSavings>; "total": ToolsSavingsAnswerSavings };

/** The savings of one door. */
export type ToolsSavingsAnswerDoorSavings = { "door": string; "lists": number; "directBytes": number; "shownBytes": number; "savedBytes": number; "savedTokens": number };

/** Savings in figures. */
export type ToolsSavingsAnswerSavings = { "lists": number; "directBytes": number; "shownBytes": number; "savedBytes": number; "savedTokens": number };

/** Shows the bytes and tokens that Tool Search saved, by day and door. */
export type ToolsSavingsAnswer = { "days": Array<ToolsSavingsAnswerDaySavings>; "total": ToolsSavingsAnswerSavings };

/** What is searched, and as whom. */
export type ToolsSearchParams = { "query"?: string; "limit"?: number | null; "agent"?: string | null; "door"?: string | null };

/** A tool that was found. */
export type ToolsSearchAnswerToolHit = { "rank": number; "id": string; "name": string; "description": string; "score": number; "exact": boolean; "parts": Array<ToolsSearchAnswerHitPart>; "words": Array<ToolsSearchAnswerHitWord>; "decision": string; "reason"?: string | null; "rule"?: string | null };

/** A part of a score. */
export type ToolsSearchAnswerHitPart = { "name": string; "value": number };

/** What one word gave in one field. */
export type ToolsSearchAnswerHitWord = { "term": string; "field": string; "score": number; "from"?: string | null };

/** What a model is shown, in figures. */
export type ToolsSearchAnswerSurfaceFigures = { "mode": string; "tools": Array<string>; "bytes": number; "catalogSize": number; "directBytes": number; "notice"?: string | null };

/** Searches tools as a model does, and explains each score and what the policy decides about the tool. */
export type ToolsSearchAnswer = { "query": string; "hits": Array<ToolsSearchAnswerToolHit>; "surface": ToolsSearchAnswerSurfaceFigures };

/** The name of a new workspace. */
export type WorkspacesAddParams = { "name": string; "vault"?: boolean };

export type WorkspacesAddAnswerWorkspaceId = string;

/** Makes a workspace and its token, which is shown once. */
export type WorkspacesAddAnswer = { "name": WorkspacesAddAnswerWorkspaceId; "token": string };

/** Parameters of a method that takes none. */
export type WorkspacesListParams = Record<string, never>;

/** A workspace in a list. */
export type WorkspacesListAnswerShownWorkspace = { "name": WorkspacesListAnswerWorkspaceId; "vault": boolean; "createdAt"?: string | null; "removedAt"?: string | null };

export type WorkspacesListAnswerWorkspaceId = string;

/** Lists the workspaces. */
export type WorkspacesListAnswer = { "workspaces": Array<WorkspacesListAnswerShownWorkspace> };

/** A workspace by name. */
export type WorkspacesRemoveParams = { "name": string };

export type WorkspacesRemoveAnswerWorkspaceId = string;

/** Removes a workspace: its token, devices and connections end at once. What it recorded is kept. */
export type WorkspacesRemoveAnswer = { "name": WorkspacesRemoveAnswerWorkspaceId; "removed": boolean };

/** A workspace by name. */
export type WorkspacesRotateParams = { "name": string };

export type WorkspacesRotateAnswerWorkspaceId = string;

/** Makes a new token for a workspace, which is shown once; the old one ends at once. */
export type WorkspacesRotateAnswer = { "name": WorkspacesRotateAnswerWorkspaceId; "token": string };

/** The parameters of a status request. */
export type YardStatusParams = { "full"?: boolean };

/** A node that works with other settings than this one. */
export type YardStatusAnswerDifferingNode = { "node": string; "differs": Array<string> };

/** Reports the version, home, vault and activity of this process. */
export type YardStatusAnswer = { "version": string; "pid": number; "home": string; "vault": string; "command": string; "uptimeMs": number; "tools": number; "registryVersion": string; "activeRuns": number; "publicKey": string; "sessionKey"?: string | null; "openQuestions"?: number | null; "differingNodes"?: Array<YardStatusAnswerDifferingNode> };

/** Every method with its parameters and its answer. */
export interface Methods {
  "approval.get": { params: ApprovalGetParams; answer: ApprovalGetAnswer };
  "approval.history": { params: ApprovalHistoryParams; answer: ApprovalHistoryAnswer };
  "approval.resolve": { params: ApprovalResolveParams; answer: ApprovalResolveAnswer };
  "approvals.answer": { params: ApprovalsAnswerParams; answer: ApprovalsAnswerAnswer };
  "approvals.list": { params: ApprovalsListParams; answer: ApprovalsListAnswer };
  "approvals.show": { params: ApprovalsShowParams; answer: ApprovalsShowAnswer };
  "bridge.close": { params: BridgeCloseParams; answer: BridgeCloseAnswer };
  "bridge.inbound": { params: BridgeInboundParams; answer: BridgeInboundAnswer };
  "bridge.open": { params: BridgeOpenParams; answer: BridgeOpenAnswer };
  "bridge.outbound": { params: BridgeOutboundParams; answer: BridgeOutboundAnswer };
  "bridge.permission.reply": { params: BridgePermissionReplyParams; answer: BridgePermissionReplyAnswer };
  "bridge.status": { params: BridgeStatusParams; answer: BridgeStatusAnswer };
  "config.get": { params: ConfigGetParams; answer: ConfigGetAnswer };
  "config.patch": { params: ConfigPatchParams; answer: ConfigPatchAnswer };
  "config.push": { params: ConfigPushParams; answer: ConfigPushAnswer };
  "config.rollback": { params: ConfigRollbackParams; answer: ConfigRollbackAnswer };
  "config.version": { params: ConfigVersionParams; answer: ConfigVersionAnswer };
  "config.versions": { params: ConfigVersionsParams; answer: ConfigVersionsAnswer };
  "console.code": { params: ConsoleCodeParams; answer: ConsoleCodeAnswer };
  "console.subscribe": { params: ConsoleSubscribeParams; answer: ConsoleSubscribeAnswer };
  "context.add": { params: ContextAddParams; answer: ContextAddAnswer };
  "context.assemble": { params: ContextAssembleParams; answer: ContextAssembleAnswer };
  "context.capture": { params: ContextCaptureParams; answer: ContextCaptureAnswer };
  "context.command": { params: ContextCommandParams; answer: ContextCommandAnswer };
  "context.compact": { params: ContextCompactParams; answer: ContextCompactAnswer };
  "context.request": { params: ContextRequestParams; answer: ContextRequestAnswer };
  "device.pair.approve": { params: DevicePairApproveParams; answer: DevicePairApproveAnswer };
  "device.pair.list": { params: DevicePairListParams; answer: DevicePairListAnswer };
  "device.pair.reject": { params: DevicePairRejectParams; answer: DevicePairRejectAnswer };
  "device.pair.remove": { params: DevicePairRemoveParams; answer: DevicePairRemoveAnswer };
  "device.token.revoke": { params: DeviceTokenRevokeParams; answer: DeviceTokenRevokeAnswer };
  "device.token.rotate": { params: DeviceTokenRotateParams; answer: DeviceTokenRotateAnswer };
  "devices.approve": { params: DevicesApproveParams; answer: DevicesApproveAnswer };
  "devices.list": { params: DevicesListParams; answer: DevicesListAnswer };
  "devices.reject": { params: DevicesRejectParams; answer: DevicesRejectAnswer };
  "devices.revoke": { params: DevicesRevokeParams; answer: DevicesRevokeAnswer };
  "downloads.ticket": { params: DownloadsTicketParams; answer: DownloadsTicketAnswer };
  "exec.approval.get": { params: ExecApprovalGetParams; answer: ExecApprovalGetAnswer };
  "exec.approval.list": { params: ExecApprovalListParams; answer: ExecApprovalListAnswer };
  "exec.approval.request": { params: ExecApprovalRequestParams; answer: ExecApprovalRequestAnswer };
  "exec.approval.resolve": { params: ExecApprovalResolveParams; answer: ExecApprovalResolveAnswer };
  "exec.approval.waitDecision": { params: ExecApprovalWaitDecisionParams; answer: ExecApprovalWaitDecisionAnswer };
  "grants.list": { params: GrantsListParams; answer: GrantsListAnswer };
  "grants.revoke": { params: GrantsRevokeParams; answer: GrantsRevokeAnswer };
  "health": { params: HealthParams; answer: HealthAnswer };
  "hooks.event": { params: HooksEventParams; answer: HooksEventAnswer };
  "keys.chain": { params: KeysChainParams; answer: KeysChainAnswer };
  "keys.list": { params: KeysListParams; answer: KeysListAnswer };
  "keys.rotate": { params: KeysRotateParams; answer: KeysRotateAnswer };
  "logs.subscribe": { params: LogsSubscribeParams; answer: LogsSubscribeAnswer };
  "logs.tail": { params: LogsTailParams; answer: LogsTailAnswer };
  "mcp.add": { params: McpAddParams; answer: McpAddAnswer };
  "mcp.approve": { params: McpApproveParams; answer: McpApproveAnswer };
  "mcp.forget": { params: McpForgetParams; answer: McpForgetAnswer };
  "mcp.log": { params: McpLogParams; answer: McpLogAnswer };
  "mcp.remove": { params: McpRemoveParams; answer: McpRemoveAnswer };
  "mcp.servers": { params: McpServersParams; answer: McpServersAnswer };
  "mcp.start": { params: McpStartParams; answer: McpStartAnswer };
  "mcp.stop": { params: McpStopParams; answer: McpStopAnswer };
  "mcp.test": { params: McpTestParams; answer: McpTestAnswer };
  "node.describe": { params: NodeDescribeParams; answer: NodeDescribeAnswer };
  "node.invoke.result": { params: NodeInvokeResultParams; answer: NodeInvokeResultAnswer };
  "node.list": { params: NodeListParams; answer: NodeListAnswer };
  "notify.push": { params: NotifyPushParams; answer: NotifyPushAnswer };
  "notify.status": { params: NotifyStatusParams; answer: NotifyStatusAnswer };
  "notify.subscribe": { params: NotifySubscribeParams; answer: NotifySubscribeAnswer };
  "notify.test": { params: NotifyTestParams; answer: NotifyTestAnswer };
  "notify.unsubscribe": { params: NotifyUnsubscribeParams; answer: NotifyUnsubscribeAnswer };
  "openviking.feature.gates": { params: OpenvikingFeatureGatesParams; answer: OpenvikingFeatureGatesAnswer };
  "plans.cancel": { params: PlansCancelParams; answer: PlansCancelAnswer };
  "plans.check": { params: PlansCheckParams; answer: PlansCheckAnswer };
  "plans.dryRun": { params: PlansDryRunParams; answer: PlansDryRunAnswer };
  "plans.fork": { params: PlansForkParams; answer: PlansForkAnswer };
  "plans.replay": { params: PlansReplayParams; answer: PlansReplayAnswer };
  "plans.run": { params: PlansRunParams; answer: PlansRunAnswer };
  "plans.undo": { params: PlansUndoParams; answer: PlansUndoAnswer };
  "plugin.approval.list": { params: PluginApprovalListParams; answer: PluginApprovalListAnswer };
  "plugin.approval.request": { params: PluginApprovalRequestParams; answer: PluginApprovalRequestAnswer };
  "plugin.approval.resolve": { params: PluginApprovalResolveParams; answer: PluginApprovalResolveAnswer };
  "plugin.approval.waitDecision": { params: PluginApprovalWaitDecisionParams; answer: PluginApprovalWaitDecisionAnswer };
  "plugins.disable": { params: PluginsDisableParams; answer: PluginsDisableAnswer };
  "plugins.doctor": { params: PluginsDoctorParams; answer: PluginsDoctorAnswer };
  "plugins.enable": { params: PluginsEnableParams; answer: PluginsEnableAnswer };
  "plugins.info": { params: PluginsInfoParams; answer: PluginsInfoAnswer };
  "plugins.install": { params: PluginsInstallParams; answer: PluginsInstallAnswer };
  "plugins.list": { params: PluginsListParams; answer: PluginsListAnswer };
  "plugins.remove": { params: PluginsRemoveParams; answer: PluginsRemoveAnswer };
  "plugins.update": { params: PluginsUpdateParams; answer: PluginsUpdateAnswer };
  "policy.explain": { params: PolicyExplainParams; answer: PolicyExplainAnswer };
  "recall.why": { params: RecallWhyParams; answer: RecallWhyAnswer };
  "runs.call": { params: RunsCallParams; answer: RunsCallAnswer };
  "runs.calls": { params: RunsCallsParams; answer: RunsCallsAnswer };
  "runs.cancel": { params: RunsCancelParams; answer: RunsCancelAnswer };
  "runs.digest": { params: RunsDigestParams; answer: RunsDigestAnswer };
  "runs.events": { params: RunsEventsParams; answer: RunsEventsAnswer };
  "runs.export": { params: RunsExportParams; answer: RunsExportAnswer };
  "runs.follow": { params: RunsFollowParams; answer: RunsFollowAnswer };
  "runs.get": { params: RunsGetParams; answer: RunsGetAnswer };
  "runs.head": { params: RunsHeadParams; answer: RunsHeadAnswer };
  "runs.list": { params: RunsListParams; answer: RunsListAnswer };
  "runs.prove": { params: RunsProveParams; answer: RunsProveAnswer };
  "runs.record": { params: RunsRecordParams; answer: RunsRecordAnswer };
  "runs.resume": { params: RunsResumeParams; answer: RunsResumeAnswer };
  "runs.subscribe": { params: RunsSubscribeParams; answer: RunsSubscribeAnswer };
  "runs.tiles": { params: RunsTilesParams; answer: RunsTilesAnswer };
  "runs.transcript": { params: RunsTranscriptParams; answer: RunsTranscriptAnswer };
  "runs.unsubscribe": { params: RunsUnsubscribeParams; answer: RunsUnsubscribeAnswer };
  "runs.verify": { params: RunsVerifyParams; answer: RunsVerifyAnswer };
  "sessions.create": { params: SessionsCreateParams; answer: SessionsCreateAnswer };
  "sessions.delete": { params: SessionsDeleteParams; answer: SessionsDeleteAnswer };
  "sessions.get": { params: SessionsGetParams; answer: SessionsGetAnswer };
  "sessions.list": { params: SessionsListParams; answer: SessionsListAnswer };
  "sessions.patch": { params: SessionsPatchParams; answer: SessionsPatchAnswer };
  "status": { params: StatusParams; answer: StatusAnswer };
  "store.backup": { params: StoreBackupParams; answer: StoreBackupAnswer };
  "store.check": { params: StoreCheckParams; answer: StoreCheckAnswer };
  "store.prune": { params: StorePruneParams; answer: StorePruneAnswer };
  "store.stats": { params: StoreStatsParams; answer: StoreStatsAnswer };
  "system-presence": { params: SystemPresenceParams; answer: SystemPresenceAnswer };
  "tools.call": { params: ToolsCallParams; answer: ToolsCallAnswer };
  "tools.cancel": { params: ToolsCancelParams; answer: ToolsCancelAnswer };
  "tools.catalog": { params: ToolsCatalogParams; answer: ToolsCatalogAnswer };
  "tools.describe": { params: ToolsDescribeParams; answer: ToolsDescribeAnswer };
  "tools.effective": { params: ToolsEffectiveParams; answer: ToolsEffectiveAnswer };
  "tools.invoke": { params: ToolsInvokeParams; answer: ToolsInvokeAnswer };
  "tools.list": { params: ToolsListParams; answer: ToolsListAnswer };
  "tools.offer": { params: ToolsOfferParams; answer: ToolsOfferAnswer };
  "tools.result": { params: ToolsResultParams; answer: ToolsResultAnswer };
  "tools.savings": { params: ToolsSavingsParams; answer: ToolsSavingsAnswer };
  "tools.search": { params: ToolsSearchParams; answer: ToolsSearchAnswer };
  "workspaces.add": { params: WorkspacesAddParams; answer: WorkspacesAddAnswer };
  "workspaces.list": { params: WorkspacesListParams; answer: WorkspacesListAnswer };
  "workspaces.remove": { params: WorkspacesRemoveParams; answer: WorkspacesRemoveAnswer };
  "workspaces.rotate": { params: WorkspacesRotateParams; answer: WorkspacesRotateAnswer };
  "yard.status": { params: YardStatusParams; answer: YardStatusAnswer };
}
