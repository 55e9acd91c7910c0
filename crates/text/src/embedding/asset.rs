//! The embedding table, compiled into the program and split into its parts at compile time. A damaged asset fails the
//! build.
//!
//! Layout, little endian: 8 bytes of magic; the number of rows, the number of dimensions and the size of the vocabulary
//! in bytes, each as u32; the scale of each group of dimensions as f32; the codebook, one i8 for each window; the scale of
//! each row, as the upper half of an f32; the vocabulary, one piece per line, in row order; the rows.
//!
//! A row is a string of bits, with the first bit highest in its byte. A value is the entry of the codebook that the
//! last [`WINDOW`] bits name, times the scales of its group and its row; the next value moves the window on by the bits
//! of its group. Neighbours share bits, so that 4 bits a value are as exact as about 4.6 with a level for each value
//! alone (trellis-coded quantisation). The first dimensions vary most and have more bits.

/// Number of dimensions of a vector.
pub const DIMENSIONS: usize = 256;
/// Bits of a window, which names an entry of the codebook.
const WINDOW: usize = 12;
/// Groups of dimensions: the bits by which the window moves for each value, and the number of dimensions.
const GROUPS: [Group; 3] =
    [Group { bits: 5, dimensions: 80 }, Group { bits: 4, dimensions: 96 }, Group { bits: 3, dimensions: 80 }];
/// Bytes of a row: the bits of all values, and those that the window of the first value has before them.
const ROW: usize = row_bits().div_ceil(8);

struct Group {
    bits: usize,
    dimensions: usize,
}

static BYTES: &[u8] = include_bytes!("../../assets/minilm-static.bin");

const MAGIC: &[u8; 8] = b"TYEMBED3";
const HEADER: usize = 20;

/// The parts of the asset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asset {
    groups: [f32; GROUPS.len()],
    codebook: &'static [u8],
    scales: &'static [u8],
    pub(crate) vocabulary: &'static [u8],
    values: &'static [u8],
}

/// The asset of this build.
pub(crate) static ASSET: Asset = Asset::cut(BYTES);

impl Asset {
    /// Evaluated at compile time: a failed check is a build error, never a run-time error.
    const fn cut(bytes: &'static [u8]) -> Self {
        let (header, rest) = bytes.split_at(HEADER);
        let mut i = 0;
        while i < MAGIC.len() {
            assert!(header[i] == MAGIC[i], "this is not a table of embeddings");
            i += 1;
        }
        let rows = number(header, 8) as usize;
        assert!(number(header, 12) as usize == DIMENSIONS, "the table has another number of dimensions");
        assert!(rows < u16::MAX as usize, "the vocabulary's index holds 16-bit row numbers");
        let (stored_groups, rest) = rest.split_at(GROUPS.len() * 4);
        let mut groups = [0.0; GROUPS.len()];
        let mut i = 0;
        while i < GROUPS.len() {
            groups[i] = f32::from_bits(number(stored_groups, i * 4));
            i += 1;
        }
        let (codebook, rest) = rest.split_at(1 << WINDOW);
        let (scales, rest) = rest.split_at(rows * 2);
        let (vocabulary, values) = rest.split_at(number(header, 16) as usize);
        assert!(values.len() == rows * ROW, "the table is not as long as its header says");
        Self { groups, codebook, scales, vocabulary, values }
    }

    /// Adds a row, times a weight, to a sum.
    pub(crate) fn add(&self, row: u16, weight: f32, sum: &mut [f32; DIMENSIONS]) {
        let row = usize::from(row);
        let (Some(scale), Some(bytes)) =
            (self.scales.as_chunks::<2>().0.get(row), self.values.get(row * ROW..(row + 1) * ROW))
        else {
            return;
        };
        let scale = f32::from_bits(u32::from(u16::from_le_bytes(*scale)) << 16) * weight;
        // Space behind the row, so that four bytes can be read at each of its bytes.
        let mut padded = [0; ROW + 4];
        padded[..ROW].copy_from_slice(bytes);
        let (mut sums, mut end) = (sum.as_mut_slice(), WINDOW - GROUPS[0].bits);
        for (group, size) in GROUPS.iter().zip(self.groups) {
            let (of_group, rest) = sums.split_at_mut(group.dimensions);
            sums = rest;
            for value in of_group {
                end += group.bits;
                let start = end - WINDOW;
                let word = u32::from_be_bytes([
                    padded[start / 8],
                    padded[start / 8 + 1],
                    padded[start / 8 + 2],
                    padded[start / 8 + 3],
                ]);
                let window = (word << (start % 8)) >> (32 - WINDOW);
                *value += f32::from(self.codebook[window as usize] as i8) * (size * scale);
            }
        }
    }

    /// Number of word pieces in the table.
    pub(crate) fn rows(&self) -> usize {
        self.scales.len() / 2
    }
}

const fn row_bits() -> usize {
    let (mut bits, mut i) = (WINDOW - GROUPS[0].bits, 0);
    while i < GROUPS.len() {
        bits += GROUPS[i].bits * GROUPS[i].dimensions;
        i += 1;
    }
    bits
}

const fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
