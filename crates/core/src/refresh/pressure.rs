//! LOW yields while too many HIGH events wait, but never forever.

use serde::{Deserialize, Serialize};

use super::config::PressureConfig;
use crate::time::Timestamp;

/// Whether LOW runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Pressure {
    #[default]
    Running,
    /// LOW yields.
    Paused { since: Timestamp },
    /// The longest pause is over; LOW runs until then, whatever waits.
    Relieved { until: Timestamp },
}

impl Pressure {
    /// The state after a sample of the waiting HIGH events. Two thresholds (hysteresis) keep it from flapping.
    pub fn after(self, config: &PressureConfig, high_lag: u64, now: Timestamp) -> Pressure {
        match self {
            Pressure::Paused { .. } if high_lag < config.resume_below => Pressure::Running,
            Pressure::Paused { since } if now.since(since) >= config.max_pause_ms => Pressure::Relieved {
                until: now + config.min_run_ms,
            },
            Pressure::Relieved { until } if now < until => self,
            Pressure::Running | Pressure::Relieved { .. } if high_lag > config.pause_above => {
                Pressure::Paused { since: now }
            }
            Pressure::Relieved { .. } => Pressure::Running,
            Pressure::Running | Pressure::Paused { .. } => self,
        }
    }

    pub fn low_may_run(self) -> bool {
        !matches!(self, Pressure::Paused { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    #[test]
    fn pauses_above_and_resumes_below() {
        let config = PressureConfig::default();
        let mut pressure = Pressure::default();
        let runs: Vec<bool> = [1_000, 1_001, 900, 500, 499, 800, 1_000, 1_001]
            .into_iter()
            .map(|lag| {
                pressure = pressure.after(&config, lag, Timestamp(1));
                pressure.low_may_run()
            })
            .collect();
        assert_eq!(runs, [true, false, false, false, true, true, true, false]);
    }

    #[test]
    fn low_is_never_stopped_for_longer_than_the_longest_pause() {
        let config = PressureConfig::default();
        let mut pressure = Pressure::default();
        let (mut ran, mut stopped, mut longest) = (0, 0, 0);
        for second in 0..36_000 {
            pressure = pressure.after(&config, 50_000, Timestamp(0) + Millis(second * 1_000));
            match pressure.low_may_run() {
                true => (ran, stopped) = (ran + 1, 0),
                false => stopped += 1,
            }
            longest = longest.max(stopped);
        }
        assert!(longest <= 600, "{longest} s");
        assert!(ran >= 36_000 / 11 - 60, "{ran} s");
    }
}
