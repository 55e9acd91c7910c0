//! Reads the arguments that models send, with common variations: aliases, arguments beside the id instead of under
//! `args`, dotted keys, JSON in a string. An ambiguous request is refused.

use serde_json::{Map, Value};
use toolyard_catalog::search::MAX_BATCH_QUERIES;
use toolyard_protocol::{ErrorCode, Failure};

/// Characters of one query of a batch.
const MAX_BATCH_QUERY_CHARS: usize = 512;
/// Maximum bytes of a model's batch, as JSON: a step is described in a few words.
const MAX_BATCH_BYTES: usize = 512;
/// Tools a batch asks for, all queries together.
pub(crate) const MAX_BATCH_RESULTS: usize = 50;
/// Names under which the tool is given.
const SELECTORS: [&str; 3] = ["id", "toolId", "name"];

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::ValidationError, message).retryable(false)
}

/// One query with its limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Query {
    pub(crate) text: String,
    pub(crate) limit: usize,
}

/// Who asks: a model's question and answer take room in its context, a script's do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requester {
    Model,
    Script,
}

/// What to search for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SearchRequest {
    One(Query),
    Batch(Vec<Query>),
}

/// Reads the arguments of `tool_search`.
pub(crate) fn search(
    args: &Map<String, Value>,
    default: usize,
    most: usize,
    asker: Requester,
) -> Result<SearchRequest, Failure> {
    let limit_value = args.get("limit").or_else(|| args.get("options").and_then(|options| options.get("limit")));
    let top = limit_value.filter(|limit| !limit.is_null()).map(|limit| positive(limit, most)).transpose()?;
    let single = match args.get("query") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        // A list under `query` is a batch under the wrong name.
        Some(Value::Array(list)) => return batch(None, list, top, (default, most), asker),
        Some(_) => return Err(invalid("query must be a string.")),
    };
    match args.get("queries") {
        None | Some(Value::Null) => match single {
            Some(text) => Ok(SearchRequest::One(Query { text, limit: top.unwrap_or(default) })),
            None => Err(invalid("query must be a string.")),
        },
        Some(Value::Array(list)) => batch(single, list, top, (default, most), asker),
        Some(Value::String(text)) => {
            Ok(SearchRequest::One(Query { text: text.clone(), limit: top.unwrap_or(default) }))
        }
        Some(_) => Err(invalid("queries must be a list of {query, limit}.")),
    }
}

fn batch(
    first: Option<String>,
    list: &[Value],
    top: Option<usize>,
    (default, most): (usize, usize),
    asker: Requester,
) -> Result<SearchRequest, Failure> {
    let first = first.filter(|text| !text.trim().is_empty());
    if top.is_some() && first.is_none() {
        return Err(invalid("limit belongs into each entry of queries."));
    }
    let count = list.len() + usize::from(first.is_some());
    if count == 0 {
        return Err(invalid("queries must not be empty."));
    }
    if count > MAX_BATCH_QUERIES {
        return Err(invalid(format!("at most {MAX_BATCH_QUERIES} queries are searched at once.")));
    }
    let bytes = serde_json::to_string(list).map_or(0, |json| json.len());
    if asker == Requester::Model && bytes > MAX_BATCH_BYTES {
        return Err(invalid(format!(
            "queries take {bytes} bytes; at most {MAX_BATCH_BYTES} are read. Say each step in a few words."
        )));
    }
    // Divides the maximum number of tools of a batch among its queries.
    let share = default.min(MAX_BATCH_RESULTS / count).max(1);
    let mut queries: Vec<Query> = Vec::with_capacity(count);
    queries.extend(first.map(|text| Query { text, limit: top.unwrap_or(share) }));
    for item in list {
        let (text, limit) = match item {
            Value::String(text) => (text.clone(), None),
            Value::Object(map) => match map.get("query") {
                Some(Value::String(text)) => (text.clone(), map.get("limit").filter(|limit| !limit.is_null())),
                _ => return Err(invalid("query must be a string.")),
            },
            _ => return Err(invalid("queries must be a list of {query, limit}.")),
        };
        if text.trim().is_empty() || text.chars().count() > MAX_BATCH_QUERY_CHARS {
            return Err(invalid(format!("each query must have 1 to {MAX_BATCH_QUERY_CHARS} characters.")));
        }
        let limit = limit.map(|limit| positive(limit, most)).transpose()?.unwrap_or(share);
        queries.push(Query { text, limit });
    }
    let total: usize = queries.iter().map(|query| query.limit).sum();
    if total > MAX_BATCH_RESULTS {
        return Err(invalid(format!(
            "the limits of a batch add up to {total}; at most {MAX_BATCH_RESULTS} are answered."
        )));
    }
    Ok(SearchRequest::Batch(queries))
}

