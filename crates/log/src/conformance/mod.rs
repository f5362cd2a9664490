//! The conformance suite: what every backend must do, one named case each.
//!
//! A case opens logs at fresh places of a [`Backend`], drives them with the verbs of [`Harness`], and never names a
//! backend. `log_conformance_suite!` makes one test of each
//! case; [`cases`] lists them. Time is real: brokers have their own clocks.

pub mod append;
pub mod consume;
pub mod durability;
pub mod groups;
mod harness;
pub mod lag;
pub mod sharing;

pub use harness::{Backend, Harness, Place, settings};

tidegate_testkit::conformance! {
    $ log_conformance_suite found by tidegate_log::conformance::case, each #[::tokio::test(flavor = "multi_thread", worker_threads = 2)];
    append {
        what_was_appended_is_read_in_order,
        each_record_is_answered_for_itself,
        a_key_keeps_its_partition,
        any_bytes_pass_through_untouched,
        a_dead_letter_has_room_for_the_largest_record,
        concurrent_appends_lose_nothing_and_keep_each_order,
        a_call_without_records_is_answered,
        topics_are_apart,
    }
    consume {
        every_record_is_delivered_once_without_faults,
        records_come_while_a_consumer_waits,
        a_wait_without_records_ends,
        no_more_than_asked_for,
        many_more_than_fit_the_buffer_all_come,
        an_abandoned_call_loses_nothing,
        a_paused_consumer_gets_nothing_and_keeps_its_partitions,
        a_slow_caller_keeps_its_partitions,
    }
    groups {
        what_was_not_committed_comes_again,
        nothing_before_the_committed_offset_comes_again,
        only_the_committed_offset_counts_not_what_was_handed_out,
        a_committed_offset_never_goes_back,
        an_offset_beyond_what_was_delivered_is_refused,
        groups_know_nothing_of_each_other,
        a_new_group_begins_at_the_oldest_record,
    }
    sharing {
        two_consumers_share_all_partitions_without_overlap,
        shares_are_even,
        a_partition_that_moves_begins_at_its_committed_offset,
        the_partitions_of_a_dead_owner_go_to_another,
        a_closed_consumer_gives_its_partitions_back,
        a_commit_to_a_lost_partition_is_refused,
        records_of_a_lost_partition_are_not_handed_out,
        more_consumers_than_partitions,
    }
    lag {
        a_group_that_never_committed_is_behind_by_everything,
        lag_is_exact_after_a_commit,
        the_oldest_record_that_is_not_done_has_an_age,
        an_empty_topic_has_no_lag,
    }
    durability {
        everything_is_there_after_a_restart,
        a_restart_goes_on_with_the_next_offset,
        dead_letters_can_be_read_again_and_again,
        old_records_are_dropped,
        what_is_done_goes_sooner_and_nothing_else,
        another_number_of_partitions_is_refused,
        names_that_cannot_work_are_refused,
        a_closed_log_says_so,
    }
}
