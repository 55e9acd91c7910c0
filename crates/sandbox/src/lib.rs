//! Runs untrusted code: code-mode scripts (short JavaScript bodies that find and call tools), plugins (whole programs
//! that are confined before they start, [`launch`]), and git and npm on untrusted files ([`tool`], [`git`]).
//!
//! A script runs in a separate child process, which is this program or a small one beside it (see [`child`]). Before
//! the first line of the script, the child gives up everything that it does not need: files, network, processes,
//! environment and descriptors, with Landlock, seccomp and resource limits. QuickJS runs inside, with its own limits.
//! The child can only compute and use the protocol of [`wire`] over its two pipes. The parent ([`ScriptRunner`])
//! measures time, limits everything that arrives, and answers the script's requests through a [`Bridge`].
//!
//! This crate does not know tools, policy or the engine: the bridge implements `search`, `describe` and `call`.

pub mod child;
pub mod git;
pub mod launch;
mod limits;
mod program;
mod runner;
pub mod tool;
pub mod wire;

pub use limits::{Limits, MAX_FRAME_BYTES, MAX_SCRIPT_BYTES};
pub use runner::{BoxFuture, Bridge, Cause, Finished, ScriptFailure, ScriptRunner};
pub use wire::Method;
