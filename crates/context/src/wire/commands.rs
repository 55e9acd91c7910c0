//! Slash commands: what a person types where an agent would call a tool. Failures are returned as text, never as
//! errors.

use crate::{
    find::query_config::{Effective, QueryParams, ResourceType, Scope},
    service::ContextStore,
    wire::{
        shapes::value,
        tools::{Answer, Session},
    },
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The commands and their arguments.
pub const COMMANDS: [(&str, &str); 5] = [
    (
        "/add-resource",
        "<source> [--to URI | --parent URI] [--reason TEXT] [--instruction TEXT] [--wait] [--timeout SEC]",
    ),
    ("/add-skill", "<source> [--wait] [--timeout SEC]"),
    ("/ov-search", "\"<query>\" [--uri URI] [--limit N]"),
    ("/ov-query-config", "get | set --FIELD VALUE… | unset FIELD… | reset [--scope session|claw]"),
    (
        "/ov-recall-trace",
        "[--turn latest|all] [--trace-id ID] [--session-id ID] [--session-key KEY] [--ov-session-id ID] [--source NAME] \
         [--resource-types LIST] [--since MS] [--until MS] [--include-content] [--limit N]",
    ),
];

/// A parsed command line.
#[derive(Debug, Default, PartialEq)]
struct Line {
    words: Vec<String>,
    options: Map<String, Value>,
}

/// Options without a value.
const FLAGS: [&str; 3] = ["wait", "include-content", "includeContent"];

/// Splits a text like a shell: quotes keep spaces, and a backslash keeps the next character.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut open) = (String::new(), None, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.extend(chars.next()),
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                open = true;
            }
            (c, None) if c.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (c, None) => word.push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

fn parse(text: &str) -> Result<Line, String> {
    let mut line = Line::default();
    let mut words = split(text)?.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--").filter(|o| !o.is_empty()) else {
            line.words.push(word);
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name.to_owned(), Value::from(value)),
            None if FLAGS.contains(&option) => (option.to_owned(), true.into()),
            None => {
                let value = words.next_if(|next| !next.starts_with("--"));
                (option.to_owned(), value.map_or(Value::Bool(true), Value::from))
            }
        };
        line.options.insert(name, value);
    }
    Ok(line)
}

impl Line {
    fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).and_then(Value::as_str)
    }

    fn check(&self, known: &[&str]) -> Result<(), String> {
        match self.options.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("unknown option --{name}")),
            None => Ok(()),
        }
    }

    fn number(&self, name: &str) -> Result<Option<Value>, String> {
        match self.options.get(name) {
            None => Ok(None),
            Some(value) => match value.as_str().and_then(|text| text.trim().parse::<f64>().ok()) {
                Some(n) if n.fract() == 0.0 => Ok(Some(json!(n as i64))),
                Some(n) => Ok(Some(json!(n))),
                None => Err(format!("--{name} must be a number")),
            },
        }
    }
}

/// Calls a tool through the engine, which applies the policy and records the call. `Err` contains the reason of a
/// refusal.
pub type CallTool<'a> = &'a dyn Fn(&str, Map<String, Value>) -> Result<Answer, String>;

/// The response to a command.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Reply {
    /// The text for people.
    pub text: String,
    /// The details for programs.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

/// Runs a command; returns `None` for an unknown one. May block.
pub fn run(store: &Arc<ContextStore>, session: &Session, text: &str, call: CallTool<'_>) -> Option<Reply> {
    let text = text.trim();
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (title, done) = match name {
        "/add-resource" => ("add resource", add_resource(rest, call)),
        "/add-skill" => ("add skill", add_skill(rest, call)),
        "/ov-search" => ("search", search(rest, call)),
        "/ov-query-config" => ("query config", query_config(store, session, rest)),
        "/ov-recall-trace" => ("recall trace", recall_trace(rest, call)),
        _ => return None,
    };
    Some(match done {
        Ok(Answer { text, details }) => Reply { text, details },
        Err(why) => Reply { text: format!("OpenViking {title} failed: {why}"), details: Value::Null },
    })
}

fn add_resource(rest: &str, call: CallTool<'_>) -> Result<Answer, String> {
    let line = parse(rest)?;
    line.check(&["to", "parent", "reason", "instruction", "wait", "timeout"])?;
    let mut args = Map::new();
    if let Some(source) = line.words.first() {
        args.insert("source".to_owned(), source.as_str().into());
    }
    for name in ["to", "parent", "reason", "instruction"] {
        args.extend(line.text(name).map(|value| (name.to_owned(), value.into())));
    }
    args.extend(line.number("timeout")?.map(|n| ("timeout".to_owned(), n)));
    call("add_resource", args)
}

fn add_skill(rest: &str, call: CallTool<'_>) -> Result<Answer, String> {
    let line = parse(rest)?;
    if ["to", "parent", "reason", "instruction"].iter().any(|name| line.options.contains_key(*name)) {
        return Err("--to, --parent, --reason, and --instruction are resource-only options.".to_owned());
    }
    line.check(&["wait", "timeout"])?;
    let source = line.words.first().ok_or("Usage: /add-skill <source> [--wait] [--timeout SEC]")?;
    call("add_skill", Map::from_iter([("source".to_owned(), source.as_str().into())]))
}

