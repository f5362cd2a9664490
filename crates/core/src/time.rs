//! Points and spans of time in whole milliseconds, and the monotonic clock of a store.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A span of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl From<Millis> for std::time::Duration {
    fn from(span: Millis) -> Self {
        Self::from_millis(span.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A point in time: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Millis> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}

impl Sub<Millis> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: Millis) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }
}

/// The clock of a store. Operators and time daemons step wall clocks back; store time never goes back. A
/// backward step becomes an offset that is added from then on, so time continues from where it was and the
/// current window stays the current window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreClock {
    last: Timestamp,
    offset: Millis,
}

impl StoreClock {
    /// A clock that continues from `last`, as read back from a store.
    pub fn resume(last: Timestamp, offset: Millis) -> Self {
        Self { last, offset }
    }

    /// Store time at wall time `wall`.
    pub fn observe(&mut self, wall: Timestamp) -> Timestamp {
        let shifted = wall + self.offset;
        if shifted < self.last {
            self.offset = self.last.since(wall);
        } else {
            self.last = shifted;
        }
        self.last
    }

    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// How far store time runs ahead of the wall clock.
    pub fn offset(&self) -> Millis {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backward_step_keeps_time_going_from_where_it_was() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.observe(Timestamp(10_000)), Timestamp(10_000));
        assert_eq!(clock.observe(Timestamp(4_000)), Timestamp(10_000));
        assert_eq!(clock.observe(Timestamp(4_500)), Timestamp(10_500));
        assert_eq!(clock.offset(), Millis(6_000));
    }

    #[test]
    fn a_forward_step_is_followed() {
        let mut clock = StoreClock::default();
        clock.observe(Timestamp(1_000));
        assert_eq!(clock.observe(Timestamp(90_000)), Timestamp(90_000));
    }
}
