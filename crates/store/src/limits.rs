//! Every limit and delay of the store, each with its reason.

use std::time::Duration;
use toolyard_engine::store::checks::ChangeLimits;

/// How long SQLite waits for another process's transaction before it returns busy.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the writer retries while other processes keep the database busy; then the store fails.
pub const BUSY_PATIENCE: Duration = Duration::from_secs(60);
/// How long opening waits for another process that is creating or migrating the same store.
pub const OPEN_PATIENCE: Duration = Duration::from_secs(30);

/// A change that has waited this long to be written means that the store cannot write now.
pub const STALLED: Duration = Duration::from_secs(2);
/// With less than this free on its disk the store counts as not writable: the database and its log must be able to grow.
pub const MIN_FREE_BYTES: u64 = 1 << 20;
/// How often a store whose disk was full tries again.
pub const RETRY_FULL: Duration = Duration::from_millis(250);
/// How often a store that somebody watches looks for changes of other processes.
pub const HINT_POLL: Duration = Duration::from_millis(200);
/// Bytes that may be queued before `append` waits.
pub const QUEUE_BYTES: usize = 64 << 20;
/// The longest time that a `Deferred` batch waits for further batches. Half of what the trait guarantees, which leaves time
/// to commit.
pub const MAX_RIDE_DELAY: Duration = Duration::from_millis(50);
/// The usual time that a `Deferred` batch waits for further batches.
pub const RIDE_DELAY: Duration = Duration::from_millis(20);
/// With this much queued there is no point in waiting for more.
pub const EARLY_COMMIT_BYTES: usize = 256 << 10;
/// How long the writer polls for the next change after a sync before it sleeps, if the previous change came as quickly:
/// waking the thread would take longer than the work in between.
pub const SPIN: Duration = Duration::from_micros(150);
/// Most that goes into one transaction, so that a flood of `Deferred` batches does not hold up a `Sync` one for long.
pub const TRANSACTION_BYTES: usize = 2 << 20;
/// Pages in the log at which the writer moves them to the database between two commits.
pub const WAL_PAGES_HARD: i32 = 1000;
/// Number of pages in the log that are moved when there is nothing else to do.
pub const WAL_PAGES_IDLE: i32 = 64;
/// How long the writer must have had no work before it is idle.
pub const IDLE_AFTER: Duration = Duration::from_millis(250);

/// A sync that takes longer than this is not performed on the caller's thread.
pub const SYNC_HERE: Duration = Duration::from_millis(1);
/// Size of a process's journal. When it is full, one commit is synced in the database, and the journal starts again:
/// about every 1,500 steps.
pub const JOURNAL_BYTES: u64 = 2 << 20;
/// Largest entry of the journal; what is larger goes to the database at once.
pub const JOURNAL_ENTRY_BYTES: usize = 128 << 10;
/// Bytes of entries for which nobody waits. Beyond this, the database is faster than the journal.
pub const JOURNAL_IDLE_BYTES: usize = 256 << 10;

pub use toolyard_engine::store::checks::{
    CHANGE_BYTES, MAX_BLOB_BYTES, MAX_FACT_BYTES, MAX_FRAME_BYTES, MAX_LEDGER_BYTES,
};
/// Longest name of a space, and longest key in it.
pub const MAX_FACT_NAME_BYTES: usize = 4096;
/// Most frames in a run: sequence numbers share 63 bits with the run's number.
pub const MAX_SEQ: u64 = u32::MAX as u64;
/// What a queued change may be at most.
pub const CHANGES: ChangeLimits = ChangeLimits { max_seq: MAX_SEQ, max_fact_name_bytes: MAX_FACT_NAME_BYTES };

/// Payloads from this size on are compressed, if that saves an eighth.
pub const COMPRESS_FROM: usize = 2048;
/// Frame payloads over this size are kept as they are: compressing them would hold up the caller.
pub const COMPRESS_FRAME_TO: usize = 256 << 10;
/// If the blobs in a batch have more than this many bytes, they are compressed and written on a separate thread.
pub const BLOB_INLINE_BYTES: usize = 64 << 10;
/// Blobs over this size become files.
pub const BLOB_FILE_BYTES: usize = 1 << 20;

/// Maximum number of rejected batches that are remembered for waiting callers. Beyond it, the store fails.
pub const MAX_REJECTED: usize = 10_000;
/// How long the writer waits for a ledger maker, while other processes wait for the writer.
pub const LEDGER_MAKER_PATIENCE: Duration = Duration::from_secs(2);

/// Rows that `runs` answers when no limit is named.
pub const DEFAULT_RUN_LIMIT: usize = 100;
/// Most rows that `runs` answers.
pub const MAX_RUN_LIMIT: usize = 10_000;
/// How many frames one query reads: a long read would prevent the log from being emptied.
pub const FRAMES_PER_READ: i64 = 8192;
/// Read connections kept open between reads.
pub const IDLE_READERS: usize = 2;
/// Unused blobs removed in one transaction.
pub const BLOBS_PER_REMOVAL: usize = 500;
/// Expired facts removed at once.
pub const PRUNE_ROWS: i64 = 1000;
/// How often expired facts are removed.
pub const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of runs whose number the writer caches.
pub const RUN_NUMBERS: usize = 4096;
