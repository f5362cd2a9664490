//! configure_limits: changes rates and other limits at run time, and records who did it and why.
//!
//! A limit set here overrides the configuration until it is reset. It takes effect at once: the rest of the
//! running window is the current limit minus the starts so far. So no window has more starts than the larger of
//! the two limits. Jobs that were promised a start under a larger limit wait in ready.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Bulk;
use super::config::rate_error;
use super::pick::UNHOLD_PER_CALL;
use super::record::Change;
use super::refusal::Refusal;
use super::views::{LimitsView, QueueView};
use crate::ids::QueueId;
use crate::limits::downstream::Downstream;
use crate::limits::rate::Rate;
use crate::time::{Millis, Timestamp};

/// Limit: changes kept in the history.
pub const CHANGES_KEPT: usize = 100;
/// Limit: bytes of `by` and of `why`.
const MAX_REASON_BYTES: usize = 256;
/// Limit: queues whose limits are set at run time.
pub const MAX_QUEUES_SET: usize = 256;

/// Changes how fast jobs may start, and how many may run. The change survives a restart and holds until the next one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConfigureLimitsParams {
    pub global_rps: Set<f64>,
    /// Whether queues follow what their downstream sustains.
    pub adaptive: Set<bool>,
    pub queues: Vec<(QueueId, SetQueueLimits)>,
    /// Who requested the change, and why.
    pub by: String,
    pub why: String,
}

/// Changes of one queue's limits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SetQueueLimits {
    /// Starts per second.
    pub rps: Set<f64>,
    /// Jobs that run at once, over all processes.
    pub max_running: Set<u32>,
}

impl SetQueueLimits {
    /// Changes the rate alone.
    pub fn rps(rps: Set<f64>) -> Self {
        Self {
            rps,
            max_running: Set::Keep,
        }
    }

    /// Changes alone how many jobs may run.
    pub fn max_running(max_running: Set<u32>) -> Self {
        Self {
            rps: Set::Keep,
            max_running,
        }
    }
}

/// A change of one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Set<T> {
    #[default]
    Keep,
    To(T),
    /// Back to the configured value.
    Reset,
}

/// A limit that can be changed at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSetting {
    /// Starts per second.
    Rps,
    /// Jobs that run at once.
    MaxRunning,
    /// Whether queues follow what their downstream sustains: 1 or 0.
    Adaptive,
}

/// One change of a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitChange {
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// The queue whose limit changed; none for the whole system.
    pub queue: Option<QueueId>,
    pub setting: LimitSetting,
    /// None: no limit.
    pub from: Option<f64>,
    pub to: Option<f64>,
}

/// The limits of one queue that override the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct QueueLimits {
    pub rps: Option<f64>,
    pub max_running: Option<u32>,
}

/// The limits that override the configuration, and the history of their changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LimitsRecord {
    pub global_rps: Option<f64>,
    pub adaptive: Option<bool>,
    pub queues: BTreeMap<QueueId, QueueLimits>,
    /// The newest last.
    pub changes: Vec<LimitChange>,
}

impl LimitsRecord {
    /// No limit was ever changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ConfigureLimitsParams {
    /// Checks that these rates work with windows of this length.
    pub fn check(&self, window: Millis) -> Result<(), Refusal> {
        let bad = |what: String, rps: f64, right: String| {
            Err(Refusal::Rate {
                what,
                value: rps.to_string(),
                right,
            })
        };
        if let Set::To(rps) = self.global_rps
            && let Some(right) = rate_error(rps, window)
        {
            return bad("global_rps".to_owned(), rps, right);
        }
        let mut seen = BTreeSet::new();
        for (queue, set) in &self.queues {
            if !seen.insert(queue) {
                return Err(Refusal::QueueTwice(queue.clone()));
            }
            if let Set::To(rps) = set.rps
                && let Some(right) = rate_error(rps, window)
            {
                return bad(format!("the rps of queue {queue:?}"), rps, right);
            }
            if set.max_running == Set::To(0) {
                return Err(Refusal::ZeroCeiling {
                    what: format!("max_running of queue {queue:?}"),
                });
            }
        }
        for (what, text) in [("by", &self.by), ("why", &self.why)] {
            if text.len() > MAX_REASON_BYTES {
                return Err(Refusal::TextTooLong {
                    what: what.to_owned(),
                    len: text.len() as u64,
                    max: MAX_REASON_BYTES as u64,
                });
            }
        }
        Ok(())
    }
}

