//! What was called and when: exact counts at arrival, and whether a limit was broken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::settings::UpstreamSettings;

const SECOND: Duration = Duration::from_secs(1);
/// Limit: how many keys are counted one by one; calls of further keys only enter the totals.
const MAX_KEYS: usize = 1_000_000;
/// Limit: how many whole seconds are kept in `seconds`.
const MAX_SECONDS: usize = 3_600;

/// What the upstream has seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Calls that arrived, whatever they were answered with.
    pub calls: u64,
    /// Most calls that arrived within any sliding second.
    pub max_in_second: u32,
    /// Calls that found more than the limit within the second that ends with them.
    pub over_second: u64,
    /// Calls beyond the day's limit.
    pub over_day: u64,
    /// The longest time that the upstream stood still, in milliseconds: what arrives meanwhile is counted
    /// afterwards, together with what comes then.
    pub longest_stall_ms: u64,
    /// Calls by day of the provider's zone, as days since 1970-01-01.
    pub days: BTreeMap<i64, u64>,
    /// Calls by whole second since the first one, at most the last hour.
    pub seconds: Vec<u32>,
    /// Calls being answered at this moment.
    pub concurrent: u32,
    pub concurrent_max: u32,
    /// Answers by status, and `hang` and `reset`.
    pub statuses: BTreeMap<String, u64>,
    /// How many different keys were called.
    pub distinct_keys: u64,
    /// Most calls for one key.
    pub max_per_key: u64,
    /// Calls by key; left out by `GET /report` unless it is asked for with `?keys=true`.
    pub keys: BTreeMap<String, u64>,
}

impl Report {
    /// Calls that broke a limit.
    pub fn violations(&self) -> u64 {
        self.over_second + self.over_day
    }

    /// The most that may be seen in a second of callers that keep to `limit` and make `rate` per second. What comes
    /// during a stall is counted after it, and a call may meet two: on its way in, and behind those before it.
    pub fn most_allowed(&self, limit: u32, rate: u32) -> u32 {
        let late = u64::from(rate) * 2 * self.longest_stall_ms / 1_000;
        limit.saturating_add(u32::try_from(late).unwrap_or(u32::MAX))
    }
}

/// What an arriving call is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) over_second: bool,
    pub(crate) over_day: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Arrivals within the last second, oldest first.
    recent: VecDeque<Instant>,
    first: Option<Instant>,
    seconds: VecDeque<u32>,
    /// How many entries of `seconds` were given up.
    forgotten: usize,
    keys: HashMap<String, u64>,
    report: Report,
}

impl Ledger {
    /// Counts a call. The clock is read under the lock: arrivals are in order, and none is between two others
    /// unseen.
    pub(crate) fn arrive(&self, key: &str, day: i64, settings: &UpstreamSettings) -> Arrival {
        let mut counts = self.lock();
        let now = Instant::now();
        counts.arrive(now, key, day, settings.per_second, settings.per_day)
    }

    pub(crate) fn answered(&self, status: &str) {
        let mut counts = self.lock();
        match counts.report.statuses.get_mut(status) {
            Some(count) => *count += 1,
            None => {
                counts.report.statuses.insert(status.to_owned(), 1);
            }
        }
    }

    /// The thread that counts was away for so long.
    pub(crate) fn stood_still(&self, span: Duration) {
        let mut counts = self.lock();
        let longest = &mut counts.report.longest_stall_ms;
        *longest = (*longest).max(span.as_millis() as u64);
    }

    pub(crate) fn left(&self) {
        let mut counts = self.lock();
        counts.report.concurrent = counts.report.concurrent.saturating_sub(1);
    }

    pub(crate) fn report(&self, with_keys: bool) -> Report {
        let counts = self.lock();
        let mut report = counts.report.clone();
        report.seconds = counts.seconds.iter().copied().collect();
        report.distinct_keys = counts.keys.len() as u64;
        report.max_per_key = counts.keys.values().copied().max().unwrap_or(0);
        if with_keys {
            report.keys = counts
                .keys
                .iter()
                .map(|(key, count)| (key.clone(), *count))
                .collect();
        }
        report
    }

