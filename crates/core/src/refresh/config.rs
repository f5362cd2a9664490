//! Every setting of the refresh part: meaning, unit, default, and the relations that must hold.
//!
//! | section | setting | default |
//! |---|---|---|
//! | `coalescer` | `high_mark_ms`, `low_mark_ms` | 30 s, 60 s |
//! | | `high_pending_ms`, `low_pending_ms` | 24 h, 72 h: the retention of the log |
//! | | `send_timeout_ms` | 10 s |
//! | | `remember_ms` | 45 min |
//! | `tiers` | `hot_ms`, `warm_ms`, `cold_ms` | 1 h, 6 h, 24 h |
//! | | `hot_fresh_ms`, `warm_fresh_ms`, `cold_fresh_ms` | 1 h, 6 h 30 min, 24 h 30 min |
//! | | `hot_active_ms`, `warm_active_ms` | 24 h, 7 days |
//! | `prefetch` | `tick_ms`, `peak_rate`, `other_rate`, `peak_from_hour`, `peak_to_hour`, `max_lag_ms` | 60 s, 150, 250, 19, 23, 30 min |
//! | `status` | `retry_base_ms`, `retry_max_ms`, `failed_base_ms`, `failed_max_ms`, `retries` | 30 s, 30 min, 10 min, 24 h, 5 |
//! | `eta` | `fresh_ms`, `window_ms`, `assumed_rate` | 10 s, 60 s, 100 |
//! | `breaker` | `window`, `failure_percent`, `open_ms`, `probes`, `slow_ms` | 10, 50, 30 s, 5, 1 s |
//! | `pressure` | `pause_above`, `resume_below`, `max_pause_ms`, `min_run_ms` | 1000, 500, 10 min, 1 min |

use serde::{Deserialize, Serialize};

use super::coalescer::Pending;
use super::freshness::Tier;
use crate::config::{ConfigError, ensure};
use crate::priority::Priority;
use crate::time::{Millis, Timestamp};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// Settings of the refresh part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefreshConfig {
    pub coalescer: CoalescerConfig,
    pub tiers: TierConfig,
    pub prefetch: PrefetchConfig,
    pub status: StatusConfig,
    pub eta: EtaConfig,
    pub breaker: BreakerConfig,
    pub pressure: PressureConfig,
}

/// How requests for one record are coalesced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoalescerConfig {
    /// How long a settled HIGH refresh absorbs requests of readers who read before it, in milliseconds.
    pub high_mark_ms: Millis,
    /// The same for LOW.
    pub low_mark_ms: Millis,
    /// Longest time a HIGH event stays pending, in milliseconds: the retention of its topic.
    pub high_pending_ms: Millis,
    /// The same for LOW.
    pub low_pending_ms: Millis,
    /// An event that is not confirmed after this time counts as never sent, in milliseconds.
    pub send_timeout_ms: Millis,
    /// How long a completed version is remembered to detect redelivered events, in milliseconds.
    pub remember_ms: Millis,
}

impl Default for CoalescerConfig {
    fn default() -> Self {
        Self {
            high_mark_ms: Millis(30_000),
            low_mark_ms: Millis(60_000),
            high_pending_ms: Millis(24 * HOUR),
            low_pending_ms: Millis(72 * HOUR),
            send_timeout_ms: Millis(10_000),
            remember_ms: Millis(45 * MINUTE),
        }
    }
}

impl CoalescerConfig {
    pub(super) fn mark_for(&self, priority: Priority) -> Millis {
        match priority {
            Priority::High => self.high_mark_ms,
            Priority::Low => self.low_mark_ms,
        }
    }

    /// When an event stops being pending.
    pub(super) fn pending_ends(&self, priority: Priority, pending: Pending) -> Timestamp {
        let most = match (pending.sent, priority) {
            (false, _) => self.send_timeout_ms,
            (true, Priority::High) => self.high_pending_ms,
            (true, Priority::Low) => self.low_pending_ms,
        };
        pending.since + most
    }
}

/// How often records are refreshed, by how active they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TierConfig {
    /// Time between two refreshes of a HOT record, in milliseconds.
    pub hot_ms: Millis,
    pub warm_ms: Millis,
    pub cold_ms: Millis,
    /// How long the snapshot of a HOT record counts as fresh, in milliseconds.
    pub hot_fresh_ms: Millis,
    /// Longer than `warm_ms` by the longest wait of a LOW event; otherwise reads meanwhile would request a HIGH
    /// refresh.
    pub warm_fresh_ms: Millis,
    pub cold_fresh_ms: Millis,
    /// A record that was active within this time is HOT, in milliseconds.
    pub hot_active_ms: Millis,
    /// A record that was active within this time is WARM, in milliseconds; every other is COLD.
    pub warm_active_ms: Millis,
}

impl Default for TierConfig {
    fn default() -> Self {
        Self {
            hot_ms: Millis(HOUR),
            warm_ms: Millis(6 * HOUR),
            cold_ms: Millis(24 * HOUR),
            hot_fresh_ms: Millis(HOUR),
            warm_fresh_ms: Millis(6 * HOUR + 30 * MINUTE),
            cold_fresh_ms: Millis(24 * HOUR + 30 * MINUTE),
            hot_active_ms: Millis(24 * HOUR),
            warm_active_ms: Millis(7 * 24 * HOUR),
        }
    }
}

