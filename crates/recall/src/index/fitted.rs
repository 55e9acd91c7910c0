//! The weight of each signal of a turn, fitted on labelled conversations.

use super::signs::{SIGNS, Sign};

/// The weights printed by `toolyard-bench fit-memory --sets LOCOMO BEAM --weights 1 0.4` (folders with turns.jsonl and
/// questions.jsonl). Only the signals listed here are fitted. A signal is left out where the figures on other kinds of
/// conversations are better without it; `docs/decisions/2026-11-18-recall-speakers.md` has the figures. Recency is not
/// fitted: labelled questions are asked after the conversation ended, so they say nothing about the value of recency.
pub const WEIGHTS: [(Sign, f32); 18] = [
    (Sign::Window5, 3.367),
    (Sign::Before, 0.604),
    (Sign::Overlap, 0.969),
    (Sign::Pairs, 1.434),
    (Sign::MeaningWindow, 3.298),
    (Sign::MeaningWeighted, 3.464),
    (Sign::Answers, 0.645),
    (Sign::Topic, 2.828),
    (Sign::When, 1.507),
    (Sign::Preference, 0.741),
    (Sign::Day, 4.484),
    (Sign::SaidBy, 1.060),
    (Sign::SaidByFirst, 1.065),
    (Sign::ToldSecond, -1.695),
    (Sign::NextSaidBy, 0.697),
    (Sign::MaxSim, 0.760),
    (Sign::Shape, 1.757),
    (Sign::Kind, 0.732),
];

/// Scale of the fitted sum in a rank. It gives turns the same spread of ranks as memories, so that both can appear in
/// one result list.
pub(super) const UNIT: f32 = 0.1;

/// The weights, indexed by signal.
pub(super) const BY_SIGN: [f32; SIGNS] = {
    let mut weights = [0.0; SIGNS];
    let mut at = 0;
    while at < WEIGHTS.len() {
        weights[WEIGHTS[at].0 as usize] = WEIGHTS[at].1 * UNIT;
        at += 1;
    }
    weights
};