    /// Forgets everything but the calls that are open and those of the last second: a limit that is broken
    /// across the reset is still seen.
    pub(crate) fn reset(&self) {
        let mut counts = self.lock();
        let concurrent = counts.report.concurrent;
        let recent = std::mem::take(&mut counts.recent);
        let report = Report {
            concurrent,
            ..Report::default()
        };
        *counts = Counts {
            recent,
            report,
            ..Counts::default()
        };
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn arrive(&mut self, now: Instant, key: &str, day: i64, per_second: u32, per_day: u64) -> Arrival {
        // Two calls exactly one second apart are in no second together.
        while self
            .recent
            .front()
            .is_some_and(|oldest| now.duration_since(*oldest) >= SECOND)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let in_second = self.recent.len() as u32;
        let report = &mut self.report;
        let today = report.days.entry(day).or_insert(0);
        *today += 1;
        let arrival = Arrival {
            over_second: in_second > per_second,
            over_day: *today > per_day,
        };
        report.calls += 1;
        report.max_in_second = report.max_in_second.max(in_second);
        report.over_second += u64::from(arrival.over_second);
        report.over_day += u64::from(arrival.over_day);
        report.concurrent += 1;
        report.concurrent_max = report.concurrent_max.max(report.concurrent);
        self.count_second(now);
        self.count_key(key);
        arrival
    }

    fn count_second(&mut self, now: Instant) {
        let first = *self.first.get_or_insert(now);
        let second = now.duration_since(first).as_secs() as usize;
        while self.forgotten + self.seconds.len() <= second {
            self.seconds.push_back(0);
            if self.seconds.len() > MAX_SECONDS {
                self.seconds.pop_front();
                self.forgotten += 1;
            }
        }
        if let Some(count) = self.seconds.back_mut() {
            *count += 1;
        }
    }

    fn count_key(&mut self, key: &str) {
        if let Some(count) = self.keys.get_mut(key) {
            *count += 1;
        } else if self.keys.len() < MAX_KEYS {
            self.keys.insert(key.to_owned(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(counts: &mut Counts, at: Instant, how_many: usize) {
        for _ in 0..how_many {
            counts.arrive(at, "a", 0, 500, 20_000_000);
        }
    }

    #[test]
    fn the_501st_call_within_a_second_is_a_violation_and_the_500th_is_not() {
        let start = Instant::now();
        let mut counts = Counts::default();
        calls(&mut counts, start, 250);
        calls(&mut counts, start + Duration::from_millis(999), 250);
        assert_eq!((counts.report.max_in_second, counts.report.over_second), (500, 0));
        calls(&mut counts, start + Duration::from_nanos(999_999_999), 1);
        assert_eq!((counts.report.max_in_second, counts.report.over_second), (501, 1));
    }

    #[test]
    fn an_upstream_that_stood_still_says_for_how_long() {
        let upstream = crate::Upstream::start(UpstreamSettings::default()).expect("started");
        let begun = Instant::now();
        let held = upstream.shared.ledger.lock();
        while begun.elapsed() < Duration::from_millis(300) {
            std::thread::park_timeout(Duration::from_millis(300));
        }
        drop(held);
        while upstream.report().longest_stall_ms < 200 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{:?}",
                upstream.report()
            );
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_comes_during_a_stall_is_no_violation_of_the_callers() {
        let report = Report {
            longest_stall_ms: 100,
            ..Report::default()
        };
        assert_eq!(Report::default().most_allowed(500, 450), 500);
        assert_eq!(report.most_allowed(500, 450), 590);
    }

    #[test]
    fn a_second_later_the_first_calls_do_not_count_any_more() {
        let start = Instant::now();
        let mut counts = Counts::default();
        calls(&mut counts, start, 500);
        calls(&mut counts, start + SECOND, 500);
        assert_eq!((counts.report.max_in_second, counts.report.over_second), (500, 0));
        assert_eq!(counts.seconds, [500, 500]);
    }

    /// An aligned window would see 300 and 300.
    #[test]
    fn a_burst_across_the_turn_of_a_second_is_seen() {
        let start = Instant::now();
        let mut counts = Counts::default();
        calls(&mut counts, start, 1);
        calls(&mut counts, start + Duration::from_millis(900), 299);
        calls(&mut counts, start + Duration::from_millis(1_100), 300);
        assert_eq!(
            (counts.report.max_in_second, counts.report.over_second),
            (599, 99)
        );
    }

    #[test]
    fn days_are_counted_apart() {
        let start = Instant::now();
        let mut counts = Counts::default();
        let mut on = |day| counts.arrive(start, "a", day, 500, 2).over_day;
        assert_eq!(
            [on(1), on(1), on(1), on(2), on(2), on(2)],
            [false, false, true, false, false, true]
        );
        assert_eq!(counts.report.days, BTreeMap::from([(1, 3), (2, 3)]));
        assert_eq!(counts.report.over_day, 2);
    }

    #[test]
    fn quiet_seconds_are_zero_and_only_the_last_hour_is_kept() {
        let start = Instant::now();
        let mut counts = Counts::default();
        calls(&mut counts, start, 1);
        calls(&mut counts, start + Duration::from_secs(3), 2);
        assert_eq!(counts.seconds, [1, 0, 0, 2]);
        calls(&mut counts, start + Duration::from_secs(7_200), 3);
        assert_eq!(counts.seconds.len(), MAX_SECONDS);
        assert_eq!(counts.seconds.back(), Some(&3));
    }
}
