//! What fuzzers are pointed at: one function for each parser of bytes that others wrote, with assertions about the
//! result: no panic, bounded output, and what was read can be written and read again.
//!
//! The same functions run in two ways. `tests/corpus.rs` runs them over the seeds in `fuzz/corpus` and over
//! pseudo-random changes of the seeds, with every `cargo test`. `fuzz/` is a workspace of its own with a libFuzzer
//! program for each (`make fuzz SECONDS=60`); normal builds never see it.
//!
//! A target panics when an assertion fails; that is what a fuzzer looks for. It answers whether the input was accepted,
//! so that the tests can tell that the seeds reach the code behind the parser.

// A failed assertion is the result that a fuzzer reports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod documents;
mod messages;
mod records;

pub use documents::{archive, multipart, patch, uri};
pub use messages::{bridge_frame, jsonrpc, rpc_request, websocket_frame};
pub use records::{journal_entry, plan};

/// A target: whether it accepted the input. Panics when the code under test breaks a promise.
pub type Target = fn(&[u8]) -> bool;

/// Every target by the name of its corpus folder and of its libFuzzer program.
pub const TARGETS: &[(&str, Target)] = &[
    ("websocket_frame", websocket_frame),
    ("rpc_request", rpc_request),
    ("jsonrpc", jsonrpc),
    ("plan", plan),
    ("patch", patch),
    ("uri", uri),
    ("archive", archive),
    ("journal_entry", journal_entry),
    ("bridge_frame", bridge_frame),
    ("multipart", multipart),
];
