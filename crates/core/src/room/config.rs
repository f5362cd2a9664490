//! Every setting of a room: meaning, unit, default, and the relations that must hold.

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, ensure};
use crate::time::{Millis, Timestamp};

/// Limit: people and seats. A larger value is a mistake, and sums of a few stay exact in every backend.
pub const MAX_PEOPLE: u64 = 1_000_000_000;
/// Limit: admissions per second.
pub const MAX_PER_SECOND: u64 = 100_000;
/// Limit: the longest span of a setting, and of an extension: thirty days.
pub const MAX_SPAN: Millis = Millis(30 * 24 * 3_600_000);

/// The three limits of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capacity {
    /// Seats in all: people who completed plus people inside. Absent: unlimited.
    pub seats: Option<u64>,
    /// People inside at once, including those admitted but not yet inside.
    pub inside: u64,
    /// Admissions in any second.
    pub per_second: u64,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            seats: None,
            inside: 100,
            per_second: 10,
        }
    }
}

impl Capacity {
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self {
            seats,
            inside,
            per_second,
        } = *self;
        ensure!(
            seats.is_none_or(|seats| seats <= MAX_PEOPLE),
            "seats = {}: at most {MAX_PEOPLE}; leave it out if they are not counted",
            seats.unwrap_or_default()
        );
        ensure!(inside <= MAX_PEOPLE, "inside = {inside}: at most {MAX_PEOPLE}");
        ensure!(
            per_second <= MAX_PER_SECOND,
            "per_second = {per_second}: at most {MAX_PER_SECOND}"
        );
        Ok(())
    }
}

/// Settings of one room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoomConfig {
    pub capacity: Capacity,
    /// Nobody is admitted before this time, and those who join early wait for a draw. Absent: open from the
    /// start.
    pub opens_at: Option<Timestamp>,
    /// How long a heartbeat is valid, in milliseconds. Connections send one every third of it.
    pub presence_ms: Millis,
    /// How long an absent person keeps the ticket, in milliseconds.
    pub grace_ms: Millis,
    /// How long a pass can be redeemed, in milliseconds.
    pub pass_ms: Millis,
    /// How long a visit inside may last, in milliseconds; the shop can extend it.
    pub inside_ms: Millis,
    /// How long an ended ticket is remembered, in milliseconds.
    pub remember_ms: Millis,
    /// Maximum people waiting; the room rejects more.
    pub max_waiting: u64,
}

impl Default for RoomConfig {
    fn default() -> Self {
        Self {
            capacity: Capacity::default(),
            opens_at: None,
            presence_ms: Millis(15_000),
            grace_ms: Millis(30_000),
            pass_ms: Millis(5 * 60_000),
            inside_ms: Millis(15 * 60_000),
            remember_ms: Millis(10 * 60_000),
            max_waiting: 1_000_000,
        }
    }
}

impl RoomConfig {
    /// Checks every value and relation.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.capacity.validate()?;
        for (name, span) in [
            ("presence_ms", self.presence_ms),
            ("grace_ms", self.grace_ms),
            ("pass_ms", self.pass_ms),
            ("inside_ms", self.inside_ms),
            ("remember_ms", self.remember_ms),
        ] {
            ensure!(
                (Millis(1)..=MAX_SPAN).contains(&span),
                "{name} = {}: it must be from 1 to {} (30 days)",
                span.0,
                MAX_SPAN.0
            );
        }
        ensure!(
            (1..=MAX_PEOPLE).contains(&self.max_waiting),
            "max_waiting = {}: it must be from 1 to {MAX_PEOPLE}",
            self.max_waiting
        );
        ensure!(
            self.opens_at.is_none_or(|at| at.0 < 1 << 52),
            "opens_at = {}: it must be a time in milliseconds since 1970",
            self.opens_at.unwrap_or_default().0
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named() {
        let refused = |change: fn(&mut RoomConfig)| {
            let mut config = RoomConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|config| config.capacity.seats = Some(u64::MAX)),
            "seats = 18446744073709551615: at most 1000000000; leave it out if they are not counted"
        );
        assert_eq!(
            refused(|config| config.capacity.inside = MAX_PEOPLE + 1),
            "inside = 1000000001: at most 1000000000"
        );
        assert_eq!(
            refused(|config| config.capacity.per_second = 1_000_000),
            "per_second = 1000000: at most 100000"
        );
        assert_eq!(
            refused(|config| config.grace_ms = Millis(0)),
            "grace_ms = 0: it must be from 1 to 2592000000 (30 days)"
        );
        assert_eq!(
            refused(|config| config.max_waiting = 0),
            "max_waiting = 0: it must be from 1 to 1000000000"
        );
        assert!(RoomConfig::default().validate().is_ok());
    }
}
