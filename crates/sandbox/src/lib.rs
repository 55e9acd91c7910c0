//! Runs code we did not write: the code-mode script, a short JavaScript body that finds and calls tools; and plugins,
//! whole programs that are confined before they start ([`launch`]); and git and npm on files of strangers ([`tool`], [`git`]).
//!
//! A script runs in a child process of its own, which is this program again or a small one beside it (see [`child`]). Before
//! the first line of script the child gives up everything it does not need: files, network, processes, environment and
//! descriptors, by Landlock, seccomp and resource limits. QuickJS runs inside, with its own limits. All the child can do
//! is compute, and speak the protocol of [`wire`] over its two pipes. The parent ([`ScriptRunner`]) holds the clock, counts
//! and measures everything that comes over, and answers what the script asks through a [`Bridge`].
//!
//! This crate knows no tools, no policy and no engine: what `search`, `describe` and `call` mean is the bridge's business.

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
