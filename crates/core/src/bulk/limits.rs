//! configure_limits: changes limits at run time, and records who did it and why.
//!
//! A limit set here overrides the configuration until it is reset. It takes effect at once: the rest of the
//! running window is the current limit minus the starts so far. So no window has more starts than the larger of
//! the two limits. Jobs that were promised a start under a larger limit wait in ready.
//!
//! [`LimitsRecord::changed`] decides a change. A store that keeps the record elsewhere only replaces it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Bulk;
use super::config::BulkConfig;
use super::group::check_limit;
use super::record::Change;
use super::refusal::Refusal;
use super::views::{LimitsView, QueueView};
use crate::ids::QueueId;
use crate::limits::downstream::Downstream;
use crate::limits::quota::{Limit, Quota};
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
    pub global_rps: Set<Quota>,
    /// Whether queues follow what their downstream sustains.
    pub adaptive: Set<bool>,
    pub queues: Vec<(QueueId, SetQueueLimits)>,
    /// Who requested the change, and why.
    pub by: String,
    pub why: String,
}

/// Changes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SetLimit {
    pub rate: Set<Quota>,
    pub max_running: Set<u32>,
}

impl SetLimit {
    fn apply(self, was: Limit) -> Limit {
        Limit {
            rate: self.rate.apply(was.rate),
            max_running: self.max_running.apply(was.max_running),
        }
    }

    /// What is set, and nothing else.
    fn values(self) -> Limit {
        self.apply(Limit::default())
    }
}

/// Changes of one queue's limits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SetQueueLimits {
    /// Of the queue itself.
    pub all: SetLimit,
    /// Of every group in it that has no limit of its own there.
    pub per_group: SetLimit,
}

impl SetQueueLimits {
    /// Changes the rate alone.
    pub fn rate(rate: Set<Quota>) -> Self {
        Self {
            all: SetLimit {
                rate,
                ..SetLimit::default()
            },
            ..Self::default()
        }
    }

    /// Changes alone how many jobs may run.
    pub fn max_running(max_running: Set<u32>) -> Self {
        Self {
            all: SetLimit {
                max_running,
                ..SetLimit::default()
            },
            ..Self::default()
        }
    }

    /// Changes the limit of every group alone.
    pub fn per_group(per_group: SetLimit) -> Self {
        Self {
            per_group,
            ..Self::default()
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

impl<T> Set<T> {
    /// The value after the change.
    fn apply(self, was: Option<T>) -> Option<T> {
        match self {
            Set::Keep => was,
            Set::To(value) => Some(value),
            Set::Reset => None,
        }
    }

    pub fn map<U>(self, value: impl FnOnce(T) -> U) -> Set<U> {
        match self {
            Set::Keep => Set::Keep,
            Set::To(it) => Set::To(value(it)),
            Set::Reset => Set::Reset,
        }
    }
}

/// A limit that can be changed at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSetting {
    /// Starts, of the queue or the whole system.
    Rate,
    /// Jobs that run at once.
    MaxRunning,
    /// Starts of every group in the queue.
    GroupRate,
    /// Jobs of every group in the queue that run at once.
    GroupMaxRunning,
    /// Whether queues follow what their downstream sustains: on or off.
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
    /// As text; none: no limit.
    pub from: Option<String>,
    pub to: Option<String>,
}

/// The limits of one queue. In a record, those that override the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueLimits {
    pub rate: Option<Quota>,
    pub max_running: Option<u32>,
    /// Of every group in it that has no limit of its own there.
    pub per_group: Limit,
}

impl QueueLimits {
    /// What these leave open is as in `other`.
    fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            max_running: self.max_running.or(other.max_running),
            per_group: self.per_group.or(other.per_group),
        }
    }

    fn changed(self, set: SetQueueLimits) -> Self {
        let all = set.all.apply(Limit {
            rate: self.rate,
            max_running: self.max_running,
        });
        Self {
            rate: all.rate,
            max_running: all.max_running,
            per_group: set.per_group.apply(self.per_group),
        }
    }
}

