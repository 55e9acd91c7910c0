//! Query parameters and their precedence: request, then session, then claw (an agent's peer), then configuration.
//! `/ov-query-config` changes those of a session or a claw at run time.

use crate::{
    config::ContextConfig,
    store::{account::lock, disk},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, path::PathBuf, sync::Mutex, time::SystemTime};
use toolyard_recall::index::RankingWeights;

/// Default number of candidates per recalled memory.
const CANDIDATE_MULTIPLIER: usize = 4;
/// Default number of results of `ov_search`.
const OV_SEARCH_LIMIT: usize = 10;

/// What can be recalled, by the plugin's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceType {
    /// Documents.
    Resource,
    /// Memories about the user.
    User,
    /// The same memories, requested as an agent's; and skills.
    Agent,
    /// Conversations; used in traces only.
    Session,
    /// Archived conversations; used in traces only.
    Archive,
}

impl ResourceType {
    /// The types that a request may name.
    const RECALLED: [Self; 3] = [Self::Resource, Self::User, Self::Agent];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::User => "user",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Archive => "archive",
        }
    }

    /// Parses type names. The error lists unknown names.
    pub(crate) fn parse_all<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Vec<Self>, String> {
        let (mut types, mut unknown) = (Vec::new(), Vec::new());
        for word in words {
            match Self::RECALLED.into_iter().find(|known| known.as_str() == word) {
                Some(known) => types.push(known),
                None => unknown.push(word),
            }
        }
        if unknown.is_empty() { Ok(types) } else { Err(format!("invalid resourceTypes: {}", unknown.join(", "))) }
    }

    /// Parses type names separated by commas or spaces.
    pub(crate) fn parse_text(text: &str) -> Result<Vec<Self>, String> {
        Self::parse_all(text.split([',', ' ', '\n']).map(str::trim).filter(|word| !word.is_empty()))
    }
}

/// The ranking weights of memories.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Weights {
    base_score: f64,
    leaf: f64,
    event: f64,
    preference: f64,
    lexical_overlap_max: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { base_score: 1.0, leaf: 0.12, event: 0.10, preference: 0.08, lexical_overlap_max: 0.20 }
    }
}

impl Weights {
    fn field(&mut self, name: &str) -> Option<&mut f64> {
        Some(match name {
            "baseScore" => &mut self.base_score,
            "leaf" => &mut self.leaf,
            "event" => &mut self.event,
            "preference" => &mut self.preference,
            "lexicalOverlapMax" => &mut self.lexical_overlap_max,
            _ => return None,
        })
    }
}

/// Numbers by name.
type Numbers = BTreeMap<String, f64>;

/// The parameters that a request, a session or a claw sets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct QueryParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recall_limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) candidate_multiplier: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) candidate_limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score_threshold: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_injected_chars: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ov_search_limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recall_prefer_abstract: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_types: Option<Vec<ResourceType>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ranking_weights: Option<Numbers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_type_weights: Option<Numbers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) category_weights: Option<Numbers>,
}

/// Parses a JSON value from a command.
fn read<T: DeserializeOwned>(name: &str, text: &str, what: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|_| format!("{name} must be {what}"))
}

