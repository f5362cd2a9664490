//! Counts calls exactly and at arrival, and finds broken limits.
//!
//! The counting thread may stall. Calls that arrive meanwhile are counted afterwards, so that a second which begins
//! in a stall has calls of before it. A stall excuses that and no more: one in the middle of a second only moves calls
//! within it, and one elsewhere does not affect it.

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
/// Heartbeat interval of the counting thread.
pub(crate) const BEAT: Duration = Duration::from_millis(5);
/// A longer time without a beat is a stall. Limit: a shorter one excuses nothing.
const STALL: Duration = Duration::from_millis(10);
/// After a stall, everything that arrived during it is counted within this time.
const CATCH_UP: Duration = Duration::from_millis(5);

/// What the provider has counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Calls that arrived, whatever the answer.
    pub calls: u64,
    /// Most calls that arrived within any sliding second.
    pub max_in_second: u32,
    /// Calls that found more than the limit within the second that ends with them, and more than a stall of the
    /// provider explains.
    pub over_second: u64,
    /// Calls beyond the day's limit.
    pub over_day: u64,
    /// The fullest seconds, as calls arrived.
    pub busiest: Busiest,
    /// Calls that were sent, whether or not they have arrived: those that are held (`holding`) have not.
    pub sent: u64,
    /// The fullest seconds, as calls were sent.
    pub busiest_sent: Busiest,
    /// The longest stall of the provider, in milliseconds.
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
    /// Calls by key; `GET /report` includes them only with `?keys=true`.
    pub keys: BTreeMap<String, u64>,
}

impl Report {
    /// Calls that broke a limit.
    pub fn violations(&self) -> u64 {
        self.over_second + self.over_day
    }

    /// As [`Busiest::most_allowed`], of calls as they arrived: to be compared with `max_in_second`.
    pub fn most_allowed(&self, limit: u32, rate: u32) -> u32 {
        self.busiest.most_allowed(limit, rate)
    }
}

/// The fullest sliding seconds: the most calls of one, by how many milliseconds late the provider may have counted its
/// first calls. Only seconds that are fuller than any with less delay.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Busiest(BTreeMap<u64, u32>);

impl Busiest {
    /// Most calls in a second.
    pub fn most(&self) -> u32 {
        self.0.values().copied().max().unwrap_or(0)
    }

    /// The most calls that a second may have if callers send at most `limit` in a second, and `rate` on average.
    /// Without stalls that is `limit`. With stalls, each second is judged by its own: [`most`](Self::most) is above
    /// this value if and only if some second has more than `limit` and the calls of the stall that it begins in.
    pub fn most_allowed(&self, limit: u32, rate: u32) -> u32 {
        let spare = |(late_ms, calls): (&u64, &u32)| {
            i64::from(limit) + came_in(rate, *late_ms) as i64 - i64::from(*calls)
        };
        let least = self.0.iter().map(spare).min();
        let most = least.map_or(i64::from(limit), |spare| i64::from(self.most()) + spare);
        most.clamp(0, u32::MAX.into()) as u32
    }

    fn note(&mut self, late: Duration, calls: u32) {
        let late_ms = whole_ms(late);
        // They grow together, so the last one has the most.
        let known = self.0.range(..=late_ms).next_back();
        if known.is_none_or(|(_, known)| *known < calls) {
            self.0
                .retain(|later_ms, known| *later_ms < late_ms || *known > calls);
            self.0.insert(late_ms, calls);
        }
    }
}

fn whole_ms(span: Duration) -> u64 {
    span.as_micros().div_ceil(1_000) as u64
}

/// Calls in a span at a rate per second, rounded up.
fn came_in(rate: u32, span_ms: u64) -> u64 {
    (u64::from(rate) * span_ms).div_ceil(1_000)
}

/// Whether an arriving call breaks a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) over_second: bool,
    pub(crate) over_day: bool,
}

#[derive(Debug, Default)]
pub(crate) struct CallCounter(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    arrivals: Window,
    sent: Window,
    last_beat: Option<Instant>,
    /// Those that affect the last second, or the stall before it, oldest first. Few: each is longer than `STALL`.
    stalls: VecDeque<Stall>,
    first: Option<Instant>,
    seconds: VecDeque<u32>,
    /// How many entries of `seconds` were dropped.
    dropped: usize,
    keys: HashMap<String, u64>,
    report: Report,
}

/// The last second.
#[derive(Debug, Default)]
struct Window {
    /// Oldest first.
    recent: VecDeque<Instant>,
}

impl Window {
    /// Counts a call; returns how many there are in the second that ends with it.
    fn count(&mut self, now: Instant) -> u32 {
        // Two calls exactly one second apart are in no second together.
        while self
            .recent
            .front()
            .is_some_and(|oldest| now.duration_since(*oldest) >= SECOND)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        self.recent.len() as u32
    }
}

/// From the last beat before it to the first one after it.
#[derive(Debug, Clone, Copy)]
struct Stall {
    from: Instant,
    to: Instant,
}

