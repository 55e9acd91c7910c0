//! Tool Search: what is found, what never is, and why.

use crate::{core, definition, from};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use toolyard_catalog::{
    Policy, PolicyConfig, Registry, Snapshot, Subject, ToolEntry, ToolSource,
    search::{Field, Hit, Meaning, MeaningModel, SearchIndex, SearchOptions},
};

fn described(name: &str, description: &str) -> ToolEntry {
    core(name, "read-only", json!({"title":name,"description":description}))
}

fn snapshot(entries: Vec<ToolEntry>) -> Arc<Snapshot> {
    let mut registry = Registry::new();
    entries.into_iter().for_each(|entry| registry.add(entry).unwrap());
    registry.snapshot()
}

fn sample() -> SearchIndex {
    SearchIndex::build(&snapshot(vec![
        described("vault.createFile", "Create a new note with the given content."),
        described("vault.delete", "Move a note to the trash."),
        described("vault.searchText", "Search the text of all notes for a word or a regular expression."),
        described("weather_forecast", "Forecast for a city over the next days."),
        described("currency.convert", "Convert an amount from one currency to another."),
        described("tianqi", "查询城市的天气预报"),
        described("mausam", "किसी शहर का मौसम बताता है"),
        described("image_resize", "Change the width and height of a picture."),
        described("math.add", "Add two numbers."),
    ]))
}

fn names(hits: &[Hit]) -> Vec<&str> {
    hits.iter().map(|hit| hit.entry.name().as_str()).collect()
}

fn first(index: &SearchIndex, query: &str) -> Option<String> {
    index.search(query, &SearchOptions::limit(5), |_| true).first().map(|hit| hit.entry.name().to_string())
}

#[test]
fn questions_find_the_tool_that_answers_them() {
    let index = sample();
    for (query, expected) in [
        ("make a new note please", "vault.createFile"),
        ("I want to throw away a note", "vault.delete"),
        ("what will the weather be like in Oslo?", "weather_forecast"),
        ("how much is 20 euros in other currencies, converting them", "currency.convert"),
        ("resize a photo", "image_resize"),
        ("searching for a regular expression", "vault.searchText"),
        ("sum of numbers", "math.add"),
    ] {
        assert_eq!(first(&index, query).as_deref(), Some(expected), "{query}");
    }
}

#[test]
fn typos_and_other_scripts_find_something() {
    let index = sample();
    for (query, expected) in [
        ("wheather forcast", "weather_forecast"),
        ("curency convertion", "currency.convert"),
        ("我想知道北京的天气", "tianqi"),
        ("दिल्ली का मौसम कैसा है", "mausam"),
        ("मौसमी जानकारी", "mausam"),
    ] {
        assert_eq!(first(&index, query).as_deref(), Some(expected), "{query}");
    }
}

#[test]
fn a_query_without_a_usable_word_finds_nothing() {
    let index = sample();
    for query in ["", "   ", "?!", "the of and", "please can you help me", "zzzzqqq xxxyy", "\u{0}"] {
        let hits = index.search(query, &SearchOptions::limit(10), |_| true);
        assert!(hits.is_empty(), "{query:?}: {:?}", names(&hits));
    }
    assert!(index.search("note", &SearchOptions::limit(0), |_| true).is_empty());
    assert!(SearchIndex::build(&Snapshot::empty()).search("note", &SearchOptions::limit(9), |_| true).is_empty());
}

#[test]
fn exact_names_come_first_however_they_are_spelled() {
    let index = sample();
    for query in [
        "vault.delete",
        "VAULT.DELETE",
        "vault_delete",
        "openclaw:core:vault.delete",
        " vault.delete ",
        "create a new note with content, then call `vault.delete`",
    ] {
        let hits = index.search(query, &SearchOptions::limit(5), |_| true);
        assert_eq!(names(&hits).first(), Some(&"vault.delete"), "{query}");
        assert!(hits[0].exact);
    }
    let hits = index.search("mausam", &SearchOptions::limit(5), |_| true);
    assert!(hits[0].exact && hits[0].entry.name().as_str() == "mausam");
}

#[test]
fn what_the_policy_denies_is_never_found_not_even_by_name() {
    let index = sample();
    let config: PolicyConfig = serde_json::from_value(json!({"deny":["vault.*"]})).unwrap();
    let policy = Policy::compile(&config).unwrap();
    let effective = policy.effective(&Subject { agent: "main", session: None, door: "mcp", scopes: &[] });
    for query in ["vault.delete", "create a note", "note trash word search text"] {
        let hits = index.search(query, &SearchOptions::limit(50), |tool| !effective.decide(tool, None).is_denied());
        assert!(names(&hits).iter().all(|name| !name.starts_with("vault.")), "{query}: {:?}", names(&hits));
    }
}

#[test]
fn a_filter_that_hides_the_best_lets_the_next_best_through() {
    let entries = (0..200).map(|i| described(&format!("note_{i}"), "Handles a note.")).collect();
    let index = SearchIndex::build(&snapshot(entries));
    let only_last = |tool: &ToolEntry| tool.name().as_str().ends_with("99");
    let hits = index.search("note", &SearchOptions::limit(5), only_last);
    assert_eq!(names(&hits), ["note_199", "note_99"]);
}

#[toolyard_shows::shows("001-5-02")]
#[test]
fn parameters_count_for_trusted_tools_only() {
    let schema = json!({"type":"object","properties":{"latitude":{"type":"number","description":"Degrees north"}}});
    let tool = |name: &str, source| {
        ToolEntry::new(definition(name, "read-only", json!({"inputSchema":schema})), source).unwrap()
    };
    let index =
        SearchIndex::build(&snapshot(vec![tool("ours", ToolSource::core()), tool("theirs", ToolSource::mcp("m"))]));
    for query in ["latitude", "degrees north"] {
        assert_eq!(names(&index.search(query, &SearchOptions::limit(5), |_| true)), ["ours"], "{query}");
    }
}

