//! The other system's shapes: OpenViking's HTTP interface (`http/`), the texts and details of its plugin's tools
//! (`tools/`), its slash commands, and what its context engine answers around an agent's turn.

pub mod commands;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod tools;
pub mod turns;
