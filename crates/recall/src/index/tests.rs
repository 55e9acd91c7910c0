//! Behaviour of the index on small collections.

use super::*;
use proptest::prelude::*;

fn index(texts: &[(&str, &str)]) -> RecallIndex {
    let mut index = RecallIndex::new();
    for (id, text) in texts {
        assert!(index.add(&Document::new(*id, *text)));
    }
    index
}

fn ids(index: &RecallIndex, question: &Question<'_>) -> Vec<String> {
    index.search(question).into_iter().map(|hit| hit.id).collect()
}

#[test]
fn words_and_meaning_both_find() {
    let index = index(&[
        ("tea", "Anna prefers tea in the morning."),
        ("build", "The build runs on two cores."),
        ("dog", "Her puppy is called Rex."),
    ]);
    assert_eq!(ids(&index, &Question::new("morning tea", 1)), ["tea"]);
    assert_eq!(ids(&index, &Question::new("What is the name of the dog?", 1)), ["dog"]);
}

#[test]
fn a_score_tells_chance_from_certainty() {
    let index = index(&[
        ("a", "用户偏好使用 TypeScript 编写插件"),
        ("b", "The deployment key of the staging cluster expires in March."),
        ("c", "Lunch is at noon."),
    ]);
    let hits = index.search(&Question::new("The deployment key of the staging cluster expires in March.", 3));
    assert_eq!(hits[0].id, "b");
    assert!(hits[0].score >= 0.85, "{hits:?}");
    assert!(hits.iter().skip(1).all(|hit| hit.score < 0.15), "{hits:?}");
    let chance = index.search(&Question::new("quantum chromodynamics", 3));
    assert!(chance.iter().all(|hit| hit.score < 0.15), "{chance:?}");
}

#[test]
fn another_of_the_same_id_replaces_and_a_removed_one_is_gone() {
    let mut index = index(&[("a", "green apples"), ("b", "red cherries")]);
    index.add(&Document::new("a", "yellow bananas"));
    assert_eq!(index.len(), 2);
    assert_eq!(ids(&index, &Question::new("bananas", 1)), ["a"]);
    assert!(index.search(&Question::new("green apples", 5)).iter().all(|hit| hit.parts.words == 0.0));
    assert!(index.remove("a"));
    assert!(!index.remove("a"));
    assert!(!ids(&index, &Question::new("bananas", 5)).contains(&"a".to_owned()));
}

#[test]
fn filters_hold_for_every_answer() {
    let mut index = RecallIndex::new();
    for (id, owner, scope, kind, time) in [
        (
            "viking://user/ann/memories/events/1.md",
            "acme/ann",
            "viking://user/ann/memories/events",
            Kind::Memory,
            1_000,
        ),
        (
            "viking://user/anna/memories/events/1.md",
            "acme/anna",
            "viking://user/anna/memories/events",
            Kind::Memory,
            2_000,
        ),
        ("viking://resources/x/a.md", "acme", "viking://resources/x", Kind::Resource, 3_000),
    ] {
        let mut document = Document::new(id, "the harvest of apples");
        (document.owner, document.scope, document.kind, document.time_ms) =
            (owner.to_owned(), scope.to_owned(), kind, Some(time));
        index.add(&document);
    }
    let ask = |filter: Filter| ids(&index, &Question { filter, ..Question::new("apples", 10) });
    assert_eq!(ask(Filter::default()).len(), 3);
    assert_eq!(
        ask(Filter { owners: vec!["acme/ann".to_owned()], ..Filter::default() }),
        ["viking://user/ann/memories/events/1.md"]
    );
    for scope in ["viking://user/ann", "viking://user/ann/", "viking://user/ann/memories/events/1.md"] {
        assert_eq!(
            ask(Filter { scopes: vec![scope.to_owned()], ..Filter::default() }),
            ["viking://user/ann/memories/events/1.md"],
            "{scope}"
        );
    }
    assert_eq!(ask(Filter { scopes: vec!["viking://".to_owned()], ..Filter::default() }).len(), 3);
    assert_eq!(ask(Filter { kinds: vec![Kind::Resource], ..Filter::default() }), ["viking://resources/x/a.md"]);
    assert_eq!(
        ask(Filter { since_ms: Some(1_500), until_ms: Some(2_500), ..Filter::default() }),
        ["viking://user/anna/memories/events/1.md"]
    );
    assert_eq!(ask(Filter { owners: vec!["nobody".to_owned()], ..Filter::default() }), Vec::<String>::new());
}

fn turn(id: &str, position: u64, speaker: &str, text: &str, day: &str) -> Document {
    let mut document = Document::new(id, text);
    document.kind = Kind::Turn;
    document.group = Some("talk".to_owned());
    document.position = position;
    document.speaker = Some(speaker.to_owned());
    document.time_ms = day.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond());
    document
}

