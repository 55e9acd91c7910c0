//! All limits of a script.

use serde::{Deserialize, Serialize};

/// A script is at most this long.
pub const MAX_SCRIPT_BYTES: usize = 256 << 10;
/// No message, in either direction, is larger than this; a larger one ends the script.
pub const MAX_FRAME_BYTES: usize = 2 << 20;
/// Private writable memory of the child, beyond what the interpreter counts itself.
pub(crate) const CHILD_DATA_BYTES: u64 = 192 << 20;
/// Address space of the child, its program included.
pub(crate) const CHILD_ADDRESS_BYTES: u64 = 2 << 30;
/// Processor seconds that the child gets beyond its wall-clock time; only used if the parent is gone.
pub(crate) const CHILD_EXTRA_CPU_SECONDS: u64 = 1;

/// What one script may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Milliseconds of wall-clock time for everything, including the tools that the script calls.
    pub time_ms: u64,
    /// Bytes the interpreter may hold.
    pub memory_bytes: usize,
    /// Bytes of stack the interpreter may use.
    pub stack_bytes: usize,
    /// Calls over the bridge, of all methods together.
    pub bridge_calls: u32,
    /// Timers that have not fired yet.
    pub timers: usize,
    /// Calls over the bridge that are answered at once; further ones wait.
    pub bridge_at_once: usize,
    /// Lines of console output that are kept.
    pub log_lines: usize,
    /// Bytes of console output that are kept.
    pub log_bytes: usize,
    /// Bytes of one value (arguments, an answer, the result) as JSON.
    pub value_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time_ms: 10_000,
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            bridge_calls: 256,
            timers: 256,
            bridge_at_once: 8,
            log_lines: 200,
            log_bytes: 32 << 10,
            value_bytes: 1 << 20,
        }
    }
}
