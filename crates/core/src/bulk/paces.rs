//! Collects what estimates are made of: the pace of queues and flows.

use super::estimate::{
    BATCHES, Before, Estimate, FlowPace, GroupPace, NoEstimate, PaceLimit, QueuePace, Range, STANDING,
    Standing, finish, part_until,
};
use super::list::Slot;
use super::order::FairOrder;
use super::{Bulk, Priority};
use crate::limits::quota::Quota;
use crate::time::{Millis, Timestamp};

impl Bulk {
    /// When the group's unfinished jobs are finished.
    pub(super) fn group_estimate(&self, slot: Slot, now: Timestamp) -> Estimate {
        finish(&self.group_pace(slot, now), 1.0)
    }

    /// When the batch's unfinished jobs are finished, with those of its group that are before its last one.
    pub(super) fn batch_estimate(&self, slot: Slot, now: Timestamp) -> Estimate {
        let batch = &self.batches[slot as usize];
        if batch.unfinished == 0 {
            return Ok(Range::default());
        }
        if batch.paused {
            return Err(NoEstimate::Paused);
        }
        let group = &self.groups[batch.group as usize];
        let others = group.batches.iter().map(|&slot| &self.batches[slot as usize]);
        let mut before: Vec<Before> = others
            .filter(|other| other.seq.0 <= batch.last.0)
            .map(|other| Before {
                seq: other.seq.0,
                last: other.last.0,
                unfinished: u64::from(other.unfinished),
            })
            .collect();
        before.sort_unstable_by_key(|other| std::cmp::Reverse(other.seq));
        before.truncate(BATCHES);
        let part = part_until(&before, batch.last.0, group.unfinished());
        finish(&self.group_pace(batch.group, now), part)
    }

    /// A start that came to nothing.
    pub(super) fn refund_throughput(&mut self, slot: Slot, started: Timestamp) {
        let flow = &mut self.flows[self.jobs[slot as usize].flow as usize];
        flow.throughput.refund(started);
        self.queues[usize::from(flow.queue)].throughput.refund(started);
    }

    /// A paused group is not slow: its flows are not measured.
    pub(super) fn rest_flows(&mut self, group: Slot, now: Timestamp) {
        for &flow in &self.groups[group as usize].flows {
            self.flows[flow as usize].throughput.idle(now);
        }
    }

    pub(super) fn group_pace(&self, slot: Slot, now: Timestamp) -> GroupPace {
        let group = &self.groups[slot as usize];
        let mut queues: Vec<u16> = Vec::new();
        let mut flows = Vec::with_capacity(group.flows.len());
        for &flow in &group.flows {
            let flow = &self.flows[flow as usize];
            let queue = queues.iter().position(|&queue| queue == flow.queue);
            let queue = queue.unwrap_or_else(|| {
                queues.push(flow.queue);
                queues.len() - 1
            });
            flows.push(FlowPace {
                queue,
                priority: flow.priority,
                unfinished: u64::from(flow.unfinished),
                waiting: flow.len(),
                due: flow.due,
                measured: flow.throughput.clone(),
                in_order: flow.place.is_some(),
                limit: self.pace_limit(slot, flow.queue),
            });
        }
        let sustained = |pair: &super::pair::Pair| {
            let queue = queues.iter().position(|&queue| queue == pair.queue)?;
            Some((queue, pair.downstream.as_ref()?.rate()?))
        };
        GroupPace {
            now,
            paused: group.paused,
            running: u64::from(group.count(super::JobState::Running)),
            weight: weight(group.step),
            limit: PaceLimit {
                per_second: group.limits.all.rate.map(Quota::per_second),
                max_running: group.limits.all.max_running,
            },
            sustained: group.pairs.iter().filter_map(sustained).collect(),
            queues: queues.iter().map(|&queue| self.queue_pace(queue)).collect(),
            flows,
        }
    }

    fn pace_limit(&self, group: Slot, queue: u16) -> PaceLimit {
        let limit = self.limit_in_queue(group, queue);
        PaceLimit {
            per_second: limit.rate.map(Quota::per_second),
            max_running: limit.max_running,
        }
    }

    fn queue_pace(&self, queue: u16) -> QueuePace {
        let queue = &self.queues[usize::from(queue)];
        let of_all = self.global_rps();
        let sustained = queue.downstream.rate();
        let fair = &self.config.fair_queue;
        QueuePace {
            measured: queue.throughput.clone(),
            rate: queue.rps.min(of_all),
            own_rate: queue.rps != of_all,
            sustained,
            window: self.limiter.length(),
            weight: Priority::ALL.map(|priority| queue.orders[priority as usize].weight()),
            standing: Priority::ALL.map(|priority| self.standing(&queue.orders[priority as usize])),
            minimum: [0, fair.normal_min_percent, fair.low_min_percent],
            running: queue.running,
            round_trip: Millis(queue.downstream.round_trip() as u64),
            asked: queue.asked,
            held_until: queue.downstream.held_until(),
        }
    }
}

impl Bulk {
    fn standing(&self, order: &FairOrder) -> Vec<Standing> {
        let flows = order
            .flows()
            .take(STANDING)
            .map(|flow| &self.flows[flow as usize]);
        flows
            .map(|flow| Standing {
                weight: flow.weight,
                jobs: flow.len(),
            })
            .collect()
    }
}

/// The weight of a group in thousandths.
pub(super) fn weight(step: u64) -> u64 {
    (super::policy::STEP_UNIT * 1_000 + step / 2) / step
}
