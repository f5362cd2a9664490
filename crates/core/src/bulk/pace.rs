//! The adaptive rate of one queue: 429s, 503s and slow responses of its downstream lower it, time raises it.
//!
//! Multiplicative decrease (×0.7, at most once per second), additive increase (5 % of the configured rate per
//! second), never below one start per second. Rates are whole thousandths of a start per second.

use crate::time::{Millis, Timestamp};

const MIN_MILLI_RPS: u64 = 1_000;
const CUT_INTERVAL: Millis = Millis(1_000);
/// 5 % per second: the full rate is back after 20 seconds.
const FULL_RECOVERY: Millis = Millis(20_000);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    configured: u64,
    current: u64,
    last_cut: Option<Timestamp>,
    last_raise: Timestamp,
}

impl Pace {
    pub fn new(rps: f64) -> Self {
        let configured = ((rps * 1000.0) as u64).max(1);
        Self {
            configured,
            current: configured,
            last_cut: None,
            last_raise: Timestamp(0),
        }
    }

    /// Lowers the rate because the downstream is overloaded.
    pub fn cut(&mut self, now: Timestamp) {
        self.raise(now);
        if self.last_cut.is_some_and(|cut| now < cut + CUT_INTERVAL) {
            return;
        }
        self.last_cut = Some(now);
        self.last_raise = now;
        self.current = (self.current * 7 / 10).max(MIN_MILLI_RPS.min(self.configured));
    }

    fn raise(&mut self, now: Timestamp) {
        if self.current == self.configured {
            return;
        }
        let gained = self.configured as u128 * now.since(self.last_raise).0 as u128 / FULL_RECOVERY.0 as u128;
        if gained > 0 {
            self.current = (self.current as u128 + gained).min(self.configured as u128) as u64;
            self.last_raise = now;
        }
    }

    /// Starts allowed in a window of this length at `now`; at least one, so that a queue never stops.
    pub fn limit(&mut self, now: Timestamp, window: Millis) -> u64 {
        self.raise(now);
        (self.current as u128 * window.0 as u128 / 1_000_000).max(1) as u64
    }

    /// Changes the configured rate; returns true if the queue may go faster. A rate that was cut stays cut.
    pub fn configure(&mut self, rps: f64, now: Timestamp) -> bool {
        self.raise(now);
        let (was, whole) = (self.current, self.current == self.configured);
        self.configured = Self::new(rps).configured;
        self.current = match whole {
            true => self.configured,
            false => self.current.min(self.configured),
        };
        self.current > was
    }

    /// The pace at `now`.
    pub fn at(&self, now: Timestamp) -> Self {
        let mut pace = self.clone();
        pace.raise(now);
        pace
    }

    pub fn configured_rps(&self) -> f64 {
        self.configured as f64 / 1000.0
    }

    pub fn last_cut(&self) -> Option<Timestamp> {
        self.last_cut
    }

    pub fn rps(&self) -> f64 {
        self.current as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_at_most_once_per_second_and_recovers_in_twenty() {
        let mut pace = Pace::new(1_000.0);
        let second = Millis(1_000);
        pace.cut(Timestamp(0));
        pace.cut(Timestamp(999));
        // 5 % per second was back before the second cut, which is ignored.
        assert_eq!(pace.limit(Timestamp(999), second), 749);
        pace.cut(Timestamp(1_000));
        assert_eq!(pace.limit(Timestamp(1_000), second), 525);
        assert_eq!(pace.limit(Timestamp(3_000), second), 625);
        assert_eq!(pace.limit(Timestamp(60_000), second), 1_000);
    }

    #[test]
    fn another_configured_rate_holds_at_once_unless_the_rate_was_cut() {
        let mut pace = Pace::new(100.0);
        assert!(pace.configure(200.0, Timestamp(0)));
        assert_eq!(pace.rps(), 200.0);
        pace.cut(Timestamp(0));
        assert!(!pace.configure(1_000.0, Timestamp(0)));
        assert_eq!(pace.rps(), 140.0, "a cut stays");
        assert_eq!(
            pace.at(Timestamp(1_000)).rps(),
            190.0,
            "and recovers by the rate that holds"
        );
        assert!(!pace.configure(50.0, Timestamp(0)));
        assert_eq!((pace.rps(), pace.configured_rps()), (50.0, 50.0));
    }

    #[test]
    fn never_below_one_per_second() {
        let mut pace = Pace::new(3.0);
        for s in 0..100 {
            pace.cut(Timestamp(s * 1_000));
        }
        assert_eq!(pace.limit(Timestamp(99_000), Millis(1_000)), 1);
        assert!(pace.rps() >= 1.0);
    }
}
