//! The conformance suite of the refresh part: what every backend must do, one named case each.
//!
//! A case opens a fresh store through a [`Backend`], drives it with the verbs of [`Harness`] under its own
//! clock, and never names a backend. `refresh_conformance_suite!` makes one test of each
//! case; [`cases`] lists them.

pub mod budgets;
mod harness;
pub mod names;
pub mod requests;
pub mod versions;
pub mod workers;

pub use harness::{Backend, Guard, Harness, Opened, START};

tidegate_testkit::conformance! {
    $ refresh_conformance_suite found by tidegate_store::refresh::conformance::case, each #[::tokio::test];
    requests {
        published_upgraded_and_already_processing,
        a_herd_of_ten_thousand_is_one_event,
        a_batch_answers_in_its_order,
        records_do_not_know_each_other,
        an_upgrade_supersedes_only_when_confirmed,
        a_failed_send_rolls_back,
        an_event_that_a_worker_has_was_sent,
        what_nobody_confirmed_was_never_sent,
        a_later_version_alone_makes_nothing_obsolete,
        an_event_is_waited_for_as_long_as_the_log_keeps_it,
        a_late_reader_is_absorbed,
        a_reader_of_an_older_snapshot_is_absorbed,
        a_settled_refresh_says_how_it_ended,
        a_version_that_cannot_grow_is_refused,
    }
    workers {
        one_worker_fetches_and_others_are_busy,
        what_is_completed_is_not_fetched_again,
        an_expired_claim_is_taken_by_another,
        an_extended_claim_lasts_longer,
        an_abandoned_claim_is_free_at_once,
        high_waits_for_the_fetch_that_runs,
        settling_ends_what_came_before_and_nothing_after,
        only_one_settle_succeeds,
        a_lost_claim_may_still_settle,
        a_stale_version_ends_nothing_that_came_after_it,
        one_of_many_callers_ends_an_event,
        an_unknown_event_is_fetched,
    }
    versions {
        versions_grow_within_a_millisecond,
        versions_grow_above_the_snapshot,
        versions_grow_although_the_record_is_forgotten,
        versions_grow_over_a_restart,
        versions_grow_although_the_clock_steps_back,
        an_idle_record_is_forgotten_at_its_time,
    }
    budgets {
        nothing_is_known_so_nothing_is_granted_for_a_second,
        a_wait_is_exact,
        no_second_is_overrun,
        the_rate_is_used_up,
        low_keeps_to_its_cap,
        high_goes_first,
        low_has_its_floor,
        a_hold_blocks_every_take,
        a_hold_lasts_no_longer_than_the_budget_allows,
        a_lifted_hold_is_lifted_for_everybody,
        a_day_has_its_quota_and_high_its_reserve,
        a_day_begins_in_the_zone_of_the_provider,
        a_clock_stepped_back_mints_nothing,
        a_clock_stepped_back_turns_the_day_where_it_stands,
        targets_have_budgets_of_their_own,
        a_budget_can_be_looked_at,
        an_unknown_target_is_an_error,
        settings_that_cannot_work_are_refused,
    }
    names {
        odd_names_are_records_of_their_own,
        odd_names_are_targets_of_their_own,
        source_and_key_do_not_run_together,
    }
}
