//! Evaluates how well the index finds evidence, with labelled questions over conversations in the LoCoMo format.
//!
//! Recall at k is the share of a question's evidence turns among the first k turns recalled from its conversation. MRR
//! uses the reciprocal rank of the first evidence turn. Questions whose evidence is not among the turns are left out.
//! Only this module reads the clock, to measure latency.

mod baseline;
mod tally;

pub use tally::{Breakdown, Interval, Scores};

use crate::index::{Document, Filter, Kind, Question, RecallIndex};
use baseline::Baseline;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};
use tally::{CategoryTotals, round};
use toolyard_text::dates;

/// Number of turns recalled for each question.
const DEPTH: usize = tally::DEPTHS[2];
/// Name of the category whose questions name the wrong speaker.
pub const ADVERSARIAL: &str = "adversarial";

/// One line of `turns.jsonl`.
#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    /// Id of its conversation.
    pub conv: String,
    /// Number of the session within the conversation.
    #[serde(default)]
    pub session: u64,
    /// When the session took place, in words or as a timestamp.
    #[serde(default)]
    pub session_time: Option<String>,
    /// Its id, unique in its conversation.
    pub id: String,
    /// Name of the speaker.
    #[serde(default)]
    pub speaker: Option<String>,
    /// The text of the turn.
    pub text: String,
    /// Caption of an image attached to the turn.
    #[serde(default)]
    pub image_caption: Option<String>,
}

/// One line of `questions.jsonl`.
#[derive(Debug, Clone, Deserialize)]
pub struct LabelledQuestion {
    /// Id of the conversation that the question is about.
    pub conv: String,
    /// Id of the question.
    #[serde(default)]
    pub qid: String,
    /// Category of the question, by number.
    #[serde(default)]
    pub category: Option<u32>,
    /// Category of the question, by name.
    #[serde(default)]
    pub category_name: Option<String>,
    /// The question text.
    pub question: String,
    /// Ids of the turns that answer it.
    #[serde(default)]
    pub evidence: Vec<String>,
}

impl LabelledQuestion {
    /// The category's name, its number where it has no name, or `none`.
    pub fn category(&self) -> String {
        let number = || self.category.map(|number| number.to_string());
        self.category_name.clone().or_else(number).unwrap_or_else(|| "none".to_owned())
    }
}

/// The result of an evaluation.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Scores of the recall index.
    #[serde(flatten)]
    pub recall: Breakdown,
    /// Scores of the BM25 baseline on the same questions.
    pub baseline: Breakdown,
    /// Number of turns indexed.
    pub turns: usize,
    /// Number of questions left out because none of their evidence is among the turns.
    pub left_out: usize,
    /// Time taken to build the index.
    pub index_ms: f64,
    /// Median latency of a question.
    pub p50_ms: f64,
    /// 99th percentile of the latency of a question.
    pub p99_ms: f64,
}

/// A line that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("{file}, line {line}: {why}")]
pub struct BadLine {
    /// The file it is in: `turns` or `questions`.
    pub file: &'static str,
    /// Line number, counted from 1.
    pub line: usize,
    /// The parse error.
    pub why: serde_json::Error,
}

/// Reads turns, one JSON object a line.
pub fn read_turns(text: &str) -> Result<Vec<Turn>, BadLine> {
    read_lines("turns", text)
}

/// Reads questions, one JSON object a line.
pub fn read_questions(text: &str) -> Result<Vec<LabelledQuestion>, BadLine> {
    read_lines("questions", text)
}

fn read_lines<T: serde::de::DeserializeOwned>(file: &'static str, text: &str) -> Result<Vec<T>, BadLine> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| serde_json::from_str(line).map_err(|why| BadLine { file, line: at + 1, why })).collect()
}

/// Indexes turns as a conversation store does: the conversation is the owner, and each of its sessions is a group.
pub fn index_turns(turns: &[Turn]) -> RecallIndex {
    let mut index = RecallIndex::new();
    for (position, turn) in turns.iter().enumerate() {
        let mut document = Document::new(turn_id(&turn.conv, &turn.id), turn.text.as_str());
        document.kind = Kind::Turn;
        document.owner = turn.conv.clone();
        document.speaker = turn.speaker.clone();
        document.also = turn.image_caption.clone().unwrap_or_default();
        document.time_ms = turn.session_time.as_deref().and_then(time_of);
        // A window of neighbouring turns must not cross the end of a session.
        document.group = Some(format!("{}/{}", turn.conv, turn.session));
        document.position = position as u64;
        index.add(&document);
    }
    index
}