#[test]
fn the_server_a_tool_comes_from_is_part_of_its_name() {
    let index = SearchIndex::build(&snapshot(vec![
        from(ToolSource::mcp("calendar"), "create_entry", "writes"),
        from(ToolSource::mcp("crm"), "create_entry", "writes"),
    ]));
    assert_eq!(index.search("calendar", &SearchOptions::limit(1), |_| true)[0].entry.id(), "mcp:calendar:create_entry");
}

#[test]
fn reasons_add_up_to_the_score() {
    let index = sample();
    let options = SearchOptions { limit: 5, explain: true };
    for query in ["create new note", "wheather in the city", "resize a photo"] {
        for hit in index.search(query, &options, |_| true) {
            let why = hit.explain.unwrap();
            let sum: f32 = why.words.iter().map(|word| word.score).sum::<f32>() + why.coverage + why.neighbours;
            assert!((sum - hit.score).abs() < 1e-3 * hit.score.max(1.0), "{query}: {sum} {}", hit.score);
        }
    }
    let hits = index.search("create new note", &options, |_| true);
    let why = hits[0].explain.as_ref().unwrap();
    assert!(why.words.iter().any(|word| word.term == "creat" && word.field == Field::Name && word.from.is_none()));
    let hits = index.search("photo", &options, |_| true);
    let word = &hits[0].explain.as_ref().unwrap().words[0];
    assert_eq!(word.from.as_deref(), Some("photo"));
}

#[test]
fn a_batch_gives_each_query_its_best_and_each_tool_once() {
    let index = sample();
    let found =
        index.search_batch(&["convert currency", "create a note", "make a new note"], &SearchOptions::limit(3), |_| {
            true
        });
    let names: Vec<&str> = found.iter().map(|(hit, _)| hit.entry.name().as_str()).collect();
    assert_eq!(names[..2], ["currency.convert", "vault.createFile"]);
    assert_eq!(found[1].1, [1, 2]);
    assert_eq!(names.len(), 3);
}

/// Knows two meanings: weather and everything else.
struct TwoMeanings;
struct IsWeather(Vec<bool>);

fn is_weather(text: &str) -> bool {
    ["umbrella", "forecast", "rain"].iter().any(|word| text.to_lowercase().contains(word))
}

impl MeaningModel for TwoMeanings {
    fn read(&self, texts: &[String]) -> Option<Box<dyn Meaning>> {
        Some(Box::new(IsWeather(texts.iter().map(|text| is_weather(text)).collect())))
    }
}

impl Meaning for IsWeather {
    fn similarities(&self, query: &str) -> Option<Vec<f32>> {
        Some(self.0.iter().map(|weather| if *weather == is_weather(query) { 0.9 } else { 0.1 }).collect())
    }
}

#[test]
fn meaning_finds_what_words_cannot() {
    let index = sample();
    assert_eq!(first(&index, "umbrella"), None, "without a model, words decide alone");
    let index = index.with_meaning(&TwoMeanings);
    let options = SearchOptions { limit: 3, explain: true };
    let hits = index.search("umbrella", &options, |_| true);
    assert_eq!(names(&hits), ["weather_forecast"], "what is far off in meaning and shares no word is not found");
    assert!((hits[0].explain.as_ref().unwrap().similarity.unwrap() - 0.9).abs() < 1e-6);
    assert_eq!(first(&index, "please help me with it"), None, "a query that says nothing finds nothing");
    assert_eq!(first(&index, "   "), None);
}

/// Answers what nobody can use.
struct Broken;

impl MeaningModel for Broken {
    fn read(&self, _: &[String]) -> Option<Box<dyn Meaning>> {
        Some(Box::new(Self))
    }
}

impl Meaning for Broken {
    fn similarities(&self, query: &str) -> Option<Vec<f32>> {
        match query.len() % 3 {
            0 => None,
            1 => Some(vec![f32::NAN; sample().snapshot().len()]),
            _ => Some(vec![1.0; query.len()]),
        }
    }
}

#[test]
fn a_broken_model_does_no_harm() {
    let index = sample().with_meaning(&Broken);
    for query in ["create a new note", "create a new notes", "create a new note??"] {
        assert_eq!(first(&index, query).as_deref(), Some("vault.createFile"), "{query}");
    }
}

#[toolyard_shows::shows("001-2-05")]
#[test]
fn the_index_belongs_to_its_snapshot() {
    let index = sample();
    assert_eq!(index.version(), index.snapshot().version());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_query_is_answered_in_order_and_within_the_limit(query in any::<String>(), limit in 0usize..70) {
        let index = sample();
        let hits = index.search(&query, &SearchOptions::limit(limit), |_| true);
        prop_assert!(hits.len() <= limit.min(50));
        prop_assert!(hits.iter().all(|hit| hit.score.is_finite()));
        let ranked: Vec<f32> = hits.iter().filter(|hit| !hit.exact).map(|hit| hit.score).collect();
        prop_assert!(ranked.windows(2).all(|pair| pair[0] >= pair[1]));
    }

    #[test]
    fn nothing_filtered_out_is_ever_returned(words in prop::collection::vec(prop::sample::select(vec!["note", "vault.delete", "weather", "convert", "天气", "add"]), 1..5), hidden in any::<u16>()) {
        let index = sample();
        let visible = |tool: &ToolEntry| index.snapshot().with_id(tool.id()).is_some_and(|at| hidden >> at & 1 == 0);
        for hit in index.search(&words.join(" "), &SearchOptions::limit(50), visible) {
            prop_assert!(visible(&hit.entry));
        }
    }
}