impl QueryParams {
    /// Sets a parameter from a command's text, clamped to its range.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let number = || read::<f64>(name, text, "a number");
        let count = |least: f64, most: f64| number().map(|n| Some(n.floor().clamp(least, most) as usize));
        match name {
            "recallLimit" => self.recall_limit = count(1.0, 50.0)?,
            "candidateMultiplier" => self.candidate_multiplier = count(1.0, 20.0)?,
            "candidateLimit" => self.candidate_limit = count(1.0, 200.0)?,
            "maxInjectedChars" => self.max_injected_chars = count(100.0, 50_000.0)?,
            "ovSearchLimit" => self.ov_search_limit = count(1.0, 100.0)?,
            "scoreThreshold" => self.score_threshold = Some(number()?.clamp(0.0, 1.0)),
            "recallPreferAbstract" => self.recall_prefer_abstract = Some(read(name, text, "true or false")?),
            "resourceTypes" => self.resource_types = Some(ResourceType::parse_text(text)?),
            "targetUri" if text.starts_with(crate::store::uri::SCHEME) => self.target_uri = Some(text.to_owned()),
            "targetUri" => return Err("targetUri must start with viking://".to_owned()),
            "rankingWeights" => {
                let weights = numbers(name, text, 0.0)?;
                if let Some(key) = weights.keys().find(|key| Weights::default().field(key).is_none()) {
                    return Err(format!("{name} has no weight {key}"));
                }
                self.ranking_weights = Some(weights);
            }
            "resourceTypeWeights" => self.resource_type_weights = Some(numbers(name, text, -1.0)?),
            "categoryWeights" => self.category_weights = Some(numbers(name, text, -1.0)?),
            _ => return Err(format!("unknown query config field: {name}")),
        }
        Ok(())
    }

    /// Unsets a parameter. An unknown name is ignored.
    pub(crate) fn unset(&mut self, name: &str) {
        match name {
            "recallLimit" => self.recall_limit = None,
            "candidateMultiplier" => self.candidate_multiplier = None,
            "candidateLimit" => self.candidate_limit = None,
            "maxInjectedChars" => self.max_injected_chars = None,
            "ovSearchLimit" => self.ov_search_limit = None,
            "scoreThreshold" => self.score_threshold = None,
            "recallPreferAbstract" => self.recall_prefer_abstract = None,
            "resourceTypes" => self.resource_types = None,
            "targetUri" => self.target_uri = None,
            "rankingWeights" => self.ranking_weights = None,
            "resourceTypeWeights" => self.resource_type_weights = None,
            "categoryWeights" => self.category_weights = None,
            _ => {}
        }
    }
}

fn numbers(name: &str, text: &str, least: f64) -> Result<Numbers, String> {
    let given: Numbers = read(name, text, "an object of numbers")?;
    Ok(given.into_iter().map(|(key, n)| (key, n.clamp(least, 2.0))).collect())
}

/// The effective parameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Effective {
    pub(crate) recall_limit: usize,
    pub(crate) candidate_multiplier: usize,
    pub(crate) candidate_limit: usize,
    pub(crate) score_threshold: f64,
    pub(crate) max_injected_chars: usize,
    #[serde(rename = "recallPreferAbstract")]
    pub(crate) prefer_abstract: bool,
    pub(crate) resource_types: Vec<ResourceType>,
    pub(crate) ov_search_limit: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target_uri: Option<String>,
    #[serde(rename = "rankingWeights")]
    pub(crate) weights: Weights,
    pub(crate) resource_type_weights: Numbers,
    pub(crate) category_weights: Numbers,
    /// The source of each value: `request`, `session`, `claw`, `static` (the configuration) or `default`.
    sources: BTreeMap<&'static str, &'static str>,
    pub(crate) warnings: Vec<String>,
}

impl Effective {
    /// The weights in the form of the index.
    pub(crate) fn ranking(&self) -> RankingWeights {
        RankingWeights {
            base_score: self.weights.base_score as f32,
            leaf: self.weights.leaf as f32,
            event: self.weights.event as f32,
            preference: self.weights.preference as f32,
            lexical_overlap_max: self.weights.lexical_overlap_max as f32,
            ..RankingWeights::default()
        }
    }
}

/// The parameters of all scopes, in order of precedence, and the source of each value.
struct Layers<'a> {
    layers: [(&'static str, &'a QueryParams); 3],
    sources: BTreeMap<&'static str, &'static str>,
}

impl Layers<'_> {
    fn find<T>(&self, of: impl Fn(&QueryParams) -> Option<T>) -> Option<(&'static str, T)> {
        self.layers.iter().find_map(|(from, params)| of(params).map(|value| (*from, value)))
    }

    /// The value with the highest precedence, or the fallback with its source.
    fn pick<T>(
        &mut self,
        name: &'static str,
        of: impl Fn(&QueryParams) -> Option<T>,
        (source, fallback): (&'static str, T),
    ) -> T {
        let (from, value) = self.find(of).unwrap_or((source, fallback));
        self.sources.insert(name, from);
        value
    }
}

