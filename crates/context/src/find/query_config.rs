//! How questions are asked, and who may change it while everything runs: request over session over claw (an agent's
//! peer) over configuration. `/ov-query-config` changes the middle two.

use crate::{
    config::ContextConfig,
    store::{account::lock, disk},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, path::PathBuf, sync::Mutex, time::SystemTime};
use toolyard_recall::index::RankingWeights;

/// What can be recalled.
pub(crate) const RESOURCE_TYPES: [&str; 3] = ["resource", "user", "agent"];

/// The weights that can be set, with their defaults.
const WEIGHTS: [(&str, f64); 5] =
    [("baseScore", 1.0), ("leaf", 0.12), ("event", 0.10), ("preference", 0.08), ("lexicalOverlapMax", 0.20)];

/// Everything at its effective value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effective {
    pub(crate) recall_limit: usize,
    pub(crate) candidate_multiplier: usize,
    pub(crate) candidate_limit: usize,
    pub(crate) score_threshold: f64,
    pub(crate) max_injected_chars: usize,
    pub(crate) prefer_abstract: bool,
    pub(crate) resource_types: Vec<String>,
    pub(crate) ov_search_limit: usize,
    pub(crate) target_uri: Option<String>,
    pub(crate) weights: Map<String, Value>,
    pub(crate) resource_type_weights: Map<String, Value>,
    pub(crate) category_weights: Map<String, Value>,
    sources: Map<String, Value>,
    pub(crate) warnings: Vec<String>,
}

impl Effective {
    pub(crate) fn to_value(&self) -> Value {
        let mut value = json!({
            "recallLimit": self.recall_limit, "candidateMultiplier": self.candidate_multiplier,
            "candidateLimit": self.candidate_limit, "scoreThreshold": self.score_threshold,
            "maxInjectedChars": self.max_injected_chars, "recallPreferAbstract": self.prefer_abstract,
            "resourceTypes": self.resource_types, "ovSearchLimit": self.ov_search_limit,
        });
        if let Some(uri) = &self.target_uri {
            value["targetUri"] = uri.as_str().into();
        }
        value["rankingWeights"] = Value::Object(self.weights.clone());
        value["resourceTypeWeights"] = Value::Object(self.resource_type_weights.clone());
        value["categoryWeights"] = Value::Object(self.category_weights.clone());
        value["sources"] = Value::Object(self.sources.clone());
        value["warnings"] = self.warnings.clone().into();
        value
    }

    /// As the index weighs.
    pub(crate) fn ranking(&self) -> RankingWeights {
        let weight = |name: &str| self.weights.get(name).and_then(Value::as_f64).unwrap_or_default() as f32;
        RankingWeights {
            base_score: weight("baseScore"),
            leaf: weight("leaf"),
            event: weight("event"),
            preference: weight("preference"),
            lexical_overlap_max: weight("lexicalOverlapMax"),
            ..RankingWeights::default()
        }
    }
}

/// What was set for one scope.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    params: Map<String, Value>,
    updated_at: String,
    updated_by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    peer_id: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    schema_version: String,
    updated_at: String,
    claws: BTreeMap<String, Entry>,
    sessions: BTreeMap<String, Entry>,
}

/// Which of the changeable scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    Claw,
}

impl Scope {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Claw => "claw",
        }
    }
}

/// What was set, in memory and perhaps in a file that others may change.
pub(crate) struct QueryConfigs {
    path: Option<PathBuf>,
    state: Mutex<(File, Option<SystemTime>)>,
}

impl QueryConfigs {
    pub(crate) fn open(path: Option<PathBuf>) -> Self {
        Self { path, state: Mutex::default() }
    }

    /// Takes what others changed in the file.
    fn current(&self) -> File {
        let mut state = lock(&self.state);
        if let Some(path) = &self.path
            && let Ok(modified) = std::fs::metadata(path).and_then(|meta| meta.modified())
            && state.1 != Some(modified)
        {
            match disk::read_text(path).ok().and_then(|text| serde_json::from_str(&text).ok()) {
                Some(file) => *state = (file, Some(modified)),
                None => {
                    tracing::warn!(path = %path.display(), "the query configuration cannot be read and is left as it was")
                }
            }
        }
        state.0.clone()
    }