fn search(rest: &str, call: CallTool<'_>) -> Result<Answer, String> {
    let line = parse(rest)?;
    line.check(&["uri", "limit"])?;
    let mut args = Map::from_iter([("query".to_owned(), line.words.join(" ").into())]);
    args.extend(line.text("uri").map(|uri| ("uri".to_owned(), uri.into())));
    args.extend(line.number("limit")?.map(|n| ("limit".to_owned(), n)));
    call("ov_search", args)
}

fn recall_trace(rest: &str, call: CallTool<'_>) -> Result<Answer, String> {
    let line = parse(rest)?;
    let texts = [
        ("turn", "turn"),
        ("trace-id", "traceId"),
        ("session-id", "sessionId"),
        ("session-key", "sessionKey"),
        ("ov-session-id", "ovSessionId"),
        ("source", "source"),
    ];
    let mut known: Vec<&str> = texts.iter().map(|(option, _)| *option).collect();
    known.extend(["resource-types", "since", "until", "include-content", "limit"]);
    line.check(&known)?;
    let mut args = Map::new();
    for (option, name) in texts {
        args.extend(line.text(option).map(|value| (name.to_owned(), value.into())));
    }
    if let Some(types) = line.text("resource-types") {
        args.insert("resourceTypes".to_owned(), given_types(types)?);
    }
    for name in ["since", "until", "limit"] {
        args.extend(line.number(name)?.map(|n| (name.to_owned(), n)));
    }
    if line.options.contains_key("include-content") {
        args.insert("includeContent".to_owned(), (line.options["include-content"] != "false").into());
    }
    let mut answer = call("ov_recall_trace", args)?;
    if let Some(details) = answer.details.as_object_mut() {
        details.shift_remove("action");
    }
    Ok(answer)
}

fn given_types(text: &str) -> Result<Value, String> {
    Ok(ResourceType::parse_text(text)?.into_iter().map(ResourceType::as_str).collect())
}

/// The details of `/ov-query-config`.
#[derive(Serialize)]
struct ConfigShape {
    scope: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<QueryParams>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
    effective: Effective,
}

fn query_config(store: &Arc<ContextStore>, session: &Session, rest: &str) -> Result<Answer, String> {
    let mut line = parse(rest)?;
    let scope = match line.options.shift_remove("scope").as_ref().map(|s| s.as_str().unwrap_or_default()) {
        None | Some("session") => Scope::Session,
        Some("claw") => Scope::Claw,
        Some(other) => return Err(format!("--scope must be session or claw, not {other}")),
    };
    let config = store.config();
    let claw = session.claw_key(config);
    let own = session.query_key();
    let key = match scope {
        Scope::Claw => claw.clone(),
        Scope::Session => own.clone().ok_or("there is no active session; use --scope claw")?,
    };
    let effective = || store.queries.effective(config, own.as_deref(), &claw, &QueryParams::default());
    let action = if line.words.is_empty() { "get".to_owned() } else { line.words.remove(0) };
    let (text, params) = match action.as_str() {
        "get" => {
            line.check(&[])?;
            let shape = ConfigShape { scope: scope.word(), params: None, warnings: None, effective: effective() };
            let details = value(shape).map_err(|error| error.message)?;
            return Ok(Answer { text: format!("{details:#}"), details });
        }
        "set" => {
            if line.options.is_empty() {
                return Err("nothing to set; use --FIELD VALUE".to_owned());
            }
            let set = |params: &mut QueryParams| {
                line.options.iter().try_for_each(|(name, value)| {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    params.set(name, &text)
                })
            };
            // All values are validated before one is set.
            set(&mut QueryParams::default())?;
            let mut done = Ok(());
            let params = store.queries.change(scope, &key, "command", |params| done = set(params))?;
            done?;
            ("Updated", params)
        }
        "unset" => {
            line.check(&[])?;
            if line.words.is_empty() {
                return Err("nothing to unset; name the fields".to_owned());
            }
            let unset = |params: &mut QueryParams| line.words.iter().for_each(|name| params.unset(name));
            ("Updated", store.queries.change(scope, &key, "command", unset)?)
        }
        "reset" => {
            line.check(&[])?;
            ("Reset", store.queries.change(scope, &key, "command", |params| *params = QueryParams::default())?)
        }
        other => return Err(format!("unknown action {other}; use get, set, unset or reset")),
    };
    let effective = effective();
    let warnings = Some(effective.warnings.clone());
    let shape = ConfigShape { scope: scope.word(), params: Some(params), warnings, effective };
    let details = value(shape).map_err(|error| error.message)?;
    Ok(Answer { text: format!("{text} OpenViking query config ({}).", scope.word()), details })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_would() {
        let line = parse(r#""rate limit" --limit 2 --uri=viking://resources 'a b' \"x --wait y"#).unwrap();
        assert_eq!(line.words, ["rate limit", "a b", "\"x", "y"]);
        assert_eq!(line.number("limit"), Ok(Some(json!(2))));
        assert_eq!(line.text("uri"), Some("viking://resources"));
        assert_eq!(line.options["wait"], true);
        assert!(parse("\"open").is_err());
        assert!(line.check(&["limit", "uri"]).is_err());
        assert_eq!(parse("\"\"").unwrap().words, [""]);
    }
}
