//! The conformance suite of waiting rooms: what every backend must do, one named case each.
//!
//! A case opens a fresh store through a [`Backend`], drives it with the verbs of [`Harness`] under its own
//! clock, and never names a backend. `room_conformance_suite!` makes one test of each
//! case; [`cases`] lists them.

pub mod admin;
pub mod admission;
pub mod draw;
mod harness;
pub mod names;
pub mod presence;
pub mod queue;
pub mod restart;
pub mod signals;
pub mod visits;

pub use harness::{Backend, Guard, Harness, Opened, START};

tidegate_testkit::conformance! {
    $ room_conformance_suite found by tidegate_store::room::conformance::case, each #[::tokio::test];
    queue {
        a_place_is_given_and_found_again,
        a_batch_answers_in_its_order,
        coming_back_elsewhere_keeps_the_place,
        many_joins_at_once_are_one_ticket,
        one_ticket_until_it_has_ended,
        one_overview_has_everybodys_position,
        a_position_comes_with_the_size_of_the_queue,
        positions_are_exact_when_people_ahead_leave,
        positions_are_exact_in_a_long_queue,
        a_full_queue_rejects_people,
        an_ended_ticket_says_how_it_ended,
        looking_leaves_nothing_behind,
    }
    presence {
        nobody_stays_as_a_ghost,
        an_older_stream_says_nothing,
        a_stream_of_an_earlier_ticket_says_nothing,
        signs_of_life_are_about_one_person,
        a_short_absence_loses_nothing,
        an_absence_reported_at_once_loses_nothing,
        the_absent_are_passed_over_and_go_first_on_return,
        a_sign_of_life_keeps_the_place_for_as_long_as_it_lasts,
        touches_of_nobody_are_gone,
        slots_come_back_while_absent_people_are_spared,
    }
    draw {
        the_early_ones_are_drawn,
        the_early_ones_go_before_the_late_ones,
        nobody_is_let_in_before_the_room_opens,
        who_leaves_before_the_draw_leaves_no_gap,
        who_is_not_drawn_yet_stands_ahead_of_newcomers,
        an_early_one_keeps_its_draw,
        an_absent_early_person_keeps_the_ticket,
        a_large_draw_takes_several_promotions,
    }
    admission {
        people_are_let_in_in_order,
        a_promotion_has_a_bound,
        who_is_let_in_is_known_to_the_store,
        seats_and_people_inside_are_two_limits,
        the_rate_holds_in_every_second,
        promoters_at_once_let_in_no_more_than_one,
        nobody_is_let_in_twice,
        a_long_absence_ahead_ends_a_promotion_in_time,
        a_limit_of_zero_lets_nobody_in,
        an_empty_room_lets_nobody_in,
    }
    visits {
        a_seat_that_was_bought_does_not_come_back,
        a_slot_comes_back_once,
        a_pass_that_is_not_redeemed_gives_its_slot_back,
        a_pass_ends_with_its_slot,
        a_pass_is_redeemed_once,
        a_pass_is_of_one_ticket,
        many_ends_at_once_are_one,
        a_connection_does_not_prolong_a_visit,
        many_redemptions_at_once_are_one,
        the_same_session_gets_the_same_answer_again,
        a_visit_ends_at_its_time,
        a_visit_is_extended_and_never_shortened,
        a_visit_completes_once,
        each_reason_for_not_being_inside_has_its_own_answer,
        an_ended_ticket_is_forgotten_at_its_time,
        a_sweep_has_a_bound,
    }
    admin {
        a_paused_room_keeps_everybody,
        a_closed_room_takes_nobody_new,
        a_sold_out_room_says_so,
        limits_change_by_so_many_once,
        many_tries_of_one_change_are_one,
        a_limit_below_those_inside_throws_nobody_out,
        a_change_below_zero_is_refused_and_oversells_nothing,
        limits_that_cannot_be_are_refused,
        changes_are_remembered,
        set_limits_outlast_settings,
        settings_are_taken_over,
        settings_that_cannot_work_are_refused,
        a_void_pass_is_refused_and_another_one_given,
        a_void_ends_at_its_wave,
        a_void_leaves_visits_alone,
    }
    names {
        rooms_do_not_know_each_other,
        a_room_that_is_there_is_not_made_again,
        the_first_to_make_a_room_wins,
        a_room_can_be_created_paused,
        a_room_that_is_over_is_removed,
        odd_names_are_people_of_their_own,
        odd_names_are_rooms_of_their_own,
        rooms_are_listed_in_order,
        an_unknown_room_is_an_error,
    }
    restart {
        every_ticket_is_kept,
        connections_end_only_with_their_process,
        limits_status_and_voids_survive,
        the_rate_holds_over_a_restart,
        a_room_stays_the_same_room,
        deadlines_hold_over_a_restart,
        a_clock_stepped_back_lets_nobody_in_and_loses_nobody,
    }
    signals {
        a_place_in_a_room_with_room_signals_for_promotion,
        an_end_of_a_visit_signals_for_promotion,
        a_slot_that_time_gives_back_signals_for_promotion,
        a_promotion_signals_for_those_who_wait,
        a_status_change_signals_an_update,
        a_newer_stream_signals_the_processes_with_an_older_one,
    }
}
