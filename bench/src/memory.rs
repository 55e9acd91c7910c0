//! Recall: the latency of a question over many memories, and the share of evidence found in labelled conversations.

use crate::{
    Setup,
    report::{Good, Report},
    stats::{median, quantile},
    usage::{Whose, cpu_micros},
};
use anyhow::{Context, Result, anyhow};
use std::{collections::BTreeSet, time::Instant};
use toolyard_recall::{
    evaluate::{LabelledQuestion, evaluate, read_questions, read_turns},
    index::{Category, Document, Filter, Question, RecallIndex},
};

/// Number of memories.
const MEMORIES: usize = 100_000;
/// Number of users; the first user owns half of the memories.
const USERS: usize = 50;
/// Questions measured per round.
const QUESTIONS: usize = 100;

const PEOPLE: [&str; 12] =
    ["Anna", "Boris", "Chen", "Dalia", "Emre", "Farah", "Goran", "Hana", "Ivo", "Jamal", "Kaya", "Luis"];
const VERBS: [&str; 12] = [
    "prefers",
    "went to",
    "bought",
    "is learning",
    "finished",
    "plans",
    "dislikes",
    "visited",
    "fixed",
    "sold",
    "met about",
    "wrote about",
];
const THINGS: [&str; 40] = [
    "the old bicycle",
    "a pottery class",
    "green tea",
    "the staging cluster",
    "a violin",
    "the mountain hut",
    "dark mode",
    "a garden of herbs",
    "the quarterly report",
    "a second monitor",
    "the harbour festival",
    "sourdough bread",
    "the backup script",
    "a sailing course",
    "the museum of glass",
    "a novel about trains",
    "the payment service",
    "a puppy from the shelter",
    "the chess club",
    "an electric kettle",
    "the linker error",
    "a winter coat",
    "the choir rehearsal",
    "a podcast on history",
    "the budget sheet",
    "a balcony tomato",
    "the night train",
    "a keyboard layout",
    "the tax office",
    "a film by the river",
    "the search index",
    "a yoga retreat",
    "the broken lamp",
    "a map of the islands",
    "the release notes",
    "a language exchange",
    "the parking permit",
    "a cake for the party",
    "the data migration",
    "a telescope",
];
const PLACES: [&str; 16] = [
    "in Lisbon",
    "last Friday",
    "with two colleagues",
    "before breakfast",
    "near the station",
    "in May 2023",
    "for the third time",
    "at home",
    "after the meeting",
    "on a rainy day",
    "with the whole family",
    "during the holidays",
    "in the new office",
    "by the sea",
    "over the weekend",
    "in secret",
];

/// A deterministic memory; the generated memories are as varied as those of a real store.
fn memory(number: usize) -> Document {
    let mixed = number.wrapping_mul(2_654_435_761) >> 7;
    let (who, verb) = (PEOPLE[mixed % 12], VERBS[mixed / 12 % 12]);
    let (what, place) = (THINGS[mixed / 144 % 40], PLACES[mixed / 5_760 % 16]);
    let (other, more) = (PEOPLE[mixed / 7 % 12], THINGS[mixed / 31 % 40]);
    let text =
        format!("{who} {verb} {what} {place}. {other} said it reminded them of {more} (note {}).", number % 9_973);
    let user = if number.is_multiple_of(2) { 0 } else { number % USERS };
    let mut document = Document::new(format!("viking://user/u{user}/memories/events/m{number}.md"), text);
    document.owner = format!("default/u{user}");
    document.scope = format!("viking://user/u{user}/memories/events");
    document.category = Some(if mixed.is_multiple_of(3) { Category::Preferences } else { Category::Events });
    document.time_ms = Some(1_680_000_000_000 + (number as i64 % 700) * 86_400_000);
    document
}

fn question(number: usize) -> String {
    let (who, what) = (PEOPLE[number * 5 % 12], THINGS[number * 11 % 40]);
    match number % 4 {
        0 => format!("What does {who} think about {what}?"),
        1 => format!("When did {who} last mention {what}?"),
        2 => what.to_owned(),
        _ => format!(
            "Which things did {who} and {} do {} that had to do with {what}?",
            PEOPLE[number * 7 % 12],
            PLACES[number % 16]
        ),
    }
}

