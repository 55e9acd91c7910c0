//! The weight of each signal of a turn, fitted on labelled conversations.

use super::signals::{SIGNALS, Signal};

/// The weights printed by `toolyard-bench fit-memory --sets LOCOMO BEAM --weights 1 0.4` (folders with turns.jsonl and
/// questions.jsonl). Only the signals listed here are fitted. A signal is left out where the figures on other kinds of
/// conversations are better without it; `docs/decisions/2026-11-18-recall-speakers.md` has the figures. Recency is not
/// fitted: labelled questions are asked after the conversation ended, so they say nothing about the value of recency.
pub const WEIGHTS: [(Signal, f32); 17] = [
    (Signal::Window5, 2.864),
    (Signal::Before, 0.633),
    (Signal::Overlap, 0.924),
    (Signal::Pairs, 1.396),
    (Signal::MeaningWindow, 2.522),
    (Signal::MeaningWeighted, 3.374),
    (Signal::Session, 5.569),
    (Signal::When, 1.543),
    (Signal::Preference, 0.743),
    (Signal::Day, 4.478),
    (Signal::SaidBy, 1.017),
    (Signal::SaidByFirst, 1.068),
    (Signal::ToldSecond, -1.667),
    (Signal::NextSaidBy, 0.650),
    (Signal::MaxSim, 0.920),
    (Signal::Shape, 1.759),
    (Signal::Kind, 0.739),
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
