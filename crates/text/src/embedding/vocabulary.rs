//! Which row a word piece has: a hash table with open addressing over the asset's own bytes.

/// More than twice the pieces, so that a search for a piece is over after a step or two.
const SLOTS: usize = 1 << 16;
const EMPTY: u16 = u16::MAX;

/// The pieces, found by their bytes.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    bytes: &'static [u8],
    /// Where each piece ends, by row; it begins after the newline of the one before.
    ends: Vec<u32>,
    slots: Vec<u16>,
    /// Bytes of the longest piece: longer parts of a word need not be looked up.
    pub(crate) longest: usize,
}

impl Vocabulary {
    /// Indexes the pieces, each followed by a newline.
    pub(crate) fn new(bytes: &'static [u8]) -> Self {
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at as u32).collect();
        let mut vocabulary = Self { bytes, ends, slots: vec![EMPTY; SLOTS], longest: 0 };
        for row in 0..vocabulary.ends.len().min(usize::from(EMPTY)) as u16 {
            let (continues, piece) = split(vocabulary.piece(row));
            vocabulary.longest = vocabulary.longest.max(piece.len());
            let mut slot = hash(piece, continues);
            while vocabulary.slots[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            vocabulary.slots[slot] = row;
        }
        vocabulary
    }

    /// The row of a piece: one that begins a word, or one that continues it (`##` in the vocabulary).
    pub(crate) fn row(&self, piece: &[u8], continues: bool) -> Option<u16> {
        let mut slot = hash(piece, continues);
        loop {
            let row = self.slots[slot];
            if row == EMPTY {
                return None;
            }
            if split(self.piece(row)) == (continues, piece) {
                return Some(row);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// A piece as the vocabulary spells it.
    pub(crate) fn piece(&self, row: u16) -> &'static [u8] {
        let row = usize::from(row);
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| end + 1);
        let end = self.ends.get(row).copied().unwrap_or(start);
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// `##` alone is two signs, not the continuation of a word by nothing.
fn split(piece: &[u8]) -> (bool, &[u8]) {
    match piece.strip_prefix(b"##") {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, piece),
    }
}

/// FNV-1a, folded to a slot number. The input is our own vocabulary: nobody can choose keys that collide.
fn hash(piece: &[u8], continues: bool) -> usize {
    let seed = 0xcbf2_9ce4_8422_2325 ^ u64::from(continues);
    let hash = piece.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ hash >> 32) as usize % SLOTS
}
