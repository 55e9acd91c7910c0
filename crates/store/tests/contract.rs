//! The suite every [`Store`] must pass. `contract!` expands it over an implementation; `across_processes!` adds what
//! only a store that outlives its process can be asked: `kill -9`, several processes at once.
//!
//! A new store adds one `Home` and two lines at the end of this file.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests and what helps them")]

#[path = "../../../tests/faults/plan.rs"]
mod fault_plan;
#[path = "../../../tests/random.rs"]
mod random;
mod suite;
mod support;

macro_rules! expand {
    ($home:ty, $ignore:meta: $($test:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[$ignore]
        async fn $test() {
            crate::suite::$test::<$home>().await;
        })*
    };
}

macro_rules! contract {
    ($home:ty, $ignore:meta) => {
        expand!($home, $ignore:
            frames_come_back_as_they_went,
            a_walk_can_be_ended_and_may_use_the_store,
            a_long_run_is_read_in_order,
            settle_makes_visible_what_only_rides,
            a_ride_becomes_visible_by_itself,
            durable_makes_rides_durable_as_well,
            durable_of_nothing,
            batches_appear_whole_and_in_order,
            many_tasks_at_once,
            a_frame_that_exists_is_refused,
            a_frame_twice_in_one_batch_is_refused,
            rows_come_back_as_they_went,
            runs_are_listed_newest_first,
            runs_are_listed_by_the_workspace_that_their_sessions_name,
            whoever_begins_a_run_holds_it_until_it_ends_or_is_let_go,
            a_run_is_taken_only_from_an_owner_that_is_gone,
            of_many_claims_one_wins,
            a_zombie_writes_nothing,
            a_storm_of_fences_loses_and_adds_nothing,
            a_batch_whose_answer_was_lost_is_settled_by_the_head,
            watchers_hear_of_changes_made_by_anybody,
            facts_are_there_at_once,
            expired_facts_are_gone,
            put_if_absent_sets_once,
            compare_and_set_changes_only_what_is_expected,
            facts_are_listed_by_prefix_and_page,
            blobs_are_kept_by_content,
            the_ledger_is_one_chain,
            a_ledger_entry_follows_the_records_queued_before_it,
            a_ledger_maker_may_read_the_store_and_may_fail,
        );
    };
}

macro_rules! across_processes {
    ($home:ty, $ignore:meta) => {
        expand!($home, $ignore:
            dropping_writes_everything,
            what_was_durable_survives_kill,
            a_claim_sees_what_a_killed_process_left,
            a_ride_survives_kill_after_its_delay,
            several_processes_append_at_once,
            the_ledger_never_forks_between_processes,
            between_processes_one_wins,
        );
    };
}

mod memory {
    contract!(crate::support::MemoryHome, doc = "One test of the suite.");
}

mod sqlite {
    contract!(crate::support::SqliteHome, doc = "One test of the suite.");
    across_processes!(crate::support::SqliteHome, doc = "One test of the suite.");

    mod attacks;
    mod faults;
    mod journals;
    mod kept;
    mod only;
    mod sealing;
    mod tampered;
}

mod postgres {
    contract!(crate::support::postgres::PostgresHome, ignore = "needs PostgreSQL: make postgres");
    across_processes!(crate::support::postgres::PostgresHome, ignore = "needs PostgreSQL: make postgres");

    mod only;
}

/// Behind a pooler that gives every transaction another connection.
mod pooled {
    contract!(crate::support::postgres::PooledHome, ignore = "needs PostgreSQL and PgBouncer: make postgres");
    across_processes!(crate::support::postgres::PooledHome, ignore = "needs PostgreSQL and PgBouncer: make postgres");
}

/// Where child processes begin: see [`support::spawn`].
#[test]
#[ignore = "runs only inside the child processes of other tests"]
fn child() {
    support::child();
}
