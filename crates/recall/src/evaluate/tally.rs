//! Aggregates scores: means, breakdowns by category and confidence intervals.

use serde::Serialize;
use std::collections::BTreeMap;

/// The values of k at which recall is measured.
pub(super) const DEPTHS: [usize; 3] = [5, 10, 20];
/// Number of bootstrap samples.
const SAMPLES: usize = 1_000;

/// Mean scores over a set of questions.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Number of questions.
    pub questions: usize,
    /// Recall at 5.
    pub recall5: f64,
    /// Recall at 10.
    pub recall10: f64,
    /// Recall at 20.
    pub recall20: f64,
    /// Mean reciprocal rank of the first evidence turn, within the first 20.
    pub mrr: f64,
}

/// 95% bootstrap confidence intervals of the means.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Interval of recall at 5.
    pub recall5: [f64; 2],
    /// Interval of recall at 10.
    pub recall10: [f64; 2],
    /// Interval of recall at 20.
    pub recall20: [f64; 2],
}

/// Scores of one retrieval method: over all questions, without adversarial ones, and by category.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Breakdown {
    /// All questions.
    #[serde(flatten)]
    pub all: Scores,
    /// Questions that are not adversarial. An adversarial question names the wrong speaker, so its evidence does not
    /// answer it.
    pub without_adversarial: Scores,
    /// Scores by category.
    pub by_category: BTreeMap<String, Scores>,
    /// Confidence intervals of `without_adversarial`.
    pub interval: Interval,
}

/// The scores of one question: recall at each depth, and the reciprocal rank.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    found: [f64; 3],
    reciprocal: f64,
}

/// Outcomes by category.
#[derive(Debug, Default)]
pub(super) struct CategoryTotals(BTreeMap<String, Vec<Outcome>>);

impl CategoryTotals {
    /// Adds a question: the zero-based ranks of its evidence among the hits, and the number of evidence turns.
    pub(super) fn add(&mut self, category: &str, places: &[usize], evidence: usize) {
        let share = |depth: usize| places.iter().filter(|place| **place < depth).count() as f64 / evidence as f64;
        let reciprocal = places.first().map_or(0.0, |place| 1.0 / (place + 1) as f64);
        let outcome = Outcome { found: DEPTHS.map(share), reciprocal };
        self.0.entry(category.to_owned()).or_default().push(outcome);
    }

    pub(super) fn breakdown(&self) -> Breakdown {
        let is_adversarial = |name: &str| name == super::ADVERSARIAL;
        let all: Vec<Outcome> = self.0.values().flatten().copied().collect();
        let honest = self.0.iter().filter(|(name, _)| !is_adversarial(name));
        let honest: Vec<Outcome> = honest.flat_map(|(_, outcomes)| outcomes).copied().collect();
        Breakdown {
            all: scores(&all),
            without_adversarial: scores(&honest),
            by_category: self.0.iter().map(|(name, outcomes)| (name.clone(), scores(outcomes))).collect(),
            interval: interval(&honest),
        }
    }
}

fn scores(outcomes: &[Outcome]) -> Scores {
    let count = outcomes.len().max(1) as f64;
    let mean = |at: usize| round(outcomes.iter().map(|outcome| outcome.found[at]).sum::<f64>() / count);
    Scores {
        questions: outcomes.len(),
        recall5: mean(0),
        recall10: mean(1),
        recall20: mean(2),
        mrr: round(outcomes.iter().map(|outcome| outcome.reciprocal).sum::<f64>() / count),
    }
}

fn interval(outcomes: &[Outcome]) -> Interval {
    if outcomes.is_empty() {
        return Interval::default();
    }
    // The seed is fixed, so the same outcomes give the same interval.
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut means: [Vec<f64>; 3] = Default::default();
    for _ in 0..SAMPLES {
        let mut sums = [0.0; 3];
        for _ in 0..outcomes.len() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let drawn = &outcomes[(state % outcomes.len() as u64) as usize];
            sums.iter_mut().zip(drawn.found).for_each(|(sum, found)| *sum += found);
        }
        means.iter_mut().zip(sums).for_each(|(means, sum)| means.push(sum / outcomes.len() as f64));
    }
    let [recall5, recall10, recall20] = means.map(|mut means| {
        means.sort_by(f64::total_cmp);
        [means[SAMPLES / 40], means[SAMPLES - 1 - SAMPLES / 40]].map(round)
    });
    Interval { recall5, recall10, recall20 }
}

pub(super) fn round(value: f64) -> f64 {
    // An empty sum is -0.0; adding 0.0 makes it positive.
    (value * 1e4).round() / 1e4 + 0.0
}
