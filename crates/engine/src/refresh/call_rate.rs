//! Calculates how many calls per second all processes make to a target, from readings of the day's used calls.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_core::budget::BudgetView;
use tidegate_core::time::Timestamp;
use tokio::time::Instant;

const OVER: Duration = Duration::from_secs(5);
/// Over less time, an allowed burst would look like a rate above the limit.
const LEAST: Duration = Duration::from_secs(1);

/// One reading. The store read the count at some time between `requested` and `answered`.
#[derive(Debug, Clone, Copy)]
struct Reading {
    requested: Instant,
    answered: Instant,
    /// The highest count of used calls so far.
    used: u64,
}

#[derive(Debug, Default)]
pub(crate) struct CallRate {
    readings: VecDeque<Reading>,
    day_ends: Timestamp,
}

impl CallRate {
    pub(crate) fn observe(&mut self, view: &BudgetView, requested: Instant, answered: Instant) {
        if self.day_ends != view.day_ends {
            self.readings.clear();
            self.day_ends = view.day_ends;
        }
        // A server that lost its last writes gets them again. Those calls must not count twice.
        let before = self.readings.back().map_or(0, |reading| reading.used);
        self.readings.push_back(Reading {
            requested,
            answered,
            used: view.day_used.max(before),
        });
        while let Some(next) = self.readings.get(1)
            && answered - next.requested >= OVER
        {
            self.readings.pop_front();
        }
    }

    /// The rate, which never exceeds the real one: a slow answer makes the elapsed time longer, not shorter.
    pub(crate) fn per_second(&self) -> Option<f64> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        let elapsed = last.answered - first.requested;
        let known = self.readings.len() > 1 && elapsed >= LEAST;
        known.then(|| (last.used - first.used) as f64 / elapsed.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(day_used: u64, day_ends: u64) -> BudgetView {
        BudgetView {
            tokens: 0,
            low_tokens: 0,
            day_used,
            day_left_high: 0,
            day_left_low: 0,
            day_ends: Timestamp(day_ends),
            hold_until: Timestamp(0),
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let begun = Instant::now();
        let at = |secs: u64| begun + Duration::from_secs(secs);
        let mut calls = CallRate::default();
        assert_eq!(calls.per_second(), None);
        calls.observe(&view(1_000_000, 1), at(0), at(0));
        assert_eq!(
            calls.per_second(),
            None,
            "calls before the first reading are no rate"
        );
        for second in 1..=20 {
            calls.observe(&view(1_000_000 + second * 450, 1), at(second), at(second));
            assert_eq!(calls.per_second(), Some(450.0));
        }
        for second in 21..=25 {
            calls.observe(&view(1_009_000, 1), at(second), at(second));
        }
        assert_eq!(calls.per_second(), Some(0.0));
    }

    /// A process that stalls after the store has answered makes two readings close together.
    #[test]
    fn a_slow_answer_is_no_burst() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut calls = CallRate::default();
        calls.observe(&view(0, 1), at(0), at(900));
        calls.observe(&view(850, 1), at(1_900), at(1_901));
        assert!(calls.per_second().unwrap() <= 450.0, "{:?}", calls.per_second());
    }

    #[test]
    fn a_new_day_or_a_restored_count_is_no_burst() {
        let begun = Instant::now();
        let at = |secs: u64| begun + Duration::from_secs(secs);
        let mut calls = CallRate::default();
        for (second, used) in [(0, 5_000), (1, 5_100), (2, 4_000), (3, 5_200)] {
            calls.observe(&view(used, 1), at(second), at(second));
        }
        assert_eq!(calls.per_second(), Some(200.0 / 3.0));
        calls.observe(&view(40, 2), at(4), at(4));
        assert_eq!(calls.per_second(), None);
        calls.observe(&view(140, 2), at(5), at(5));
        assert_eq!(calls.per_second(), Some(100.0));
    }
}
