//! `toolyard eval memory`: how much of the evidence of labelled questions is among the first turns recalled.

use super::{Outcome, eval::lines};
use crate::{cli::Global, output};
use std::{path::Path, process::ExitCode};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_recall::evaluate::{Asked, Report, Scores, Turn, evaluate};

pub(super) fn run(global: &Global, turns: &Path, questions: &Path) -> Outcome {
    let turns: Vec<Turn> = lines(turns)?;
    let questions: Vec<Asked> = lines(questions)?;
    let report = evaluate(&turns, &questions);
    if report.all.questions == 0 {
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
    let mut rows = vec![["", "questions", "recall@5", "recall@10", "recall@20", "MRR"].map(str::to_owned).to_vec()];
    let all = std::iter::once(("all", &report.all));
    for (name, scores) in all.chain(report.by_category.iter().map(|(name, scores)| (name.as_str(), scores))) {
        let Scores { questions, recall5, recall10, recall20, mrr } = scores;
        let mut row = vec![name.to_owned(), questions.to_string()];
        row.extend([recall5, recall10, recall20, mrr].map(|value| format!("{value:.4}")));
        rows.push(row);
    }
    output::data(&output::table(&rows));
    output::note(&format!(
        "{} turns; {} questions left out; p50 {:.2} ms, p99 {:.2} ms",
        report.turns, report.left_out, report.p50_ms, report.p99_ms
    ));
}
