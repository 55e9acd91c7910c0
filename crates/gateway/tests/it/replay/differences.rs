//! Intended differences from the real gateway: what is missing here, and what is answered instead.

use serde_json::{Value, json};

/// Parts of payloads that the real gateway sends and we do not, by method, event or path: what they describe does not
/// exist here.
pub(super) fn absent(of: &str) -> Vec<String> {
    const HEALTH: &[&str] = &[
        // no channels, heartbeats, models, configuration that is reloaded
        "configReload",
        "channels",
        "channelOrder",
        "channelLabels",
        "heartbeatSeconds",
        "agents",
        "modelRuntime",
        // one async runtime, whose threads are all alike
        "eventLoop.cpuBreakdown.mainThreadCoreRatio",
        "eventLoop.cpuBreakdown.workerCoreRatio",
        "eventLoop.cpuBreakdown.otherThreadsCoreRatio",
        "eventLoop.cpuBreakdown.hostUtilization",
    ];
    const COMMAND: &[&str] = &[
        // commands are not taken apart, and nothing runs them at set times
        "request.systemRunBinding",
        "request.commandAnalysis",
        "request.cronExecutionSource",
        "request.cronOperationBinding",
    ];
    let plain: &[&str] = match of {
        "health" => HEALTH,
        "connect" => &[
            "controlUiWidgetKinds",
            "controlUiLinkReaders",
            "pluginSurfaceUrls",
            "server.controlUiBuildSource",
            "snapshot.appliedConfigHash",
            "snapshot.updateSchedule",
            "auth.recoveryScope",
            "auth.recoveryMigrationAllowed",
            "policy.attachments",
            "policy.allowedSessionVisibilities",
            "policy.hasMultipleSessionSharingIdentities",
        ],
        "status" => &[
            "hostDesktop",
            "channelSummary",
            "queuedSystemEvents",
            "degradedSecretOwners",
            "degradedPlugins",
            "heartbeat.agents[].waitingForRoute",
            // what is over is in runs.list
            "tasks.total",
            "tasks.terminal",
            "tasks.failures",
            "tasks.byRuntime",
            "tasks.byStatus.queued",
            "tasks.byStatus.succeeded",
            "tasks.byStatus.failed",
            "tasks.byStatus.timed_out",
            "tasks.byStatus.cancelled",
            "tasks.byStatus.lost",
            "taskAudit",
            "modelRuntime",
            "eventLoop.cpuBreakdown.mainThreadCoreRatio",
            "eventLoop.cpuBreakdown.workerCoreRatio",
            "eventLoop.cpuBreakdown.otherThreadsCoreRatio",
            "eventLoop.cpuBreakdown.hostUtilization",
            "processMemory.heapTotalBytes",
            "processMemory.heapUsedBytes",
            "processMemory.externalBytes",
            "processMemory.arrayBuffersBytes",
            "workerPools",
            "shutdownBudget",
        ],
        "/ready" => &[
            "eventLoop.cpuBreakdown.mainThreadCoreRatio",
            "eventLoop.cpuBreakdown.workerCoreRatio",
            "eventLoop.cpuBreakdown.otherThreadsCoreRatio",
            "eventLoop.cpuBreakdown.hostUtilization",
        ],
        "config.get" => &[
            "includedPaths",
            "includeProvenance",
            "agentRosterIncludeOwned",
            "bindingsIncludeOwned",
            "sourceConfig",
            "runtimeConfig",
            "resolved",
            "legacyIssues",
            "appliedConfigHash",
            "configRevisionHash",
            // what is configured is another program
            "config.*",
            "parsed.*",
        ],
        "sessions.list" => &[
            "defaults.agentRuntime",
            "defaults.modelSelectionTarget",
            "defaults.thinkingLevels",
            "defaults.thinkingOptions",
            "defaults.thinkingDefault",
        ],
        "sessions.create" => {
            &["entry.spawnDepth", "entry.sessionRoot", "entry.delivery", "resolved.modelProvider", "resolved.model"]
        }
        "exec.approval.resolved" => COMMAND,
        _ => &[],
    };
    if of == "exec.approval.list" {
        return COMMAND.iter().map(|key| format!("[].{key}")).collect();
    }
    let within = if of == "connect" { HEALTH } else { &[] };
    plain.iter().map(|key| (*key).to_owned()).chain(within.iter().map(|key| format!("snapshot.health.{key}"))).collect()
}

