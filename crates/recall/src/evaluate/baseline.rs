//! The BM25 baseline of the evaluation: each turn is scored together with its two neighbours, without fitted weights
//! and without speakers. Weights fitted on one kind of conversation must not fall below this baseline on another kind.

use super::{Turn, turn_id};
use std::collections::HashMap;
use toolyard_text::terms::{MEMORIES, Side};

/// The usual BM25 constants.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The postings of one conversation.
#[derive(Default)]
struct Conversation {
    ids: Vec<String>,
    /// Postings by term: position and count, over each turn with its neighbours.
    lists: HashMap<String, Vec<(usize, f64)>>,
    lengths: Vec<f64>,
}

/// BM25 indexes, one per conversation.
pub(super) struct Baseline<'a>(HashMap<&'a str, Conversation>);

impl<'a> Baseline<'a> {
    pub(super) fn new(turns: &'a [Turn]) -> Self {
        let mut conversations: HashMap<&str, Conversation> = HashMap::new();
        let bags: Vec<HashMap<String, f64>> = turns.iter().map(bag).collect();
        for (at, turn) in turns.iter().enumerate() {
            let conversation = conversations.entry(&turn.conv).or_default();
            let place = conversation.ids.len();
            conversation.ids.push(turn_id(&turn.conv, &turn.id));
            let mut counts: HashMap<&str, f64> = HashMap::new();
            let beside = at.saturating_sub(1)..(at + 2).min(turns.len());
            for other in beside.filter(|o| turns[*o].conv == turn.conv && turns[*o].session == turn.session) {
                bags[other].iter().for_each(|(term, count)| *counts.entry(term).or_default() += count);
            }
            conversation.lengths.push(counts.values().sum());
            for (term, count) in counts {
                conversation.lists.entry(term.to_owned()).or_default().push((place, count));
            }
        }
        Self(conversations)
    }

    /// The ids of the best turns of a conversation, best first.
    pub(super) fn ask(&self, conversation: &str, question: &str, limit: usize) -> Vec<&str> {
        let Some(conversation) = self.0.get(conversation) else { return Vec::new() };
        let count = conversation.ids.len() as f64;
        let average = (conversation.lengths.iter().sum::<f64>() / count).max(1.0);
        let mut scores = vec![0.0; conversation.ids.len()];
        MEMORIES.terms(question, Side::Question, |term, _| {
            let list = conversation.lists.get(term).map(Vec::as_slice).unwrap_or_default();
            let having = list.len() as f64;
            let rarity = ((count - having + 0.5) / (having + 0.5)).ln_1p();
            for (place, count) in list {
                let length = conversation.lengths[*place] / average;
                scores[*place] += rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
            }
        });
        let mut order: Vec<usize> = (0..scores.len()).filter(|place| scores[*place] > 0.0).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        order.iter().take(limit).map(|place| conversation.ids[*place].as_str()).collect()
    }
}

fn bag(turn: &Turn) -> HashMap<String, f64> {
    let mut counts: HashMap<String, f64> = HashMap::new();
    for text in [Some(&turn.text), turn.image_caption.as_ref()].into_iter().flatten() {
        MEMORIES.terms(text, Side::Question, |term, _| *counts.entry(term.to_owned()).or_default() += 1.0);
    }
    counts
}
