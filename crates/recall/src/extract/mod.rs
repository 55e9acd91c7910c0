//! What can be taken out of texts by rules: abstracts and overviews ([`outline`]), summaries of conversations
//! ([`session`]), memories ([`memories`]) and what becomes of those that are known already ([`reconcile`]).
//!
//! Everything is extracted, nothing is written anew: a sentence that appears was said.

pub mod memories;
pub mod outline;
mod phrases;
pub mod reconcile;
mod rules;
mod salience;
pub mod session;

pub use memories::{Memory, Message, Options, memories};
pub use outline::{Child, directory_abstract, directory_overview, text_abstract, text_overview};
pub use reconcile::{Change, Known, reconcile};
pub use rules::states_preference;
pub use session::{Summary, summarise};

/// Characters of an abstract at most.
pub const MAX_ABSTRACT_CHARS: usize = 256;
/// Characters of an overview at most.
pub const MAX_OVERVIEW_CHARS: usize = 4_000;
