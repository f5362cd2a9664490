//! What was charged in the window of a limit, and what later windows still have to pay.
//!
//! A window's allowance follows from its number (see [`Rate`]). A meter keeps the latest window in which something was
//! charged, and how much. What does not fit into the window becomes debt: the next windows pay it before they allow
//! anything. So no run of windows has more than it allows, but for what is still owed at its end.

use super::rate::Rate;

/// Charges in one window, and the debt from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meter {
    window: u64,
    charged: u64,
    over: u64,
}

impl Meter {
    /// A window that is used up.
    pub fn used_up(rate: Rate, window: u64) -> Self {
        Self {
            window,
            charged: rate.allowed(window),
            over: 0,
        }
    }

    /// The meter in this window: those before have paid what they could, and it has paid its part. Without a rate
    /// later windows owe nothing.
    #[must_use]
    pub fn turned(mut self, rate: Option<Rate>, window: u64) -> Self {
        let Some(rate) = rate else {
            let owed = if self.window == window { self.over } else { 0 };
            return Self {
                window,
                charged: self.charged(window) + owed,
                over: 0,
            };
        };
        if window > self.window {
            self.over = self.over.saturating_sub(rate.between(self.window + 1, window));
            (self.window, self.charged) = (window, 0);
        }
        let paid = self.over.min(rate.allowed(window).saturating_sub(self.charged));
        self.charged += paid;
        self.over -= paid;
        self
    }

    /// What was charged in this window; right after [`Meter::turned`] with what it paid of older debt.
    pub fn charged(&self, window: u64) -> u64 {
        match self.window == window {
            true => self.charged,
            false => 0,
        }
    }

    /// What the rate still allows in this window.
    pub fn room(&self, rate: Rate, window: u64) -> u64 {
        let turned = self.turned(Some(rate), window);
        rate.allowed(window).saturating_sub(turned.charged)
    }

    /// Whether something of this cost may start when so much is promised to others. What no window can hold may start in
    /// any that has room, and later ones pay the rest.
    pub fn fits(&self, rate: Rate, window: u64, promised: u64, cost: u32) -> bool {
        let room = self.room(rate, window).saturating_sub(promised);
        let cost = u64::from(cost);
        room > 0 && (cost <= room || cost > rate.most())
    }

    /// The first window after this one that may have room.
    pub fn next(&self, rate: Rate, window: u64) -> u64 {
        let owed = self.turned(Some(rate), window).over;
        rate.next_allowing(window + 1 + owed / rate.most())
    }

    /// Counts what starts, or what a run used up beyond its cost.
    pub fn charge(&mut self, rate: Option<Rate>, window: u64, cost: u32) {
        *self = self.turned(rate, window);
        let cost = u64::from(cost);
        let now = rate.map_or(cost, |rate| {
            cost.min(rate.allowed(window).saturating_sub(self.charged))
        });
        self.charged += now;
        self.over += cost - now;
    }

    /// Reverts what was charged in this window.
    pub fn refund(&mut self, window: u64, cost: u32) {
        if self.window == window {
            let cost = u64::from(cost);
            let owed = self.over.min(cost);
            self.over -= owed;
            self.charged = self.charged.saturating_sub(cost - owed);
        }
    }

    /// Nothing was charged in this window, and nothing is owed: earlier windows do not matter any more.
    pub fn is_over(&self, window: u64) -> bool {
        self.charged(window) == 0 && self.over == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    /// Windows of 2 and 3 units take turns.
    fn rate() -> Rate {
        Rate::new(2.5, Millis(1_000))
    }

    #[test]
    fn a_window_has_room_until_it_is_charged_and_the_next_one_begins_empty() {
        let rate = rate();
        let mut meter = Meter::default();
        assert_eq!((meter.room(rate, 10), meter.room(rate, 11)), (2, 3));
        meter.charge(Some(rate), 10, 1);
        meter.charge(Some(rate), 10, 1);
        assert_eq!((meter.room(rate, 10), meter.room(rate, 11)), (0, 3));
        meter.refund(10, 1);
        assert_eq!(meter.room(rate, 10), 1);
        meter.charge(Some(rate), 11, 1);
        assert_eq!((meter.charged(10), meter.charged(11)), (0, 1));
        meter.refund(10, 1);
        assert_eq!(meter.charged(11), 1, "a start of an earlier window is gone");
        assert!(!meter.is_over(11) && meter.is_over(12));
    }

    #[test]
    fn what_no_window_can_hold_starts_and_later_windows_pay() {
        let rate = rate();
        let mut meter = Meter::default();
        assert!(meter.fits(rate, 10, 1, 8), "one unit is left");
        assert!(!meter.fits(rate, 10, 2, 8));
        meter.charge(Some(rate), 10, 1);
        assert!(!meter.fits(rate, 10, 0, 2), "the next window has room for it");
        meter.charge(Some(rate), 10, 8);
        // 1 + 8 = 2 + 3 + 2 + 2 of 3.
        assert_eq!(meter.next(rate, 10), 13);
        let room: Vec<u64> = (10..15).map(|window| meter.room(rate, window)).collect();
        assert_eq!(room, [0, 0, 0, 1, 2]);
        assert!(!meter.is_over(12), "something is owed");
        meter.refund(10, 8);
        assert_eq!(meter.room(rate, 10), 1);
        meter.charge(Some(rate), 10, 8);
        assert_eq!(meter.turned(None, 11).room(rate, 11), 3, "no limit, no debt");
        let unlimited = meter.turned(None, 10);
        assert_eq!(unlimited.charged(10), 9, "but it was used in this window");
    }

    proptest::proptest! {
        /// Whatever starts when it fits: no run of windows from the first one on has more than it allows, but for the debt
        /// of the last start.
        #[test]
        fn no_run_of_windows_is_exceeded(
            milli in 1u64..20_000,
            costs in proptest::collection::vec((1u32..40, 0u64..5), 1..60),
        ) {
            let rate = Rate::new(milli as f64 / 1000.0, Millis(1_000));
            let (mut meter, mut window, mut total) = (Meter::default(), 1_000, 0u64);
            for (cost, pause) in costs {
                window += pause;
                if meter.fits(rate, window, 0, cost) {
                    let before: u64 = (1_000..=window).map(|window| rate.allowed(window)).sum();
                    proptest::prop_assert!(total < before, "{total} of {before} were charged");
                    proptest::prop_assert!(
                        total + u64::from(cost) <= before || u64::from(cost) > rate.most()
                    );
                    meter.charge(Some(rate), window, cost);
                    total += u64::from(cost);
                }
                proptest::prop_assert!(meter.charged(window) <= rate.allowed(window));
            }
        }
    }
}
