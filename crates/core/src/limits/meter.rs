//! What was charged in the window of a limit.
//!
//! A window's allowance follows from its number (see [`Rate`]), so all that a meter keeps is the latest window in which
//! something started, and how much.

use super::rate::Rate;

/// Charges in the latest window that had any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meter {
    window: u64,
    charged: u32,
}

impl Meter {
    /// What was charged in this window.
    pub fn charged(&self, window: u64) -> u64 {
        match self.window == window {
            true => u64::from(self.charged),
            false => 0,
        }
    }

    /// What the rate still allows in this window.
    pub fn room(&self, rate: Rate, window: u64) -> u64 {
        rate.allowed(window).saturating_sub(self.charged(window))
    }

    /// Counts one start.
    pub fn charge(&mut self, window: u64) {
        *self = Self {
            window,
            charged: self.charged(window) as u32 + 1,
        };
    }

    /// Reverts one start of this window.
    pub fn refund(&mut self, window: u64) {
        if self.window == window {
            self.charged = self.charged.saturating_sub(1);
        }
    }

    /// Nothing was charged in this window: earlier ones do not matter any more.
    pub fn is_over(&self, window: u64) -> bool {
        self.charged(window) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    #[test]
    fn a_window_has_room_until_it_is_charged_and_the_next_one_begins_empty() {
        let rate = Rate::new(2.5, Millis(1_000));
        let mut meter = Meter::default();
        // Windows of 2 and 3 starts take turns.
        assert_eq!((meter.room(rate, 10), meter.room(rate, 11)), (2, 3));
        meter.charge(10);
        meter.charge(10);
        assert_eq!((meter.room(rate, 10), meter.room(rate, 11)), (0, 3));
        meter.refund(10);
        assert_eq!(meter.room(rate, 10), 1);
        meter.charge(11);
        assert_eq!((meter.charged(10), meter.charged(11)), (0, 1));
        meter.refund(10);
        assert_eq!(meter.charged(11), 1, "a start of an earlier window is gone");
        assert!(!meter.is_over(11) && meter.is_over(12));
    }
}
