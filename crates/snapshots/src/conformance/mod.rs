//! The conformance suite: what every backend must do, one named case each.
//!
//! A case gets a fresh, empty database through a [`Backend`], and never names one.
//! `snapshots_conformance_suite!` makes one test of each
//! case; [`cases`] lists them.

pub mod concurrent;
pub mod counts;
pub mod dead_letters;
mod harness;
pub mod history;
pub mod keys;
pub mod prefetch;
pub mod retries;
pub mod schema;
pub mod status;
pub mod write;

pub use harness::{Backend, Database, Harness, T0};

tidegate_testkit::conformance! {
    $ snapshots_conformance_suite found by tidegate_snapshots::conformance::case, each #[::tokio::test(flavor = "multi_thread", worker_threads = 2)];
    write {
        a_first_write_is_stored,
        nothing_is_known_of_what_was_never_written,
        another_hash_replaces_the_data,
        the_same_hash_moves_only_the_check,
        a_check_never_goes_back_in_time,
        a_first_write_leaves_activity_alone,
        an_older_version_is_refused,
        an_older_check_is_refused,
        the_same_version_again_changes_nothing,
        an_unchanged_record_never_stays_stale,
        outcomes_come_in_the_order_of_the_batch,
        one_record_twice_in_a_batch_ends_with_the_newest,
        an_empty_batch_is_fine,
        a_hundred_records_of_seventeen_kilobytes,
        a_megabyte_is_stored,
        several_megabytes_in_one_batch_are_stored,
        too_much_data_is_refused_and_nothing_written,
        a_version_beyond_counting_is_refused,
        no_data_is_data_too,
    }
    keys {
        every_key_is_its_own_record,
        keys_differ_by_source,
        a_key_of_256_bytes,
        a_read_answers_in_its_order_and_twice_if_asked_twice,
        more_records_than_fit_a_statement,
    }
    status {
        a_failure_is_counted,
        a_repeated_failure_counts_once,
        a_success_ends_the_status,
        an_unchanged_success_ends_the_status,
        a_first_success_ends_the_status_of_a_record_without_snapshot,
        an_older_failure_changes_nothing,
        a_failure_older_than_the_snapshot_changes_nothing,
        an_older_success_leaves_a_newer_failure,
        a_failure_leaves_the_snapshot_alone,
        a_parked_event_is_kept_and_counts_no_failure,
        a_confirmed_absence_is_kept,
        long_and_odd_errors_are_made_to_fit,
        failures_of_made_up_keys_are_forgotten,
        forgetting_goes_in_slices_and_passes_over_what_stays,
    }
    retries {
        a_due_retry_is_claimed_with_its_event,
        what_is_not_due_is_not_claimed,
        the_longest_due_comes_first,
        what_has_failed_for_good_is_not_claimed,
        a_claim_holds_until_it_ends,
        two_claimers_never_get_the_same,
        a_success_after_a_claim_ends_it,
    }
    prefetch {
        what_is_stale_is_claimed_most_overdue_first,
        what_was_never_fetched_comes_first,
        activity_decides_the_tier,
        the_most_overdue_of_all_tiers_goes_first,
        a_record_cools_down,
        a_record_that_is_asked_for_heats_up,
        cooling_down_hides_nobody,
        a_claim_excludes_others_until_it_ends,
        a_claim_holds_although_the_tier_changes,
        a_check_makes_a_claimed_record_fresh,
        two_schedulers_never_get_the_same,
        a_failed_record_is_not_fetched_ahead_before_its_time,
        sources_do_not_mix,
        activity_never_goes_back,
        no_more_than_asked,
        too_many_tiers_are_refused,
    }
    counts {
        freshness_goes_by_tier,
        counting_goes_in_slices,
        a_status_is_counted_by_state_up_to_the_limit,
    }
    history {
        a_change_is_kept_once,
        a_check_is_no_change,
        a_repeated_change_is_kept_once,
        no_history_if_none_is_wanted,
        history_comes_in_slices_oldest_first,
        a_slice_ends_when_it_is_large,
        deleted_rows_are_gone,
        restored_rows_are_as_they_were,
        restored_rows_are_not_archived_again,
        rows_of_another_database_hide_no_changes,
        restored_rows_go_when_their_time_is_up,
        sources_with_history_are_listed,
    }
    dead_letters {
        a_mark_is_found_again,
        the_first_mark_stays,
        marks_are_per_partition,
        marks_below_the_log_are_forgotten,
    }
    concurrent {
        writers_of_one_record_end_with_the_newest,
        first_writers_of_one_record_end_with_the_newest,
        overlapping_batches_all_succeed,
        failures_at_once_are_all_counted,
        readers_see_whole_snapshots,
        a_change_by_another_process_is_seen,
        the_database_may_be_restarted,
    }
    schema {
        a_database_without_schema_says_so,
        calls_without_a_schema_say_so,
        a_migrated_database_is_fine,
        migrating_twice_changes_nothing,
        migrating_at_once_works,
        a_newer_schema_is_refused,
    }
}
