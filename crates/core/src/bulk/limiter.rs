//! The window limiter: no aligned window has more starts than its rate allows.
//!
//! It is charged when a job is leased, not when it becomes ready, so a stall never turns into a burst.

use serde::{Deserialize, Serialize};

use crate::limits::meter::Meter;
use crate::limits::rate::Rate;
use crate::time::{Millis, Timestamp};

/// The window is spent; more jobs may start at `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowLimiter {
    rate: Rate,
    window: u64,
    meter: Meter,
    /// The rest of the window is unknown, so nothing more starts in it, whatever the limit becomes.
    spent: bool,
    /// The largest limit so far.
    widest: u64,
}

impl WindowLimiter {
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            window: 0,
            meter: Meter::default(),
            spent: false,
            widest: rate.most(),
        }
    }

    /// Moves to the window of `now`; returns true if it is a later one, which starts empty. An earlier time
    /// keeps the current window.
    pub fn turn(&mut self, now: Timestamp) -> bool {
        let window = now.0 / self.length().0;
        let later = window > self.window;
        if later {
            self.window = window;
            self.spent = false;
        }
        later
    }

    /// Changes the rate at once, including for the rest of the window.
    pub fn set_rate(&mut self, rate: Rate) {
        assert!(rate.window() == self.length(), "windows keep their length");
        self.rate = rate;
        self.widest = self.widest.max(rate.most());
    }

    /// Counts everything before `end` as spent: how much was used before a restart is unknown.
    pub fn spend_until(&mut self, end: Timestamp) {
        let last = end.0.saturating_sub(1) / self.length().0;
        if end > Timestamp(0) && last >= self.window {
            self.window = last;
            self.meter = Meter::used_up(self.rate, last);
            self.spent = true;
        }
    }

    pub fn room(&self) -> u64 {
        match self.spent {
            true => 0,
            false => self.meter.room(self.rate, self.window),
        }
    }

    /// Whether something of this cost may start when so many starts are promised to others.
    pub fn fits(&self, promised: u64, cost: u32) -> bool {
        !self.spent && self.meter.fits(self.rate, self.window, promised, cost)
    }

    /// Counts what starts. Panics if there is no room: every caller has checked.
    pub fn charge(&mut self, cost: u32) {
        assert!(self.room() > 0, "charged beyond the limit of {}", self.limit());
        self.add(cost);
    }

    /// Counts what a run used up beyond its cost: later windows pay what this one cannot.
    pub fn add(&mut self, cost: u32) {
        self.meter.charge(Some(self.rate), self.window, cost);
    }

    /// Counts one start at `now`, or returns when to try again.
    pub fn try_start(&mut self, now: Timestamp) -> Result<(), Limited> {
        self.turn(now);
        if self.room() == 0 {
            return Err(Limited { until: self.until() });
        }
        self.charge(1);
        Ok(())
    }

    pub fn window_end(&self) -> Timestamp {
        Timestamp((self.window + 1).saturating_mul(self.length().0))
    }

    /// When the next window begins that allows a start.
    pub fn until(&self) -> Timestamp {
        self.start_of(self.meter.next(self.rate, self.window))
    }

    /// When the window of this number begins.
    pub fn start_of(&self, window: u64) -> Timestamp {
        Timestamp(window.saturating_mul(self.length().0))
    }

    /// Reverts what was charged in this window.
    pub fn refund(&mut self, cost: u32) {
        self.meter.refund(self.window, cost);
    }

    pub fn window(&self) -> u64 {
        self.window
    }

    /// What was charged in this window.
    pub fn started(&self) -> u64 {
        let turned = self.meter.turned(Some(self.rate), self.window);
        turned.charged(self.window)
    }

    /// Starts that the current window allows.
    pub fn limit(&self) -> u64 {
        self.rate.allowed(self.window)
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The largest limit of any window so far.
    pub fn widest(&self) -> u64 {
        self.widest
    }

    pub fn length(&self) -> Millis {
        self.rate.window()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten_per_second() -> WindowLimiter {
        WindowLimiter::new(Rate::new(10.0, Millis(1_000)))
    }

    #[test]
    fn ten_start_the_eleventh_waits_for_the_next_window() {
        let mut limiter = ten_per_second();
        for _ in 0..10 {
            limiter.try_start(Timestamp(5_300)).unwrap();
        }
        assert_eq!(
            limiter.try_start(Timestamp(5_999)),
            Err(Limited {
                until: Timestamp(6_000)
            })
        );
        assert_eq!((limiter.started(), limiter.limit()), (10, 10));
        limiter.try_start(Timestamp(6_400)).unwrap();
        assert_eq!(limiter.started(), 1);
    }

    #[test]
    fn a_backward_step_keeps_the_window_and_its_count() {
        let mut limiter = ten_per_second();
        for _ in 0..10 {
            limiter.try_start(Timestamp(5_300)).unwrap();
        }
        assert_eq!(
            limiter.try_start(Timestamp(4_000)),
            Err(Limited {
                until: Timestamp(6_000)
            })
        );
    }

    #[test]
    fn a_limit_may_change_within_a_window() {
        let mut limiter = ten_per_second();
        for _ in 0..6 {
            limiter.try_start(Timestamp(5_300)).unwrap();
        }
        limiter.set_rate(Rate::new(4.0, Millis(1_000)));
        assert_eq!(limiter.room(), 0, "six of four have started");
        limiter.set_rate(Rate::new(8.0, Millis(1_000)));
        assert_eq!(limiter.room(), 2);
        limiter.spend_until(Timestamp(6_000));
        limiter.set_rate(Rate::new(1_000.0, Millis(1_000)));
        assert_eq!(limiter.room(), 0, "what is not known to be left is not left");
        limiter.turn(Timestamp(6_000));
        assert_eq!(limiter.room(), 1_000);
    }

    proptest::proptest! {
        /// The wait is exact: one millisecond before `until` nothing starts, at `until` something does.
        #[test]
        fn the_wait_is_exact(length in 1u64..5_000, milli in 1u64..50_000, now in 0u64..1_000_000) {
            let mut limiter = WindowLimiter::new(Rate::new(milli as f64 / 1000.0, Millis(length)));
            while limiter.try_start(Timestamp(now)).is_ok() {}
            let Limited { until } = limiter.try_start(Timestamp(now)).unwrap_err();
            proptest::prop_assert!(until > Timestamp(now));
            proptest::prop_assert!(limiter.try_start(until - Millis(1)).is_err());
            proptest::prop_assert!(limiter.try_start(until).is_ok());
        }
    }
}
