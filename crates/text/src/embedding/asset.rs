//! The embedding table, compiled into the program and split into its parts at compile time. A damaged asset fails the
//! build.
//!
//! Layout, little endian: 8 bytes of magic; the number of rows, the number of dimensions and the size of the vocabulary
//! in bytes, each as u32; the 16 levels that a value can have, each as f32; one f32 scale per row; the vocabulary, one
//! piece per line, in row order; the rows, with 4 bits for each value: the number of its level. The first of two values
//! is in the low bits of their byte.

/// Number of dimensions of a vector.
pub const DIMENSIONS: usize = 256;
/// Number of levels that a value can have.
pub(crate) const LEVELS: usize = 16;
/// Bytes of a row.
const ROW: usize = DIMENSIONS / 2;

static BYTES: &[u8] = include_bytes!("../../assets/minilm-static.bin");

const MAGIC: &[u8; 8] = b"TYEMBED2";
const HEADER: usize = 20;

/// The parts of the asset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asset {
    /// The levels, before they are multiplied by the scale of a row.
    pub(crate) levels: [f32; LEVELS],
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
        let (stored_levels, rest) = rest.split_at(LEVELS * 4);
        let mut levels = [0.0; LEVELS];
        let mut i = 0;
        while i < LEVELS {
            levels[i] = f32::from_bits(number(stored_levels, i * 4));
            i += 1;
        }
        let (scales, rest) = rest.split_at(rows * 4);
        let (vocabulary, values) = rest.split_at(number(header, 16) as usize);
        assert!(values.len() == rows * ROW, "the table is not as long as its header says");
        Self { levels, scales, vocabulary, values }
    }

    /// The levels of a row's values, two in each byte, and the row's scale.
    pub(crate) fn row(&self, row: u16) -> (&'static [u8], f32) {
        let row = usize::from(row);
        let scale = self.scales.as_chunks::<4>().0.get(row).map_or(0.0, |bytes| f32::from_le_bytes(*bytes));
        (self.values.get(row * ROW..(row + 1) * ROW).unwrap_or_default(), scale)
    }

    /// Number of word pieces in the table.
    pub(crate) fn rows(&self) -> usize {
        self.scales.len() / 4
    }
}

const fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
