//! The model: a softmax over all candidates of a question, with an equal share for each piece of evidence. Signals are
//! standardised and weights are regularised (L2). Newton's method makes the result deterministic.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use toolyard_recall::{
    evaluate::{ADVERSARIAL, LabelledQuestion, Turn, index_turns, last_times, turn_id},
    index::{
        Filter, Question,
        signals::{SIGNALS, Signal},
    },
};

/// Weight of an adversarial question relative to others. Such a question names the wrong speaker. Without them a fit
/// trusts the speaker so much that BM25 finds more of their evidence; with their full weight it trusts the speaker less
/// than the other questions need.
const ADVERSARIAL_WEIGHT: f64 = 0.4;
/// Strength of the L2 regularisation.
const L2: f64 = 1e-3;
/// Maximum number of Newton steps.
const STEPS: usize = 20;
/// A step that is halved below this size gains nothing.
const MIN_STEP: f64 = 1e-3;
/// The fit has converged when a step lowers the loss by less than this.
const CONVERGED: f64 = 1e-6;
/// Candidates with a smaller softmax share are ignored in the curvature of the loss.
const MIN_SHARE: f64 = 1e-4;

/// One question: the signals of its candidates, and which of them are evidence.
pub(super) struct Case {
    pub(super) conv: String,
    pub(super) category: String,
    /// The signals of all candidates, concatenated.
    rows: Vec<f32>,
    /// Indexes of the evidence among the candidates.
    evidence: Vec<usize>,
    /// Total number of evidence turns, whether or not they are candidates.
    wanted: usize,
}

impl Case {
    /// Whether the question is adversarial: it names the wrong speaker.
    pub(super) fn is_adversarial(&self) -> bool {
        self.category == ADVERSARIAL
    }

    /// Weight of the question within its set.
    fn weight(&self) -> f64 {
        if self.is_adversarial() { ADVERSARIAL_WEIGHT } else { 1.0 }
    }
}

/// A labelled set and its weight in a fit.
pub(super) struct Set {
    pub(super) name: String,
    /// Total weight of all its questions.
    pub(super) weight: f64,
    pub(super) cases: Vec<Case>,
}

impl Set {
    /// Collects the candidates of every question with evidence.
    pub(super) fn read(name: &str, weight: f64, turns: &[Turn], questions: &[LabelledQuestion]) -> Self {
        let index = index_turns(turns);
        let known: HashSet<String> = turns.iter().map(|turn| turn_id(&turn.conv, &turn.id)).collect();
        let last = last_times(turns);
        let cases = questions.iter().filter_map(|asked| {
            let evidence: BTreeSet<String> =
                asked.evidence.iter().map(|id| turn_id(&asked.conv, id)).filter(|id| known.contains(id)).collect();
            if evidence.is_empty() {
                return None;
            }
            let filter = Filter { owners: vec![asked.conv.clone()], ..Filter::default() };
            let now_ms = last.get(asked.conv.as_str()).copied();
            let candidates = index.signals(&Question { now_ms, filter, ..Question::new(&asked.question, 1) });
            let places = candidates.iter().enumerate().filter(|(_, (id, _))| evidence.contains(*id));
            Some(Case {
                conv: asked.conv.clone(),
                category: asked.category(),
                evidence: places.map(|(place, _)| place).collect(),
                rows: candidates.iter().flat_map(|(_, signals)| signals.0).collect(),
                wanted: evidence.len(),
            })
        });
        Self { name: name.to_owned(), weight, cases: cases.collect() }
    }

