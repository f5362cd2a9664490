//! The provider's own clock, which may be far off the caller's.

use std::time::{Duration, Instant, SystemTime};

const DAY_S: i64 = 86_400;

/// When a call arrived, by the provider's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    unix_ms: i64,
    running: Duration,
}

impl Moment {
    #[expect(
        clippy::disallowed_methods,
        reason = "a provider has a clock that is not ours to choose"
    )]
    pub(crate) fn now(offset_s: i64, started: Instant) -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            unix_ms: (since_epoch.as_millis() as i64).saturating_add(offset_s.saturating_mul(1_000)),
            running: started.elapsed(),
        }
    }

    /// Days since 1970-01-01 in a zone.
    pub(crate) fn day(self, utc_offset_s: i32) -> i64 {
        (self.unix_ms.div_euclid(1_000) + i64::from(utc_offset_s)).div_euclid(DAY_S)
    }

    pub(crate) fn running_ms(self) -> u64 {
        self.running.as_millis() as u64
    }

    pub(crate) fn system_time(self) -> SystemTime {
        // HTTP dates end with the year 9999; an offset beyond it must not end the server.
        let seconds = self.unix_ms.div_euclid(1_000).clamp(0, 253_402_300_799);
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds as u64)
    }

    pub(crate) fn text(self) -> String {
        jiff::Timestamp::from_millisecond(self.unix_ms)
            .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_turns_at_the_zones_midnight() {
        let at = |unix_s: i64| Moment {
            unix_ms: unix_s * 1_000,
            running: Duration::ZERO,
        };
        let midnight_in_seoul = 20_513 * DAY_S - 9 * 3_600;
        assert_eq!(at(midnight_in_seoul - 1).day(9 * 3_600), 20_512);
        assert_eq!(at(midnight_in_seoul).day(9 * 3_600), 20_513);
        assert_eq!(at(midnight_in_seoul).day(0), 20_512);
    }
}
