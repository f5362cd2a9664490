//! How many calls a target gets per second, of all processes, from looks at what its day has used.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_core::budget::BudgetView;
use tidegate_core::time::Timestamp;
use tokio::time::Instant;

const OVER: Duration = Duration::from_secs(5);
/// Within less, a burst that is allowed would look like a rate that is not.
const LEAST: Duration = Duration::from_secs(1);

/// The store looked at some time between `asked` and `answered`.
#[derive(Debug, Clone, Copy)]
struct Look {
    asked: Instant,
    answered: Instant,
    /// The most that the day had used by then.
    used: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pace {
    looks: VecDeque<Look>,
    day_ends: Timestamp,
}

impl Pace {
    pub(super) fn saw(&mut self, view: &BudgetView, asked: Instant, answered: Instant) {
        if self.day_ends != view.day_ends {
            self.looks.clear();
            self.day_ends = view.day_ends;
        }
        // A server that forgot its last moments is told of them again: those calls are not made twice.
        let before = self.looks.back().map_or(0, |look| look.used);
        self.looks.push_back(Look {
            asked,
            answered,
            used: view.day_used.max(before),
        });
        while let Some(next) = self.looks.get(1)
            && answered - next.asked >= OVER
        {
            self.looks.pop_front();
        }
    }

    /// Never more than it was: a slow answer makes the time longer, not shorter.
    pub(super) fn rate(&self) -> Option<f64> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let elapsed = last.answered - first.asked;
        let known = self.looks.len() > 1 && elapsed >= LEAST;
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
        let mut pace = Pace::default();
        assert_eq!(pace.rate(), None);
        pace.saw(&view(1_000_000, 1), at(0), at(0));
        assert_eq!(pace.rate(), None, "what was used before is no rate");
        for second in 1..=20 {
            pace.saw(&view(1_000_000 + second * 450, 1), at(second), at(second));
            assert_eq!(pace.rate(), Some(450.0));
        }
        for second in 21..=25 {
            pace.saw(&view(1_009_000, 1), at(second), at(second));
        }
        assert_eq!(pace.rate(), Some(0.0));
    }

    /// A process that stalls after the store has answered sees two looks close together.
    #[test]
    fn a_slow_answer_is_no_burst() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut pace = Pace::default();
        pace.saw(&view(0, 1), at(0), at(900));
        pace.saw(&view(850, 1), at(1_900), at(1_901));
        assert!(pace.rate().unwrap() <= 450.0, "{:?}", pace.rate());
    }

    #[test]
    fn a_day_that_turns_or_is_remembered_again_is_no_burst() {
        let begun = Instant::now();
        let at = |secs: u64| begun + Duration::from_secs(secs);
        let mut pace = Pace::default();
        for (second, used) in [(0, 5_000), (1, 5_100), (2, 4_000), (3, 5_200)] {
            pace.saw(&view(used, 1), at(second), at(second));
        }
        assert_eq!(pace.rate(), Some(200.0 / 3.0));
        pace.saw(&view(40, 2), at(4), at(4));
        assert_eq!(pace.rate(), None);
        pace.saw(&view(140, 2), at(5), at(5));
        assert_eq!(pace.rate(), Some(100.0));
    }
}
