//! The hooks' door: calls that coding agents (Claude Code, Codex, Gemini CLI) make with their own tools pass the same
//! pipeline as all other calls. A call is decided, recorded with before-images, closed by the hook that runs after it,
//! and undone like any other.
//!
//! `payload` reads what a client sends and `answer` writes what it understands; `classify`, `shell` and `patch` judge a
//! call; `image` and `shadow` keep what was there before; `provider` is the engine's view of a native call; `door`
//! connects events with calls. Knows no socket, no configuration file and no approver.

mod answer;
mod classify;
mod client;
mod door;
mod image;
mod locations;
mod native;
mod patch;
mod payload;
mod provider;
mod shadow;
pub mod shell;

pub use answer::{HookAnswer, Verdict};
pub use client::Client;
pub use door::{HookRequest, HooksDoor, OwnToolApproval, OwnTools};
pub use native::entries;
pub use provider::NativeProvider;
pub use shadow::{PrunedSnapshots, SnapshotLimits, SnapshotRetention};

#[cfg(test)]
mod tests;