    /// What holds for a request.
    pub(crate) fn effective(
        &self,
        config: &ContextConfig,
        session: Option<&str>,
        claw: &str,
        request: &Map<String, Value>,
    ) -> Effective {
        let file = self.current();
        let empty = Map::new();
        let of = |entry: Option<&Entry>| entry.map_or_else(Map::new, |e| e.params.clone());
        let session = of(session.and_then(|key| file.sessions.get(key)));
        let claw = of(file.claws.get(claw));
        let layers = [("request", request), ("session", &session), ("claw", &claw), ("static", &empty)];
        let mut sources = Map::new();
        let mut pick = |name: &str, fallback: Value, source: &str| -> Value {
            let found = layers.iter().find_map(|(from, map)| map.get(name).map(|value| (*from, value.clone())));
            let (from, value) = found.unwrap_or((source, fallback));
            if name != "targetUri" || !value.is_null() {
                sources.insert(name.to_owned(), from.into());
            }
            value
        };
        let count = |value: &Value, least: u64, most: u64| {
            let n = value.as_f64().unwrap_or_default().floor().clamp(least as f64, most as f64);
            n as usize
        };
        let recall_limit = count(&pick("recallLimit", config.recall_limit.into(), "static"), 1, 50);
        let multiplier = count(&pick("candidateMultiplier", 4.into(), "default"), 1, 20);
        let set = layers.iter().find_map(|(from, map)| map.get("candidateLimit").map(|v| (*from, v.clone())));
        let mut warnings = Vec::new();
        let computed = (recall_limit * multiplier).clamp(20, 200);
        let candidate_limit = match &set {
            Some((_, value)) => {
                let given = count(value, 1, 200);
                if given < recall_limit {
                    warnings.push("candidateLimit was raised to recallLimit".to_owned());
                }
                given.max(recall_limit)
            }
            None => computed.max(recall_limit),
        };
        // Computed from something that was set, it comes from where that was set.
        let limit_source = set.map_or_else(
            || {
                let from = |name: &str| layers.iter().find_map(|(from, map)| map.contains_key(name).then_some(*from));
                from("recallLimit").or_else(|| from("candidateMultiplier")).unwrap_or("default")
            },
            |(from, _)| from,
        );
        pick("candidateLimit", candidate_limit.into(), limit_source);
        let score_threshold = pick("scoreThreshold", config.recall_score_threshold.into(), "static");
        let max_injected = pick("maxInjectedChars", config.recall_max_injected_chars.into(), "static");
        let prefer_abstract = pick("recallPreferAbstract", config.recall_prefer_abstract.into(), "static");
        let mut types = config.recall_target_types.clone();
        if config.recall_resources && !types.iter().any(|t| t == "resource") {
            types.push("resource".to_owned());
        }
        let resource_types = pick("resourceTypes", types.into(), "static");
        let ov_search_limit = pick("ovSearchLimit", 10.into(), "default");
        let target_uri = pick("targetUri", Value::Null, "default");
        let mut weights: Map<String, Value> =
            WEIGHTS.iter().map(|(name, value)| ((*name).to_owned(), number(*value))).collect();
        if let Value::Object(set) = pick("rankingWeights", json!({}), "default") {
            weights.extend(set);
        }
        let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
        let maps = |name: &str| object(layers.iter().find_map(|(_, map)| map.get(name).cloned()).unwrap_or_default());
        Effective {
            recall_limit,
            candidate_multiplier: multiplier,
            candidate_limit,
            score_threshold: score_threshold.as_f64().unwrap_or_default().clamp(0.0, 1.0),
            max_injected_chars: count(&max_injected, 100, 50_000),
            prefer_abstract: prefer_abstract.as_bool().unwrap_or_default(),
            resource_types: resource_types
                .as_array()
                .map(|all| all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
                .unwrap_or_default(),
            ov_search_limit: count(&ov_search_limit, 1, 100),
            target_uri: target_uri.as_str().map(str::to_owned),
            weights,
            resource_type_weights: maps("resourceTypeWeights"),
            category_weights: maps("categoryWeights"),
            sources,
            warnings,
        }
    }

    /// Changes a scope's parameters. Keys are those of [`QueryConfigs::session_key`] and peers' ids.
    pub(crate) fn change(
        &self,
        scope: Scope,
        key: &str,
        by: &str,
        change: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Map<String, Value>, String> {
        self.current();
        let mut state = lock(&self.state);
        let now = Timestamp::now().to_string();
        let file = &mut state.0;
        file.schema_version = "1.0".to_owned();
        file.updated_at.clone_from(&now);
        let entries = if scope == Scope::Claw { &mut file.claws } else { &mut file.sessions };
        let entry = entries.entry(key.to_owned()).or_default();
        change(&mut entry.params);
        entry.updated_at = now;
        entry.updated_by = by.to_owned();
        if scope == Scope::Claw {
            entry.peer_id = key.to_owned();
        }
        let params = entry.params.clone();
        if params.is_empty() {
            entries.remove(key);
        }
        if let Some(path) = &self.path {
            let text = serde_json::to_vec_pretty(&state.0).unwrap_or_default();
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
            }
            disk::write(path, &text, disk::Keep::Durable).map_err(|e| e.to_string())?;
            state.1 = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        }
        Ok(params)
    }
}

fn number(value: f64) -> Value {
    // 1 rather than 1.0, as it is written in configurations.
    if value.fract() == 0.0 { json!(value as i64) } else { json!(value) }
}

/// Checks a parameter that somebody wants to set, and brings it into its range.
pub(crate) fn checked(name: &str, given: &Value) -> Result<Value, String> {
    let bad = |what: &str| Err(format!("{name} must be {what}"));
    let parsed = match given {
        // Commands give text.
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| given.clone()),
        other => other.clone(),
    };
    let count = |least: f64, most: f64| match parsed.as_f64() {
        Some(n) => Ok(json!(n.floor().clamp(least, most) as i64)),
        None => bad("a number"),
    };
    match name {
        "recallLimit" => count(1.0, 50.0),
        "candidateMultiplier" => count(1.0, 20.0),
        "candidateLimit" => count(1.0, 200.0),
        "maxInjectedChars" => count(100.0, 50_000.0),
        "ovSearchLimit" => count(1.0, 100.0),
        "scoreThreshold" => match parsed.as_f64() {
            Some(n) => Ok(number(n.clamp(0.0, 1.0))),
            None => bad("a number"),
        },
        "recallPreferAbstract" => match parsed.as_bool() {
            Some(flag) => Ok(flag.into()),
            None => bad("true or false"),
        },
        "resourceTypes" => resource_types(given).map(Value::from),
        "targetUri" => match given.as_str() {
            Some(uri) if uri.starts_with(crate::store::uri::SCHEME) => Ok(uri.into()),
            _ => Err("targetUri must start with viking://".to_owned()),
        },
        "rankingWeights" | "resourceTypeWeights" | "categoryWeights" => {
            let Value::Object(map) = parsed else { return bad("an object of numbers") };
            let least = if name == "rankingWeights" { 0.0 } else { -1.0 };
            let mut out = Map::new();
            for (key, value) in map {
                if name == "rankingWeights" && !WEIGHTS.iter().any(|(known, _)| *known == key) {
                    return Err(format!("{name} has no weight {key}"));
                }
                let Some(n) = value.as_f64() else { return bad("an object of numbers") };
                out.insert(key, number(n.clamp(least, 2.0)));
            }
            Ok(Value::Object(out))
        }
        _ => Err(format!("unknown query config field: {name}")),
    }
}

