//! Merges the candidates of full text and vectors into one ranking, by weighted score.

use super::vectors::Neighbour;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Lower bound of the best cosine by which cosines are normalised. Without it, a question that the embedder does not
/// understand would get a match that looks as certain as any other.
const LEAST_BEST_LIKENESS: f32 = 0.4;

/// Scores are normalised by the best score of the question, capped at a multiple of the fifth best. Otherwise one note
/// that matches the question word for word would push all other notes together in one of the two rankings.
const STANDARD_PLACE: usize = 4;
const TEXT_ABOVE_STANDARD: f32 = 2.0;
const LIKENESS_ABOVE_STANDARD: f32 = 1.15;

/// The weights of the score components.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Weight of vectors relative to full text, 0 to 1.
    pub vector: f32,
    /// Weight of the link bonus, which the most linked note gets in full.
    pub links: f32,
}

/// A candidate with the components of its score. Each component is between 0 and 1 before weighting, and so is the
/// score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fused {
    /// Its row in the reader.
    pub row: u64,
    /// Its file number in the library.
    pub file: u32,
    /// The final score.
    pub score: f32,
    /// The BM25 score; `None` when full text did not find the chunk.
    pub text_score: Option<f32>,
    /// The BM25 score, normalised for this question (see [`STANDARD_PLACE`]).
    pub text_part: f32,
    /// The cosine similarity; `None` without vectors.
    pub likeness: Option<f32>,
    /// The cosine, normalised for this question, with negative values set to 0. When full text found nothing, it is the
    /// cosine itself.
    pub vector_part: f32,
    /// How often its note is linked to, relative to the most linked note.
    pub link_part: f32,
    /// The weight of full text for this question.
    pub text_weight: f32,
    /// The weight of vectors for this question. When one of the two finds nothing, the other gets the whole weight.
    pub vector_weight: f32,
}

/// Merges both candidate lists. `likeness` returns the cosine of a row that the vector search did not return.
pub fn fuse(
    text: &[Neighbour],
    vectors: &[Neighbour],
    likeness: impl Fn(u64) -> Option<f32>,
    link_share: impl Fn(u32) -> f32,
    weights: &Weights,
) -> Vec<Fused> {
    let mut all: HashMap<u64, Fused> = HashMap::with_capacity(text.len() + vectors.len());
    // When one search finds nothing, the other gets the whole weight.
    let share = match (text.is_empty(), vectors.is_empty()) {
        (false, false) => weights.vector,
        (true, false) => 1.0,
        (_, true) => 0.0,
    };
    let blank = |near: &Neighbour| Fused {
        row: near.row,
        file: near.file,
        score: 0.0,
        text_score: None,
        text_part: 0.0,
        likeness: None,
        vector_part: 0.0,
        link_part: link_share(near.file),
        text_weight: 1.0 - share,
        vector_weight: share,
    };
    for near in vectors {
        all.insert(near.row, Fused { likeness: Some(near.score), ..blank(near) });
    }
    for near in text {
        let fused = all.entry(near.row).or_insert_with(|| Fused {
            likeness: if vectors.is_empty() { None } else { likeness(near.row) },
            ..blank(near)
        });
        fused.text_score = Some(near.score);
    }
    let most_text = standard(text, TEXT_ABOVE_STANDARD);
    // Cosines are low for short questions and high for long ones. Normalised by the best one, as BM25 is, the same
    // weight fits both.
    let most_like = standard(vectors, LIKENESS_ABOVE_STANDARD).max(LEAST_BEST_LIKENESS);
    let most_like = if text.is_empty() { 1.0 } else { most_like };
    let mut ranked: Vec<Fused> = all
        .into_values()
        .map(|mut fused| {
            fused.text_part =
                fused.text_score.map_or(0.0, |score| if most_text > 0.0 { score / most_text } else { 0.0 });
            fused.vector_part = fused.likeness.map_or(0.0, |like| (like / most_like).max(0.0));
            let both = share * fused.vector_part + (1.0 - share) * fused.text_part;
            fused.score = both * (1.0 - weights.links) + weights.links * fused.link_part;
            fused
        })
        .collect();
    // Outliers have components above 1. Dividing all by the largest keeps the order.
    let most = ranked.iter().map(|f| f.text_part.max(f.vector_part)).fold(1.0, f32::max);
    for fused in &mut ranked {
        for part in [&mut fused.text_part, &mut fused.vector_part, &mut fused.link_part, &mut fused.score] {
            *part = (*part / most).clamp(0.0, 1.0);
        }
    }
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    ranked
}