/// The answer we give on purpose where the real gateway gave another: the recording, the request's id, our answer.
pub(super) fn instead(name: &str, id: &str) -> Option<Value> {
    let refused =
        |tool: &str, error: Value| json!({"ok": true, "payload": {"ok": false, "toolName": tool, "error": error}});
    let not_here =
        |tool: &str| refused(tool, json!({"code": "not_found", "message": format!("Tool not available: {tool}")}));
    let bad_args = |path: &str| {
        refused("bench_echo", json!({"code": "validation_error", "details": {"errors": [{"path": path}]}}))
    };
    Some(match (name, id) {
        // Any client id and mode is taken.
        ("connect-seed003-client-verbatim", "r1") => json!({"ok": true, "payload": {
            "type": "hello-ok", "protocol": 4, "auth": {"role": "operator", "scopes": ["operator.read", "operator.write"]},
        }}),
        // A method that does not exist is reported as unknown, also to a client without `operator.admin`.
        ("post-extra-frame-prop" | "post-missing-id" | "post-numeric-id", "r2")
        | ("rpc-basic", "r6")
        | ("scopes-read-only", "r5") => json!({"ok": false, "error": {"code": "INVALID_REQUEST"}}),
        // The main session is there before anybody makes it.
        ("rpc-basic", "r12" | "r13") => json!({"ok": true, "payload": {"agentId": "main"}}),
        // Tools of OpenClaw that are not here.
        ("rpc-basic", "r18") => not_here("agents_list"),
        ("rpc-basic", "r19") => not_here("session_status"),
        ("rpc-basic", "r20") => not_here("sessions_list"),
        ("rpc-basic", "r23") => not_here("memory_search"),
        // Arguments are checked against the schema.
        ("tools-invoke-plugin", "r4" | "r5") => bad_args("/text"),
        ("tools-invoke-plugin", "r6") => bad_args("/text"),
        ("tools-invoke-plugin", "r7") => bad_args("/extra"),
        // An optional tool must be allowed by policy.
        ("tools-invoke-plugin", "r12") => not_here("bench_opt"),
        // An idempotency key deduplicates: with other arguments it conflicts.
        ("tools-invoke-plugin", "r17") => refused("bench_echo", json!({"code": "conflict"})),
        _ => return None,
    })
}

/// A client that is let in on purpose is not closed.
pub(super) fn stays_open(name: &str) -> bool {
    name == "connect-seed003-client-verbatim"
}

/// Refusals that name things of OpenClaw's in their reason.
pub(super) fn other_reason(name: &str) -> bool {
    name == "origin-evil"
}

/// What is answered on purpose to an HTTP exchange that the real gateway answers otherwise.
pub(super) fn http_instead(case: &str) -> Option<HttpAnswer> {
    Some(match case {
        // This program has no chat; the real gateway answers the same when chat is turned off.
        "models" | "models-noauth" | "chat" => HttpAnswer { status: 404, body: HttpBody::Text("Not Found".to_owned()) },
        // A tool of OpenClaw that is not here.
        "inv-memsearch" => HttpAnswer {
            status: 404,
            body: HttpBody::Json {
                ok: json!(false),
                error_type: json!("not_found"),
                shape: json!({"ok": "bool", "error": {"type": "string", "message": "string"}}),
            },
        },
        _ => return None,
    })
}

/// What an HTTP exchange must answer.
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) body: HttpBody,
}

pub(super) enum HttpBody {
    /// Exactly this text.
    Text(String),
    Json {
        ok: Value,
        error_type: Value,
        shape: Value,
    },
}

/// All parts of `expected` that are missing or different in `got`.
pub(super) fn holds(expected: &Value, got: &Value) -> Vec<String> {
    fn walk(expected: &Value, got: &Value, path: &str, wrong: &mut Vec<String>) {
        match expected {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| walk(value, &got[key], &format!("{path}/{key}"), wrong));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(i, item)| walk(item, &got[i], &format!("{path}/{i}"), wrong));
            }
            other if other != got => wrong.push(format!("{path} is {got} instead of {other}")),
            _ => {}
        }
    }
    let mut wrong = Vec::new();
    walk(expected, got, "", &mut wrong);
    wrong
}

/// Compares a payload with a shape: the keys, the keys of what it holds, and the types of values. A shape has the name
/// of a type where the payload has a value, and a list's first item for all of its items.
pub(super) struct Shape {
    pub(super) absent: Vec<String>,
}

impl Shape {
    pub(super) fn compare(&self, want: &Value, got: &Value, path: &str, wrong: &mut Vec<String>) {
        match (want, got) {
            (Value::Object(theirs), Value::Object(ours)) => {
                for (key, value) in theirs {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    if self.absent.iter().any(|key| key.strip_suffix("*").is_some_and(|start| path.starts_with(start)))
                    {
                        continue;
                    }
                    if self.absent.contains(&path) {
                        if ours.contains_key(key) {
                            wrong.push(format!("{path} is there after all: strike it off the list"));
                        }
                        continue;
                    }
                    match ours.get(key) {
                        Some(held) => self.compare(value, held, &path, wrong),
                        None => wrong.push(format!("the payload lacks {path}")),
                    }
                }
            }
            // Lists hold different things; what one of them looks like can be compared.
            (Value::Array(theirs), Value::Array(ours)) => {
                if let (Some(theirs), Some(ours)) = (theirs.first(), ours.first()) {
                    self.compare(theirs, ours, &format!("{path}[]"), wrong);
                }
            }
            (Value::Null, _) | (_, Value::Null) => {}
            (theirs, ours) if type_in(theirs) != type_of(ours) => {
                wrong.push(format!("{path} is {ours} where a {} was", type_in(theirs)));
            }
            _ => {}
        }
    }
}

/// The type that a shape names.
fn type_in(shape: &Value) -> &str {
    match shape {
        Value::String(name) => name,
        other => type_of(other),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}
