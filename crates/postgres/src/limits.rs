//! Every limit and delay of the store, each with its reason.

use std::time::Duration;
use toolyard_engine::store::checks::ChangeLimits;

/// The oldest server that is supported: the oldest that PostgreSQL itself still supports.
pub const MIN_SERVER_VERSION: i32 = 140_000;

/// How often a node renews its lease.
pub const BEAT: Duration = Duration::from_millis(500);
/// A node whose last beat is older than this, by the server's clock, is dead.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(3);
/// A node dispatches nothing once its last good beat was sent this long ago. The time between this and [`TIME_TO_LIVE`]
/// allows for clocks that run at different speeds and for a dispatch that has begun.
pub const DISPATCH_WITHIN: Duration = Duration::from_secs(2);
/// After the server was replaced or started again, nobody is fenced for this long: nobody could renew a lease meanwhile.
pub const CALM: Duration = Duration::from_secs(6);

/// How long opening a connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a statement may take before its connection counts as lost.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a read waits for a server that cannot be reached: longer than a failover takes.
pub const READ_PATIENCE: Duration = Duration::from_secs(15);
/// How often a server that cannot be reached is tried again.
pub const RETRY: Duration = Duration::from_millis(100);
/// How long callers wait for a server that cannot be reached before they receive an error.
pub const AWAY_PATIENCE: Duration = Duration::from_secs(30);
/// How long migrations wait for a lock that other nodes' work needs.
pub const MIGRATION_LOCK: &str = "2s";

/// Connections for everything but the group commit.
pub const POOL: usize = 8;
/// Connections that are kept open when nobody uses them.
pub const IDLE_CONNECTIONS: usize = 3;

/// Bytes that may be queued before `append` waits.
pub const QUEUE_BYTES: usize = 64 << 20;
/// How long a `Deferred` batch waits for further batches. The trait guarantees 100 ms.
pub const RIDE_DELAY: Duration = Duration::from_millis(20);
/// A caller's thread waits at most this long for its own commit; then the writer's thread waits for the answer.
pub const LEAD_WITHIN: Duration = Duration::from_millis(2);
/// A caller's thread commits only while commits take less than this: a slower one would keep a thread of the engine from
/// other work.
pub const LEAD_BELOW: Duration = Duration::from_millis(1);
/// After this time without changes the writer's thread sleeps until it is woken. Before, it looks by itself, so that a
/// caller that commits on its own thread wakes nobody.
pub const REST_AFTER: Duration = Duration::from_millis(500);
/// With this much queued there is no point in waiting for more.
pub const EARLY_COMMIT_BYTES: usize = 256 << 10;
/// Most that goes into one statement.
pub const GROUP_BYTES: usize = 4 << 20;
/// Refused batches that are remembered for callers who ask later.
pub const MAX_REJECTED: usize = 10_000;
/// Runs that this node is known to hold.
pub const HELD_RUNS: usize = 65_536;

/// Blobs up to this size are kept beside the records; larger ones apart, or in the bucket.
pub const BLOB_INLINE_BYTES: usize = 64 << 10;
/// What a queued change may be at most. An index entry, which holds the name of a space or a key, must fit into a third
/// of a page.
pub const CHANGES: ChangeLimits = ChangeLimits { max_seq: i64::MAX as u64, max_fact_name_bytes: 1200 };
/// How often an entry of the ledger is made again because another node was faster.
pub const LEDGER_TRIES: u32 = 200;

/// Rows that `runs` answers when no limit is named.
pub const DEFAULT_RUN_LIMIT: usize = 100;
/// Most rows that `runs` answers.
pub const MAX_RUN_LIMIT: usize = 10_000;
/// Frames that one query reads.
pub const FRAMES_PER_READ: i64 = 1024;
/// Expired facts removed at once.
pub const PRUNE_ROWS: i64 = 1000;
/// How often expired facts are removed.
pub const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// How often partitions are made and dropped.
pub const PARTITIONS_EVERY: Duration = Duration::from_secs(3600);
/// Hints to other nodes are sent at most this often.
pub const NOTIFY_EVERY: Duration = Duration::from_millis(10);
