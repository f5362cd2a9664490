//! admit: moves jobs to ready in fair order, up to the ready cap and the rest of the window.

use super::Bulk;
use super::command::{AdmitOutcome, AdmitParams, BatchStatus, Denied, JobSeq, Priority, Stop};
use super::config::Hold;
use super::job::{JobState, Spot};
use super::list::Slot;
use super::pick::{Pick, inspections};
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn admit(&mut self, p: AdmitParams, now: Timestamp) -> AdmitOutcome {
        self.unhold_due(now);
        let Some(&queue) = self.queue_slots.get(&p.queue) else {
            return AdmitOutcome {
                admitted: Vec::new(),
                denied: Vec::new(),
                stop: Stop::Empty,
            };
        };
        self.turn_downstream(queue, now);
        let ready_cap = p.ready_cap.min(self.config.backpressure.ready_queue_max_size);
        let mut inspections = inspections(p.max);
        let mut admitted = Vec::new();
        let stop = loop {
            if admitted.len() as u32 >= p.max {
                break Stop::Enough;
            }
            if self.queues[usize::from(queue)].ready.len >= ready_cap {
                break Stop::Full;
            }
            if self.room(queue, now) == 0 {
                break self.limited(queue, now);
            }
            match self.pick(queue, &mut inspections, now) {
                Pick::Job(slot) => admitted.push(self.make_ready(slot, now)),
                Pick::Limited(until) => break Stop::Limited { until },
                Pick::Empty => break self.nothing_startable(queue),
                Pick::More => break Stop::More,
            }
        };
        let mut denied = Vec::new();
        if matches!(stop, Stop::Limited { .. }) && self.config.backpressure.hold == Hold::Job {
            denied = self.deny(queue, p.max as usize, now);
        }
        AdmitOutcome {
            admitted,
            denied,
            stop,
        }
    }

    /// How many more starts this queue may promise in this window. Jobs already in ready, the queue's own
    /// rate and its downstream all reduce it.
    pub(super) fn room(&mut self, queue: u16, now: Timestamp) -> u64 {
        let queue = &mut self.queues[usize::from(queue)];
        let own = queue
            .room(self.limiter.window(), now)
            .saturating_sub(u64::from(queue.ready.len));
        self.limiter.room().saturating_sub(self.ready).min(own)
    }

    /// The queue may start nothing more now: until when.
    pub(super) fn limited(&self, queue: u16, now: Timestamp) -> Stop {
        let (limiter, queue) = (&self.limiter, &self.queues[usize::from(queue)]);
        let window = limiter.window();
        let own = queue.meter.room(queue.rate, window) <= u64::from(queue.ready.len);
        let until = match () {
            () if limiter.room() <= self.ready => limiter.until(),
            () if own => limiter.start_of(queue.meter.next(queue.rate, window)),
            () if queue.is_full() => return Stop::Busy,
            () => queue.downstream.next_start(now).unwrap_or(limiter.window_end()),
        };
        Stop::Limited { until }
    }

    fn make_ready(&mut self, slot: Slot, now: Timestamp) -> JobSeq {
        self.set_waiting(slot, now);
        let job = &mut self.jobs[slot as usize];
        let (seq, flow, batch) = (job.seq, job.flow, job.batch);
        job.state = JobState::Ready;
        job.spot = Spot::Ready;
        job.at = now;
        let (group, queue) = (self.flows[flow as usize].group, self.flows[flow as usize].queue);
        self.queues[usize::from(queue)]
            .ready
            .push_back(&mut self.jobs, slot);
        self.ready += 1;
        self.count_ready_in_pair(group, queue, 1);
        self.shift(group, Some(JobState::Waiting), Some(JobState::Ready), now);
        self.raise_status(batch, BatchStatus::Dispatched);
        seq
    }

    /// `hold = "job"`: denies the next jobs in fair order because the window is spent, and moves them to
    /// delayed. Denies one job per flow and pass, until `max` jobs are denied or every flow is at its longest
    /// backoff.
    fn deny(&mut self, queue: u16, max: usize, now: Timestamp) -> Vec<Denied> {
        let mut denied = Vec::new();
        let orders = &self.queues[usize::from(queue)].orders;
        let mut flows: Vec<Slot> = Priority::ALL
            .iter()
            .flat_map(|&priority| orders[priority as usize].flows())
            .take(max)
            .collect();
        while denied.len() < max && !flows.is_empty() {
            flows.retain(|&flow| {
                denied.len() < max
                    && self.deny_next(flow, now).is_some_and(|one| {
                        denied.push(one);
                        true
                    })
            });
        }
        denied
    }

    fn deny_next(&mut self, flow: Slot, now: Timestamp) -> Option<Denied> {
        let group = self.flows[flow as usize].group;
        if self.next_backoff(group).uncapped >= self.config.congestion.max_backoff_ms {
            return None;
        }
        // Returned jobs keep the head of the flow: moving them behind throttled ones would change the order.
        let slot = self.flows[flow as usize].fresh.front()?;
        // The job stays in its flow, before fresh ones. It starts as soon as there is quota, however long its
        // estimate was, and is never denied twice. The flow keeps its place in the order.
        self.flows[flow as usize].fresh.remove(&mut self.jobs, slot);
        let backoff = self.throttle(slot, now);
        self.set_denied(slot, backoff.wait, now);
        let entry = &self.groups[group as usize];
        Some(Denied {
            job: self.jobs[slot as usize].seq,
            group: entry.id.clone(),
            backoff,
            global: (self.limiter.started() + self.ready, self.limiter.limit()),
            share: (
                self.started_by(entry) + u64::from(entry.count(JobState::Ready)),
                self.per_group_limit(),
            ),
        })
    }
}
