//! Downstreams that accept so much and reject the rest.

use std::collections::VecDeque;

use tidegate_core::time::{Millis, Timestamp};

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::simulate) enum Answer {
    Success,
    /// Too many calls, of everybody or of the caller's group.
    Throttled {
        retry_after: Option<Millis>,
        of_group: bool,
    },
}

/// What a downstream accepts.
#[derive(Debug, Clone)]
pub(in crate::simulate) enum Capacity {
    /// Calls per second, counted in aligned seconds or in any second.
    Rate { per_sec: f64, sliding: bool },
    /// Calls per aligned second, changed at a time (s).
    Step { before: f64, after: f64, at: u64 },
    /// Calls per aligned period; a rejection says how long to wait.
    Quota { calls: u64, period: Millis },
    /// Calls per aligned second of the first group; the others may use all the rest.
    Tenant { per_sec: f64, all: f64 },
}

impl Capacity {
    pub(in crate::simulate) fn aligned(per_sec: f64) -> Self {
        Self::Rate {
            per_sec,
            sliding: false,
        }
    }

    pub(in crate::simulate) fn sliding(per_sec: f64) -> Self {
        Self::Rate {
            per_sec,
            sliding: true,
        }
    }

    pub(in crate::simulate) fn step(before: f64, after: f64, at: u64) -> Self {
        Self::Step { before, after, at }
    }

    pub(in crate::simulate) fn quota(calls: u64, period: Millis) -> Self {
        Self::Quota { calls, period }
    }

    pub(in crate::simulate) fn tenant(per_sec: f64, all: f64) -> Self {
        Self::Tenant { per_sec, all }
    }

    /// Calls per second that are accepted this long after the start.
    pub(in crate::simulate) fn per_second(&self, elapsed: Millis) -> f64 {
        match *self {
            Self::Rate { per_sec, .. } => per_sec,
            Self::Step { before, at, .. } if elapsed.0 < at * 1_000 => before,
            Self::Step { after, .. } => after,
            Self::Quota { calls, period } => calls as f64 / period.as_secs_f64(),
            Self::Tenant { all, .. } => all,
        }
    }
}

#[derive(Debug)]
pub(in crate::simulate) struct Model {
    capacity: Capacity,
    start: Timestamp,
    /// When the last calls were accepted.
    accepted: VecDeque<Timestamp>,
}

impl Model {
    pub(in crate::simulate) fn new(capacity: Capacity, start: Timestamp) -> Self {
        Self {
            capacity,
            start,
            accepted: VecDeque::new(),
        }
    }

    pub(in crate::simulate) fn call(&mut self, group: usize, now: Timestamp) -> Answer {
        let (most, period, sliding, of_group) = match self.capacity {
            Capacity::Rate { per_sec, sliding } => (per_sec as usize, Millis(1_000), sliding, false),
            Capacity::Step { .. } => {
                let per_sec = self.capacity.per_second(now.since(self.start));
                (per_sec as usize, Millis(1_000), false, false)
            }
            Capacity::Quota { calls, period } => (calls as usize, period, false, false),
            Capacity::Tenant { per_sec, .. } if group == 0 => (per_sec as usize, Millis(1_000), false, true),
            Capacity::Tenant { .. } => return Answer::Success,
        };
        let begins = now.0 / period.0 * period.0;
        let from = if sliding { now.0 + 1 - period.0 } else { begins };
        while self.accepted.front().is_some_and(|at| at.0 < from) {
            self.accepted.pop_front();
        }
        if self.accepted.len() < most {
            self.accepted.push_back(now);
            return Answer::Success;
        }
        let rest = Millis(begins + period.0 - now.0);
        let retry_after = matches!(self.capacity, Capacity::Quota { .. }).then_some(rest);
        Answer::Throttled {
            retry_after,
            of_group,
        }
    }
}