#[test]
fn a_neighbour_in_a_conversation_helps() {
    let mut index = RecallIndex::new();
    for (at, (speaker, text)) in [
        ("Mel", "The train was late again."),
        ("Mel", "Which instrument do you play?"),
        ("Caro", "The clarinet, since I was nine."),
        ("Mel", "Nice. And the garden?"),
    ]
    .into_iter()
    .enumerate()
    {
        index.add(&turn(&format!("t{at}"), at as u64, speaker, text, "2023-05-08T10:00:00Z"));
    }
    let found = ids(&index, &Question::new("What instrument does Caro play?", 2));
    assert!(found.contains(&"t2".to_owned()), "{found:?}");
}

#[test]
fn a_name_that_is_also_a_function_word_needs_its_capital() {
    let mut index = RecallIndex::new();
    let day = "2024-03-01T10:00:00Z";
    index.add(&turn("w", 0, "Will", "I keep a boat in the harbour.", day));
    index.add(&turn("a", 1, "Ana", "My boat needs paint.", day));
    let speaker = |question: &str| {
        let hits = index.search(&Question::new(question, 2));
        hits.iter().find(|hit| hit.id == "w").map(|hit| hit.parts.speaker).unwrap()
    };
    assert!(speaker("Where does Will keep the boat?") > 0.0);
    assert!(speaker("What is Will's boat called?") > 0.0);
    assert_eq!(speaker("What will happen to the boat?"), 0.0);
    assert_eq!(speaker("Will the boat be painted?"), 0.0);
}

#[test]
fn a_turn_in_a_session_about_the_question_comes_before_the_same_turn_elsewhere() {
    let mut index = RecallIndex::new();
    let day = "2024-03-01T10:00:00Z";
    let about =
        ["I adopted a parrot.", "The parrot talks all day.", "Parrots eat seeds.", "Fine.", "Fine.", "Good idea."];
    let other = ["The tax office wrote.", "I paid the rent.", "It was late.", "Fine.", "Fine.", "Good idea."];
    for (session, texts) in [("x", other), ("y", about)] {
        for (at, text) in texts.iter().enumerate() {
            let document = turn(&format!("{session}{at}"), at as u64, "Ana", text, day);
            index.add(&Document { group: Some(session.to_owned()), ..document });
        }
    }
    let hits = index.search(&Question::new("Was the parrot a good idea?", 12));
    let rank = |id: &str| hits.iter().find(|hit| hit.id == id).map(|hit| hit.rank).unwrap();
    // Both turns have the same text and the same neighbours, so only their sessions differ.
    assert!(rank("y5") > rank("x5") + 0.05, "{hits:?}");
}

#[test]
fn a_named_day_is_preferred() {
    let mut index = RecallIndex::new();
    index.add(&turn("may", 0, "Ann", "I had lunch with my aunt.", "2023-05-08T10:00:00Z"));
    index.add(&turn("june", 50, "Ann", "I had lunch with my aunt.", "2023-06-20T10:00:00Z"));
    assert_eq!(ids(&index, &Question::new("Who did Ann have lunch with in June 2023?", 1)), ["june"]);
    let now_ms = "2023-05-15T00:00:00Z".parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond());
    let hits = index.search(&Question { now_ms, ..Question::new("Who did Ann have lunch with last week?", 1) });
    assert_eq!(hits[0].id, "may");
    assert!(hits[0].parts.day > 0.0 && hits[0].parts.speaker > 0.0);
}

proptest! {
    #[test]
    fn an_index_that_was_changed_answers_like_one_made_at_once(
        steps in prop::collection::vec((0u8..40, prop::sample::select(vec!["red apples", "green pears in May", "", "blue sky yesterday", "猫が好き", "apples and pears"]), any::<bool>()), 1..120),
    ) {
        let mut changed = RecallIndex::new();
        let mut texts: std::collections::BTreeMap<String, &str> = std::collections::BTreeMap::new();
        for (at, text, add) in steps {
            let id = format!("d{at}");
            if add {
                changed.add(&Document::new(id.clone(), text));
                texts.insert(id, text);
            } else {
                prop_assert_eq!(changed.remove(&id), texts.remove(&id).is_some());
            }
        }
        prop_assert_eq!(changed.len(), texts.len());
        changed.pack();
        let mut fresh = RecallIndex::new();
        texts.iter().for_each(|(id, text)| { fresh.add(&Document::new(id.as_str(), *text)); });
        for question in ["apples", "pears in May", "猫", "sky"] {
            let sorted = |index: &RecallIndex| {
                let mut hits: Vec<(String, i32)> = index.search(&Question::new(question, 100)).into_iter().map(|hit| (hit.id, (hit.score * 1e4) as i32)).collect();
                hits.sort();
                hits
            };
            prop_assert_eq!(sorted(&changed), sorted(&fresh));
        }
    }
}
