//! The weight of each signal of a turn, fitted on labelled conversations.

use super::signals::{SIGNALS, Signal};

/// The weights printed by `toolyard-bench fit-memory --sets LOCOMO BEAM --weights 1 0.4` (folders with turns.jsonl and
/// questions.jsonl). Only the signals listed here are fitted. A signal is left out where the figures on other kinds of
/// conversations are better without it; `docs/decisions/2026-11-18-recall-speakers.md` has the figures. Recency is not
/// fitted: labelled questions are asked after the conversation ended, so they say nothing about the value of recency.
pub const WEIGHTS: [(Signal, f32); 18] = [
    (Signal::Window5, 3.367),
    (Signal::Before, 0.604),
    (Signal::Overlap, 0.969),
    (Signal::Pairs, 1.434),
    (Signal::MeaningWindow, 3.298),
    (Signal::MeaningWeighted, 3.464),
    (Signal::Answers, 0.645),
    (Signal::Topic, 2.828),
    (Signal::When, 1.507),
    (Signal::Preference, 0.741),
    (Signal::Day, 4.484),
    (Signal::SaidBy, 1.060),
    (Signal::SaidByFirst, 1.065),
    (Signal::ToldSecond, -1.695),
    (Signal::NextSaidBy, 0.697),
    (Signal::MaxSim, 0.760),
    (Signal::Shape, 1.757),
    (Signal::Kind, 0.732),
];

/// Scale of the fitted sum in a rank. It gives turns the same spread of ranks as memories, so that both can appear in
/// one result list.
pub(super) const UNIT: f32 = 0.1;

/// The weights, indexed by signal.
pub(super) const BY_SIGN: [f32; SIGNALS] = {
    let mut weights = [0.0; SIGNALS];
    let mut at = 0;
    while at < WEIGHTS.len() {
        weights[WEIGHTS[at].0 as usize] = WEIGHTS[at].1 * UNIT;
        at += 1;
    }
    weights
};