fn positive(limit: &Value, most: usize) -> Result<usize, Failure> {
    let whole = limit.as_u64().or_else(|| limit.as_f64().filter(|n| n.fract() == 0.0 && *n >= 1.0).map(|n| n as u64));
    match whole {
        Some(limit) if limit > 0 => Ok(usize::try_from(limit).unwrap_or(most).min(most)),
        _ => Err(invalid("limit must be a positive integer.")),
    }
}

/// Reads the id of `tool_describe`.
pub(crate) fn selector(args: &Map<String, Value>) -> Result<String, Failure> {
    given_selector(args)?.ok_or_else(|| invalid("id must be a non-empty string."))
}

fn given_selector(args: &Map<String, Value>) -> Result<Option<String>, Failure> {
    let mut found: Option<&str> = None;
    for key in SELECTORS {
        match args.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if !text.trim().is_empty() => {
                if found.is_some_and(|other| other != text.trim()) {
                    // `id` is meant for us; a `name` beside it is most likely the target's.
                    continue;
                }
                found = Some(text.trim());
            }
            Some(_) if key == "id" => return Err(invalid("id must be a non-empty string.")),
            Some(_) => {}
        }
    }
    Ok(found.map(str::to_owned))
}

/// Reads the arguments of `tool_call`: the tool, and its arguments.
pub(crate) fn call(args: &Map<String, Value>) -> Result<(String, Map<String, Value>), Failure> {
    let mut inner = match args.get("args").or_else(|| args.get("input")).or_else(|| args.get("arguments")) {
        None | Some(Value::Null) => None,
        Some(Value::Object(map)) => Some(map.clone()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Some(map),
            _ => return Err(invalid("args must be an object.")),
        },
        Some(_) => return Err(invalid("args must be an object.")),
    };
    let outer = given_selector(args)?;
    let id = match outer {
        Some(id) => id,
        // The whole request one level too deep.
        None => {
            let Some(nested) = inner.as_ref() else { return Err(invalid("id must be a non-empty string.")) };
            let selectors: Vec<&str> = SELECTORS.into_iter().filter(|key| nested.contains_key(*key)).collect();
            match selectors.as_slice() {
                [] => return Err(invalid("id must be a non-empty string.")),
                [key] => {
                    let key = (*key).to_owned();
                    let mut nested = nested.clone();
                    let id = match nested.remove(&key) {
                        Some(Value::String(id)) if !id.trim().is_empty() => id.trim().to_owned(),
                        _ => return Err(invalid("id must be a non-empty string.")),
                    };
                    inner = Some(match nested.remove("args").or_else(|| nested.remove("input")) {
                        Some(Value::Object(map)) => map,
                        _ => nested,
                    });
                    id
                }
                _ => {
                    return Err(invalid(
                        "Ambiguous tool selectors: pass the target tool id and nest target arguments under args.",
                    ));
                }
            }
        }
    };
    let mut collected = inner.clone().unwrap_or_default();
    let mut beside = Map::new();
    for (key, value) in args {
        if let Some(inside) = key.strip_prefix("args.").filter(|inside| !inside.is_empty()) {
            collected.insert(inside.to_owned(), value.clone());
        } else if !["args", "input", "arguments"].contains(&key.as_str()) && !is_selector_for(key, value, &id) {
            beside.insert(key.clone(), value.clone());
        }
    }
    // Arguments beside the id count only where none were given under `args`.
    if inner.is_none() {
        for (key, value) in beside {
            collected.entry(key).or_insert(value);
        }
    }
    Ok((id, collected))
}

