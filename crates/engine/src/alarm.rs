//! Decides when to ask a store again that replied "not before this time".
//!
//! The time is the store's and the clock is this machine's; the two may differ by any amount. If the store is
//! ahead, the alarm asks after the longest sensible wait. If it is behind, it says "not yet" at a time long past
//! here, and the alarm asks less and less often instead of spinning.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::clock::Clock;
use tidegate_core::time::{Millis, Timestamp};

/// Each further "not yet" lengthens the pause by this.
const STEP: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Arc<dyn Clock>,
    /// The time that the store named last.
    at: Timestamp,
    /// How often the store named it although it had passed here.
    again: u32,
}

impl Alarm {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            at: Timestamp::default(),
            again: 0,
        }
    }

    /// How long to wait for `at`: between a millisecond and `longest`.
    pub(crate) fn wait(&mut self, at: Timestamp, longest: Duration) -> Duration {
        let left = at.since(self.clock.now());
        if left > Millis(0) || at != self.at {
            self.again = 0;
        } else {
            self.again = self.again.saturating_add(1);
        }
        self.at = at;
        let left = Duration::from(left.max(Millis(1)));
        left.max(STEP.saturating_mul(self.again.saturating_sub(1)))
            .min(longest)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::clock::ManualClock;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    /// Asks until a store whose clock is `behind` this one says that the time has come.
    fn asks(behind: u64) -> (u32, Millis) {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let mut alarm = Alarm::new(clock.clone());
        let store = |clock: &ManualClock| clock.now() - Millis(behind);
        let at = store(&clock) + Millis(1_000);
        let mut asked = 0;
        while store(&clock) < at {
            clock.advance(Millis(alarm.wait(at, LONGEST).as_millis() as u64));
            asked += 1;
        }
        (asked, store(&clock).since(at))
    }

    #[test]
    fn equal_clocks_meet_at_the_time() {
        assert_eq!(asks(0), (1, Millis(0)));
    }

    #[test]
    fn a_store_that_is_behind_is_not_asked_all_the_time() {
        for behind in [1, 20, 999, 1_000, 5_000, 500_000] {
            let (asked, late) = asks(behind);
            assert!(
                asked <= 22 && late < Millis(110),
                "{behind} ms behind: {asked} asks, {late} late"
            );
        }
    }

    #[test]
    fn a_store_that_is_ahead_is_asked_after_the_longest_wait() {
        let mut alarm = Alarm::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        assert_eq!(alarm.wait(Timestamp(5_000_000), LONGEST), LONGEST);
    }
}