impl TierConfig {
    /// Time between two prefetches.
    pub fn interval(&self, tier: Tier) -> Millis {
        match tier {
            Tier::Hot => self.hot_ms,
            Tier::Warm => self.warm_ms,
            Tier::Cold => self.cold_ms,
        }
    }

    /// How long a snapshot counts as fresh.
    pub fn fresh_for(&self, tier: Tier) -> Millis {
        match tier {
            Tier::Hot => self.hot_fresh_ms,
            Tier::Warm => self.warm_fresh_ms,
            Tier::Cold => self.cold_fresh_ms,
        }
    }
}

/// How much is refreshed ahead of demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefetchConfig {
    /// Time between two plans, in milliseconds.
    pub tick_ms: Millis,
    /// Maximum records per second from `peak_from_hour` to the end of `peak_to_hour`.
    pub peak_rate: u64,
    /// Maximum records per second at other hours.
    pub other_rate: u64,
    /// First hour of the peak on the provider's clock, 0 to 23.
    pub peak_from_hour: u32,
    /// Last hour of the peak, included.
    pub peak_to_hour: u32,
    /// Longest wait of low-priority events, in milliseconds: the plan never exceeds what can be fetched within
    /// it.
    pub max_lag_ms: Millis,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self {
            tick_ms: Millis(60_000),
            peak_rate: 150,
            other_rate: 250,
            peak_from_hour: 19,
            peak_to_hour: 23,
            max_lag_ms: Millis(30 * MINUTE),
        }
    }
}

/// How long a failing record waits for its next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusConfig {
    /// First wait after a transient failure, in milliseconds; doubles with each.
    pub retry_base_ms: Millis,
    pub retry_max_ms: Millis,
    /// First wait after a permanent failure, in milliseconds; doubles with each.
    pub failed_base_ms: Millis,
    pub failed_max_ms: Millis,
    /// Consecutive failures after which a transient one waits like a permanent one.
    pub retries: u32,
}

impl Default for StatusConfig {
    fn default() -> Self {
        Self {
            retry_base_ms: Millis(30_000),
            retry_max_ms: Millis(30 * MINUTE),
            failed_base_ms: Millis(10 * MINUTE),
            failed_max_ms: Millis(24 * HOUR),
            retries: 5,
        }
    }
}

/// How a reader's wait is estimated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EtaConfig {
    /// A lag sample older than this is ignored, in milliseconds.
    pub fresh_ms: Millis,
    /// The period over which throughput is measured, in milliseconds.
    pub window_ms: Millis,
    /// Assumed records per second until there is a measurement.
    pub assumed_rate: u64,
}

impl Default for EtaConfig {
    fn default() -> Self {
        Self {
            fresh_ms: Millis(10_000),
            window_ms: Millis(60_000),
            assumed_rate: 100,
        }
    }
}

/// When calls to a failing dependency stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// Calls in the sliding window.
    pub window: u32,
    /// Of 100 of them, how many failures open the breaker.
    pub failure_percent: u32,
    /// How long it stays open, in milliseconds.
    pub open_ms: Millis,
    /// Calls allowed through to probe whether it has recovered.
    pub probes: u32,
    /// A call that takes longer counts as a failure, in milliseconds.
    pub slow_ms: Millis,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            window: 10,
            failure_percent: 50,
            open_ms: Millis(30_000),
            probes: 5,
            slow_ms: Millis(1_000),
        }
    }
}

/// When LOW yields to HIGH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PressureConfig {
    /// LOW pauses while more HIGH events than this wait.
    pub pause_above: u64,
    /// LOW resumes when fewer wait.
    pub resume_below: u64,
    /// Longest pause, in milliseconds: LOW never stops forever.
    pub max_pause_ms: Millis,
    /// How long LOW runs after its longest pause, in milliseconds.
    pub min_run_ms: Millis,
}

impl Default for PressureConfig {
    fn default() -> Self {
        Self {
            pause_above: 1_000,
            resume_below: 500,
            max_pause_ms: Millis(10 * MINUTE),
            min_run_ms: Millis(MINUTE),
        }
    }
}