/// Whether a key selects the tool, and is not an argument of the tool with a name such as `name`.
fn is_selector_for(key: &str, value: &Value, id: &str) -> bool {
    SELECTORS.contains(&key) && value.as_str().is_some_and(|text| text.trim() == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn calls_are_understood_in_every_form_models_send() {
        let wanted = ("openclaw:core:x".to_owned(), map(json!({"a": 1})));
        for given in [
            json!({"id": "openclaw:core:x", "args": {"a": 1}}),
            json!({"toolId": "openclaw:core:x", "args": {"a": 1}}),
            json!({"name": "openclaw:core:x", "input": {"a": 1}}),
            json!({"id": " openclaw:core:x ", "args": "{\"a\": 1}"}),
            json!({"id": "openclaw:core:x", "a": 1}),
            json!({"id": "openclaw:core:x", "args.a": 1}),
            json!({"args": {"id": "openclaw:core:x", "a": 1}}),
            json!({"args": {"id": "openclaw:core:x", "args": {"a": 1}}}),
        ] {
            assert_eq!(call(&map(given.clone())).unwrap(), wanted, "{given}");
        }
        let (id, args) = call(&map(json!({"id": "x", "name": "Ann"}))).unwrap();
        assert_eq!((id.as_str(), args), ("x", map(json!({"name": "Ann"}))), "an argument of the target");
        assert_eq!(call(&map(json!({"id": "x"}))).unwrap().1, Map::new());
    }

    #[test]
    fn what_cannot_be_understood_is_refused_in_the_contracts_words() {
        for (given, message) in [
            (json!({}), "id must be a non-empty string."),
            (json!({"id": ""}), "id must be a non-empty string."),
            (json!({"id": 7}), "id must be a non-empty string."),
            (json!({"id": "x", "args": [1]}), "args must be an object."),
            (json!({"id": "x", "args": "no json"}), "args must be an object."),
            (
                json!({"args": {"id": "x", "name": "y"}}),
                "Ambiguous tool selectors: pass the target tool id and nest target arguments under args.",
            ),
        ] {
            assert_eq!(call(&map(given.clone())).unwrap_err().message, message, "{given}");
        }
        for (given, message) in [
            (json!({}), "query must be a string."),
            (json!({"query": 1}), "query must be a string."),
            (json!({"query": "x", "limit": 0}), "limit must be a positive integer."),
            (json!({"query": "x", "limit": 1.5}), "limit must be a positive integer."),
            (json!({"query": "x", "limit": "3"}), "limit must be a positive integer."),
            (json!({"queries": []}), "queries must not be empty."),
            (json!({"queries": ["x"], "limit": 3}), "limit belongs into each entry of queries."),
            (json!({"queries": vec!["x"; 17]}), "at most 16 queries are searched at once."),
            (json!({"queries": [""]}), "each query must have 1 to 512 characters."),
            (
                json!({"queries": ["x".repeat(300), "y".repeat(300)]}),
                "queries take 607 bytes; at most 512 are read. Say each step in a few words.",
            ),
            (
                json!({"queries": [{"query": "x", "limit": 20}, {"query": "y", "limit": 20}, {"query": "z", "limit": 11}]}),
                "the limits of a batch add up to 51; at most 50 are answered.",
            ),
        ] {
            assert_eq!(search(&map(given.clone()), 8, 20, Requester::Model).unwrap_err().message, message, "{given}");
        }
        let long = |chars: usize| map(json!({"queries": ["x".repeat(chars), "y"]}));
        assert!(search(&long(512), 8, 20, Requester::Script).is_ok(), "a script's batch takes no room in a context");
        assert!(search(&long(513), 8, 20, Requester::Script).is_err());
    }

    #[test]
    fn limits_are_clipped_and_shared() {
        let one = |given: Value| match search(&map(given), 8, 20, Requester::Model).unwrap() {
            SearchRequest::One(query) => query.limit,
            SearchRequest::Batch(_) => 0,
        };
        assert_eq!(one(json!({"query": "x"})), 8);
        assert_eq!(one(json!({"query": "x", "limit": 500})), 20);
        assert_eq!(one(json!({"query": "x", "options": {"limit": 3}})), 3);
        let args = map(json!({"query": "first", "queries": vec!["x"; 15]}));
        let SearchRequest::Batch(batch) = search(&args, 8, 20, Requester::Model).unwrap() else { panic!() };
        assert_eq!((batch.len(), batch[0].text.as_str(), batch[0].limit), (16, "first", 3));
    }
}
