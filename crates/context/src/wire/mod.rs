//! The other system's shapes, and the only place of this crate where JSON has no type: OpenViking's HTTP interface
//! (`http/`), the texts and details of its plugin's tools (`tools/`), its slash commands, and what its context engine
//! answers around an agent's turn. `shapes/` are the answers as structs, `compat.rs` what they have that this store has
//! not, `given.rs` what clients hand over as JSON.
//!
//! The tools live here and not in a folder of their own, because their texts, details and two ways of failing are the
//! plugin's, word for word: they are a second wire format beside HTTP, and what they do is done in the other folders.

pub mod commands;
pub(crate) mod compat;
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod given;
pub mod http;
pub(crate) mod shapes;
pub mod tools;
pub mod turns;

pub use shapes::ImportShape;