/// The limits that override the configuration, and the history of their changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LimitsRecord {
    pub global_rps: Option<Quota>,
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

    /// The rate of a queue, or of the whole system: the one set at run time, else the configured one. A queue
    /// that has neither uses the global rate.
    pub fn rate(&self, config: &BulkConfig, queue: Option<&QueueId>) -> Quota {
        let own = queue.and_then(|queue| self.of_queue(config, queue).rate);
        own.or(self.global_rps).unwrap_or(config.backpressure.global_rps)
    }

    /// The limits of a queue: as set at run time, else as configured.
    pub fn of_queue(&self, config: &BulkConfig, queue: &QueueId) -> QueueLimits {
        let configured = config.queues.get(queue).map(|queue| QueueLimits {
            rate: queue.rate,
            max_running: queue.max_running,
            per_group: queue.per_group,
        });
        let set = self.queues.get(queue).copied().unwrap_or_default();
        set.or(configured.unwrap_or_default())
    }

    /// Whether queues follow what their downstream sustains.
    pub fn adaptive(&self, config: &BulkConfig) -> bool {
        config.congestion.enabled && self.adaptive.unwrap_or(config.congestion.adaptive)
    }

    /// The record after a change at this time, with the change in its history.
    pub fn changed(
        &self,
        config: &BulkConfig,
        p: &ConfigureLimitsParams,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        p.check(config.backpressure.window())?;
        let mut record = self.clone();
        record.global_rps = p.global_rps.apply(record.global_rps);
        record.adaptive = p.adaptive.apply(record.adaptive);
        for (queue, set) in &p.queues {
            let was = record.queues.remove(queue).unwrap_or_default();
            let is = was.changed(*set);
            if is != QueueLimits::default() {
                record.queues.insert(queue.clone(), is);
            }
        }
        if record.queues.len() > MAX_QUEUES_SET {
            return Err(Refusal::TooManyQueues {
                max: MAX_QUEUES_SET as u64,
            });
        }
        let named = p.queues.iter().map(|(queue, _)| Some(queue));
        for queue in std::iter::once(None).chain(named) {
            let (was, is) = (self.values(config, queue), record.values(config, queue));
            for ((setting, from), (_, to)) in was.into_iter().zip(is) {
                if from != to {
                    record.changes.push(LimitChange {
                        at: now,
                        by: p.by.clone(),
                        why: p.why.clone(),
                        queue: queue.cloned(),
                        setting,
                        from,
                        to,
                    });
                }
            }
        }
        let old = record.changes.len().saturating_sub(CHANGES_KEPT);
        record.changes.drain(..old);
        Ok(record)
    }

    /// The limits in effect of a queue, or of the whole system, as text.
    fn values(&self, config: &BulkConfig, queue: Option<&QueueId>) -> Vec<(LimitSetting, Option<String>)> {
        let rate = (LimitSetting::Rate, Some(self.rate(config, queue).to_string()));
        let Some(queue) = queue else {
            let adaptive = if self.adaptive(config) { "on" } else { "off" };
            return vec![rate, (LimitSetting::Adaptive, Some(adaptive.to_owned()))];
        };
        let limits = self.of_queue(config, queue);
        let most = |most: Option<u32>| most.map(|most| most.to_string());
        let of_group = limits.per_group;
        vec![
            rate,
            (LimitSetting::MaxRunning, most(limits.max_running)),
            (
                LimitSetting::GroupRate,
                of_group.rate.map(|rate| rate.to_string()),
            ),
            (LimitSetting::GroupMaxRunning, most(of_group.max_running)),
        ]
    }

    pub fn view(&self, config: &BulkConfig) -> LimitsView {
        let window = config.backpressure.window();
        let global_rps = self.rate(config, None);
        LimitsView {
            global_rps,
            configured_global_rps: config.backpressure.global_rps,
            limit_per_window: global_rps.in_windows(window).most(),
            window_ms: window,
            adaptive: self.adaptive(config),
            queues: self.queues.clone().into_iter().collect(),
            changes: self.changes.clone(),
        }
    }
}

