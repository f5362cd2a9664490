//! lease and extend: leases a job to a worker, with a deadline, an owner and a fencing token; extend also takes its progress.
//!
//! The rate is charged here and only here. Ready jobs go first. When there are too few, the next jobs in fair
//! order skip the ready queue, so a worker never waits for a fetcher.

use super::Bulk;
use super::command::{
    BatchStatus, ExtendParams, Extended, Fence, LeaseOutcome, LeaseParams, LeaseRef, Leased, Stop,
};
use super::job::{JobState, Spot};
use super::list::Slot;
use super::pick::{Pick, Startable, TooMuch, inspections};
use super::record::Change;
use super::run::{LeaseExtension, Progress};
use crate::ids::Owner;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct LeaseEntry {
    pub(super) slot: Slot,
    pub(super) owner: Owner,
    pub(super) started_at: Timestamp,
    /// What the worker reported last.
    pub(super) progress: Option<Progress>,
}

impl LeaseEntry {
    /// None for a lease of a process that ended.
    pub(super) fn started(&self) -> Option<Timestamp> {
        (self.started_at > Timestamp(0)).then_some(self.started_at)
    }
}

impl Bulk {
    pub(super) fn lease(&mut self, p: LeaseParams, now: Timestamp) -> LeaseOutcome {
        self.unhold_due(now);
        // A queue exists from its first job on.
        let Some(&queue) = self.queue_slots.get(&p.queue) else {
            return LeaseOutcome {
                jobs: Vec::new(),
                stop: Stop::Empty,
            };
        };
        self.turn_downstream(queue, now);
        self.queues[usize::from(queue)].asked = now;
        let mut inspections = inspections(p.max);
        let mut jobs = Vec::new();
        let stop = loop {
            if jobs.len() as u32 >= p.max {
                break Stop::Enough;
            }
            match self.next_start(queue, &mut inspections, now) {
                Ok(slot) => jobs.push(self.start(slot, &p.owner, now)),
                Err(stop) => break stop,
            }
        };
        let throughput = &mut self.queues[usize::from(queue)].throughput;
        if stop == Stop::Empty {
            // Its limit is what there is to do.
            throughput.idle(now);
        } else if !jobs.is_empty() {
            throughput.start(jobs.len() as u64, now);
        }
        if !jobs.is_empty() {
            self.changes
                .push(Change::AddLeases(jobs.iter().map(|job| job.lease).collect()));
        }
        LeaseOutcome { jobs, stop }
    }

    /// The next job to start, detached, within every limit.
    fn next_start(&mut self, queue: u16, inspections: &mut u32, now: Timestamp) -> Result<Slot, Stop> {
        while let Some(slot) = self.queues[usize::from(queue)].ready.front() {
            let state = &mut self.queues[usize::from(queue)];
            if self.limiter.room() == 0 || state.room(self.limiter.window(), now) == 0 {
                return Err(self.limited(queue, now));
            }
            if *inspections == 0 {
                return Err(Stop::More);
            }
            *inspections -= 1;
            let group = self.flows[self.jobs[slot as usize].flow as usize].group;
            match self.startable(slot, now) {
                Startable::No(reason) => {
                    self.detach(slot);
                    self.die(slot, reason, String::new(), now);
                }
                Startable::Yes if self.groups[group as usize].paused => self.unready_flow(slot, now),
                Startable::Yes => {
                    let blocked = self.blocked(group, queue, false, now).map(TooMuch::Group);
                    match blocked.or_else(|| self.too_much(slot, false)) {
                        Some(TooMuch::All(until)) => return Err(Stop::Limited { until }),
                        Some(TooMuch::Group(blocked)) => {
                            self.unready_flow(slot, now);
                            self.block(group, queue, blocked);
                        }
                        None => {
                            self.detach(slot);
                            return Ok(slot);
                        }
                    }
                }
                // Back in its flow, where the next pick parks it.
                Startable::BatchPaused => self.unready(slot, now),
            }
        }
        if self.room(queue, now) == 0 {
            return Err(self.limited(queue, now));
        }
        match self.pick(queue, inspections, now) {
            Pick::Job(slot) => Ok(slot),
            Pick::Limited(until) => Err(Stop::Limited { until }),
            Pick::Empty => Err(self.nothing_startable(queue)),
            Pick::More => Err(Stop::More),
        }
    }

