//! What each sign of a turn counts, by a fit on labelled conversations.

use super::signs::{SIGNS, Sign};

/// The weights, as `toolyard-bench fit-memory --sets LOCOMO BEAM --weights 1 0.4` prints them (folders with turns.jsonl and
/// questions.jsonl). The signs that stand here are those that are fitted. A sign is left out where the figures on
/// conversations of another kind than those fitted on are better without it; `docs/decisions/2026-11-18-recall-speakers.md`
/// has the figures. Recency is not fitted: labelled conversations are asked about after they ended, which says nothing about
/// what is new.
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

/// What a unit of the fitted sum is worth in a rank. With it turns spread as far as memories do, so that both can stand in
/// one answer.
pub(super) const UNIT: f32 = 0.1;

/// The weights by sign.
pub(super) const BY_SIGN: [f32; SIGNS] = {
    let mut weights = [0.0; SIGNS];
    let mut at = 0;
    while at < WEIGHTS.len() {
        weights[WEIGHTS[at].0 as usize] = WEIGHTS[at].1 * UNIT;
        at += 1;
    }
    weights
};
