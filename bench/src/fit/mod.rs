//! `fit-memory`: fits the weights for the recall of turns (`crates/recall/src/index/fitted.rs`), measures them on
//! conversations that were left out of the fit, and prints the table.

mod model;

use crate::Setup;
use anyhow::{Context, Result, ensure};
use model::{Recalled, Set, fit, recalled, spreads};
use std::io::Write;
use toolyard_recall::{
    evaluate::{read_questions, read_turns},
    index::{
        fitted,
        signals::{SIGNALS, Signal},
    },
};

/// In a set with at most this many conversations each is left out alone; in a larger set the conversations are divided
/// into this many groups.
const MOST_GROUPS: usize = 6;

/// Fits the weights and prints the results.
pub(crate) fn memory(setup: &Setup, weights: &[f64]) -> Result<()> {
    ensure!(!setup.sets.is_empty(), "name folders with turns.jsonl and questions.jsonl with --sets");
    let mut sets = Vec::new();
    for (at, folder) in setup.sets.iter().enumerate() {
        let read = |name: &str| {
            std::fs::read_to_string(folder.join(name)).with_context(|| folder.join(name).display().to_string())
        };
        let name = folder.file_name().map_or_else(|| "set".to_owned(), |name| name.to_string_lossy().into_owned());
        let (turns, questions) = (read_turns(&read("turns.jsonl")?)?, read_questions(&read("questions.jsonl")?)?);
        sets.push(Set::read(&name, weights.get(at).copied().unwrap_or(1.0), &turns, &questions));
    }
    let used: Vec<Signal> = fitted::WEIGHTS.iter().map(|(sign, _)| *sign).collect();
    let out = &mut std::io::stdout().lock();
    report(out, &sets, &used)
}

/// Prints the figures of each set, left out as a whole and by conversations, and the table fitted on all sets.
fn report(out: &mut impl Write, sets: &[Set], used: &[Signal]) -> Result<()> {
    let spread = spreads(sets);
    let all = fit(sets, used, &spread, &[0.0; SIGNALS], |_, _| true);
    for set in sets {
        if sets.len() > 1 {
            let others = fit(sets, used, &spread, &all, |other, _| other.name != set.name);
            show(out, &format!("{}, fitted without it", set.name), &recalled(set.cases.iter().map(|c| (c, &others))))?;
        }
        let names = set.conversations();
        let groups = names.len().min(MOST_GROUPS);
        let group = |conv: &str| names.iter().position(|name| *name == conv).unwrap_or_default() % groups.max(1);
        let fits: Vec<[f32; SIGNALS]> = (0..groups)
            .map(|left| fit(sets, used, &spread, &all, |other, c| other.name != set.name || group(&c.conv) != left))
            .collect();
        let by_group = set.cases.iter().map(|case| (case, &fits[group(&case.conv)]));
        show(out, &format!("{}, leaving conversations out", set.name), &recalled(by_group))?;
    }
    writeln!(out, "fitted on all sets:")?;
    for sign in used {
        writeln!(out, "    (Signal::{sign:?}, {:.3}),", all[*sign as usize])?;
    }
    Ok(())
}

fn show(out: &mut impl Write, title: &str, figures: &Recalled) -> Result<()> {
    writeln!(out, "{title}")?;
    for (name, (count, [five, ten, twenty])) in figures {
        writeln!(out, "    {name:28} {count:5} {five:.3} {ten:.3} {twenty:.3}")?;
    }
    Ok(())
}