/// The value of a setting after a change.
fn set<T: Copy>(set: Set<T>, was: Option<T>) -> Option<T> {
    match set {
        Set::Keep => was,
        Set::To(value) => Some(value),
        Set::Reset => None,
    }
}

impl Bulk {
    pub(super) fn configure_limits(
        &mut self,
        p: ConfigureLimitsParams,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        p.check(self.limiter.length())?;
        let mut record = self.limits.clone();
        record.global_rps = set(p.global_rps, record.global_rps);
        record.adaptive = set(p.adaptive, record.adaptive);
        for (queue, change) in &p.queues {
            let was = record.queues.get(queue).copied().unwrap_or_default();
            let is = QueueLimits {
                rps: set(change.rps, was.rps),
                max_running: set(change.max_running, was.max_running),
            };
            if is == QueueLimits::default() {
                record.queues.remove(queue);
            } else {
                record.queues.insert(queue.clone(), is);
            }
        }
        if record.queues.len() > MAX_QUEUES_SET {
            return Err(Refusal::TooManyQueues {
                max: MAX_QUEUES_SET as u64,
            });
        }
        let named = p.queues.into_iter().map(|(queue, _)| Some(queue));
        for queue in std::iter::once(None).chain(named) {
            let (was, is) = (
                self.values(&self.limits, queue.as_ref()),
                self.values(&record, queue.as_ref()),
            );
            for ((setting, from), (_, to)) in was.into_iter().zip(is) {
                if from != to {
                    record.changes.push(LimitChange {
                        at: now,
                        by: p.by.clone(),
                        why: p.why.clone(),
                        queue: queue.clone(),
                        setting,
                        from,
                        to,
                    });
                }
            }
        }
        let old = record.changes.len().saturating_sub(CHANGES_KEPT);
        record.changes.drain(..old);
        if record != self.limits {
            self.changes.push(Change::PutLimits(record.clone()));
            self.put_limits_in_force(record, now);
        }
        Ok(())
    }

    /// The rate of a queue, or of the whole system: the one set at run time, else the configured one. A queue
    /// that has neither uses the global rate.
    fn rps(&self, limits: &LimitsRecord, queue: Option<&QueueId>) -> f64 {
        let of_all = || limits.global_rps.unwrap_or(self.config.backpressure.global_rps);
        let Some(queue) = queue else { return of_all() };
        let configured = || self.config.queues.get(queue)?.rps;
        let set = || limits.queues.get(queue)?.rps;
        set().or_else(configured).unwrap_or_else(of_all)
    }

    /// How many jobs of a queue may run at once: as set at run time, else as configured.
    fn max_running(&self, limits: &LimitsRecord, queue: &QueueId) -> Option<u32> {
        let configured = || self.config.queues.get(queue)?.max_running;
        let set = || limits.queues.get(queue)?.max_running;
        set().or_else(configured)
    }

    fn adaptive(&self, limits: &LimitsRecord) -> bool {
        let configured = self.config.congestion.adaptive;
        self.config.congestion.enabled && limits.adaptive.unwrap_or(configured)
    }

    /// The limits in effect of a queue, or of the whole system.
    fn values(&self, limits: &LimitsRecord, queue: Option<&QueueId>) -> [(LimitSetting, Option<f64>); 2] {
        let rps = (LimitSetting::Rps, Some(self.rps(limits, queue)));
        let other = match queue {
            None => (
                LimitSetting::Adaptive,
                Some(f64::from(u8::from(self.adaptive(limits)))),
            ),
            Some(queue) => (
                LimitSetting::MaxRunning,
                self.max_running(limits, queue).map(f64::from),
            ),
        };
        [rps, other]
    }

    /// Whether queues follow what their downstream sustains.
    pub(super) fn is_adaptive(&self) -> bool {
        self.adaptive(&self.limits)
    }

    /// The initial maximum of running jobs of a queue.
    pub(super) fn queue_max_running(&self, queue: &QueueId) -> Option<u32> {
        self.max_running(&self.limits, queue)
    }

    /// The rate of the whole system.
    pub(super) fn global_rps(&self) -> f64 {
        self.rps(&self.limits, None)
    }

    /// The initial rate of a queue.
    pub(super) fn queue_rps(&self, queue: &QueueId) -> f64 {
        self.rps(&self.limits, Some(queue))
    }

