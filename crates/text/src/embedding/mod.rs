//! Meaning without a server: a static embedding that is part of the program.
//!
//! A table of one vector for each word piece, distilled from the sentence model all-MiniLM-L6-v2 (`scripts/distil`).
//! A text's vector is the sum of its pieces' vectors at unit length; the cosine of two vectors says how near two texts
//! are in meaning. That is far less than a sentence model knows, and takes microseconds where the model takes
//! milliseconds. Fused with a word search it gives most of what the model would.
//!
//! ```
//! use toolyard_text::embedding::{DIMENSIONS, StaticEmbedder, cosine};
//! let embedder = StaticEmbedder::shared();
//! let vector = |text| embedder.embed(text, None).unwrap_or([0.0; DIMENSIONS]);
//! let weather = vector("Will it rain tomorrow?");
//! assert!(cosine(&weather, &vector("weather forecast")) > cosine(&weather, &vector("currency exchange rates")));
//! ```
//!
//! The table lies in the program's file and is mapped when it is first read: a process that embeds nothing pays
//! nothing, and nothing is copied. What is made on first use is the index of the vocabulary, a quarter of a megabyte.
//!
//! For search, vectors are kept in 8 bits ([`VectorTable`]) and scanned exactly: a million of them take 256 MB, and
//! forty thousand are scanned in about a millisecond.
//!
//! Word pieces are the units of this table and of nothing else: search counts terms ([`crate::terms`]).

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
