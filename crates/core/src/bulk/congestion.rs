//! How long a throttled job waits, and how congested its group is.
//!
//! `backoff = base + floor(jobs ahead / speed) × window`: the time at which the job's turn would come if its
//! group drained at its share of the rate. Callers pass the count *before* they add the job, so a job is never
//! ahead of itself.

use serde::{Deserialize, Serialize};

use super::config::CongestionConfig;
use crate::time::Millis;

/// How congested a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CongestionLevel {
    #[default]
    None,
    Low,
    Moderate,
    High,
    Critical,
}

/// The wait of one throttled job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The wait of the job, capped.
    pub wait: Millis,
    /// The result of the formula before the cap.
    pub uncapped: Millis,
    /// Classified from the uncapped value: the capped one would never reach CRITICAL when `max / base < 30`.
    pub level: CongestionLevel,
}

impl Backoff {
    /// Waits at the base backoff that this estimate saves: `max(0, floor(wait / base) − 1)`.
    pub fn saved_spins(&self, base: Millis) -> u64 {
        (self.wait.0 / base.0.max(1)).saturating_sub(1)
    }
}

/// The backoff of a job with `ahead` throttled jobs of its group before it, when the group may start
/// `speed` jobs per window.
pub fn backoff(config: &CongestionConfig, window: Millis, ahead: u64, speed: u64) -> Backoff {
    let base = config.base_backoff_ms;
    if !config.enabled {
        return Backoff {
            wait: base,
            uncapped: base,
            level: CongestionLevel::None,
        };
    }
    let rounds = ahead / speed.max(1);
    let uncapped = Millis(base.0.saturating_add(rounds.saturating_mul(window.0)));
    Backoff {
        wait: uncapped.min(config.max_backoff_ms),
        uncapped,
        level: classify(uncapped, base),
    }
}

/// NONE up to the base, LOW below 3 times, MODERATE below 10, HIGH below 30, CRITICAL from there on.
pub fn classify(backoff: Millis, base: Millis) -> CongestionLevel {
    let (backoff, base) = (backoff.0, base.0.max(1));
    match () {
        () if backoff <= base => CongestionLevel::None,
        () if backoff < base.saturating_mul(3) => CongestionLevel::Low,
        () if backoff < base.saturating_mul(10) => CongestionLevel::Moderate,
        () if backoff < base.saturating_mul(30) => CongestionLevel::High,
        () => CongestionLevel::Critical,
    }
}

#[cfg(test)]
mod tests {
    use CongestionLevel::*;

    use super::*;

    const SECOND: Millis = Millis(1_000);

    fn of(ahead: u64, speed: u64) -> (u64, CongestionLevel) {
        let b = backoff(&CongestionConfig::default(), SECOND, ahead, speed);
        (b.wait.0, b.level)
    }

    #[test]
    fn backoff_follows_the_worked_values() {
        assert_eq!(of(0, 100), (1_000, None));
        assert_eq!(of(500, 100), (6_000, Moderate));
        assert_eq!(of(1_000_000, 10), (120_000, Critical));
        assert_eq!(of(100, 0), (101_000, Critical));
        assert_eq!(of(50, 100), (1_000, None));
    }

    #[test]
    fn classification() {
        for (ahead, level) in [
            (0, None),
            (150, Low),
            (500, Moderate),
            (2_000, High),
            (5_000, Critical),
        ] {
            assert_eq!(of(ahead, 100).1, level, "{ahead} ahead");
        }
    }

    #[test]
    fn a_round_lasts_one_window() {
        let b = backoff(&CongestionConfig::default(), Millis(10_000), 500, 100);
        assert_eq!(b.wait, Millis(51_000));
    }

    #[test]
    fn critical_is_reachable_under_a_low_cap() {
        let config = CongestionConfig {
            base_backoff_ms: Millis(5_000),
            max_backoff_ms: Millis(120_000),
            ..Default::default()
        };
        let b = backoff(&config, SECOND, 1_000_000, 10);
        assert_eq!((b.wait, b.level), (Millis(120_000), Critical));
    }

    #[test]
    fn disabled_is_a_fixed_wait() {
        let config = CongestionConfig {
            enabled: false,
            ..Default::default()
        };
        let b = backoff(&config, SECOND, 1_000_000, 1);
        assert_eq!((b.wait, b.level), (SECOND, None));
    }

    #[test]
    fn saved_spins_follow_the_estimate() {
        let spins = |ahead| backoff(&CongestionConfig::default(), SECOND, ahead, 100).saved_spins(SECOND);
        assert_eq!((spins(0), spins(500), spins(10_000)), (0, 5, 100));
    }
}