/// Reads resource types from a list or a text with commas.
pub(crate) fn resource_types(given: &Value) -> Result<Vec<String>, String> {
    let words: Vec<String> = match given {
        Value::String(text) => {
            text.split([',', ' ', '\n']).map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
        }
        Value::Array(all) => all.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect(),
        _ => Vec::new(),
    };
    let unknown: Vec<&str> = words.iter().map(String::as_str).filter(|w| !RESOURCE_TYPES.contains(w)).collect();
    if unknown.is_empty() { Ok(words) } else { Err(format!("invalid resourceTypes: {}", unknown.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_go_request_session_claw_static_and_the_candidates_follow_the_limit() {
        let configs = QueryConfigs::open(None);
        let config = ContextConfig::default();
        let plain = configs.effective(&config, None, "main", &Map::new());
        assert_eq!((plain.recall_limit, plain.candidate_limit), (6, 24));
        assert_eq!(plain.sources["candidateLimit"], "default");
        configs.change(Scope::Claw, "main", "t", |p| drop(p.insert("recallLimit".into(), 9.into()))).unwrap();
        configs.change(Scope::Session, "ov:s", "t", |p| drop(p.insert("recallLimit".into(), 3.into()))).unwrap();
        let set = configs.effective(&config, Some("ov:s"), "main", &Map::new());
        assert_eq!((set.recall_limit, set.candidate_limit), (3, 20));
        assert_eq!(
            (&set.sources["recallLimit"], &set.sources["candidateLimit"]),
            (&json!("session"), &json!("session"))
        );
        assert_eq!(configs.effective(&config, None, "main", &Map::new()).recall_limit, 9);
        let request = Map::from_iter([("recallLimit".to_owned(), json!(999)), ("candidateLimit".to_owned(), json!(2))]);
        let asked = configs.effective(&config, Some("ov:s"), "main", &request);
        assert_eq!((asked.recall_limit, asked.candidate_limit), (50, 50));
        assert_eq!(asked.warnings, ["candidateLimit was raised to recallLimit"]);
    }

    #[test]
    fn values_are_checked_and_kept_in_a_file_that_others_may_change() {
        assert_eq!(checked("scoreThreshold", &json!("0.3")), Ok(json!(0.3)));
        assert_eq!(checked("recallLimit", &json!(99)), Ok(json!(50)));
        assert!(checked("targetUri", &json!("x")).unwrap_err().contains("viking://"));
        assert_eq!(checked("resourceTypes", &json!("user,session")), Err("invalid resourceTypes: session".to_owned()));
        assert!(checked("nope", &json!(1)).is_err());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.json");
        let configs = QueryConfigs::open(Some(path.clone()));
        configs.change(Scope::Claw, "main", "t", |p| drop(p.insert("recallLimit".into(), 2.into()))).unwrap();
        let again = QueryConfigs::open(Some(path));
        assert_eq!(again.effective(&ContextConfig::default(), None, "main", &Map::new()).recall_limit, 2);
    }
}
