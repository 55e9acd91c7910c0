//! Finds the row of a word piece, with an open-addressing hash table over the bytes of the asset.

/// More than twice the number of pieces, so that a lookup ends after one or two probes.
const SLOTS: usize = 1 << 16;
const EMPTY: u16 = u16::MAX;

/// The word pieces, indexed by their bytes.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    bytes: &'static [u8],
    /// End offset of each piece, by row. A piece starts after the newline that ends the previous one.
    ends: Vec<u32>,
    slots: Vec<u16>,
    /// Length in bytes of the longest piece. Longer slices of a word need no lookup.
    pub(crate) longest: usize,
}

impl Vocabulary {
    /// Indexes the pieces; each is followed by a newline.
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

    /// The row of a piece that starts a word or, with `continues`, of one that continues a word (`##` in the
    /// vocabulary).
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

    /// A piece as spelled in the vocabulary.
    pub(crate) fn piece(&self, row: u16) -> &'static [u8] {
        let row = usize::from(row);
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| end + 1);
        let end = self.ends.get(row).copied().unwrap_or(start);
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// The piece `##` alone is two punctuation characters, not an empty continuation.
fn split(piece: &[u8]) -> (bool, &[u8]) {
    match piece.strip_prefix(b"##") {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, piece),
    }
}

/// FNV-1a, folded to a slot number. The only keys are those of the built-in vocabulary, so collision attacks are
/// impossible.
fn hash(piece: &[u8], continues: bool) -> usize {
    let seed = 0xcbf2_9ce4_8422_2325 ^ u64::from(continues);
    let hash = piece.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ hash >> 32) as usize % SLOTS
}
