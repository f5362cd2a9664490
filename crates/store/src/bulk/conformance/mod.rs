//! The conformance suite: what every backend must do, one named case each.
//!
//! A case opens fresh stores through a [`Backend`], drives them with the verbs of [`Harness`] under its own
//! clock, and never names a backend. `bulk_conformance_suite!` makes one test of each
//! case; [`cases`] lists them.
//!
//! Not covered here: Redis keys, scripts and connections (see the tests of that backend), metric labels, and
//! the sizing and failure policy of the engine.

pub mod backlog;
pub mod batches;
mod builders;
pub mod change_jobs;
pub mod congestion;
pub mod cost;
pub mod dead;
pub mod delayed;
pub mod downstream;
pub mod estimates;
pub mod fair_order;
pub mod group_limits;
mod harness;
pub mod input;
pub mod leases;
pub mod limits;
pub mod listing;
pub mod mixture;
pub mod one_job;
pub mod pause_cancel;
pub mod queues;
mod reads;
pub mod ready;
pub mod retention;
pub mod run_time_limits;
pub mod settle;
pub mod waiting_since;
pub mod why;

pub use harness::{Backend, Guard, Harness, START};

tidegate_testkit::conformance! {
    $ bulk_conformance_suite found by tidegate_store::bulk::conformance::case, each #[::tokio::test];
    fair_order {
        enqueue_then_lease,
        strict_alternation,
        the_group_that_waits_longer_goes_first,
        served_group_goes_behind,
        enqueue_never_moves_a_backlogged_group,
        a_nearly_finished_group_gets_its_turn,
        a_nearly_finished_group_is_no_monopoly,
        base_priority_is_a_weight,
        work_in_flight_counts_as_served,
        lower_priorities_get_their_minimum,
        a_minimum_of_zero_is_strict,
        a_group_may_have_jobs_at_several_priorities,
        first_come_first_served_within_a_flow,
        ready_keeps_the_order_of_first_starts,
        base_priority_changes_only_explicitly,
        ties_break_by_arrival_not_by_name,
        score_policy_alternates_in_one_millisecond,
        score_policy_alternates_as_time_passes,
        a_late_group_is_not_held_up,
        small_groups_finish_in_their_own_time,
        a_group_that_comes_back_has_no_saved_credit,
        a_paused_group_has_no_saved_credit,
        a_group_cannot_gain_by_leaving_and_coming_back,
    }
    limits {
        ten_of_ten_start,
        the_eleventh_waits,
        a_spent_window_shows_its_counts,
        the_next_window_starts_empty,
        two_busy_groups_share_a_window,
        a_strict_share_is_a_ceiling,
        a_third_group_meets_a_spent_window,
        no_window_is_ever_overrun,
        a_stall_does_not_become_a_burst,
        finished_groups_have_no_share,
        asking_does_not_make_a_group_active,
        what_one_group_leaves_goes_to_others,
        remainders_of_a_window_rotate,
        more_groups_than_starts_take_turns,
        a_late_group_waits_one_window_at_most,
        the_limit_is_rate_times_window,
        a_window_keeps_its_count_to_its_end,
        a_clock_stepped_back_opens_no_window,
        a_group_named_global_is_counted_once,
        a_high_job_waits_for_ready_only,
    }
    cost {
        a_start_charges_the_cost,
        what_no_window_can_hold_starts_and_later_windows_pay,
        the_limits_of_groups_and_queues_count_costs,
        a_run_that_used_more_is_paid_by_later_windows,
        a_run_that_used_less_gives_room_back_in_its_window,
        a_released_job_costs_nothing,
        a_ready_job_keeps_its_cost,
        a_replayed_job_keeps_its_cost,
        an_impossible_cost_is_refused,
    }
    group_limits {
        a_group_keeps_to_its_rate,
        all_groups_at_their_limit_is_a_limit_not_an_end,
        a_group_keeps_to_its_leases_at_once,
        jobs_in_ready_count_for_leases_at_once,
        a_limit_lowered_below_ready_still_holds,
        a_raised_limit_of_a_group_takes_effect_at_once,
        a_limit_that_cannot_work_is_refused,
        a_held_group_does_not_hide_others,
        a_group_held_for_its_ready_jobs_is_let_go_when_they_are_recalled,
        a_group_held_for_its_ready_jobs_is_let_go_when_they_expire,
        a_group_may_be_slower_than_one_start_per_window,
        a_group_keeps_to_its_rate_in_a_queue_and_is_free_in_others,
        every_group_keeps_to_the_limit_of_the_queue,
        the_limit_of_every_group_changes_at_once,
        a_job_that_was_not_run_returns_its_start_in_the_queue,
        ready_jobs_count_for_the_limit_in_the_queue,
        a_group_that_was_dropped_gets_no_second_rate,
    }
    queues {
        an_idle_queue_holds_up_nobody,
        a_queue_keeps_to_its_own_rate,
        ready_jobs_that_nobody_fetches_give_their_places_back,
        a_group_has_its_turn_in_every_queue,
        a_full_ready_of_one_queue_leaves_room_in_another,
    }
    ready {
        the_first_job_becomes_ready,
        the_sixth_job_is_delayed_with_a_reason,
        a_full_ready_takes_nothing,
        the_group_beyond_its_share_is_denied,
        every_state_has_its_moment,
        ready_is_promised_no_more_than_the_window,
        a_denial_has_the_real_counts,
        a_denied_start_spends_nothing,
        a_denied_job_stays_at_the_head,
        giving_back_counts_nothing_again,
        one_call_moves_no_more_than_asked,
        delayed_is_capped_per_group,
        ready_never_exceeds_its_cap,
        a_job_is_in_one_place_only,
        a_denied_job_goes_before_fresh_ones,
        a_denied_job_starts_early_when_there_is_quota,
    }
    delayed {
        a_due_job_becomes_ready,
        a_job_that_is_not_due_stays,
        a_wait_is_exact,
        a_retry_after_is_capped,
        attempts_are_counted_and_end,
        attempts_and_runs_are_shown,
        a_retry_may_name_its_time,
        errors_are_of_three_kinds,
        throttling_never_uses_up_attempts,
        a_job_type_has_its_own_retries,
        a_job_type_has_its_own_timeout,
        a_retry_goes_before_fresh_jobs_of_its_group,
        what_is_released_together_starts_within_the_limit,
        releasing_is_bounded_per_call,
        a_scheduled_job_waits_for_its_time,
        a_schedule_in_the_past_means_at_once,
        due_jobs_come_back_in_order_of_their_time,
        a_job_that_did_not_start_in_time_is_dead,
        an_expired_job_never_starts_even_if_nobody_looked,
        a_running_job_does_not_expire,
        a_retry_after_its_expiry_is_dead,
        a_job_that_could_never_run_is_refused,
        the_next_due_time_is_returned,
        a_clock_stepped_back_delays_nobody_for_long,
        signals_notify_for_work_timers_and_completion,
        a_delayed_job_keeps_its_payload,
        times_at_the_end_of_time_do_no_harm,
    }
    congestion {
        the_first_throttle_waits_the_base,
        two_hundred_ahead_wait_three_seconds,
        released_jobs_are_no_longer_ahead,
        speed_is_the_groups_share,
        state_after_fifty_throttles,
        reset_clears_what_was_counted,
        five_hundred_jobs_at_fifty_per_second,
        waiting_does_not_become_spinning,
        a_fixed_backoff_is_counted_too,
        a_job_throttled_again_is_counted_once,
        counts_are_per_group,
        a_job_is_not_ahead_of_itself,
        a_round_lasts_one_window,
        the_average_is_that_of_completed_jobs,
        critical_is_within_reach,
        a_base_of_zero_is_refused,
        history_is_kept_by_time,
        the_summary_comes_in_pages,
        saved_spins_are_counted,
        a_lost_lease_is_no_throttle,
    }
    downstream {
        rates_below_one_per_window_are_exact,
        the_whole_system_may_be_slow_too,
        the_rate_follows_what_is_delivered,
        it_can_be_switched_off_at_run_time,
        another_queue_keeps_its_rate,
        a_group_over_its_own_quota_slows_itself_alone,
        retry_after_holds_everybody_then_one_call_probes,
        retry_after_of_a_group_holds_the_group,
        a_lost_probe_is_followed_by_another,
        timeouts_lower_the_rate,
        answers_to_calls_before_the_cut_do_not_cut_again,
        a_released_job_returns_its_start,
        nothing_is_lowered_when_control_is_off,
    }
    leases {
        a_job_whose_worker_died_comes_back,
        leasing_and_taking_are_one_step,
        no_job_is_leased_twice,
        every_accepted_job_runs,
        a_lease_shows_its_deadline,
        a_late_answer_changes_nothing,
        a_made_up_answer_changes_nothing,
        an_answer_counts_for_the_jobs_own_group,
        a_returned_job_goes_first_and_loses_no_attempt,
        a_job_that_kills_its_workers_ends,
        an_extended_lease_lives_longer,
        a_lease_that_ended_is_not_extended,
        expiring_is_bounded_per_call,
        a_clock_stepped_back_ends_no_lease_and_keeps_none,
        an_empty_store_says_so,
    }
    settle {
        one_job_completes_its_sealed_batch,
        completion_is_reported_once,
        a_second_settlement_does_not_count,
        the_same_settlement_twice_in_one_call,
        a_failed_job_counts_for_completion,
        answers_come_in_the_order_of_the_batch,
        a_result_is_kept_with_its_job,
        a_result_beyond_the_limit_fails_the_job,
        a_long_error_is_cut_between_characters,
        a_failure_without_words_has_an_error_all_the_same,
        a_batch_keeps_its_first_errors,
    }
    batches {
        a_second_batch_of_a_group_starts_from_zero,
        an_open_batch_never_completes,
        an_empty_batch_completes_when_sealed,
        sealing_again_changes_nothing,
        a_sealed_batch_takes_no_more_jobs,
        jobs_without_a_batch_go_to_the_open_one,
        opening_twice_changes_nothing,
        a_finished_batch_is_not_opened_again,
        sealing_what_is_not_there_is_refused,
        a_threshold_out_of_range_is_refused,
        by_default_only_all_failures_fail_a_batch,
        a_failure_threshold_decides_the_batch,
        a_failed_aggregation_fails_the_batch,
        an_aggregation_hands_over_the_counts,
        another_watcher_takes_over,
        a_callback_that_was_not_confirmed_is_due_again,
        a_group_is_idle_when_its_batches_are_done,
        results_come_in_pages_in_order,
        kept_results_outlive_finished_jobs,
        counts_outlive_dropped_jobs,
        a_replayed_job_of_an_open_batch_counts_once,
        a_replay_never_changes_a_finished_batch,
        only_dead_jobs_are_replayed,
        a_batch_keeps_its_callback,
        a_callback_without_a_name_or_with_too_long_a_one_is_refused,
    }
    dead {
        dead_jobs_are_listed_with_where_they_belong,
        those_that_died_last_come_first,
        a_listing_stays_stable_while_jobs_die,
        dead_jobs_come_in_pages,
        a_filter_chooses_by_group_type_and_reason,
        a_page_may_be_short_but_never_the_end_too_early,
        every_way_to_die_is_listed,
        what_lives_again_or_is_dropped_is_listed_no_more,
        a_listing_goes_on_although_its_last_job_is_gone,
        purging_forgets_a_dead_job,
        a_purged_job_still_counts,
        only_dead_jobs_are_purged,
        a_job_that_is_to_be_aggregated_is_not_purged,
        purging_leaves_the_order_of_dropping_alone,
    }
    one_job {
        a_job_says_when_it_came_started_and_finished,
        every_run_is_kept_with_its_error,
        a_released_run_was_none,
        only_the_latest_runs_are_kept,
        a_worker_reports_its_progress,
        a_dropped_job_takes_its_runs_along,
    }
    change_jobs {
        one_waiting_job_is_cancelled,
        a_delayed_and_a_ready_job_are_cancelled,
        a_cancelled_running_job_ends_with_its_run,
        the_last_cancelled_job_completes_its_batch,
        a_delayed_job_runs_now_within_the_limits,
        a_retry_after_that_was_a_mistake_is_taken_back,
        a_job_run_now_still_waits_for_its_pause,
        a_job_is_rescheduled,
        a_time_that_has_passed_is_now,
        a_job_is_not_rescheduled_beyond_its_end,
        a_job_gets_another_priority,
        a_running_job_is_tried_again_at_its_new_priority,
        a_ready_job_gets_another_priority,
        a_refusal_names_the_state_and_what_is_possible,
        each_job_of_a_call_has_its_own_answer,
        a_job_denied_by_a_window_takes_every_command,
        a_job_of_a_paused_batch_takes_every_command,
        a_changed_job_is_cancelled_with_its_batch,
    }
    listing {
        jobs_are_listed_in_the_order_of_arrival,
        every_group_is_listed,
        a_filter_chooses_jobs,
        a_listing_goes_on_although_jobs_are_gone,
        a_listing_inspects_a_bounded_number_of_jobs,
    }
    backlog {
        a_queue_says_what_waits_and_runs,
        a_cancelled_job_leaves_the_backlog,
    }
    waiting_since {
        the_first_job_of_a_flow_says_since_when,
        the_earliest_of_all_lines_counts,
        only_jobs_in_a_flow_wait,
        a_job_that_comes_back_was_accepted_when_it_was,
        jobs_of_a_paused_group_wait,
        jobs_set_aside_with_their_batch_do_not_wait,
        ended_jobs_at_the_head_are_passed,
    }
    pause_cancel {
        a_paused_group_starts_nothing,
        ready_jobs_of_a_paused_group_do_not_start,
        a_delayed_job_of_a_paused_group_comes_back_but_waits,
        a_paused_group_still_counts_as_active,
        a_paused_batch_lets_its_siblings_pass,
        ready_jobs_of_a_paused_batch_do_not_start,
        what_is_not_there_cannot_be_paused,
        pausing_and_resuming_twice_is_fine,
        cancelling_ends_everything_but_running_jobs,
        a_running_job_of_a_cancelled_batch_is_not_tried_again,
        cancelling_goes_in_bounded_steps,
        the_dispatcher_finishes_a_cancellation,
        cancelling_a_group_ends_all_its_batches,
        a_cancelled_batch_takes_nothing_more,
        a_cancelled_batch_is_decided_as_cancelled,
        a_job_of_a_cancelled_batch_can_be_replayed,
        a_replay_before_the_decision_counts_once,
        a_second_cancellation_ends_replayed_jobs,
        ids_of_cancelled_jobs_are_free_again,
        ids_of_finished_jobs_of_a_cancelled_batch_stay_known,
        a_batch_of_a_paused_group_says_so,
        a_paused_batch_can_be_cancelled,
        cancelling_a_finished_batch_changes_nothing,
        jobs_denied_by_a_window_can_be_cancelled,
        jobs_denied_by_a_window_can_be_paused,
        a_retry_of_a_paused_batch_waits_for_it,
        a_group_paused_at_its_limit_stays_paused,
    }
    retention {
        finished_jobs_are_kept_by_age,
        finished_jobs_are_kept_by_count,
        an_operator_may_drop_earlier,
        dropping_goes_in_bounded_steps,
        unfinished_jobs_are_never_dropped,
        a_dropped_job_id_is_free_again,
        ids_are_known_until_the_batch_is_decided,
        ids_of_a_batch_without_a_name_are_known_while_jobs_are_kept,
        a_group_keeps_its_own_number_of_finished_jobs,
        finished_batches_and_idle_groups_go_after_a_week,
        finished_batches_are_kept_by_count,
        a_batch_without_its_callback_is_kept,
        a_replayed_job_keeps_its_batch,
        a_dropped_open_batch_is_not_resurrected,
        groups_are_listed_in_pages,
        a_group_that_has_to_stay_hides_no_others,
        sweeping_ends_when_nothing_more_can_go,
        a_cursor_into_dropped_jobs_is_refused,
    }
    input {
        a_second_enqueue_changes_nothing,
        duplicates_within_one_call,
        a_job_belongs_to_the_batch_that_came_first,
        two_groups_may_use_the_same_job_id,
        thousands_in_one_call,
        a_call_has_its_limit,
        one_call_looks_at_a_bounded_number_of_jobs,
        odd_names_stay_apart,
        names_are_not_joined,
        a_full_store_refuses,
        a_full_group_is_refused_and_others_are_not,
        ids_come_back_as_they_were_given,
        unknown_types_are_refused_when_configured,
        a_payload_at_the_limit_and_one_over,
        a_refused_job_may_be_sent_again,
        a_base_priority_out_of_range_is_refused,
        the_first_call_sets_the_base_priority,
        an_empty_call_is_fine,
        unknown_things_are_refused_by_name,
    }
    run_time_limits {
        a_raised_limit_holds_at_once,
        a_lowered_limit_holds_at_once,
        no_window_has_more_starts_than_the_largest_of_its_limits,
        what_ready_was_promised_waits_under_a_lower_limit,
        a_queue_gets_another_rate,
        a_queue_without_a_rate_follows_the_whole_system,
        a_queue_that_nobody_has_heard_of_may_have_a_rate,
        a_rate_that_was_cut_stays_cut,
        looking_at_queues_changes_nothing,
        a_queue_runs_at_most_so_many_jobs,
        ready_jobs_count_as_running_soon,
        a_reset_goes_back_to_the_configuration,
        it_is_known_who_changed_a_limit,
        a_rate_that_cannot_work_is_refused,
        a_strict_share_rises_with_the_limit,
        answers_follow_the_limit_in_effect,
        a_raised_limit_signals_for_work,
    }
    estimates {
        a_group_is_done_when_its_queue_says,
        a_rate_is_believed_until_it_is_measured,
        a_newcomer_gets_its_share,
        a_heavier_group_is_done_sooner,
        a_low_priority_waits_for_the_high_one,
        a_batch_does_not_wait_for_later_ones,
        scheduled_jobs_are_not_done_before_their_time,
        a_run_that_came_to_nothing_is_no_progress,
        where_nobody_knows_the_answer_says_why,
        a_single_worker_is_measured,
        a_store_that_is_asked_changes_nothing,
    }
    why {
        a_job_that_nothing_holds_waits_for_workers,
        a_job_knows_how_many_start_before_it,
        returned_jobs_are_counted_before_fresh_ones,
        jobs_that_were_cancelled_are_not_ahead,
        a_paused_group_or_batch_says_so,
        a_delayed_job_says_until_when,
        a_group_at_its_limit_says_which,
        a_group_at_its_limit_in_a_queue_says_which,
        a_strict_share_that_is_used_up_says_so,
        a_spent_window_says_so,
        a_spent_queue_says_so,
        a_full_ready_says_so,
        a_job_in_ready_waits_for_workers_and_the_window,
        what_runs_or_is_finished_waits_for_nothing,
        a_job_denied_by_a_window_says_until_when,
        the_next_job_of_a_group_is_that_of_the_highest_priority,
        what_is_not_there_has_no_reason,
    }
    mixture {
        every_job_ends_when_groups_are_held,
        every_job_ends_when_jobs_are_held,
    }
}
