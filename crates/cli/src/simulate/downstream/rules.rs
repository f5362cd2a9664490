//! Who calls: the real queue, or a rule with a budget of calls per second.

use std::collections::VecDeque;

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::{JobOutcome, LeaseRef, ThrottleScope};
use tidegate_core::time::{Millis, Timestamp};

use super::model::Answer;
use crate::simulate::queue::Queue;

/// A call under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) group: usize,
    lease: Option<LeaseRef>,
    started: Timestamp,
}

pub(super) trait Caller {
    /// Starts calls, at most so many.
    fn start(&mut self, most: u32, now: Timestamp) -> anyhow::Result<Vec<Call>>;
    fn answered(&mut self, call: Call, answer: Answer, now: Timestamp) -> anyhow::Result<()>;
}

/// The real state machine, with enough jobs of every group.
#[derive(Debug)]
pub(super) struct Adaptive {
    queue: Queue,
    groups: &'static [&'static str],
    /// Jobs of each group that have not started.
    waiting: Vec<u64>,
    given: Vec<u64>,
    released_at: Timestamp,
}

/// Jobs of a group that wait at any time.
const BACKLOG: u64 = 5_000;

impl Adaptive {
    pub(super) fn new(configured: f64, groups: &'static [&'static str]) -> anyhow::Result<Self> {
        let mut config = BulkConfig::default();
        config.backpressure.global_rps = configured.into();
        config.retention.finished_jobs_max = 1_000;
        Ok(Self {
            queue: Queue::new(config)?,
            groups,
            waiting: vec![0; groups.len()],
            given: vec![0; groups.len()],
            released_at: Timestamp(0),
        })
    }
}

impl Caller for Adaptive {
    fn start(&mut self, most: u32, now: Timestamp) -> anyhow::Result<Vec<Call>> {
        for (index, group) in self.groups.iter().enumerate() {
            if self.waiting[index] < BACKLOG / 2 {
                let more = BACKLOG - self.waiting[index];
                self.queue.enqueue_from(group, self.given[index], more, now)?;
                self.given[index] += more;
                self.waiting[index] += more;
            }
        }
        // As often as a dispatcher does.
        if now.since(self.released_at) >= Millis(100) {
            self.released_at = now;
            self.queue.housekeep(now);
        }
        let leased = self.queue.lease(most, now).jobs;
        let calls = leased.into_iter().map(|job| {
            let name = job.group.as_str();
            let group = self.groups.iter().position(|group| *group == name).unwrap_or(0);
            self.waiting[group] = self.waiting[group].saturating_sub(1);
            Call {
                group,
                lease: Some(job.lease),
                started: now,
            }
        });
        Ok(calls.collect())
    }

    fn answered(&mut self, call: Call, answer: Answer, now: Timestamp) -> anyhow::Result<()> {
        let outcome = match answer {
            Answer::Success => JobOutcome::Completed {
                result: bytes::Bytes::new(),
            },
            Answer::Throttled {
                retry_after,
                of_group,
            } => {
                self.waiting[call.group] += 1;
                let scope = if of_group {
                    ThrottleScope::Group
                } else {
                    ThrottleScope::Queue
                };
                JobOutcome::Throttled { retry_after, scope }
            }
        };
        let lease = call
            .lease
            .ok_or_else(|| anyhow::anyhow!("a call of the queue has a lease"))?;
        self.queue.settle(lease, outcome, now);
        Ok(())
    }
}

/// A rule that has a rate, spent in aligned seconds, with a share of it for every group in turn.
#[derive(Debug)]
pub(super) struct Windowed {
    control: Control,
    configured: f64,
    rate: f64,
    groups: usize,
    next_group: usize,
    second: u64,
    used: u64,
    cut_at: Timestamp,
    raised_at: Timestamp,
    /// The latest times to an answer.
    trips: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Control {
    /// ×0.7 at most once per second, +5 % of the configured rate per second, at least one per second.
    Old,
    /// ×0.5 at most once per round trip, one call per second more in every round trip.
    Aimd,
    Fixed,
}

impl Windowed {
    pub(super) fn old(configured: f64, groups: &[&str]) -> Self {
        Self::new(Control::Old, configured, groups)
    }

    pub(super) fn aimd(configured: f64, groups: &[&str]) -> Self {
        Self::new(Control::Aimd, configured, groups)
    }

    pub(super) fn fixed(configured: f64, groups: &[&str]) -> Self {
        Self::new(Control::Fixed, configured, groups)
    }

    fn new(control: Control, configured: f64, groups: &[&str]) -> Self {
        Self {
            control,
            configured,
            rate: configured,
            groups: groups.len(),
            next_group: 0,
            second: 0,
            used: 0,
            cut_at: Timestamp(0),
            raised_at: Timestamp(0),
            trips: VecDeque::new(),
        }
    }

    fn round_trip(&self) -> Millis {
        let mean = self.trips.iter().sum::<u64>() / self.trips.len().max(1) as u64;
        Millis(mean.max(100))
    }

    fn raise(&mut self, now: Timestamp) {
        let elapsed = now.since(self.raised_at).as_secs_f64().min(1.0);
        self.raised_at = now;
        let gained = match self.control {
            Control::Old => self.configured * 0.05 * elapsed,
            Control::Aimd => elapsed / self.round_trip().as_secs_f64(),
            Control::Fixed => 0.0,
        };
        self.rate = (self.rate + gained).min(self.configured);
    }
}

impl Caller for Windowed {
    fn start(&mut self, most: u32, now: Timestamp) -> anyhow::Result<Vec<Call>> {
        self.raise(now);
        if now.0 / 1_000 != self.second {
            (self.second, self.used) = (now.0 / 1_000, 0);
        }
        let left = (self.rate.max(1.0) as u64)
            .saturating_sub(self.used)
            .min(u64::from(most));
        self.used += left;
        let calls = (0..left).map(|_| {
            self.next_group = (self.next_group + 1) % self.groups;
            Call {
                group: self.next_group,
                lease: None,
                started: now,
            }
        });
        Ok(calls.collect())
    }

    fn answered(&mut self, call: Call, answer: Answer, now: Timestamp) -> anyhow::Result<()> {
        self.trips.push_back(now.since(call.started).0);
        if self.trips.len() > 16 {
            self.trips.pop_front();
        }
        if answer == Answer::Success {
            return Ok(());
        }
        let (factor, pause) = match self.control {
            Control::Old => (0.7, Millis(1_000)),
            Control::Aimd => (0.5, self.round_trip()),
            Control::Fixed => return Ok(()),
        };
        if now.since(self.cut_at) >= pause {
            self.cut_at = now;
            self.rate = (self.rate * factor).max(1.0);
        }
        Ok(())
    }
}