/// The value by which the scores of one search are normalised.
fn standard(all: &[Neighbour], above: f32) -> f32 {
    let mut scores: Vec<f32> = all.iter().map(|near| near.score).collect();
    scores.sort_unstable_by(|a, b| b.total_cmp(a));
    let best = scores.first().copied().unwrap_or(0.0);
    match scores.get(STANDARD_PLACE) {
        Some(usual) if *usual > 0.0 => best.min(above * usual),
        _ => best,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(row: u64, score: f32) -> Neighbour {
        Neighbour { row, file: row as u32, score }
    }
    const WEIGHTS: Weights = Weights { vector: 0.5, links: 0.0 };

    #[test]
    fn what_both_legs_find_comes_first() {
        let ranked =
            fuse(&[near(1, 9.0), near(2, 8.0)], &[near(2, 0.9), near(3, 0.8)], |_| Some(0.1), |_| 0.0, &WEIGHTS);
        let rows: Vec<u64> = ranked.iter().map(|f| f.row).collect();
        assert_eq!(rows, [2, 1, 3]);
        assert!(ranked.iter().all(|f| (0.0..=1.0).contains(&f.score)));
        assert_eq!(ranked[1].likeness, Some(0.1));
    }

    #[test]
    fn one_leg_alone_keeps_its_order() {
        let ranked = fuse(&[near(1, 2.0), near(2, 3.0)], &[], |_| Some(0.5), |_| 0.0, &WEIGHTS);
        assert_eq!(ranked.iter().map(|f| f.row).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(ranked[0].score, 1.0);
        let ranked = fuse(&[], &[near(1, 0.2), near(2, 0.3)], |_| None, |_| 0.0, &WEIGHTS);
        assert_eq!(ranked.iter().map(|f| f.row).collect::<Vec<_>>(), [2, 1]);
        assert!(fuse(&[], &[], |_| None, |_| 0.0, &WEIGHTS).is_empty());
    }

    #[test]
    fn a_question_the_embedder_knows_nothing_of_is_left_to_words() {
        let words = [near(1, 5.0), near(2, 3.0)];
        let unsure = fuse(&words, &[near(2, 0.1), near(1, 0.0)], |_| None, |_| 0.0, &WEIGHTS);
        assert_eq!(unsure[0].row, 1);
        let sure = fuse(&words, &[near(2, 0.6), near(1, 0.2)], |_| None, |_| 0.0, &WEIGHTS);
        assert_eq!((sure[0].row, sure[0].vector_part), (2, 1.0));
    }

    #[test]
    fn a_note_that_is_the_question_itself_changes_nothing_between_the_others() {
        let text: Vec<Neighbour> = (1..=6).map(|row| near(row, 40.0 - 3.0 * row as f32)).collect();
        let like: Vec<Neighbour> = (1..=6).map(|row| near(row, 0.7 + 0.01 * row as f32)).collect();
        let order = |text: &[Neighbour], like: &[Neighbour]| {
            let ranked = fuse(text, like, |_| None, |_| 0.0, &WEIGHTS);
            assert!(
                ranked.iter().all(|f| [f.score, f.text_part, f.vector_part].iter().all(|p| (0.0..=1.0).contains(p)))
            );
            ranked.iter().map(|f| f.row).collect::<Vec<_>>()
        };
        let without = order(&text, &like);
        let itself = |all: &[Neighbour], score: f32| [&[near(9, score)], all].concat();
        let with = order(&itself(&text, 300.0), &itself(&like, 1.0));
        assert_eq!((without[0], with[0]), (1, 9));
        assert_eq!(with[1..], without);
    }

    #[test]
    fn links_tip_the_scales_a_little() {
        let weights = Weights { links: 0.1, ..WEIGHTS };
        let ranked =
            fuse(&[near(1, 5.0), near(2, 4.9)], &[], |_| None, |file| if file == 2 { 1.0 } else { 0.0 }, &weights);
        assert_eq!(ranked[0].row, 2);
    }
}
