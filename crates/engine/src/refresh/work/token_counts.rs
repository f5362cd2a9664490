//! Counts the tokens that callers of this process received, by target.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::priority::Priority;
use tokio::time::Instant;

use crate::refresh::counters::{ByPriority, PriorityCounts};

const SECOND: Duration = Duration::from_secs(1);
/// A peak stays visible for at least this long, so that no scraper misses it.
const PEAK_WINDOW: Duration = Duration::from_secs(60);

/// Tokens of one target, since this process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCounts {
    pub acquired: PriorityCounts,
    /// Times that the budget had no token left.
    pub rejected: PriorityCounts,
    /// Most tokens handed out within any one second of the last minute or two.
    pub peak: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    acquired: ByPriority,
    rejected: ByPriority,
    pace: Mutex<Pace>,
}

impl Tokens {
    pub(crate) fn handed_out(&self, priority: Priority, tokens: u64) {
        self.acquired.add(priority, tokens);
        self.pace(|pace| pace.add(tokens, Instant::now()));
    }

    pub(crate) fn refused(&self, priority: Priority) {
        self.rejected.add(priority, 1);
    }

    pub(crate) fn view(&self) -> TokenCounts {
        TokenCounts {
            acquired: self.acquired.view(),
            rejected: self.rejected.view(),
            peak: self.pace(|pace| pace.peak(Instant::now())),
        }
    }

    fn pace<T>(&self, look: impl FnOnce(&mut Pace) -> T) -> T {
        look(&mut self.pace.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The most tokens within one second, of this minute and of the previous one.
#[derive(Debug, Default)]
struct Pace {
    /// Tokens handed out within the last second.
    recent: VecDeque<(Instant, u64)>,
    within: u64,
    most: u64,
    most_before: u64,
    minute: Option<Instant>,
}

impl Pace {
    fn add(&mut self, tokens: u64, now: Instant) {
        self.turn(now);
        while let Some((_, gone)) = self.recent.pop_front_if(|(at, _)| now - *at >= SECOND) {
            self.within -= gone;
        }
        self.recent.push_back((now, tokens));
        self.within += tokens;
        self.most = self.most.max(self.within);
    }

    fn peak(&mut self, now: Instant) -> u64 {
        self.turn(now);
        self.most.max(self.most_before)
    }

    fn turn(&mut self, now: Instant) {
        let elapsed = now - *self.minute.get_or_insert(now);
        if elapsed < PEAK_WINDOW {
            return;
        }
        self.most_before = if elapsed < 2 * PEAK_WINDOW { self.most } else { 0 };
        self.most = 0;
        self.minute = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_that_of_any_second_and_reported_for_a_minute() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut pace = Pace::default();
        for (ms, tokens) in [(0, 100), (600, 200), (999, 100), (1_000, 50), (1_700, 10)] {
            pace.add(tokens, at(ms));
        }
        assert_eq!(pace.peak(at(1_700)), 400, "of the second from 0 on");
        pace.add(20, at(59_000));
        assert_eq!(pace.peak(at(61_000)), 400);
        pace.add(30, at(100_000));
        assert_eq!(pace.peak(at(119_000)), 400);
        assert_eq!(pace.peak(at(125_000)), 30);
        assert_eq!(pace.peak(at(900_000)), 0);
    }

    /// In virtual time, both fall within one second.
    #[tokio::test(start_paused = true)]
    async fn both_priorities_are_counted_for_both() {
        let tokens = Tokens::default();
        for (priority, count) in [(Priority::High, 3), (Priority::Low, 4)] {
            tokens.handed_out(priority, count);
            tokens.refused(priority);
        }
        let counts = tokens.view();
        assert_eq!(counts.acquired, PriorityCounts { high: 3, low: 4 });
        assert_eq!(counts.rejected, PriorityCounts { high: 1, low: 1 });
        assert_eq!(counts.peak, 7);
    }
}