/// Runs every question that has evidence, against the index and the baseline.
pub fn evaluate(turns: &[Turn], questions: &[LabelledQuestion]) -> Report {
    let started = Instant::now();
    let index = index_turns(turns);
    let index_ms = started.elapsed().as_secs_f64() * 1e3;
    let plain = Baseline::new(turns);
    let known: HashSet<String> = turns.iter().map(|turn| turn_id(&turn.conv, &turn.id)).collect();
    let last = last_times(turns);
    let (mut recall, mut baseline) = (CategoryTotals::default(), CategoryTotals::default());
    let mut times = Vec::new();
    let mut left_out = 0;
    for asked in questions {
        let evidence: HashSet<String> =
            asked.evidence.iter().map(|id| turn_id(&asked.conv, id)).filter(|id| known.contains(id)).collect();
        if evidence.is_empty() {
            left_out += 1;
            continue;
        }
        let start = Instant::now();
        let filter = Filter { owners: vec![asked.conv.clone()], ..Filter::default() };
        let now_ms = last.get(asked.conv.as_str()).copied();
        let hits = index.search(&Question { now_ms, filter, ..Question::new(&asked.question, DEPTH) });
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let places = |ids: Vec<&str>| -> Vec<usize> {
            ids.iter().enumerate().filter(|(_, id)| evidence.contains(**id)).map(|(place, _)| place).collect()
        };
        let category = asked.category();
        recall.add(&category, &places(hits.iter().map(|hit| hit.id.as_str()).collect()), evidence.len());
        baseline.add(&category, &places(plain.ask(&asked.conv, &asked.question, DEPTH)), evidence.len());
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get(((times.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
    Report {
        recall: recall.breakdown(),
        baseline: baseline.breakdown(),
        turns: turns.len(),
        left_out,
        index_ms: round(index_ms),
        p50_ms: round(at(0.5)),
        p99_ms: round(at(0.99)),
    }
}

/// The id of a turn in the index of [`index_turns`].
pub fn turn_id(conversation: &str, turn: &str) -> String {
    format!("{conversation}/{turn}")
}

/// When each conversation ended. Relative dates in its questions are resolved against this time.
pub fn last_times(turns: &[Turn]) -> HashMap<&str, i64> {
    let mut last: HashMap<&str, i64> = HashMap::new();
    for turn in turns {
        if let Some(time) = turn.session_time.as_deref().and_then(time_of) {
            let latest = last.entry(&turn.conv).or_insert(time);
            *latest = time.max(*latest);
        }
    }
    last
}

/// "1:56 pm on 8 May, 2023", "29.12.2023, 00:51:12", or a timestamp.
fn time_of(text: &str) -> Option<i64> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_millisecond());
    }
    let day = dates::spans(text, None).first()?.first();
    let minutes = clock_of(text).unwrap_or(0);
    Some(i64::from(dates::day_number(day)) * 86_400_000 + minutes * 60_000)
}

/// Minutes after midnight of the first time of day in a text.
fn clock_of(text: &str) -> Option<i64> {
    let (before, after) = text.split_once(':')?;
    let hours: i64 = before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let minutes: i64 = after.get(..2)?.parse().ok()?;
    let lower = after.to_ascii_lowercase();
    let hours = match (lower.contains("am"), lower.contains("pm")) {
        (false, false) => hours,
        (_, afternoon) => hours.rem_euclid(12) + if afternoon { 12 } else { 0 },
    };
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_time_is_read() {
        let time = time_of("1:56 pm on 8 May, 2023").unwrap();
        assert_eq!(jiff::Timestamp::from_millisecond(time).unwrap().to_string(), "2023-05-08T13:56:00Z");
        let dotted = time_of("29.12.2023, 00:51:12").unwrap();
        assert_eq!(jiff::Timestamp::from_millisecond(dotted).unwrap().to_string(), "2023-12-29T00:51:00Z");
        let midnight = time_of("12:09 am on 13 September, 2023").unwrap();
        assert_eq!(jiff::Timestamp::from_millisecond(midnight).unwrap().to_string(), "2023-09-13T00:09:00Z");
    }

    #[test]
    fn scores_are_as_the_measure_says() {
        let turns = read_turns(concat!(
            r#"{"conv":"c","session":1,"session_time":"1:56 pm on 8 May, 2023","id":"D1:1","speaker":"Ann","text":"I adopted a grey parrot."}"#,
            "\n",
            r#"{"conv":"c","session":1,"id":"D1:2","speaker":"Bob","text":"The weather is fine."}"#,
            "\n\n",
            r#"{"conv":"d","session":1,"id":"D1:1","speaker":"Cid","text":"My parrot is green."}"#,
        ))
        .unwrap();
        let questions = read_questions(concat!(
            r#"{"conv":"c","qid":"1","category_name":"single_hop","question":"Which parrot did Ann adopt?","answer":"grey","evidence":["D1:1"]}"#,
            "\n",
            r#"{"conv":"c","qid":"2","category":4,"question":"Anything?","evidence":["D9:9"]}"#,
        ))
        .unwrap();
        let report = evaluate(&turns, &questions);
        assert_eq!((report.recall.all.questions, report.left_out, report.turns), (1, 1, 3));
        assert_eq!((report.recall.all.recall5, report.recall.all.mrr), (1.0, 1.0));
        assert_eq!(report.recall.by_category["single_hop"].recall20, 1.0);
        assert_eq!((report.baseline.all.recall5, report.recall.without_adversarial.questions), (1.0, 1));
        assert_eq!(report.recall.interval.recall5, [1.0, 1.0]);
        assert_eq!(read_turns("{}\n").unwrap_err().line, 1);
    }

    #[test]
    fn an_empty_set_scores_zero() {
        let report = evaluate(&[], &[]);
        assert!(report.recall.all.recall5 == 0.0 && report.recall.all.recall5.is_sign_positive());
        assert_eq!((report.recall.all.questions, report.turns, report.left_out), (0, 0, 0));
    }
}
