//! Sums of what was found, means, and how sure they are.

use serde::Serialize;
use std::collections::BTreeMap;

/// How deep answers are looked at.
pub(super) const DEPTHS: [usize; 3] = [5, 10, 20];
/// Samples that an interval is made of.
const SAMPLES: usize = 1_000;

/// How well questions were answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Questions measured.
    pub questions: usize,
    /// Share of the evidence among the first five,
    pub recall5: f64,
    /// ten,
    pub recall10: f64,
    /// and twenty.
    pub recall20: f64,
    /// Mean of the reciprocal place of the first evidence among the first twenty.
    pub mrr: f64,
}

/// Between which values a mean lies in 95 of 100 samples of the questions, drawn with repetition (bootstrap).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Of recall among the first five,
    pub recall5: [f64; 2],
    /// ten,
    pub recall10: [f64; 2],
    /// and twenty.
    pub recall20: [f64; 2],
}

/// One way of answering: all questions, those that are not adversarial, and each category.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Breakdown {
    /// All questions.
    #[serde(flatten)]
    pub all: Scores,
    /// Questions that are not adversarial: those name the wrong speaker, and what answers them is not what is asked.
    pub without_adversarial: Scores,
    /// By sort of question.
    pub by_category: BTreeMap<String, Scores>,
    /// How sure the figures without adversarial questions are.
    pub interval: Interval,
}

/// What one question found: the share of its evidence at each depth, and the reciprocal of the first place.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    found: [f64; 3],
    reciprocal: f64,
}

/// Outcomes by category.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<String, Vec<Outcome>>);

impl Tally {
    /// Adds a question: the places of its evidence among the answers, and how much evidence it has.
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
    // A fixed beginning: the same outcomes give the same interval.
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
    (value * 1e4).round() / 1e4
}
