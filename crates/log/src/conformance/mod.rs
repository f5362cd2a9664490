//! The conformance suite: what every backend must do, one named case each.
//!
//! A case opens logs at fresh places of a [`Backend`], drives them with the verbs of [`Harness`], and never names a
//! backend. [`log_conformance_suite!`](crate::log_conformance_suite) turns the list of cases into one test each;
//! [`cases`] is the same list as values. Time is real: brokers have their own clocks.

pub mod append;
pub mod consume;
pub mod groups;
mod harness;
pub mod kept;
pub mod lag;
pub mod sharing;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub use harness::{Backend, Harness, Place, settings};

/// The list of all cases, by file; `$then` is a macro that consumes it.
#[doc(hidden)]
#[macro_export]
macro_rules! log_conformance_cases {
    ($with:ident => $($then:tt)+) => {
        $($then)+! {
            $with;
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
                nothing_before_the_mark_comes_again,
                only_the_mark_counts_not_what_was_handed_out,
                a_mark_never_goes_back,
                a_mark_beyond_what_was_delivered_is_refused,
                groups_know_nothing_of_each_other,
                a_new_group_begins_at_the_oldest_record,
            }
            sharing {
                two_consumers_share_all_partitions_without_overlap,
                shares_are_even,
                a_partition_that_moves_begins_at_its_mark,
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
            kept {
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
    };
}

/// One test per case over a [`Backend`] that `$backend` (a function without arguments) makes.
#[macro_export]
macro_rules! log_conformance_suite {
    ($backend:ident) => {
        $crate::log_conformance_cases!($backend => $crate::log_conformance_tests);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! log_conformance_tests {
    ($backend:ident; $($file:ident { $($case:ident,)+ })+) => {
        $(mod $file {
            $(#[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let name = concat!(stringify!($file), "::", stringify!($case));
                $crate::conformance::case(name).run(&super::$backend()).await;
            })+
        })+
    };
}

/// A case that can be chosen by name.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name of the test, such as `sharing::shares_are_even`.
    pub name: &'static str,
    run: RunCase,
}

type RunCase = for<'a> fn(&'a dyn Backend) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Case {
    /// Runs the case; it panics if the log does not conform.
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
    log_conformance_cases!(list => values)
}

/// The case of this name. Tests find theirs here, so that this crate compiles the cases once, not every test program
/// again.
pub fn case(name: &str) -> Case {
    let found = cases().into_iter().find(|case| case.name == name);
    found.expect("every name comes from the list")
}
