//! OpenViking's formats, and the only part of this crate with untyped JSON: the HTTP interface (`http/`), the texts and
//! details of the plugin's tools (`tools/`), the slash commands, and the responses of its context engine around an
//! agent's turn. `shapes/` has the responses as structs, `compat.rs` the fields that this store has no data for, and
//! `given.rs` parses client data without a fixed schema.
//!
//! The tools are here and not in a folder of their own, because their texts, details and two kinds of failure repeat
//! the plugin's word for word: they are a second wire format beside HTTP. The work itself is done in the other folders.

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
