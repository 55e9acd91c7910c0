//! Rule-based extraction from texts: abstracts and overviews ([`outline`]), conversation summaries ([`session`]),
//! memories ([`memories`]), and merging new memories with known ones ([`reconcile`]).
//!
//! The output consists of extracted sentences only; nothing is paraphrased.

pub mod memories;
pub mod outline;
mod pattern;
mod phrases;
pub mod reconcile;
mod rules;
mod salience;
pub mod session;

pub use memories::{Memory, Message, Options, memories};
pub use outline::{Child, directory_abstract, directory_overview, text_abstract, text_overview};
pub use reconcile::{Change, StoredMemory, reconcile};
pub use rules::states_preference;
pub use session::{Summary, summarise};

/// Maximum length of an abstract, in characters.
pub const MAX_ABSTRACT_CHARS: usize = 256;
/// Maximum length of an overview, in characters.
pub const MAX_OVERVIEW_CHARS: usize = 4_000;
