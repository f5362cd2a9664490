//! A circuit breaker: stops calls to a dependency that fails or is slow, and retries with a few probes.
//!
//! ```text
//!   closed ── enough of the last calls failed ──► open ── after open_ms ──► half open
//!     ▲                                            ▲                          │
//!     │                                            └──── too many failed ─────┤
//!     └──────────────────────── enough probes succeeded ──────────────────────┘
//! ```

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::config::BreakerConfig;
use crate::time::{Millis, Timestamp};

/// The state that gauges show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    Closed,
    HalfOpen,
    Open,
}

/// Permission for one call; the caller returns it with the result.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "every call that is let through reports how it ended"]
pub struct Permit {
    /// The phase in which it was issued: results of an earlier phase say nothing about this one.
    phase: u64,
}

/// Retrying before `until` is pointless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub until: Timestamp,
}

#[derive(Debug)]
enum Phase {
    /// How the last calls ended; true is a failure.
    Closed {
        failed: VecDeque<bool>,
    },
    Open {
        until: Timestamp,
    },
    /// Probes in flight, and the results of those that finished. Probes without a result are abandoned at
    /// `until`.
    HalfOpen {
        given: u32,
        back: u32,
        failed: u32,
        until: Timestamp,
    },
}

#[derive(Debug)]
pub struct Breaker {
    config: BreakerConfig,
    phase: Phase,
    number: u64,
}

impl Breaker {
    pub fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            phase: Phase::Closed {
                failed: VecDeque::new(),
            },
            number: 0,
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.number += 1;
    }

    /// Asks permission for one call.
    pub fn ask(&mut self, now: Timestamp) -> Result<Permit, Refused> {
        match self.phase {
            Phase::Open { until } if now < until => return Err(Refused { until }),
            Phase::HalfOpen { given, until, .. } if given >= self.config.probes && now < until => {
                // By then the probes in flight have succeeded or count as slow. A caller that waited for
                // `until` would stay blocked long after the dependency has recovered.
                let soon = now + self.config.slow_ms.max(Millis(1));
                return Err(Refused {
                    until: until.min(soon),
                });
            }
            Phase::Open { .. } => self.probe(now),
            Phase::HalfOpen { given, .. } if given >= self.config.probes => self.probe(now),
            Phase::Closed { .. } | Phase::HalfOpen { .. } => {}
        }
        if let Phase::HalfOpen { given, .. } = &mut self.phase {
            *given += 1;
        }
        Ok(Permit { phase: self.number })
    }

    fn probe(&mut self, now: Timestamp) {
        let until = now + self.config.open_ms;
        self.enter(Phase::HalfOpen {
            given: 0,
            back: 0,
            failed: 0,
            until,
        });
    }

    /// Records whether a call succeeded and how long it took. A slow call counts as failed.
    pub fn report(&mut self, permit: Permit, worked: bool, took: Millis, now: Timestamp) {
        if permit.phase != self.number {
            return;
        }
        let failure = !worked || took > self.config.slow_ms;
        let (bad, seen, enough) = match &mut self.phase {
            Phase::Closed { failed } => {
                failed.push_back(failure);
                if failed.len() > self.config.window as usize {
                    failed.pop_front();
                }
                let bad = failed.iter().filter(|failed| **failed).count() as u64;
                (
                    bad,
                    failed.len() as u64,
                    failed.len() == self.config.window as usize,
                )
            }
            Phase::HalfOpen { back, failed, .. } => {
                *back += 1;
                *failed += u32::from(failure);
                (u64::from(*failed), u64::from(*back), *back == self.config.probes)
            }
            Phase::Open { .. } => return,
        };
        let too_many = bad * 100 >= seen * u64::from(self.config.failure_percent);
        match (enough, too_many, &self.phase) {
            (true, true, _) => self.enter(Phase::Open {
                until: now + self.config.open_ms,
            }),
            (true, false, Phase::HalfOpen { .. }) => self.enter(Phase::Closed {
                failed: VecDeque::new(),
            }),
            _ => {}
        }
    }

    pub fn state(&self, now: Timestamp) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { until } if now < until => BreakerState::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Millis = Millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp(1_000_000 + ms)
    }

    fn call(breaker: &mut Breaker, worked: bool, took: Millis, now: Timestamp) -> bool {
        match breaker.ask(now) {
            Ok(permit) => {
                breaker.report(permit, worked, took, now);
                true
            }
            Err(_) => false,
        }
    }

    #[test]
    fn half_of_ten_open_it_for_thirty_seconds_and_five_probes_close_it() {
        let mut breaker = Breaker::new(BreakerConfig::default());
        for index in 0..10 {
            assert_eq!(breaker.state(at(0)), BreakerState::Closed);
            assert!(call(&mut breaker, index % 2 == 0, QUICK, at(0)));
        }
        assert_eq!(breaker.state(at(0)), BreakerState::Open);
        assert_eq!(breaker.ask(at(29_999)), Err(Refused { until: at(30_000) }));
        for _ in 0..5 {
            assert!(call(&mut breaker, true, QUICK, at(30_000)));
        }
        assert_eq!(breaker.state(at(30_000)), BreakerState::Closed);
    }

    #[test]
    fn slow_calls_open_it_too() {
        let mut breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..10 {
            assert!(call(&mut breaker, true, Millis(1_001), at(0)));
        }
        assert_eq!(breaker.state(at(0)), BreakerState::Open);
    }

    #[test]
    fn failed_probes_open_it_again_and_late_results_say_nothing() {
        let mut breaker = Breaker::new(BreakerConfig::default());
        let late = breaker.ask(at(0)).unwrap();
        for _ in 0..10 {
            call(&mut breaker, false, QUICK, at(0));
        }
        breaker.report(late, true, QUICK, at(40_000));
        assert_eq!(breaker.state(at(10)), BreakerState::Open);
        for index in 0..5 {
            assert!(call(&mut breaker, index < 2, QUICK, at(30_000)));
        }
        assert_eq!(breaker.state(at(30_000)), BreakerState::Open);
        assert_eq!(breaker.ask(at(59_999)), Err(Refused { until: at(60_000) }));
    }

    #[test]
    fn only_five_probes_go_and_lost_ones_do_not_hold_it_half_open_for_ever() {
        let mut breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..10 {
            call(&mut breaker, false, QUICK, at(0));
        }
        let lost: Vec<Permit> = (0..5).map(|_| breaker.ask(at(30_000)).unwrap()).collect();
        assert_eq!(breaker.ask(at(30_001)), Err(Refused { until: at(31_001) }));
        assert_eq!(breaker.ask(at(59_999)), Err(Refused { until: at(60_000) }));
        assert_eq!(lost.len(), 5);
        for _ in 0..5 {
            assert!(call(&mut breaker, true, QUICK, at(60_000)));
        }
        assert_eq!(breaker.state(at(60_000)), BreakerState::Closed);
    }
}