impl RefreshConfig {
    /// Checks every value and every relation; the message names the values and what would be valid.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_times()?;
        self.validate_order()?;
        let (prefetch, breaker) = (&self.prefetch, &self.breaker);
        ensure!(
            prefetch.peak_from_hour <= prefetch.peak_to_hour && prefetch.peak_to_hour <= 23,
            "refresh.prefetch.peak_from_hour = {} and peak_to_hour = {}: hours from 0 to 23, in order",
            prefetch.peak_from_hour,
            prefetch.peak_to_hour
        );
        for (name, value) in [
            ("eta.assumed_rate", self.eta.assumed_rate),
            ("prefetch.other_rate", prefetch.other_rate),
            ("breaker.window", u64::from(breaker.window)),
            ("breaker.probes", u64::from(breaker.probes)),
            ("status.retries", u64::from(self.status.retries)),
        ] {
            ensure!(
                (1..=1_000_000).contains(&value),
                "refresh.{name} = {value}: it must be from 1 to 1000000"
            );
        }
        ensure!(
            prefetch.peak_rate <= 1_000_000,
            "refresh.prefetch.peak_rate = {}: at most 1000000",
            prefetch.peak_rate
        );
        ensure!(
            (1..=100).contains(&breaker.failure_percent),
            "refresh.breaker.failure_percent = {}: it must be from 1 to 100",
            breaker.failure_percent
        );
        let pressure = &self.pressure;
        ensure!(
            pressure.resume_below < pressure.pause_above,
            "refresh.pressure.resume_below = {} must be below pause_above = {}",
            pressure.resume_below,
            pressure.pause_above
        );
        Ok(())
    }

    fn validate_times(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("coalescer.send_timeout_ms", self.coalescer.send_timeout_ms),
            ("tiers.hot_ms", self.tiers.hot_ms),
            ("prefetch.tick_ms", self.prefetch.tick_ms),
            ("prefetch.max_lag_ms", self.prefetch.max_lag_ms),
            ("status.retry_base_ms", self.status.retry_base_ms),
            ("status.failed_base_ms", self.status.failed_base_ms),
            ("eta.fresh_ms", self.eta.fresh_ms),
            ("eta.window_ms", self.eta.window_ms),
            ("breaker.open_ms", self.breaker.open_ms),
            ("breaker.slow_ms", self.breaker.slow_ms),
            ("pressure.max_pause_ms", self.pressure.max_pause_ms),
            ("pressure.min_run_ms", self.pressure.min_run_ms),
        ] {
            ensure!(value > Millis(0), "refresh.{name} = 0: it must be at least 1 ms");
        }
        Ok(())
    }

    /// Pairs of which the first must not be longer than the second.
    fn validate_order(&self) -> Result<(), ConfigError> {
        let (c, t, s) = (&self.coalescer, &self.tiers, &self.status);
        for ((short_name, short), (long_name, long)) in [
            (
                ("coalescer.send_timeout_ms", c.send_timeout_ms),
                ("coalescer.high_pending_ms", c.high_pending_ms),
            ),
            (
                ("coalescer.send_timeout_ms", c.send_timeout_ms),
                ("coalescer.low_pending_ms", c.low_pending_ms),
            ),
            (
                ("coalescer.high_mark_ms", c.high_mark_ms),
                ("coalescer.remember_ms", c.remember_ms),
            ),
            (
                ("coalescer.low_mark_ms", c.low_mark_ms),
                ("coalescer.remember_ms", c.remember_ms),
            ),
            (("tiers.hot_ms", t.hot_ms), ("tiers.warm_ms", t.warm_ms)),
            (("tiers.warm_ms", t.warm_ms), ("tiers.cold_ms", t.cold_ms)),
            (("tiers.hot_ms", t.hot_ms), ("tiers.hot_fresh_ms", t.hot_fresh_ms)),
            (
                ("tiers.warm_ms", t.warm_ms),
                ("tiers.warm_fresh_ms", t.warm_fresh_ms),
            ),
            (
                ("tiers.cold_ms", t.cold_ms),
                ("tiers.cold_fresh_ms", t.cold_fresh_ms),
            ),
            (
                ("tiers.hot_active_ms", t.hot_active_ms),
                ("tiers.warm_active_ms", t.warm_active_ms),
            ),
            (
                ("status.retry_base_ms", s.retry_base_ms),
                ("status.retry_max_ms", s.retry_max_ms),
            ),
            (
                ("status.failed_base_ms", s.failed_base_ms),
                ("status.failed_max_ms", s.failed_max_ms),
            ),
        ] {
            ensure!(
                short <= long,
                "refresh.{long_name} = {} is shorter than refresh.{short_name} = {}: it must be at least as long",
                long.0,
                short.0
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_what_cannot_work_is_refused_with_the_values() {
        RefreshConfig::default().validate().unwrap();
        let refused = |change: fn(&mut RefreshConfig)| {
            let mut config = RefreshConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        for (message, text) in [
            (
                refused(|c| c.pressure.resume_below = 1_000),
                "resume_below = 1000 must be below pause_above = 1000",
            ),
            (
                refused(|c| c.tiers.warm_ms = Millis(5)),
                "tiers.warm_ms = 5 is shorter than refresh.tiers.hot_ms = 3600000",
            ),
            (
                refused(|c| c.coalescer.remember_ms = Millis(50_000)),
                "remember_ms = 50000 is shorter than refresh.coalescer.low_mark_ms = 60000",
            ),
            (refused(|c| c.breaker.window = 0), "breaker.window = 0"),
            (
                refused(|c| c.breaker.failure_percent = 101),
                "failure_percent = 101",
            ),
            (refused(|c| c.prefetch.peak_to_hour = 24), "peak_to_hour = 24"),
            (refused(|c| c.eta.window_ms = Millis(0)), "eta.window_ms = 0"),
        ] {
            assert!(message.contains(text), "{message:?} should contain {text:?}");
        }
    }
}