    /// Its conversations, in order.
    pub(super) fn conversations(&self) -> Vec<&str> {
        self.cases.iter().map(|case| case.conv.as_str()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The standard deviation of each signal over all candidates. The mean does not matter to a softmax.
pub(super) fn spreads(sets: &[Set]) -> [f64; SIGNALS] {
    let (mut sum, mut squares, mut count) = ([0.0; SIGNALS], [0.0; SIGNALS], 0.0f64);
    for set in sets {
        for case in &set.cases {
            let rows = case.rows.as_chunks::<SIGNALS>().0;
            let each = set.weight / (set.cases.len() * rows.len().max(1)) as f64;
            for row in rows {
                for (at, value) in row.iter().enumerate() {
                    sum[at] += each * f64::from(*value);
                    squares[at] += each * f64::from(*value).powi(2);
                }
            }
            count += set.weight / set.cases.len() as f64;
        }
    }
    std::array::from_fn(|at| (squares[at] / count - (sum[at] / count).powi(2)).max(1e-8).sqrt())
}

/// Fits the weights of the used signals on the cases that `takes` accepts, starting from `begin`.
pub(super) fn fit(
    sets: &[Set],
    used: &[Signal],
    spread: &[f64; SIGNALS],
    begin: &[f32; SIGNALS],
    takes: impl Fn(&Set, &Case) -> bool,
) -> [f32; SIGNALS] {
    let fits = |set: &Set, case: &Case| !case.evidence.is_empty() && takes(set, case);
    let mut chosen: Vec<(f64, &Case)> = Vec::new();
    for set in sets {
        let cases: Vec<&Case> = set.cases.iter().filter(|case| fits(set, case)).collect();
        let total: f64 = cases.iter().map(|case| case.weight()).sum();
        chosen.extend(cases.into_iter().map(|case| (set.weight * case.weight() / total, case)));
    }
    let signals: Vec<usize> = used.iter().map(|sign| *sign as usize).collect();
    let mut weights: Vec<f64> = signals.iter().map(|sign| f64::from(begin[*sign])).collect();
    let mut now = slopes(&chosen, &signals, spread, &weights);
    for _ in 0..STEPS {
        let Some(step) = solve(now.curve.clone(), now.slope.clone()) else { break };
        // A full step can overshoot far from the optimum: it is halved until the loss falls.
        let mut size = 1.0;
        let better = loop {
            let tried: Vec<f64> = weights.iter().zip(&step).map(|(weight, step)| weight + size * step).collect();
            let there = slopes(&chosen, &signals, spread, &tried);
            if there.loss <= now.loss {
                break Some((tried, there));
            }
            size /= 2.0;
            if size < MIN_STEP {
                break None;
            }
        };
        let Some((tried, there)) = better else { break };
        let gained = now.loss - there.loss;
        (weights, now) = (tried, there);
        if gained < CONVERGED {
            break;
        }
    }
    let mut all = [0.0; SIGNALS];
    signals.iter().zip(weights).for_each(|(sign, weight)| all[*sign] = weight as f32);
    all
}

/// The loss at a point, its negative gradient, and its curvature.
struct Slopes {
    loss: f64,
    slope: Vec<f64>,
    curve: Vec<Vec<f64>>,
}

fn slopes(chosen: &[(f64, &Case)], signals: &[usize], spread: &[f64; SIGNALS], weights: &[f64]) -> Slopes {
    let n = signals.len();
    // The regularisation applies to the weights of standardised signals.
    let keep: Vec<f64> = signals.iter().map(|sign| L2 * spread[*sign].powi(2)).collect();
    let mut loss: f64 = keep.iter().zip(weights).map(|(keep, weight)| keep * weight * weight).sum();
    let mut slope: Vec<f64> = keep.iter().zip(weights).map(|(keep, weight)| -2.0 * keep * weight).collect();
    let mut curve = vec![vec![0.0f64; n]; n];
    (0..n).for_each(|at| curve[at][at] = 2.0 * keep[at]);
    let mut expected = vec![0.0; n];
    let mut apart = vec![0.0; n];
    for (each, case) in chosen {
        let rows = case.rows.as_chunks::<SIGNALS>().0;
        let score =
            |row: &[f32; SIGNALS]| signals.iter().zip(weights).map(|(s, w)| f64::from(row[*s]) * w).sum::<f64>();
        let mut shares: Vec<f64> = rows.iter().map(score).collect();
        let most = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        shares.iter_mut().for_each(|share| *share = (*share - most).exp());
        let total: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total);
        expected.iter_mut().for_each(|sum| *sum = 0.0);
        for (row, share) in rows.iter().zip(&shares) {
            signals.iter().zip(&mut expected).for_each(|(sign, sum)| *sum += share * f64::from(row[*sign]));
        }
        let part = each / case.evidence.len() as f64;
        for place in &case.evidence {
            (0..n).for_each(|at| slope[at] += part * (f64::from(rows[*place][signals[at]]) - expected[at]));
            loss -= part * shares[*place].max(f64::MIN_POSITIVE).ln();
        }
        for (row, share) in rows.iter().zip(&shares).filter(|(_, share)| **share > MIN_SHARE) {
            (0..n).for_each(|at| apart[at] = f64::from(row[signals[at]]) - expected[at]);
            for (at, (sums, left)) in curve.iter_mut().zip(&apart).enumerate() {
                let left = each * share * left;
                sums[..=at].iter_mut().zip(&apart).for_each(|(sum, right)| *sum += left * right);
            }
        }
    }
    (0..n).for_each(|a| (0..a).for_each(|b| curve[b][a] = curve[a][b]));
    Slopes { loss, slope, curve }
}

/// Solves a linear system by Gaussian elimination.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let n = right.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        if matrix[pivot][column].abs() < f64::MIN_POSITIVE {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (head, tail) = matrix.split_at_mut(column + 1);
        let top = &head[column];
        for (below, row) in tail.iter_mut().enumerate() {
            let factor = row[column] / top[column];
            (column..n).for_each(|at| row[at] -= factor * top[at]);
            right[column + 1 + below] -= factor * right[column];
        }
    }
    for row in (0..n).rev() {
        let rest: f64 = (row + 1..n).map(|at| matrix[row][at] * right[at]).sum();
        right[row] = (right[row] - rest) / matrix[row][row];
    }
    Some(right)
}

/// Number of questions and recall at 5, 10 and 20, by category; `all` excludes adversarial questions.
pub(super) type Recalled = BTreeMap<String, (usize, [f64; 3])>;

/// Measures cases, each with its own weights.
pub(super) fn recalled<'a>(cases: impl Iterator<Item = (&'a Case, &'a [f32; SIGNALS])>) -> Recalled {
    let mut sums: Recalled = BTreeMap::new();
    for (case, weights) in cases {
        let score = |row: &[f32; SIGNALS]| row.iter().zip(weights).map(|(x, w)| x * w).sum::<f32>();
        let scores: Vec<f32> = case.rows.as_chunks::<SIGNALS>().0.iter().map(score).collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        let found = [5, 10, 20].map(|depth| {
            order.iter().take(depth).filter(|place| case.evidence.contains(place)).count() as f64 / case.wanted as f64
        });
        let names = [Some(case.category.as_str()), Some("with adversarial"), (!case.is_adversarial()).then_some("all")];
        for name in names.into_iter().flatten() {
            let (count, sum) = sums.entry(name.to_owned()).or_default();
            *count += 1;
            sum.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
        }
    }
    sums.values_mut().for_each(|(count, sum)| sum.iter_mut().for_each(|sum| *sum /= *count as f64));
    sums
}
