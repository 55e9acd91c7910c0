//! `toolyard eval memory`: how much of the evidence of labelled questions is among the first turns recalled.

use super::{Outcome, eval::lines};
use crate::{cli::Global, output};
use std::{path::Path, process::ExitCode};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_recall::evaluate::{ADVERSARIAL, Breakdown, LabelledQuestion, Report, Scores, Turn, evaluate};

pub(super) fn run(global: &Global, turns: &Path, questions: &Path) -> Outcome {
    let turns: Vec<Turn> = lines(turns)?;
    let questions: Vec<LabelledQuestion> = lines(questions)?;
    let report = evaluate(&turns, &questions);
    if report.recall.all.questions == 0 {
        return Err(Failure::new(ErrorCode::UsageError, "there is no question whose evidence is among the turns")
            .suggest("A question's \"conv\" and \"evidence\" must name turns of the first file."));
    }
    if global.json {
        output::json(&report);
    } else {
        show(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(report: &Report) {
    let head = ["", "questions", "recall@5", "recall@10", "recall@20", "MRR", "plain words @5", "@10", "@20"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let plain = &report.baseline;
    for (name, scores) in named(&report.recall) {
        let Scores { questions, recall5, recall10, recall20, mrr } = scores;
        let mut row = vec![name.to_owned(), questions.to_string()];
        row.extend([recall5, recall10, recall20, mrr].map(|value| format!("{value:.4}")));
        if let Some((_, plain)) = named(plain).find(|(other, _)| *other == name) {
            row.extend([plain.recall5, plain.recall10, plain.recall20].map(|value| format!("{value:.4}")));
        }
        rows.push(row);
    }
    output::data(&output::table(&rows));
    let within = |[low, high]: [f64; 2]| format!("{low:.3} to {high:.3}");
    let interval = &report.recall.interval;
    output::note(&format!(
        "without {ADVERSARIAL} questions, 95 of 100 samples lie at {} @5, {} @10, {} @20",
        within(interval.recall5),
        within(interval.recall10),
        within(interval.recall20)
    ));
    output::note("plain words: BM25 over each turn with its two neighbours");
    output::note(&format!(
        "{} turns; {} questions left out; p50 {:.2} ms, p99 {:.2} ms",
        report.turns, report.left_out, report.p50_ms, report.p99_ms
    ));
}

/// The rows of a breakdown. Without adversarial questions both first rows would be the same.
fn named(breakdown: &Breakdown) -> impl Iterator<Item = (&str, &Scores)> {
    let honest = breakdown
        .by_category
        .contains_key(ADVERSARIAL)
        .then_some(("without adversarial", &breakdown.without_adversarial));
    let categories = breakdown.by_category.iter().map(|(name, scores)| (name.as_str(), scores));
    std::iter::once(("all", &breakdown.all)).chain(honest).chain(categories)
}