/// Questions of one user who owns half of all memories, and of all users.
pub(crate) fn recall(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("memory-recall", "p50Ms", Good::AtMost, 5.0)
        .also("p50MsOneUser", Good::AtMost, 5.0)
        .also("addCpuMicros", Good::AtMost, 50.0);
    let start = cpu_micros(Whose::Ours)?;
    let mut index = RecallIndex::new();
    for number in 0..MEMORIES {
        if !index.add(&memory(number)) {
            return Err(anyhow!("the index is full"));
        }
    }
    report = report.figure("addCpuMicros", (cpu_micros(Whose::Ours)? - start) / MEMORIES as f64);
    let one = Filter { owners: vec!["default/u0".to_owned()], ..Filter::default() };
    for (suffix, filter) in [("", Filter::default()), ("OneUser", one)] {
        let mut times = Vec::new();
        for number in 0..setup.rounds * QUESTIONS {
            let text = question(number);
            let asked = Question { now_ms: Some(1_740_000_000_000), filter: filter.clone(), ..Question::new(&text, 6) };
            let start = Instant::now();
            let hits = index.search(&asked);
            times.push(start.elapsed().as_secs_f64() * 1e3);
            if hits.is_empty() {
                return Err(anyhow!("nothing was recalled for {text:?}"));
            }
        }
        report = report
            .figure(&format!("p50Ms{suffix}"), median(&times))
            .figure(&format!("p99Ms{suffix}"), quantile(&times, 0.99));
    }
    Ok(report)
}

/// Share of evidence among the first five, ten and twenty turns.
pub(crate) fn quality(setup: &Setup) -> Result<Report> {
    // The last two targets are for the worst conversation, so that no conversation can hide another.
    let report = Report::new("memory-quality", "recall5", Good::AtLeast, 0.72)
        .also("recall10", Good::AtLeast, 0.80)
        .also("recall20", Good::AtLeast, 0.85)
        .also("mrr", Good::AtLeast, 0.59)
        .also("worstRecall5", Good::AtLeast, 0.64)
        .also("worstMrr", Good::AtLeast, 0.54);
    let Some(folder) = &setup.data else {
        return Ok(report.skipped("--data names no folder with turns.jsonl and questions.jsonl".to_owned()));
    };
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name)).with_context(|| folder.join(name).display().to_string())
    };
    let (turns, questions) = (read_turns(&read("turns.jsonl")?)?, read_questions(&read("questions.jsonl")?)?);
    let found = evaluate(&turns, &questions);
    let names: BTreeSet<&str> = questions.iter().map(|asked| asked.conv.as_str()).collect();
    let (mut worst_recall5, mut worst_mrr) = (1.0_f64, 1.0_f64);
    for name in names {
        let own: Vec<LabelledQuestion> = questions.iter().filter(|asked| asked.conv == name).cloned().collect();
        let scores = evaluate(&turns, &own).recall.all;
        (worst_recall5, worst_mrr) = (worst_recall5.min(scores.recall5), worst_mrr.min(scores.mrr));
    }
    Ok(report
        .figure("worstRecall5", worst_recall5)
        .figure("worstMrr", worst_mrr)
        .figure("recall5", found.recall.all.recall5)
        .figure("recall10", found.recall.all.recall10)
        .figure("recall20", found.recall.all.recall20)
        .figure("mrr", found.recall.all.mrr)
        .figure("recall5WithoutAdversarial", found.recall.without_adversarial.recall5)
        .figure("recall10WithoutAdversarial", found.recall.without_adversarial.recall10)
        .figure("recall20WithoutAdversarial", found.recall.without_adversarial.recall20)
        .figure("recall5PlainWords", found.baseline.without_adversarial.recall5)
        .figure("recall10PlainWords", found.baseline.without_adversarial.recall10)
        .figure("recall20PlainWords", found.baseline.without_adversarial.recall20)
        .figure("p50Ms", found.p50_ms)
        .figure("p99Ms", found.p99_ms)
        .value("byCategory", serde_json::to_value(&found.recall.by_category)?))
}
