//! Starts per second, measured from counts that are read about once a second.
//!
//! The rate covers whole windows, because starts bunch at the beginning of each. A reading that comes a little late would
//! otherwise count the bunches of two windows in the time of one, and report an exceeded limit. Windows of many seconds
//! would delay the rate, so there the elapsed time counts.

use std::collections::VecDeque;

use crate::time::{Millis, Timestamp};

/// The rate counts windows up to this length as a whole.
const LONGEST_WINDOW: Millis = Millis(2_000);

/// How many jobs had started by one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartCount {
    pub at: Timestamp,
    /// The length of the windows of the limit.
    pub window: Millis,
    /// Starts since the store was opened.
    pub started: u64,
    /// Of these, the ones in the current window.
    pub in_window: u64,
}

/// The last counts.
#[derive(Debug, Clone, Default)]
pub struct StartRate {
    counts: VecDeque<StartCount>,
}

impl StartRate {
    /// Limit: the longest time over which there is a rate, in readings.
    pub const LONGEST: usize = 5;

    pub fn observe(&mut self, count: StartCount) {
        self.counts.push_back(count);
        if self.counts.len() > Self::LONGEST + 1 {
            self.counts.pop_front();
        }
    }

    /// Starts per second between the last reading and the one that came so many readings before; at most the first one
    /// that is kept. Zero with fewer than two readings.
    pub fn over(&self, readings: usize) -> f64 {
        let from = self.counts.len().saturating_sub(readings + 1);
        match (self.counts.get(from), self.counts.back()) {
            (Some(from), Some(to)) => to.rate_since(from),
            _ => 0.0,
        }
    }
}

impl StartCount {
    /// Starts per second, to one decimal.
    fn rate_since(&self, from: &StartCount) -> f64 {
        let (starts, span) = if self.window <= LONGEST_WINDOW {
            let windows = (self.at.0 / self.window.0).saturating_sub(from.at.0 / self.window.0);
            let complete = |count: &StartCount| count.started.saturating_sub(count.in_window);
            // The store's count restarts at zero when the store restarts.
            let starts = complete(self).saturating_sub(complete(from));
            (starts, Millis(windows * self.window.0))
        } else {
            (self.started.saturating_sub(from.started), self.at.since(from.at))
        };
        if span.0 == 0 {
            return 0.0;
        }
        (starts as f64 / span.as_secs_f64() * 10.0).round() / 10.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(at: u64, window: u64, started: u64, in_window: u64) -> StartCount {
        StartCount {
            at: Timestamp(at),
            window: Millis(window),
            started,
            in_window,
        }
    }

    /// 120 jobs start at the beginning of every second; the readings come early or late.
    #[test]
    fn a_late_reading_reports_no_exceeded_limit() {
        let reading = |at: u64| count(at, 1_000, (at / 1_000 + 1) * 120, 120);
        for (from, to) in [(1_500, 2_500), (1_950, 3_010), (1_010, 1_990), (1_500, 5_400)] {
            let rate = reading(to).rate_since(&reading(from));
            assert!(rate == 120.0 || rate == 0.0, "{from} to {to}: {rate}");
        }
    }

    #[test]
    fn long_windows_are_rated_by_elapsed_time() {
        let rate = count(3_000, 60_000, 50, 50).rate_since(&count(1_000, 60_000, 30, 30));
        assert_eq!(rate, 10.0);
    }

    #[test]
    fn a_count_that_restarts_is_no_rate() {
        let rate = count(2_500, 1_000, 5, 0).rate_since(&count(1_500, 1_000, 500, 0));
        assert_eq!(rate, 0.0);
    }

    #[test]
    fn the_rate_covers_as_many_readings_as_asked_for_and_kept() {
        let mut rate = StartRate::default();
        assert_eq!(rate.over(1), 0.0);
        // One more start each second: 1, 2, 3, …
        for second in 1..=20 {
            rate.observe(count(second * 1_000, 1_000, second * (second + 1) / 2, 0));
            if second == 1 {
                assert_eq!(rate.over(5), 0.0, "one reading is no rate");
            }
        }
        assert_eq!(rate.over(1), 20.0);
        assert_eq!(rate.over(3), 19.0);
        assert_eq!(rate.over(StartRate::LONGEST), 18.0);
        assert_eq!(rate.over(100), 18.0);
    }
}
