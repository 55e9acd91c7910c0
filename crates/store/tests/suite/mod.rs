//! The tests themselves, each generic over a [`Home`](crate::support::Home).

mod facts;
mod owners;
mod processes;
mod records;
mod runs;

pub use facts::*;
pub use owners::*;
pub use processes::*;
pub use records::*;
pub use runs::*;