    pub(super) fn put_limits_in_force(&mut self, record: LimitsRecord, now: Timestamp) {
        self.limits = record;
        let rate = Rate::new(self.rps(&self.limits, None), self.limiter.length());
        let share_rises = rate.most() > self.limiter.rate().most();
        let mut raised = share_rises;
        self.limiter.set_rate(rate);
        let adaptive = self.is_adaptive();
        for queue in 0..self.queues.len() {
            let rps = self.queue_rps(&self.queues[queue].name);
            let max_running = self.queue_max_running(&self.queues[queue].name);
            let queue = &mut self.queues[queue];
            if !adaptive && !queue.downstream.is_free() {
                queue.downstream = Downstream::default();
                raised = true;
            }
            raised |= rps > queue.rps && queue.downstream.is_free();
            queue.set_rps(rps, self.limiter.length());
            raised |= queue.is_full() && max_running.is_none_or(|most| queue.running < u64::from(most));
            queue.max_running = max_running;
        }
        if !adaptive {
            self.forget_pairs(now);
        }
        if share_rises && self.config.backpressure.strict_share {
            // The next pick holds those that are still at their ceiling again.
            self.unhold_before(self.limiter.window() + 1, UNHOLD_PER_CALL, now);
        }
        self.signals.work |= raised;
    }

    /// Every queue that is configured or has been used, in order of name.
    pub(super) fn queue_views(&self, now: Timestamp) -> Vec<QueueView> {
        let set = self.config.queues.keys().chain(self.limits.queues.keys());
        let names: BTreeSet<&QueueId> = set.chain(self.queue_slots.keys()).collect();
        names.into_iter().map(|name| self.queue_view(name, now)).collect()
    }

    fn queue_view(&self, name: &QueueId, now: Timestamp) -> QueueView {
        let queue = self
            .queue_slots
            .get(name)
            .map(|&queue| &self.queues[usize::from(queue)]);
        let configured_rps = queue.map_or_else(|| self.queue_rps(name), |queue| queue.rps);
        let downstream = queue.map(|queue| queue.downstream.at(queue.rps, now));
        let sustained = downstream.as_ref().and_then(Downstream::rate);
        QueueView {
            id: name.clone(),
            configured_rps,
            running: queue.map_or(0, |queue| queue.running),
            max_running: self.queue_max_running(name),
            rps: sustained.map_or(configured_rps, |rate| rate.min(configured_rps)),
            held_until: downstream.as_ref().and_then(Downstream::held_until),
            started: queue.map_or(0, |queue| queue.started),
            ready: queue.map_or(0, |queue| u64::from(queue.ready.len)),
            groups_waiting: queue.map_or(0, |queue| {
                queue.orders.iter().map(|order| order.len() as u64).sum()
            }),
            last_cut_at: downstream.as_ref().and_then(Downstream::cut_at),
        }
    }

    pub(super) fn limits_view(&self) -> LimitsView {
        LimitsView {
            global_rps: self.rps(&self.limits, None),
            configured_global_rps: self.config.backpressure.global_rps,
            limit_per_window: self.limiter.rate().most(),
            window_ms: self.limiter.length(),
            adaptive: self.is_adaptive(),
            queues: self.limits.queues.clone().into_iter().collect(),
            changes: self.limits.changes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(rps: f64) -> ConfigureLimitsParams {
        ConfigureLimitsParams {
            global_rps: Set::To(rps),
            ..ConfigureLimitsParams::default()
        }
    }

    #[test]
    fn a_refusal_names_the_value_and_what_would_be_right() {
        let refused = |params: &ConfigureLimitsParams| params.check(Millis(500)).unwrap_err().to_string();
        assert_eq!(
            refused(&to(0.0)),
            "global_rps = 0: it must be from 0.00001 to 1000000000"
        );
        assert_eq!(
            to(0.00002).check(Millis(10)).unwrap_err().to_string(),
            "global_rps = 0.00002: with windows of 0.01 s it must be at least 0.0001"
        );
        let mail = QueueId::new("mail").unwrap();
        let mut of_queue = to(10.0);
        of_queue.queues = vec![(mail.clone(), SetQueueLimits::rps(Set::To(f64::NAN)))];
        assert_eq!(
            refused(&of_queue),
            "the rps of queue \"mail\" = NaN: it must be from 0.00001 to 1000000000"
        );
        of_queue.queues = vec![(mail, SetQueueLimits::max_running(Set::To(0)))];
        assert_eq!(
            refused(&of_queue),
            "max_running of queue \"mail\" = 0: a ceiling must be at least 1"
        );
        let mut long = to(10.0);
        long.why = "x".repeat(257);
        assert_eq!(refused(&long), "why has 257 bytes; at most 256 are allowed");
        to(2.0).check(Millis(500)).unwrap();
    }
}
