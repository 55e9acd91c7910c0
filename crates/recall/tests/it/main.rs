//! Recall on a small labelled data set made for this test: two conversations of 72 turns each, with 35 questions whose
//! evidence is known. Most turns are small talk. `toolyard-bench memory-quality` measures the large data set, which is
//! not shipped.

#![allow(clippy::unwrap_used)]

use toolyard_recall::evaluate::{LabelledQuestion, evaluate, read_questions, read_turns};

const CONVERSATIONS: [&str; 2] = ["mara-tomas", "noor-felix"];

#[test]
fn most_evidence_is_among_the_first_turns_recalled() {
    let turns = read_turns(include_str!("labelled/turns.jsonl")).unwrap();
    let questions = read_questions(include_str!("labelled/questions.jsonl")).unwrap();
    let report = evaluate(&turns, &questions);
    let all = &report.recall.all;
    assert_eq!((turns.len(), all.questions), (144, 35), "{report:?}");
    assert!(all.recall5 >= 0.86 && all.recall10 >= 0.91 && all.recall20 >= 0.95 && all.mrr >= 0.88, "{all:?}");
    // Each conversation must reach the thresholds by itself, so that one cannot hide the other.
    for name in CONVERSATIONS {
        let own: Vec<LabelledQuestion> = questions.iter().filter(|asked| asked.conv == name).cloned().collect();
        let scores = evaluate(&turns, &own).recall.all;
        assert!(scores.recall5 >= 0.83 && scores.mrr >= 0.85, "{name}: {scores:?}");
    }
}

#[test]
fn a_person_who_asks_about_themselves_is_answered_from_what_they_said() {
    let turns = read_turns(include_str!("first_person/turns.jsonl")).unwrap();
    let questions = read_questions(include_str!("first_person/questions.jsonl")).unwrap();
    let report = evaluate(&turns, &questions);
    let (all, plain) = (&report.recall.all, &report.baseline.all);
    assert_eq!((turns.len(), all.questions), (50, 24), "{report:?}");
    assert!(all.recall5 >= 0.9 && all.recall10 >= 0.95, "{report:?}");
    assert!(all.recall5 > plain.recall5, "plain words find as much: {report:?}");
}
