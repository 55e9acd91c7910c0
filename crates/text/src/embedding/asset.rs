//! The embedding table, compiled into the program and split into its parts at compile time. A damaged asset fails the
//! build.
//!
//! Layout, little endian: 8 bytes of magic; the number of rows, the number of dimensions and the size of the vocabulary
//! in bytes, each as u32; one f32 scale per row; the vocabulary, one piece per line, in row order; the rows as 8-bit
//! values.

/// Number of dimensions of a vector.
pub const DIMENSIONS: usize = 256;

static BYTES: &[u8] = include_bytes!("../../assets/minilm-static.bin");

const MAGIC: &[u8; 8] = b"TYEMBED1";
const HEADER: usize = 20;

/// The parts of the asset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asset {
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
        let rows = number(header, 8);
        assert!(number(header, 12) == DIMENSIONS, "the table has another number of dimensions");
        assert!(rows < u16::MAX as usize, "the vocabulary's index holds 16-bit row numbers");
        let (scales, rest) = rest.split_at(rows * 4);
        let (vocabulary, values) = rest.split_at(number(header, 16));
        assert!(values.len() == rows * DIMENSIONS, "the table is not as long as its header says");
        Self { scales, vocabulary, values }
    }

    /// The 8-bit values of a row and their scale.
    pub(crate) fn row(&self, row: u16) -> (&'static [u8], f32) {
        let row = usize::from(row);
        let scale = self.scales.as_chunks::<4>().0.get(row).map_or(0.0, |bytes| f32::from_le_bytes(*bytes));
        (self.values.get(row * DIMENSIONS..(row + 1) * DIMENSIONS).unwrap_or_default(), scale)
    }

    /// Number of word pieces in the table.
    pub(crate) fn rows(&self) -> usize {
        self.scales.len() / 4
    }
}

const fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}