    /// Nothing is in the order: either nothing waits, or everything waiting (perhaps in another queue) is at a limit of its
    /// group.
    pub(super) fn nothing_startable(&self, queue: u16) -> Stop {
        let group = self.held_groups.first().map(|&(until, ..)| until);
        let pair = self.next_pair(queue);
        match group.into_iter().chain(pair).min() {
            None => Stop::Empty,
            Some(until) => Stop::Held { until },
        }
    }

    fn start(&mut self, slot: Slot, owner: &Owner, now: Timestamp) -> Leased {
        if self.jobs[slot as usize].state == JobState::Delayed {
            self.set_waiting(slot, now);
        }
        let fence = Fence(self.next_fence);
        self.next_fence += 1;
        let kind = &self.kinds[usize::from(self.jobs[slot as usize].kind)];
        let deadline = now + kind.timeout + self.config.worker_pool.lease_margin_ms;
        let (name, timeout) = (kind.name.clone(), kind.timeout);

        let job = &mut self.jobs[slot as usize];
        let (from, seq, flow, batch) = (job.state, job.seq, job.flow, job.batch);
        job.state = JobState::Running;
        job.spot = Spot::Nowhere;
        job.fence = fence;
        job.at = deadline;
        let attempt = u32::from(job.attempts) + 1;

        let (group, queue, priority) = {
            let flow = &self.flows[flow as usize];
            (flow.group, flow.queue, flow.priority)
        };
        let cost = self.cost(slot);
        self.limiter.charge(cost);
        let state = &mut self.queues[usize::from(queue)];
        state.running += 1;
        state.downstream.start(1, now);
        self.start_pair(group, queue, now);
        self.charge(group, queue, cost);
        let of_flow = &mut self.flows[flow as usize];
        of_flow.throughput.start(1, now);
        if of_flow.len() == 0 {
            of_flow.throughput.idle(now);
        }
        let entry = &mut self.groups[group as usize];
        let group_id = entry.id.clone();
        self.shift(group, Some(from), Some(JobState::Running), now);
        self.deadlines.insert((deadline, seq));
        self.leases.insert(
            seq,
            LeaseEntry {
                slot,
                owner: owner.clone(),
                started_at: now,
                progress: None,
            },
        );
        self.raise_status(batch, BatchStatus::Running);
        self.totals.started += 1;
        let started = self.limiter.started();
        self.totals.most_started_per_window = self.totals.most_started_per_window.max(started);
        Leased {
            lease: LeaseRef { job: seq, fence },
            group: group_id,
            batch: self.batches[batch as usize].id.clone(),
            kind: name,
            priority,
            attempt,
            deadline,
            timeout,
        }
    }

    /// Charges the queue, the group, and the group in the queue.
    pub(super) fn charge(&mut self, group: Slot, queue: u16, cost: u32) {
        let (window, length) = (self.limiter.window(), self.limiter.length());
        let of_pair = self.pair_limit(group, queue).rate;
        let state = &mut self.queues[usize::from(queue)];
        state.meter.charge(Some(state.rate), window, cost);
        let entry = &mut self.groups[group as usize];
        let own = entry.limits.all.rate.map(|rate| rate.in_windows(length));
        entry.meter.charge(own, window, cost);
        entry.pair_of(queue, window).meter.charge(of_pair, window, cost);
    }

    /// The slot of a lease that is still the job's current one.
    pub(super) fn current(&self, lease: LeaseRef) -> Option<Slot> {
        let slot = self.leases.get(&lease.job)?.slot;
        (self.jobs[slot as usize].fence == lease.fence).then_some(slot)
    }

    pub(super) fn extend(&mut self, p: ExtendParams, now: Timestamp) -> Vec<Extended> {
        let until = now + p.by;
        let mut extend = |LeaseExtension { lease, progress }: LeaseExtension| {
            let Some(slot) = self.current(lease) else {
                return Extended::Stale;
            };
            if let (Some(progress), Some(entry)) = (progress, self.leases.get_mut(&lease.job)) {
                entry.progress = Some(progress.bounded());
            }
            let deadline = &mut self.jobs[slot as usize].at;
            self.deadlines.remove(&(*deadline, lease.job));
            *deadline = until;
            self.deadlines.insert((until, lease.job));
            Extended::Until(until)
        };
        p.leases.into_iter().map(&mut extend).collect()
    }
}
