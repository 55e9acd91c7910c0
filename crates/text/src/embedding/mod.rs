//! A static embedding that is built into the program, so that semantic similarity needs no server.
//!
//! The embedding is a table with one vector for each word piece, distilled from the sentence model all-MiniLM-L6-v2
//! (`scripts/distil`). The vector of a text is the normalised sum of the vectors of its pieces. The cosine of two
//! vectors measures how similar two texts are in meaning. The table is much less accurate than the sentence model, but
//! takes microseconds where the model takes milliseconds. Combined with full-text search it gives most of the model's
//! benefit.
//!
//! ```
//! use toolyard_text::embedding::{DIMENSIONS, StaticEmbedder, cosine};
//! let embedder = StaticEmbedder::shared();
//! let vector = |text| embedder.embed(text, None).unwrap_or([0.0; DIMENSIONS]);
//! let weather = vector("Will it rain tomorrow?");
//! assert!(cosine(&weather, &vector("weather forecast")) > cosine(&weather, &vector("currency exchange rates")));
//! ```
//!
//! The table is part of the executable and is mapped on first use: a process that embeds nothing pays nothing, and
//! nothing is copied. Only the vocabulary index is allocated on first use; it takes a quarter of a megabyte.
//!
//! For search, vectors are stored in 8 bits ([`VectorTable`]) and scanned exactly: a million vectors take 256 MB, and
//! forty thousand are scanned in about a millisecond.
//!
//! Word pieces are used by this table only. Full-text search counts terms ([`crate::terms`]).

mod asset;
mod embedder;
mod pieces;
mod quantise;
mod vocabulary;
mod weights;

pub use asset::DIMENSIONS;
pub use embedder::{MODEL_ID, StaticEmbedder, Vector};
pub use quantise::{Quantised, VectorTable, cosine};
pub use weights::{DocumentCounts, PieceWeights};
