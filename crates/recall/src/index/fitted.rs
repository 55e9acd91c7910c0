//! What each sign of a turn counts.

use super::signs::{SIGNS, Sign};

/// The weights.
pub const WEIGHTS: [(Sign, f32); 20] = [
    (Sign::Window5, 0.37),
    (Sign::Meaning, 0.03),
    (Sign::MeaningWindow, 0.235),
    (Sign::Topic, 0.215),
    (Sign::MeaningWeighted, 0.115),
    (Sign::Pairs, 0.035),
    (Sign::Answers, 0.125),
    (Sign::Before, 0.07),
    (Sign::After, -0.075),
    (Sign::Asks, -0.04),
    (Sign::Length, 0.27),
    (Sign::When, 0.1),
    (Sign::Preference, 0.08),
    (Sign::Overlap, 0.2),
    (Sign::SaidBy, 0.09),
    (Sign::Day, 0.39),
    (Sign::Recency, 0.02),
    (Sign::SaidByFirst, 0.0),
    (Sign::ToldSecond, 0.0),
    (Sign::NextSaidBy, 0.0),
];

/// The weights by sign.
pub(super) const BY_SIGN: [f32; SIGNS] = {
    let mut weights = [0.0; SIGNS];
    let mut at = 0;
    while at < WEIGHTS.len() {
        weights[WEIGHTS[at].0 as usize] = WEIGHTS[at].1;
        at += 1;
    }
    weights
};
