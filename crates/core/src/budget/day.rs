//! The provider's day: when it turns, and how much of its quota is used.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Limit: a day is always 24 hours; daylight saving is ignored. For a provider whose day turns at local
/// midnight of such a zone, change the offset twice a year, or use the later of both offsets and a quota that
/// leaves an hour's calls free.
pub const DAY_MS: u64 = 86_400_000;
const MINUTE_MS: i64 = 60_000;

/// When the provider's day begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DayZone {
    /// The zone's offset from UTC in minutes: 540 in Seoul, −480 in Los Angeles in winter.
    pub utc_offset_minutes: i32,
    /// Minutes after the zone's midnight at which the quota is refilled.
    pub day_starts_at_minutes: u32,
}

impl DayZone {
    /// How far the beginning of day 0 is before (positive) or after the epoch.
    fn shift_ms(self) -> i64 {
        (i64::from(self.utc_offset_minutes) - i64::from(self.day_starts_at_minutes)) * MINUTE_MS
    }

    /// The number of the day that contains `at`. Earlier times also belong to day 0.
    pub fn day(self, at: Timestamp) -> u64 {
        at.0.saturating_add_signed(self.shift_ms()) / DAY_MS
    }

    /// The first moment of a day.
    pub fn start(self, day: u64) -> Timestamp {
        Timestamp((day * DAY_MS).saturating_add_signed(-self.shift_ms()))
    }

    /// The hour of the zone's clock, 0 to 23.
    pub fn hour(self, at: Timestamp) -> u32 {
        let offset = i64::from(self.utc_offset_minutes) * MINUTE_MS;
        (at.0.saturating_add_signed(offset) % DAY_MS / 3_600_000) as u32
    }
}

/// One moment, by every clock that a store knows.
///
/// The store's own time never goes back. After a backward step of the wall clock it stays ahead, and would turn
/// the day before the provider does. So the raw wall clock decides the day. People step that clock, too; if
/// there is a clock that nobody steps, both decide the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time base of rates, holds and waits.
    pub now: Timestamp,
    /// The raw wall clock.
    pub wall: Timestamp,
    /// Set from the wall clock when the process started, and never stepped since.
    pub steady: Timestamp,
}

/// All clocks agree, or there is only one.
impl From<Timestamp> for Moment {
    fn from(now: Timestamp) -> Self {
        Self {
            now,
            wall: now,
            steady: now,
        }
    }
}

/// Calls of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DayCount {
    pub day: u64,
    /// Calls of both priorities.
    pub used: u64,
    /// Of them, calls of low priority.
    pub low: u64,
}

impl DayCount {
    /// Moves to `day`, which starts with nothing used; an earlier day keeps the count.
    pub fn turn(&mut self, day: u64) {
        if day > self.day {
            *self = Self { day, used: 0, low: 0 };
        }
    }

    /// Merges two counts of the same calls: the later day, and the larger count.
    pub fn with(self, other: Self) -> Self {
        Self {
            day: self.day.max(other.day),
            used: self.used.max(other.used),
            low: self.low.max(other.low),
        }
    }

    /// The count rounded up to whole blocks, at most the quota. The store persists it before the calls are
    /// made.
    pub fn in_blocks(self, block: u64, quota: u64) -> Self {
        let up = |calls: u64| (calls.div_ceil(block) * block).min(quota);
        Self {
            day: self.day,
            used: up(self.used),
            low: up(self.low),
        }
    }
}
