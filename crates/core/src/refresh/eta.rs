//! How long a reader waits: the lag ahead of it, divided by the measured throughput.

use std::collections::VecDeque;

use super::config::EtaConfig;
use crate::time::{Millis, Timestamp};

/// One sample of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    at: Timestamp,
    /// Waiting events: the end offset minus the committed one, or minus the start if nothing is committed.
    lag: u64,
    /// Events settled since a fixed starting point.
    settled: u64,
}

/// Keeps samples of the log for as long as throughput is measured over.
#[derive(Debug, Clone, Default)]
pub struct Eta {
    samples: VecDeque<Sample>,
}

impl Eta {
    /// Adds a successful sample. Callers skip failed ones: the stored samples age by themselves.
    pub fn observe(&mut self, config: &EtaConfig, lag: u64, settled: u64, now: Timestamp) {
        // A counter that restarted, or a clock that went back, invalidates the samples before it.
        if self
            .samples
            .back()
            .is_some_and(|last| settled < last.settled || now < last.at)
        {
            self.samples.clear();
        }
        self.samples.push_back(Sample {
            at: now,
            lag,
            settled,
        });
        // The oldest sample stays until a younger one spans the whole window.
        while self
            .samples
            .get(1)
            .is_some_and(|second| now.since(second.at) >= config.window_ms)
        {
            self.samples.pop_front();
        }
    }

    /// Thousandths of an event per second; the assumed rate until something was settled.
    pub fn milli_rate(&self, config: &EtaConfig) -> u64 {
        let measured = self
            .samples
            .front()
            .zip(self.samples.back())
            .and_then(|(first, last)| {
                let settled = u128::from(last.settled - first.settled);
                let rate = (settled * 1_000_000).checked_div(u128::from(last.at.since(first.at).0))?;
                u64::try_from(rate).ok().filter(|rate| *rate > 0)
            });
        measured.unwrap_or(config.assumed_rate * 1_000)
    }

    /// Waiting events. `None` if the last sample is older than `within` and so no longer valid.
    pub fn lag(&self, within: Millis, now: Timestamp) -> Option<u64> {
        let last = self.samples.back()?;
        (now.since(last.at) < within).then_some(last.lag)
    }

    /// The wait, rounded up. `None` if nothing waits or the last sample is too old.
    pub fn estimate(&self, config: &EtaConfig, now: Timestamp) -> Option<Millis> {
        let lag = self.lag(config.fresh_ms, now).filter(|lag| *lag > 0)?;
        let wait = (u128::from(lag) * 1_000_000).div_ceil(u128::from(self.milli_rate(config)));
        Some(Millis(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_rounded_up_and_absent_when_they_are_not_known() {
        let config = EtaConfig::default();
        let mut eta = Eta::default();
        let at = |secs: u64| Timestamp(1_000_000 + secs * 1_000);
        assert_eq!(eta.estimate(&config, at(0)), None);
        eta.observe(&config, 99, 0, at(0));
        assert_eq!(
            eta.estimate(&config, at(0)),
            Some(Millis(990)),
            "as assumed: 100/s"
        );
        eta.observe(&config, 151, 150, at(5));
        assert_eq!(
            eta.estimate(&config, at(5)),
            Some(Millis(5_034)),
            "measured: 30/s"
        );
        assert_eq!(eta.estimate(&config, at(15)), None, "ten seconds old");
        assert_eq!(eta.lag(Millis(11_000), at(15)), Some(151));
        assert_eq!(eta.lag(Millis(10_000), at(15)), None);
        eta.observe(&config, 0, 200, at(16));
        assert_eq!(eta.estimate(&config, at(16)), None);
        assert_eq!(eta.lag(Millis(1), at(16)), Some(0), "known, and nothing waits");
    }

    #[test]
    fn the_measure_follows_the_last_minute_and_survives_a_restart_of_the_counter() {
        let config = EtaConfig::default();
        let mut eta = Eta::default();
        for look in 0..100 {
            let settled = if look < 50 {
                look * 50
            } else {
                2_500 + (look - 50) * 500
            };
            eta.observe(&config, 1_000, settled, Timestamp(look * 5_000));
        }
        assert_eq!(eta.milli_rate(&config), 100_000);
        assert!(eta.samples.len() <= 14, "{}", eta.samples.len());
        eta.observe(&config, 1_000, 3, Timestamp(500_000));
        assert_eq!(eta.milli_rate(&config), 100_000, "as assumed");
    }
}