impl ConfigureLimitsParams {
    /// Checks that these limits work with windows of this length.
    pub fn check(&self, window: Millis) -> Result<(), Refusal> {
        if let Set::To(rate) = self.global_rps
            && let Some(right) = rate.error(window)
        {
            return Err(Refusal::Rate {
                what: "global_rps".to_owned(),
                value: rate.to_string(),
                right,
            });
        }
        let mut seen = BTreeSet::new();
        for (queue, set) in &self.queues {
            if !seen.insert(queue) {
                return Err(Refusal::QueueTwice(queue.clone()));
            }
            check_limit(set.all.values(), window, &format!("of queue {queue:?}"))?;
            let each = format!("of each group in queue {queue:?}");
            check_limit(set.per_group.values(), window, &each)?;
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

impl Bulk {
    pub(super) fn configure_limits(
        &mut self,
        p: ConfigureLimitsParams,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let record = self.limits.changed(&self.config, &p, now)?;
        if record != self.limits {
            self.changes.push(Change::PutLimits(record.clone()));
            self.put_limits_in_force(record, now);
        }
        Ok(())
    }

    /// Whether queues follow what their downstream sustains.
    pub(super) fn is_adaptive(&self) -> bool {
        self.limits.adaptive(&self.config)
    }

    /// The rate of the whole system.
    pub(super) fn global_rps(&self) -> f64 {
        self.limits.rate(&self.config, None).per_second()
    }

    pub(super) fn put_limits_in_force(&mut self, record: LimitsRecord, now: Timestamp) {
        let was_adaptive = self.is_adaptive();
        self.limits = record;
        let length = self.limiter.length();
        let rate = self.limits.rate(&self.config, None).in_windows(length);
        let share_rises = rate.most() > self.limiter.rate().most();
        let mut raised = share_rises;
        self.limiter.set_rate(rate);
        let adaptive = self.is_adaptive();
        let mut per_group = Vec::new();
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let limits = self.limits.of_queue(&self.config, &queue.name);
            let rate = self.limits.rate(&self.config, Some(&queue.name));
            if !adaptive && !queue.downstream.is_free() {
                queue.downstream = Downstream::default();
                raised = true;
            }
            raised |= rate.per_second() > queue.rps && queue.downstream.is_free();
            queue.set_rate(rate, length);
            let most = limits.max_running;
            raised |= queue.is_full() && most.is_none_or(|most| queue.running < u64::from(most));
            queue.max_running = most;
            let was = std::mem::replace(&mut queue.per_group, limits.per_group);
            let per_second = |limit: Limit| limit.rate.map(Quota::per_second);
            let same = per_second(was) == per_second(limits.per_group)
                && was.max_running == limits.per_group.max_running;
            if !same {
                per_group.push(index as u16);
            }
        }
        if was_adaptive && !adaptive {
            self.forget_pairs(now);
        }
        for queue in per_group {
            self.unhold_pairs_in(queue, now);
        }
        if share_rises && self.config.backpressure.strict_share {
            // The next pick holds those that are still at a limit again.
            self.unhold_groups(Timestamp(u64::MAX), now);
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
        let configured_rps = self.limits.rate(&self.config, Some(name)).per_second();
        let downstream = queue.map(|queue| queue.downstream.at(queue.rps, now));
        let sustained = downstream.as_ref().and_then(Downstream::rate);
        QueueView {
            id: name.clone(),
            configured_rps,
            running: queue.map_or(0, |queue| queue.running),
            max_running: self.limits.of_queue(&self.config, name).max_running,
            rps: sustained.map_or(configured_rps, |rate| rate.min(configured_rps)),
            held_until: downstream.as_ref().and_then(Downstream::held_until),
            started: queue.map_or(0, |queue| queue.started(self.limiter.window())),
            ready: queue.map_or(0, |queue| u64::from(queue.ready.len)),
            groups_waiting: queue.map_or(0, |queue| {
                queue.orders.iter().map(|order| order.len() as u64).sum()
            }),
            last_cut_at: downstream.as_ref().and_then(Downstream::cut_at),
        }
    }

    pub(super) fn limits_view(&self) -> LimitsView {
        self.limits.view(&self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(rate: f64) -> ConfigureLimitsParams {
        ConfigureLimitsParams {
            global_rps: Set::To(rate.into()),
            ..ConfigureLimitsParams::default()
        }
    }

    #[test]
    fn a_refusal_names_the_value_and_what_would_be_right() {
        let refused = |params: &ConfigureLimitsParams| params.check(Millis(500)).unwrap_err().to_string();
        let range = "it must be from 0.00001/s to 1000000000/s";
        assert_eq!(refused(&to(0.0)), format!("global_rps = 0/s: {range}"));
        assert_eq!(
            to(0.00002).check(Millis(10)).unwrap_err().to_string(),
            "global_rps = 0.00002/s: with windows of 0.01 s it must be at least 0.0001/s"
        );
        let mail = QueueId::new("mail").unwrap();
        let of_mail = |set| ConfigureLimitsParams {
            queues: vec![(mail.clone(), set)],
            ..to(10.0)
        };
        assert_eq!(
            refused(&of_mail(SetQueueLimits::rate(Set::To(f64::NAN.into())))),
            format!("rate of queue \"mail\" = NaN/s: {range}")
        );
        assert_eq!(
            refused(&of_mail(SetQueueLimits::max_running(Set::To(0)))),
            "max_running of queue \"mail\" = 0: it must be at least 1"
        );
        let per_group = SetLimit {
            rate: Set::To("0/h".parse().unwrap()),
            ..SetLimit::default()
        };
        assert_eq!(
            refused(&of_mail(SetQueueLimits::per_group(per_group))),
            format!("rate of each group in queue \"mail\" = 0/h: {range}")
        );
        let mut long = to(10.0);
        long.why = "x".repeat(257);
        assert_eq!(refused(&long), "why has 257 bytes; at most 256 are allowed");
        to(2.0).check(Millis(500)).unwrap();
    }
}
