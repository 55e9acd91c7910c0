//! Recall on labelled conversations that lie beside the checkout, where they do.

// A skipped test says so.
#![allow(clippy::print_stderr, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use toolyard_recall::evaluate::{Asked, Turn, evaluate, read_questions, read_turns};

/// The conversations, beside the checkout or beside the folder of worktrees.
fn conversations() -> Option<(Vec<Turn>, Vec<Asked>)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["../../../shared", "../../../../shared"].map(|up| here.join(up).join("data/memory/locomo"));
    let folder: PathBuf = folders.into_iter().find(|folder| folder.is_dir())?;
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    Some((read_turns(&read("turns.jsonl")).unwrap(), read_questions(&read("questions.jsonl")).unwrap()))
}

#[test]
fn most_evidence_is_among_the_first_turns_recalled() {
    let Some((turns, questions)) = conversations() else {
        eprintln!("skipped: there is no shared/data/memory/locomo beside the checkout");
        return;
    };
    let report = evaluate(&turns, &questions);
    let all = &report.all;
    assert!(all.recall5 >= 0.72 && all.recall10 >= 0.80 && all.recall20 >= 0.85 && all.mrr >= 0.59, "{all:?}");
    // No single conversation carries the others.
    let mut names: Vec<&str> = questions.iter().map(|asked| asked.conv.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let own: Vec<Asked> = questions.iter().filter(|asked| asked.conv == name).cloned().collect();
        let scores = evaluate(&turns, &own).all;
        assert!(scores.recall5 >= 0.64 && scores.mrr >= 0.54, "{name}: {scores:?}");
    }
}
