//! The table as it lies in the program's file, cut into its parts at compile time: a damaged asset does not build.
//!
//! Layout, little endian: 8 bytes of magic; rows, dimensions and bytes of the vocabulary as u32; a scale for each row
//! as f32; the vocabulary, each piece with a newline after it, in the order of the rows; the rows in 8 bits.

/// Numbers in a vector.
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
    /// Runs when the crate is compiled: what fails here is an error of the build, never of a running program.
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

    /// The 8-bit values of a row and what one of their units is worth.
    pub(crate) fn row(&self, row: u16) -> (&'static [u8], f32) {
        let row = usize::from(row);
        let scale = self.scales.as_chunks::<4>().0.get(row).map_or(0.0, |bytes| f32::from_le_bytes(*bytes));
        (self.values.get(row * DIMENSIONS..(row + 1) * DIMENSIONS).unwrap_or_default(), scale)
    }

    /// How many pieces the table has.
    pub(crate) fn rows(&self) -> usize {
        self.scales.len() / 4
    }
}

const fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}
