//! configure_limits: changes the rates at run time, and records who did it and why.
//!
//! A rate set here overrides the configuration until it is reset. It takes effect at once: the rest of the
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
/// Limit: queues whose rate is set at run time.
pub const MAX_QUEUES_SET: usize = 256;

/// Changes how fast jobs may start. The change survives a restart and holds until the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigureLimitsParams {
    pub global_rps: Set<f64>,
    /// Starts per second of individual queues.
    pub queues: Vec<(QueueId, Set<f64>)>,
    /// Who requested the change, and why.
    pub by: String,
    pub why: String,
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

/// One change of the rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitChange {
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// The queue whose rate changed; none for the whole system.
    pub queue: Option<QueueId>,
    pub from_rps: f64,
    pub to_rps: f64,
}

/// The rates that override the configuration, and the history of their changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LimitsRecord {
    pub global_rps: Option<f64>,
    pub queues: BTreeMap<QueueId, f64>,
    /// The newest last.
    pub changes: Vec<LimitChange>,
}

impl LimitsRecord {
    /// No rate was ever changed.
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
            if let Set::To(rps) = *set
                && let Some(right) = rate_error(rps, window)
            {
                return bad(format!("the rps of queue {queue:?}"), rps, right);
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
        for (queue, change) in &p.queues {
            match set(*change, record.queues.get(queue).copied()) {
                Some(rps) => record.queues.insert(queue.clone(), rps),
                None => record.queues.remove(queue),
            };
        }
        if record.queues.len() > MAX_QUEUES_SET {
            return Err(Refusal::TooManyQueues {
                max: MAX_QUEUES_SET as u64,
            });
        }
        let named = p.queues.into_iter().map(|(queue, _)| Some(queue));
        for queue in std::iter::once(None).chain(named) {
            let from_rps = self.rps(&self.limits, queue.as_ref());
            let to_rps = self.rps(&record, queue.as_ref());
            if from_rps != to_rps {
                record.changes.push(LimitChange {
                    at: now,
                    by: p.by.clone(),
                    why: p.why.clone(),
                    queue,
                    from_rps,
                    to_rps,
                });
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
        let set = limits.queues.get(queue).copied();
        set.or_else(configured).unwrap_or_else(of_all)
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
        for queue in 0..self.queues.len() {
            let rps = self.queue_rps(&self.queues[queue].name);
            let queue = &mut self.queues[queue];
            raised |= rps > queue.rps && queue.downstream.is_free();
            queue.set_rps(rps, self.limiter.length());
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
            queues: Vec::new(),
            by: String::new(),
            why: String::new(),
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
        of_queue.queues = vec![(mail, Set::To(f64::NAN))];
        assert_eq!(
            refused(&of_queue),
            "the rps of queue \"mail\" = NaN: it must be from 0.00001 to 1000000000"
        );
        let mut long = to(10.0);
        long.why = "x".repeat(257);
        assert_eq!(refused(&long), "why has 257 bytes; at most 256 are allowed");
        to(2.0).check(Millis(500)).unwrap();
    }
}