/// The parameters set for one scope.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    params: QueryParams,
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

/// The scopes that can be changed at run time.
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

/// The parameters that were set, in memory and optionally in a file that others may edit.
pub(crate) struct QueryConfigs {
    path: Option<PathBuf>,
    state: Mutex<(File, Option<SystemTime>)>,
}

impl QueryConfigs {
    pub(crate) fn open(path: Option<PathBuf>) -> Self {
        Self { path, state: Mutex::default() }
    }

    /// Reads the file again if it changed.
    fn current(&self) -> File {
        let mut state = lock(&self.state);
        if let Some(path) = &self.path
            && let Ok(modified) = std::fs::metadata(path).and_then(|meta| meta.modified())
            && state.1 != Some(modified)
        {
            match disk::read_text(path).map_err(serde_json::Error::io).and_then(|text| serde_json::from_str(&text)) {
                Ok(file) => *state = (file, Some(modified)),
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "the query configuration cannot be read; the previous one stays in use");
                }
            }
        }
        state.0.clone()
    }

    /// The effective parameters of a request.
    pub(crate) fn effective(
        &self,
        config: &ContextConfig,
        session: Option<&str>,
        claw: &str,
        request: &QueryParams,
    ) -> Effective {
        let file = self.current();
        let none = QueryParams::default();
        let of = |entry: Option<&Entry>| entry.map_or(none.clone(), |entry| entry.params.clone());
        let (session, claw) = (of(session.and_then(|key| file.sessions.get(key))), of(file.claws.get(claw)));
        let layers = [("request", request), ("session", &session), ("claw", &claw)];
        let mut layers = Layers { layers, sources: BTreeMap::new() };
        let recall_limit = layers.pick("recallLimit", |p| p.recall_limit, ("static", config.recall_limit)).clamp(1, 50);
        let candidate_multiplier = layers
            .pick("candidateMultiplier", |p| p.candidate_multiplier, ("default", CANDIDATE_MULTIPLIER))
            .clamp(1, 20);
        let (candidate_limit, warnings) = candidates(&mut layers, recall_limit, candidate_multiplier);
        let mut types = config.recall_types();
        if config.recall_resources && !types.contains(&ResourceType::Resource) {
            types.push(ResourceType::Resource);
        }
        let target_uri = layers.find(|p| p.target_uri.clone());
        if let Some((from, _)) = &target_uri {
            layers.sources.insert("targetUri", from);
        }
        let mut weights = Weights::default();
        for (name, weight) in layers.pick("rankingWeights", |p| p.ranking_weights.clone(), ("default", Numbers::new()))
        {
            if let Some(field) = weights.field(&name) {
                *field = weight;
            }
        }
        Effective {
            recall_limit,
            candidate_multiplier,
            candidate_limit,
            score_threshold: layers
                .pick("scoreThreshold", |p| p.score_threshold, ("static", config.recall_score_threshold))
                .clamp(0.0, 1.0),
            max_injected_chars: layers
                .pick("maxInjectedChars", |p| p.max_injected_chars, ("static", config.recall_max_injected_chars))
                .clamp(100, 50_000),
            prefer_abstract: layers.pick(
                "recallPreferAbstract",
                |p| p.recall_prefer_abstract,
                ("static", config.recall_prefer_abstract),
            ),
            resource_types: layers.pick("resourceTypes", |p| p.resource_types.clone(), ("static", types)),
            ov_search_limit: layers
                .pick("ovSearchLimit", |p| p.ov_search_limit, ("default", OV_SEARCH_LIMIT))
                .clamp(1, 100),
            target_uri: target_uri.map(|(_, uri)| uri),
            weights,
            resource_type_weights: layers.find(|p| p.resource_type_weights.clone()).map(|f| f.1).unwrap_or_default(),
            category_weights: layers.find(|p| p.category_weights.clone()).map(|f| f.1).unwrap_or_default(),
            sources: layers.sources,
            warnings,
        }
    }

    /// Changes the parameters of a scope. The key is that of a session (`ov:<id>`) or a peer's id.
    pub(crate) fn change(
        &self,
        scope: Scope,
        key: &str,
        by: &str,
        change: impl FnOnce(&mut QueryParams),
    ) -> Result<QueryParams, String> {
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
        if params == QueryParams::default() {
            entries.remove(key);
        }
        if let Some(path) = &self.path {
            let text = serde_json::to_vec_pretty(&state.0).map_err(|e| e.to_string())?;
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
            }
            disk::write(path, &text, disk::Durability::Durable).map_err(|e| e.to_string())?;
            state.1 = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        }
        Ok(params)
    }
}

