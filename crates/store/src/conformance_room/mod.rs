//! The conformance suite of waiting rooms: what every backend must do, one named case each.
//!
//! A case opens a fresh store through a [`Backend`], drives it with the verbs of [`Harness`] under its own
//! clock, and never names a backend. [`room_conformance_suite!`](crate::room_conformance_suite) turns the list
//! of cases into one test each; [`cases`] is the same list as values.

pub mod admission;
pub mod door;
pub mod draw;
mod harness;
pub mod line;
pub mod names;
pub mod presence;
pub mod restart;
pub mod signals;
pub mod visits;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub use harness::{Backend, Guard, Harness, Opened, START};

/// The list of all cases, by file; `$then` is a macro that processes it.
#[doc(hidden)]
#[macro_export]
macro_rules! room_conformance_cases {
    ($with:ident => $($then:tt)+) => {
        $($then)+! {
            $with;
            line {
                a_place_is_given_and_found_again,
                a_batch_answers_in_its_order,
                coming_back_elsewhere_keeps_the_place,
                many_joins_at_once_are_one_ticket,
                one_ticket_until_it_has_ended,
                one_survey_tells_everybodys_position,
                a_position_comes_with_the_size_of_the_line,
                positions_are_exact_when_people_ahead_leave,
                positions_are_exact_in_a_long_line,
                a_full_line_turns_people_away,
                an_ended_ticket_says_how_it_ended,
                looking_leaves_nothing_behind,
            }
            presence {
                nobody_stays_as_a_ghost,
                an_older_stream_says_nothing,
                a_stream_of_an_earlier_ticket_says_nothing,
                signs_of_life_are_about_one_person,
                a_short_absence_loses_nothing,
                an_absence_told_at_once_loses_nothing,
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
                an_early_one_who_is_away_keeps_its_place,
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
                the_same_session_is_told_the_same_again,
                a_visit_ends_at_its_time,
                a_visit_is_extended_and_never_shortened,
                a_visit_completes_once,
                what_is_not_inside_is_told_apart,
                an_ended_ticket_is_forgotten_at_its_time,
                a_sweep_has_a_bound,
            }
            door {
                a_paused_room_keeps_everybody,
                a_closed_room_takes_nobody_new,
                sold_out_is_told,
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
                a_room_can_be_made_with_its_door_shut,
                a_room_that_is_over_is_removed,
                odd_names_are_people_of_their_own,
                odd_names_are_rooms_of_their_own,
                rooms_are_listed_in_order,
                an_unknown_room_is_an_error,
            }
            restart {
                every_ticket_is_kept,
                connections_end_only_with_their_process,
                limits_door_and_voids_are_kept,
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
                the_door_signals_for_those_who_wait,
                a_newer_stream_is_told_to_those_who_have_an_older_one,
            }
        }
    };
}

/// One test per case over the stores that `$backend`, a [`Backend`], creates.
#[macro_export]
macro_rules! room_conformance_suite {
    ($backend:ident) => {
        $crate::room_conformance_cases!($backend => $crate::room_conformance_tests);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! room_conformance_tests {
    ($backend:ident; $($file:ident { $($case:ident,)+ })+) => {
        $(mod $file {
            $(#[::tokio::test]
            async fn $case() {
                let name = concat!(stringify!($file), "::", stringify!($case));
                $crate::conformance_room::case(name).run(&super::$backend).await;
            })+
        })+
    };
}

/// A case that can be selected by its name.
#[derive(Clone, Copy)]
pub struct Case {
    /// `visits::a_pass_is_redeemed_once`, the name of the test.
    pub name: &'static str,
    run: RunCase,
}

type RunCase = for<'a> fn(&'a dyn Backend) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Case {
    /// Runs the case; panics if the store does not conform.
    pub async fn run(&self, backend: &dyn Backend) {
        (self.run)(backend).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

macro_rules! values {
    ($list:ident; $($file:ident { $($case:ident,)+ })+) => {
        vec![$($(Case {
            name: concat!(stringify!($file), "::", stringify!($case)),
            run: |backend| Box::pin($file::$case(backend)),
        },)+)+]
    };
}

/// Every case, in the order of the list.
pub fn cases() -> Vec<Case> {
    room_conformance_cases!(list => values)
}

/// The case of this name. Tests look theirs up here, so that the cases are compiled once, in this crate, and
/// not again with each test program.
pub fn case(name: &str) -> Case {
    let found = cases().into_iter().find(|case| case.name == name);
    found.expect("every name comes from the list")
}
