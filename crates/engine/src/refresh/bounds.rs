//! The ranges in which the settings of a refresh service work. Validation rejects everything else before the
//! service touches anything.

use std::ops::RangeInclusive;

use tidegate_core::config::ConfigError;
use tidegate_core::refresh::config::CoalescerConfig;
use tidegate_core::time::Millis;

use super::options::{QuerySettings, WatchSettings, WorkSettings};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Limit: characters of a consumer group's name. Logs build parts of their keys from it.
const MAX_GROUP: usize = 100;

impl QuerySettings {
    /// Checks every value, and those that depend on the coalescer's settings. The error names the valid range.
    pub fn validate(&self, coalescer: &CoalescerConfig) -> Result<(), ConfigError> {
        within("query.read_timeout_ms", self.read_timeout_ms.0, 1..=HOUR)?;
        within("query.request_wait_ms", self.request_wait_ms.0, 0..=HOUR)?;
        within("query.request_timeout_ms", self.request_timeout_ms.0, 1..=HOUR)?;
        within("query.max_requests", self.max_requests as u64, 1..=1_000_000)?;
        within("query.cache_ttl_ms", self.cache_ttl_ms.0, 0..=DAY)?;
        within("query.cache_entries", self.cache_entries as u64, 1..=100_000_000)?;
        within("query.active_every_ms", self.active_every_ms.0, 0..=30 * DAY)?;
        let (ask, slot) = (self.request_timeout_ms, coalescer.send_timeout_ms);
        if ask >= slot {
            return Err(ConfigError(format!(
                "refresh.query.request_timeout_ms = {} must be shorter than refresh.coalescer.send_timeout_ms = {}: an event \
                 would count as never sent while it is being sent",
                ask.0, slot.0
            )));
        }
        Ok(())
    }
}

impl WorkSettings {
    /// Checks every value. The error names the valid range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("work.high_in_flight", self.high_in_flight as u64, 1..=100_000)?;
        within("work.low_in_flight", self.low_in_flight as u64, 1..=100_000)?;
        within("work.retries", self.retries.into(), 0..=100)?;
        within("work.backoff_ms", self.backoff_ms.0, 1..=HOUR)?;
        within("work.park_after_ms", self.park_after_ms.0, 0..=DAY)?;
        // The heartbeat interval is a third of this, for every record in work.
        within("work.claim_ms", self.claim_ms.0, 1_000..=HOUR)?;
        within("work.high_batch", self.high_batch as u64, 1..=10_000)?;
        within("work.low_batch", self.low_batch as u64, 1..=10_000)?;
        within("work.high_flush_ms", self.high_flush_ms.0, 0..=MINUTE)?;
        within("work.low_flush_ms", self.low_flush_ms.0, 0..=MINUTE)?;
        within("work.commit_every_ms", self.commit_every_ms.0, 1..=MINUTE)?;
        within("work.grace_ms", self.grace_ms.0, 0..=HOUR)?;
        group("work.high_group", &self.high_group)?;
        group("work.low_group", &self.low_group)
    }
}

impl WatchSettings {
    /// Checks every value. The error names the valid range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (name, every, longest) in [
            ("watch.lag_every_ms", self.lag_every_ms, HOUR),
            ("watch.retry_every_ms", self.retry_every_ms, HOUR),
            ("watch.census_every_ms", self.census_every_ms, DAY),
            ("watch.follow_every_ms", self.follow_every_ms, HOUR),
        ] {
            within(name, every.0, SHORTEST_LOOK.0..=longest)?;
        }
        within("watch.retry_batch", self.retry_batch.into(), 1..=10_000)?;
        within("watch.census_slice", self.census_slice.into(), 1..=100_000)
    }
}

/// A process that polls more often does nothing else.
const SHORTEST_LOOK: Millis = Millis(10);

fn within(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(ConfigError(format!(
        "refresh.{name} = {value}: it must be from {least} to {most}"
    )))
}

/// Every log accepts these names for a consumer group.
fn group(name: &str, group: &str) -> Result<(), ConfigError> {
    let fine = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-');
    if (1..=MAX_GROUP).contains(&group.len()) && group.chars().all(fine) {
        return Ok(());
    }
    Err(ConfigError(format!(
        "refresh.{name} = {group:?}: it must be 1 to {MAX_GROUP} letters, digits, '.', '_' or '-', like \"high-worker\""
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_work() {
        QuerySettings::default()
            .validate(&CoalescerConfig::default())
            .unwrap();
        WorkSettings::default().validate().unwrap();
        WatchSettings::default().validate().unwrap();
    }

    #[test]
    fn what_would_panic_spin_or_never_move_is_refused_with_its_bounds() {
        let work = |change: fn(&mut WorkSettings)| {
            let mut settings = WorkSettings::default();
            change(&mut settings);
            settings.validate().unwrap_err().to_string()
        };
        let query = |change: fn(&mut QuerySettings)| {
            let mut settings = QuerySettings::default();
            change(&mut settings);
            let coalescer = CoalescerConfig::default();
            settings.validate(&coalescer).unwrap_err().to_string()
        };
        for (message, expected) in [
            (
                work(|work| work.high_in_flight = 0),
                "refresh.work.high_in_flight = 0: it must be from 1 to 100000",
            ),
            (
                work(|work| work.high_batch = usize::MAX / 2),
                "refresh.work.high_batch = 9223372036854775807: it must be from 1 to 10000",
            ),
            (
                work(|work| work.claim_ms = Millis(1)),
                "refresh.work.claim_ms = 1: it must be from 1000 to 3600000",
            ),
            (
                work(|work| work.high_group = "a b".into()),
                "refresh.work.high_group = \"a b\": it must be 1 to 100 letters",
            ),
            (
                work(|work| work.low_group = String::new()),
                "refresh.work.low_group = \"\": it must be 1 to 100 letters",
            ),
            (
                query(|query| query.max_requests = usize::MAX),
                "refresh.query.max_requests = 18446744073709551615: it must be from 1 to 1000000",
            ),
            (
                query(|query| query.request_timeout_ms = Millis(10_000)),
                "refresh.query.request_timeout_ms = 10000 must be shorter than refresh.coalescer.send_timeout_ms = 10000",
            ),
        ] {
            assert!(
                message.starts_with(expected),
                "{message:?} should begin with {expected:?}"
            );
        }
        let watch = WatchSettings {
            follow_every_ms: Millis(1),
            ..WatchSettings::default()
        };
        let message = watch.validate().unwrap_err().to_string();
        assert_eq!(
            message,
            "refresh.watch.follow_every_ms = 1: it must be from 10 to 3600000"
        );
    }
}