/// The number of candidates, with warnings.
fn candidates(layers: &mut Layers<'_>, recall_limit: usize, multiplier: usize) -> (usize, Vec<String>) {
    if let Some((from, given)) = layers.find(|p| p.candidate_limit) {
        layers.sources.insert("candidateLimit", from);
        let given = given.clamp(1, 200);
        let raised = (given < recall_limit).then(|| "candidateLimit was raised to recallLimit".to_owned());
        return (given.max(recall_limit), raised.into_iter().collect());
    }
    // A computed value has the same source as the parameter it is computed from.
    let from = layers.find(|p| p.recall_limit).or_else(|| layers.find(|p| p.candidate_multiplier));
    layers.sources.insert("candidateLimit", from.map_or("default", |(from, _)| from));
    ((recall_limit * multiplier).clamp(20, 200).max(recall_limit), Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(n: usize) -> impl FnOnce(&mut QueryParams) {
        move |params| params.recall_limit = Some(n)
    }

    #[test]
    fn layers_go_request_session_claw_static_and_the_candidates_follow_the_limit() {
        let configs = QueryConfigs::open(None);
        let config = ContextConfig::default();
        let nothing = QueryParams::default();
        let plain = configs.effective(&config, None, "main", &nothing);
        assert_eq!((plain.recall_limit, plain.candidate_limit), (6, 24));
        assert_eq!(plain.sources["candidateLimit"], "default");
        configs.change(Scope::Claw, "main", "t", limit(9)).unwrap();
        configs.change(Scope::Session, "ov:s", "t", limit(3)).unwrap();
        let set = configs.effective(&config, Some("ov:s"), "main", &nothing);
        assert_eq!((set.recall_limit, set.candidate_limit), (3, 20));
        assert_eq!((set.sources["recallLimit"], set.sources["candidateLimit"]), ("session", "session"));
        assert_eq!(configs.effective(&config, None, "main", &nothing).recall_limit, 9);
        let request = QueryParams { recall_limit: Some(999), candidate_limit: Some(2), ..QueryParams::default() };
        let asked = configs.effective(&config, Some("ov:s"), "main", &request);
        assert_eq!((asked.recall_limit, asked.candidate_limit), (50, 50));
        assert_eq!(asked.warnings, ["candidateLimit was raised to recallLimit"]);
    }

    #[test]
    fn values_are_checked_and_kept_in_a_file_that_others_may_change() {
        let mut params = QueryParams::default();
        params.set("scoreThreshold", "0.3").unwrap();
        params.set("recallLimit", "99").unwrap();
        params.set("rankingWeights", r#"{"leaf": 5}"#).unwrap();
        assert_eq!((params.score_threshold, params.recall_limit), (Some(0.3), Some(50)));
        assert_eq!(params.ranking_weights.as_ref().unwrap()["leaf"], 2.0);
        assert!(params.set("targetUri", "x").unwrap_err().contains("viking://"));
        assert_eq!(params.set("resourceTypes", "user,session"), Err("invalid resourceTypes: session".to_owned()));
        assert!(params.set("nope", "1").is_err() && params.set("recallLimit", "many").is_err());
        assert!(params.set("rankingWeights", r#"{"nope": 1}"#).is_err());
        params.unset("recallLimit");
        assert_eq!(params.recall_limit, None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.json");
        QueryConfigs::open(Some(path.clone())).change(Scope::Claw, "main", "t", limit(2)).unwrap();
        let again = QueryConfigs::open(Some(path));
        assert_eq!(again.effective(&ContextConfig::default(), None, "main", &QueryParams::default()).recall_limit, 2);
    }
}
