//! Generates notes with the statistics of real ones: a few frequent words, many rare ones, and a topic for each note.
//! The same seed gives the same notes.

use std::path::Path;

/// Words that occur in every text.
const COMMON: &[&str] = &[
    "the", "and", "with", "for", "about", "after", "before", "because", "while", "then", "again", "still", "often",
    "never", "small", "large", "early", "late", "good", "better", "new", "second", "first", "last", "other", "same",
    "time", "day",
];
/// Words that belong to a topic.
const TOPICAL: &[&str] = &[
    "garden",
    "compost",
    "tomato",
    "greenhouse",
    "bicycle",
    "chain",
    "saddle",
    "brake",
    "oven",
    "bread",
    "yeast",
    "recipe",
    "guitar",
    "melody",
    "rehearsal",
    "concert",
    "meeting",
    "deadline",
    "budget",
    "roadmap",
    "train",
    "museum",
    "harbour",
    "passport",
    "sleep",
    "running",
    "doctor",
    "vitamin",
    "server",
    "index",
    "latency",
    "compiler",
    "novel",
    "author",
    "poem",
    "library",
    "roof",
    "window",
    "heating",
    "kitchen",
    "protein",
    "enzyme",
    "neuron",
    "climate",
    "ocean",
    "glacier",
    "orbit",
    "telescope",
    "contract",
    "court",
    "invoice",
    "salary",
    "harvest",
    "tractor",
    "cattle",
    "wheat",
    "painter",
    "sculpture",
    "museum",
    "gallery",
    "engine",
    "piston",
    "battery",
    "solar",
    "football",
    "marathon",
    "chess",
    "theatre",
    "language",
    "grammar",
    "translation",
    "dictionary",
    "medicine",
    "surgery",
    "vaccine",
    "patient",
    "school",
    "teacher",
    "exam",
    "lecture",
    "castle",
    "empire",
    "treaty",
    "battle",
    "bridge",
    "concrete",
    "tunnel",
    "harvest",
    "vineyard",
    "cheese",
];

/// A small deterministic random number generator.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }

    /// Small numbers often, large ones rarely.
    fn skewed(&mut self, limit: usize) -> usize {
        let part = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((part * part * part) * limit as f64) as usize
    }
}

/// A rare word: two topical words joined, or a word with a number.
fn rare(dice: &mut Dice) -> String {
    let (a, b) = (TOPICAL[dice.below(TOPICAL.len())], TOPICAL[dice.below(TOPICAL.len())]);
    if dice.below(3) == 0 { format!("{a}{}", dice.below(10_000)) } else { format!("{a}{b}") }
}

fn word(dice: &mut Dice, topic: usize, out: &mut String) {
    match dice.below(20) {
        0..=8 => out.push_str(COMMON[dice.skewed(COMMON.len())]),
        // The words of one topic are neighbours in the list.
        9..=15 => out.push_str(TOPICAL[(topic + dice.below(8)) % TOPICAL.len()]),
        16..=18 => out.push_str(TOPICAL[dice.skewed(TOPICAL.len())]),
        _ => out.push_str(&rare(dice)),
    }
}

/// Sentences about a topic, of about this many bytes.
pub(crate) fn text(dice: &mut Dice, topic: usize, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + 64);
    let mut in_sentence = 0;
    while out.len() < bytes {
        if in_sentence == 0 && !out.is_empty() {
            out.push_str(". ");
        } else if !out.is_empty() {
            out.push(' ');
        }
        word(dice, topic, &mut out);
        in_sentence = (in_sentence + 1) % (6 + dice.below(10));
    }
    out.push('.');
    out
}

/// A question: a few words of a topic, and sometimes a rare one.
pub(crate) fn question(dice: &mut Dice) -> String {
    let topic = dice.below(TOPICAL.len());
    let mut out = String::new();
    for _ in 0..3 + dice.below(6) {
        word(dice, topic, &mut out);
        out.push(' ');
    }
    out
}

/// Writes notes of about `note_bytes` each, split into sections of about `section_bytes`, and returns the total size.
pub(crate) fn write_vault(root: &Path, notes: usize, note_bytes: usize, section_bytes: usize) -> std::io::Result<u64> {
    let mut dice = Dice::new(11);
    let mut total = 0;
    for number in 0..notes {
        let topic = dice.below(TOPICAL.len());
        let folder = root.join(format!("{}/{}", TOPICAL[topic], number % 7));
        std::fs::create_dir_all(&folder)?;
        let mut note = format!("---\ntags: [{}]\n---\n", TOPICAL[topic]);
        while note.len() < note_bytes {
            note.push_str(&format!(
                "\n## {} {}\n\n",
                TOPICAL[(topic + dice.below(8)) % TOPICAL.len()],
                dice.below(100)
            ));
            note.push_str(&text(&mut dice, topic, section_bytes));
            note.push('\n');
            if dice.below(4) == 0 {
                note.push_str(&format!("See [[note {}]].\n", dice.below(notes)));
            }
        }
        total += note.len() as u64;
        std::fs::write(folder.join(format!("note {number}.md")), note)?;
    }
    Ok(total)
}