impl CallCounter {
    /// Counts a call. The clock is read under the lock, so that arrivals are in order.
    pub(crate) fn arrive(&self, key: &str, day: i64, settings: &UpstreamSettings) -> Arrival {
        let mut counts = self.lock();
        let now = Instant::now();
        counts.arrive(now, key, day, settings.per_second, settings.per_day)
    }

    /// Counts a call that was sent.
    pub(crate) fn send(&self) {
        let mut counts = self.lock();
        let now = Instant::now();
        counts.send(now);
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

    /// The counting thread ran at this moment.
    pub(crate) fn beat(&self, at: Instant) {
        self.lock().beat(at);
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

    /// Resets everything but the open calls and those of the last second: a limit that is broken across the reset
    /// is still found.
    pub(crate) fn reset(&self) {
        let mut counts = self.lock();
        let before = std::mem::take(&mut *counts);
        *counts = Counts {
            report: Report {
                concurrent: before.report.concurrent,
                ..Report::default()
            },
            arrivals: before.arrivals,
            sent: before.sent,
            last_beat: before.last_beat,
            stalls: before.stalls,
            ..Counts::default()
        };
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn arrive(&mut self, now: Instant, key: &str, day: i64, per_second: u32, per_day: u64) -> Arrival {
        let (in_second, late) = (self.arrivals.count(now), self.late(now));
        let report = &mut self.report;
        let today = report.days.entry(day).or_insert(0);
        *today += 1;
        let allowed = u64::from(per_second) + came_in(per_second, whole_ms(late));
        let arrival = Arrival {
            over_second: u64::from(in_second) > allowed,
            over_day: *today > per_day,
        };
        report.calls += 1;
        report.max_in_second = report.max_in_second.max(in_second);
        report.busiest.note(late, in_second);
        report.over_second += u64::from(arrival.over_second);
        report.over_day += u64::from(arrival.over_day);
        report.concurrent += 1;
        report.concurrent_max = report.concurrent_max.max(report.concurrent);
        self.count_second(now);
        self.count_key(key);
        arrival
    }

    fn send(&mut self, now: Instant) {
        let (in_second, late) = (self.sent.count(now), self.late(now));
        self.report.sent += 1;
        self.report.busiest_sent.note(late, in_second);
    }

    fn beat(&mut self, at: Instant) {
        let last = self.last_beat.replace(at).unwrap_or(at);
        let gap = at.duration_since(last);
        let longest = &mut self.report.longest_stall_ms;
        *longest = (*longest).max(gap.saturating_sub(BEAT).as_millis() as u64);
        if gap > STALL {
            self.stalls.push_back(Stall { from: last, to: at });
        }
        // The stall before may have delayed the same calls.
        while self
            .stalls
            .get(1)
            .is_some_and(|stall| stall.to + CATCH_UP + SECOND <= at)
        {
            self.stalls.pop_front();
        }
    }

    /// How late the provider may have counted the first calls of the second that ends now. They waited for the stall at
    /// that time, and for the one right before it if they met both: on their way in, and behind others.
    fn late(&self, now: Instant) -> Duration {
        let running = self.last_beat.filter(|last| now.duration_since(*last) > STALL);
        let running = running.map(|from| Stall { from, to: now });
        let mut late = Duration::ZERO;
        let mut before: Option<Stall> = None;
        for stall in self.stalls.iter().copied().chain(running) {
            let since = match before {
                Some(before) if before.to == stall.from => before.from,
                _ => stall.from,
            };
            let over = now >= stall.to + CATCH_UP + SECOND;
            if !over && let Some(waited) = now.checked_duration_since(since + SECOND) {
                late = late.max(waited);
            }
            before = Some(stall);
        }
        late
    }

    fn count_second(&mut self, now: Instant) {
        let first = *self.first.get_or_insert(now);
        let second = now.duration_since(first).as_secs() as usize;
        while self.dropped + self.seconds.len() <= second {
            self.seconds.push_back(0);
            if self.seconds.len() > MAX_SECONDS {
                self.seconds.pop_front();
                self.dropped += 1;
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
    fn a_stall_is_reported_with_its_length() {
        let upstream = crate::Upstream::start(UpstreamSettings::default()).expect("started");
        let begun = Instant::now();
        let wait = |ms| {
            let until = Instant::now() + Duration::from_millis(ms);
            while Instant::now() < until {
                std::thread::park_timeout(Duration::from_millis(ms));
            }
        };
        // Its thread may not have begun when it is blocked for the first time.
        while upstream.report().longest_stall_ms < 200 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{:?}",
                upstream.report()
            );
            let held = upstream.shared.counter.lock();
            wait(300);
            drop(held);
            wait(50);
        }
    }

    /// A provider that runs and stalls, and when it is called. Times are milliseconds since its start.
    struct World {
        counts: Counts,
        start: Instant,
        now: u64,
    }

    impl World {
        fn new() -> Self {
            let mut world = Self {
                counts: Counts::default(),
                start: Instant::now(),
                now: 0,
            };
            world.counts.beat(world.start);
            world
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        /// The provider runs for `ms`; one call arrives in each millisecond that `calls` names.
        fn runs(&mut self, ms: u64, calls: impl Fn(u64) -> bool) {
            for _ in 0..ms {
                let now = self.at(self.now);
                if self.now.is_multiple_of(5) {
                    self.counts.beat(now);
                }
                if calls(self.now) {
                    self.counts.arrive(now, "a", 0, 500, 20_000_000);
                }
                self.now += 1;
            }
        }

        /// The provider stalls for `ms`; calls that arrive meanwhile are counted afterwards.
        fn stalls(&mut self, ms: u64, calls: impl Fn(u64) -> bool) {
            let came = (self.now..self.now + ms).filter(|at| calls(*at)).count();
            self.now += ms;
            let now = self.at(self.now);
            for _ in 0..came {
                self.counts.arrive(now, "a", 0, 500, 20_000_000);
            }
            self.counts.beat(now);
        }

        fn over(&self, limit: u32) -> u32 {
            let report = &self.counts.report;
            assert_eq!(report.max_in_second, report.busiest.most());
            report
                .max_in_second
                .saturating_sub(report.most_allowed(limit, limit))
        }
    }

    /// 500 calls in any second.
    fn every_other(ms: u64) -> bool {
        ms.is_multiple_of(2)
    }

    #[test]
    fn calls_that_arrive_during_a_stall_are_no_violation() {
        let mut world = World::new();
        assert_eq!(world.counts.report.most_allowed(500, 450), 500);
        world.runs(2_000, every_other);
        world.stalls(400, every_other);
        world.runs(2_000, every_other);
        let report = &world.counts.report;
        assert_eq!(report.longest_stall_ms, 400);
        assert!(report.max_in_second >= 690, "{report:?}");
        assert_eq!((world.over(500), report.over_second), (0, 0), "{report:?}");
    }

    #[test]
    fn consecutive_stalls_excuse_calls_that_met_both_and_no_more() {
        let mut world = World::new();
        world.runs(1_500, every_other);
        for _ in 0..40 {
            world.stalls(50, every_other);
        }
        world.runs(1_500, every_other);
        assert_eq!(world.over(500), 0, "{:?}", world.counts.report);
        let late = *world.counts.report.busiest.0.keys().max().unwrap();
        assert!(late <= 105, "{late} ms");
    }

    /// Ten more than allowed, two per cent, in one second of many.
    #[test]
    fn a_stall_elsewhere_excuses_nothing() {
        for stall_at in [0, 700, 3_200, 6_000] {
            let mut world = World::new();
            let calls = |ms: u64| every_other(ms) || (4_000..4_010).contains(&(ms / 2));
            world.runs(stall_at, calls);
            world.stalls(500, calls);
            world.runs(10_000 - stall_at, calls);
            let report = &world.counts.report;
            assert_eq!(world.over(500), 10, "{stall_at}: {report:?}");
            assert!(report.over_second >= 10, "{stall_at}: {report:?}");
        }
    }

    #[test]
    fn a_stall_in_the_middle_of_a_second_excuses_nothing() {
        let mut world = World::new();
        // 520 in one second and nothing around it, with a stall in it.
        world.runs(1_000, |_| false);
        world.runs(300, |_| true);
        world.stalls(200, |_| true);
        world.runs(20, |_| true);
        world.runs(2_000, |_| false);
        assert_eq!(world.counts.report.max_in_second, 520);
        let report = &world.counts.report;
        assert_eq!((world.over(500), report.over_second), (20, 20), "{report:?}");
    }

    /// As in `every_other`, and three per cent more, while the provider stalls repeatedly.
    #[test]
    fn a_lasting_violation_is_found_through_stalls() {
        let more = |ms: u64| every_other(ms) || ms % 66 == 1;
        let mut world = World::new();
        for _ in 0..20 {
            world.runs(437, more);
            world.stalls(60, more);
        }
        assert!(world.over(500) >= 10, "{:?}", world.counts.report);
    }

    #[test]
    fn a_reset_forgets_the_fullest_second_and_not_the_stall() {
        let counter = CallCounter::default();
        counter.arrive("a", 0, &UpstreamSettings::default());
        assert_eq!(counter.report(false).busiest.most(), 1);
        let from = Instant::now();
        let stall = Stall {
            from,
            to: from + SECOND,
        };
        counter.lock().stalls = [stall].into();
        counter.reset();
        assert_eq!(counter.report(false).busiest, Busiest::default());
        assert_eq!(counter.lock().stalls.len(), 1);
    }

    #[test]
    fn calls_that_are_held_were_sent_and_have_not_arrived() {
        let start = Instant::now();
        let mut counts = Counts::default();
        for n in 0..600 {
            counts.send(start + Duration::from_millis(2 * n));
        }
        calls(&mut counts, start + Duration::from_millis(1_200), 600);
        let report = &counts.report;
        assert_eq!((report.sent, report.busiest_sent.most()), (600, 500));
        assert_eq!(report.busiest.most(), 600);
        assert_eq!(report.busiest_sent.most_allowed(500, 450), 500);
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
