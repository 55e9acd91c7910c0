//! Merges new memories with known ones: each is new, a duplicate or a correction.

use super::{
    memories::Memory,
    rules,
    salience::{bag, containment, likeness},
};
use crate::index::Category;

/// Two memories about the same key are duplicates from this word similarity (Jaccard) on.
const SAME: f32 = 0.8;
/// A longer memory replaces a shorter one from this containment on.
const SAYS_ALL: f32 = 0.95;
/// A correction refers to a memory from this word similarity on.
const TAKES_BACK: f32 = 0.5;

/// A stored memory.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMemory {
    /// Where it is stored.
    pub id: String,
    /// Its content.
    pub memory: Memory,
}

/// A change to the stored memories.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Store a new memory.
    Create(Memory),
    /// Replace a stored memory.
    Replace {
        /// Id of the stored memory.
        id: String,
        /// The new content.
        memory: Memory,
    },
    /// The memory is already stored; nothing changes.
    Skip {
        /// Id of the stored memory.
        id: String,
        /// The repeated memory.
        memory: Memory,
    },
}

/// The changes that new memories, oldest first, make to the stored ones.
pub fn reconcile(known: &[StoredMemory], new: &[Memory]) -> Vec<Change> {
    let mut slots: Vec<Slot> = known
        .iter()
        .map(|known| Slot { id: Some(known.id.clone()), memory: known.memory.clone(), changed: false })
        .collect();
    let mut skipped: Vec<Change> = Vec::new();
    for memory in new {
        match slots.iter().position(|slot| verdict(&slot.memory, memory) != Verdict::Other) {
            None => match taken_back(&slots, memory) {
                Some(at) => slots[at].take(memory),
                None => slots.push(Slot { id: None, memory: memory.clone(), changed: true }),
            },
            Some(at) => match verdict(&slots[at].memory, memory) {
                Verdict::Newer => slots[at].take(memory),
                _ => {
                    if let Some(id) = &slots[at].id {
                        skipped.push(Change::Skip { id: id.clone(), memory: memory.clone() });
                    }
                }
            },
        }
    }
    let changes = slots.into_iter().filter(|slot| slot.changed).map(|slot| match slot.id {
        Some(id) => Change::Replace { id, memory: slot.memory },
        None => Change::Create(slot.memory),
    });
    changes.chain(skipped).collect()
}

/// Removes duplicates among the memories of one conversation.
pub(super) fn settle(found: Vec<Memory>) -> Vec<Memory> {
    let changes = reconcile(&[], &found);
    changes
        .into_iter()
        .filter_map(|change| if let Change::Create(memory) = change { Some(memory) } else { None })
        .collect()
}

struct Slot {
    id: Option<String>,
    memory: Memory,
    changed: bool,
}

impl Slot {
    fn take(&mut self, memory: &Memory) {
        self.memory = memory.clone();
        self.changed = true;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// They are unrelated.
    Other,
    /// The stored memory already says the same.
    Same,
    /// The new memory replaces the stored one.
    Newer,
}

fn verdict(kept: &Memory, new: &Memory) -> Verdict {
    if kept.category != new.category || !kept.subject.eq_ignore_ascii_case(&new.subject) {
        return Verdict::Other;
    }
    let (kept_bag, new_bag) = (bag(&kept.text), bag(&new.text));
    // The same words about different days are different events.
    if kept.category == Category::Events && kept.days != new.days {
        return Verdict::Other;
    }
    // With the same key, the later statement wins over a contradicting one.
    let later = new.said_ms.unwrap_or(i64::MAX) >= kept.said_ms.unwrap_or(i64::MIN);
    if kept.key == new.key {
        if kept.positive != new.positive || (kept.single && bag(&kept.value) != bag(&new.value)) {
            return if later { Verdict::Newer } else { Verdict::Same };
        }
        if kept.single || bag(&kept.value) == bag(&new.value) {
            return Verdict::Same;
        }
    } else if kept.positive != new.positive {
        return Verdict::Other;
    }
    if likeness(&kept_bag, &new_bag) >= SAME && kept.single == new.single {
        return Verdict::Same;
    }
    if kept.key == new.key && new_bag.len() > kept_bag.len() && containment(&kept_bag, &new_bag) >= SAYS_ALL {
        return Verdict::Newer;
    }
    Verdict::Other
}

/// The memory that a correction refers to: the most similar one of the same subject, if it is similar enough.
fn taken_back(slots: &[Slot], memory: &Memory) -> Option<usize> {
    if !rules::corrects(&memory.text) || memory.category == Category::Events {
        return None;
    }
    let words = bag(&memory.value);
    slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| {
            slot.memory.category == memory.category && slot.memory.subject.eq_ignore_ascii_case(&memory.subject)
        })
        .map(|(at, slot)| (containment(&bag(&slot.memory.value), &words), at))
        .filter(|(near, _)| *near >= TAKES_BACK)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::memories::{Message, Options, memories};

    fn said(text: &str, time_ms: i64) -> Vec<Memory> {
        memories(&[Message { role: "user", speaker: None, text, time_ms: Some(time_ms) }], &Options::default())
    }

    fn known(text: &str) -> Vec<StoredMemory> {
        said(text, 1_000)
            .into_iter()
            .enumerate()
            .map(|(at, memory)| StoredMemory { id: format!("k{at}"), memory })
            .collect()
    }

    #[test]
    fn repetitions_are_skipped() {
        let changes = reconcile(&known("I love strong coffee."), &said("I really love strong coffee!", 2_000));
        assert!(matches!(&changes[..], [Change::Skip { id, .. }] if id == "k0"), "{changes:?}");
    }

    #[test]
    fn a_new_value_replaces_the_only_one() {
        let changes = reconcile(&known("I live in Lisbon."), &said("We moved to Porto.", 2_000));
        assert!(
            matches!(&changes[..], [Change::Replace { id, memory }] if id == "k0" && memory.value == "Porto"),
            "{changes:?}"
        );
        // An earlier statement does not replace a later one.
        let changes = reconcile(&known("I live in Lisbon."), &said("I live in Rome.", 500));
        assert!(matches!(&changes[..], [Change::Skip { .. }]), "{changes:?}");
    }

    #[test]
    fn a_change_of_mind_replaces_what_was_liked() {
        let changes = reconcile(&known("I like coffee."), &said("I don't like coffee.", 2_000));
        assert!(matches!(&changes[..], [Change::Replace { memory, .. }] if !memory.positive), "{changes:?}");
        let changes =
            reconcile(&known("I prefer Python for backends."), &said("Actually, I prefer Rust for backends.", 2_000));
        assert!(
            matches!(&changes[..], [Change::Replace { memory, .. }] if memory.value.contains("Rust")),
            "{changes:?}"
        );
    }

    #[test]
    fn other_people_other_days_and_other_things_are_new() {
        for (before, after) in [
            ("I like coffee.", "Anna likes coffee."),
            ("I like coffee.", "I like tea."),
            ("I went to the dentist on 3 May 2023.", "I went to the dentist on 9 May 2023."),
        ] {
            let changes = reconcile(&known(before), &said(after, 2_000));
            assert!(matches!(&changes[..], [Change::Create(_)]), "{before} / {after}: {changes:?}");
        }
    }

    #[test]
    fn within_one_conversation_the_last_word_counts() {
        let found = said("I live in Lisbon. I live in Porto.", 1_000);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].value, "Porto");
    }
}
