//! A rate of any size, exact in every aligned window.
//!
//! A rate is so many units per window, a fraction included. Window `k` allows
//! `floor(n × (k + 1)) − floor(n × k)` units: the remainder is carried from window to window, and a window may allow none.
//! The allowance of a window follows from its number alone, so every process and every backend computes the same one,
//! and nothing has to be stored.

use crate::time::Millis;

/// Parts of a unit. A product of two numbers below it is below 2^53, so that Lua computes it exactly, too.
const PARTS: u64 = 10_000_000;

/// Units per aligned window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    window: Millis,
    whole: u64,
    /// The rest of a unit, in parts.
    rest: u64,
}

impl Rate {
    /// So many units per second, in windows of this length. What is below a ten-millionth of a unit per window is
    /// rounded down, but never to nothing.
    pub fn new(per_second: f64, window: Millis) -> Self {
        assert!(window.0 > 0, "a window needs a length");
        let parts = per_second.max(0.0) * window.0 as f64 * (PARTS as f64 / 1000.0);
        // A decimal fraction such as 0.3 is not exact in binary: what is as good as whole is whole.
        let near = (parts + 0.5).floor();
        let parts = if (parts - near).abs() <= parts * 1e-9 {
            near
        } else {
            parts.floor()
        };
        let parts = (parts as u128).max(1);
        Self {
            window,
            whole: u64::try_from(parts / u128::from(PARTS)).unwrap_or(u64::MAX),
            rest: (parts % u128::from(PARTS)) as u64,
        }
    }

    /// Units that the window of this number allows.
    pub fn allowed(&self, window: u64) -> u64 {
        // The pattern of the rest repeats after PARTS windows.
        let window = window % PARTS;
        let carried = (self.rest * (window + 1)) / PARTS - (self.rest * window) / PARTS;
        self.whole.saturating_add(carried)
    }

    /// Units that all windows from this one on and before `end` allow.
    pub fn between(&self, from: u64, end: u64) -> u64 {
        // floor(rest × k / PARTS), with k in two parts so that every product stays exact.
        let carried = |k: u64| self.rest * (k / PARTS) + self.rest * (k % PARTS) / PARTS;
        let windows = end.saturating_sub(from);
        let whole = self.whole.saturating_mul(windows);
        match windows {
            0 => 0,
            _ => whole.saturating_add(carried(end) - carried(from)),
        }
    }

    /// The most that any window allows.
    pub fn most(&self) -> u64 {
        self.whole.saturating_add(u64::from(self.rest > 0))
    }

    /// The first window from this one on that allows anything.
    pub fn next_allowing(&self, window: u64) -> u64 {
        if self.whole > 0 || self.rest == 0 {
            return window;
        }
        // floor(rest × (k + 1) / PARTS) must pass its value before window `window`.
        let at = window % PARTS;
        let passed = (self.rest * at) / PARTS + 1;
        window + ((passed * PARTS).div_ceil(self.rest) - 1).saturating_sub(at)
    }

    /// The length of a window.
    pub fn window(&self) -> Millis {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(per_second: f64, window: u64, windows: std::ops::Range<u64>) -> Vec<u64> {
        let rate = Rate::new(per_second, Millis(window));
        windows.map(|number| rate.allowed(number)).collect()
    }

    #[test]
    fn whole_rates_are_the_same_in_every_window() {
        assert_eq!(counts(30.0, 1_000, 7..11), [30; 4]);
        assert_eq!(counts(10_000.0, 20, 7..11), [200; 4]);
        assert_eq!(counts(0.1 * 3.0, 10_000, 0..4), [3; 4]);
    }

    #[test]
    fn remainders_are_carried() {
        assert_eq!(counts(0.5, 1_000, 0..6), [0, 1, 0, 1, 0, 1]);
        assert_eq!(counts(1.9, 1_000, 0..10).iter().sum::<u64>(), 19);
        assert_eq!(counts(2.0, 100, 0..10).iter().sum::<u64>(), 2);
        assert_eq!(counts(10.0, 20, 0..50).iter().sum::<u64>(), 10);
        // Once in a thousand seconds.
        assert_eq!(counts(0.001, 20, 0..50_000).iter().sum::<u64>(), 1);
        assert_eq!(
            counts(1.0 / 3_600.0, 1_000, 0..36_000).iter().sum::<u64>(),
            9,
            "rounded down"
        );
    }

    proptest::proptest! {
        /// No run of windows allows more than the rate, rounded up, nor less than 99 % of it, rounded down.
        #[test]
        fn no_run_of_windows_is_over_or_far_under(
            milli in 1u64..10_000_000, window in 20u64..60_000, from in 0u64..100_000_000_000, run in 1u64..5_000,
        ) {
            let per_second = milli as f64 / 1000.0;
            let rate = Rate::new(per_second, Millis(window));
            let allowed: u128 = (from..from + run).map(|number| u128::from(rate.allowed(number))).sum();
            let exact = per_second * (window * run) as f64 / 1000.0;
            proptest::prop_assert!(allowed as f64 <= exact * (1.0 + 2e-9) + 1.0, "{allowed} of {exact}");
            proptest::prop_assert!(allowed as f64 >= exact * 0.99 - 1.0, "{allowed} of {exact}");
            proptest::prop_assert!((from..from + run).all(|number| rate.allowed(number) <= rate.most()));
        }

        #[test]
        fn the_sum_of_a_run_is_exact(milli in 1u64..10_000_000, from in 0u64..100_000_000_000, run in 0u64..2_000) {
            let rate = Rate::new(milli as f64 / 1000.0, Millis(1_000));
            let sum: u64 = (from..from + run).map(|number| rate.allowed(number)).sum();
            proptest::prop_assert_eq!(rate.between(from, from + run), sum);
        }

        #[test]
        fn the_next_window_that_allows_anything_is_exact(milli in 1u64..100, window in 1u64..1_000, at in 0u64..100_000_000_000) {
            let rate = Rate::new(milli as f64 / 1000.0, Millis(window));
            let next = rate.next_allowing(at);
            proptest::prop_assert!(rate.allowed(next) > 0);
            proptest::prop_assert!(next >= at);
            let before = (at..next).rev().take(10_000);
            proptest::prop_assert!(before.into_iter().all(|number| rate.allowed(number) == 0));
        }
    }
}
