//! lease and extend: leases a job to a worker, with a deadline, an owner and a fencing token.
//!
//! The rate is charged here and only here. Ready jobs go first. When there are too few, the next jobs in fair
//! order skip the ready queue, so a worker never waits for a fetcher.

use super::Bulk;
use super::command::{
    BatchStatus, ExtendParams, Extended, Fence, LeaseOutcome, LeaseParams, LeaseRef, Leased, Stop,
};
use super::job::{JobState, Spot};
use super::list::Slot;
use super::pick::{Pick, Startable, UNHOLD_PER_CALL, inspections};
use super::record::Change;
use crate::ids::Owner;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct LeaseEntry {
    pub(super) slot: Slot,
    pub(super) owner: Owner,
    pub(super) started_at: Timestamp,
}

impl Bulk {
    pub(super) fn lease(&mut self, p: LeaseParams, now: Timestamp) -> LeaseOutcome {
        self.unhold_turned(UNHOLD_PER_CALL, now);
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
            let held = self.at_ceiling(group, 0);
            match self.startable(slot, now) {
                Startable::No(reason) => {
                    self.detach(slot);
                    self.die(slot, reason, String::new(), now);
                }
                Startable::Yes if self.groups[group as usize].paused => self.unready_flow(slot, now),
                Startable::Yes if held.is_some() => {
                    self.unready_flow(slot, now);
                    self.hold(group, held.expect("just seen"));
                }
                Startable::Yes => match self.pair_wait(group, queue, now) {
                    Some(until) => {
                        self.unready_flow(slot, now);
                        self.hold_pair(group, queue, until);
                    }
                    None => {
                        self.detach(slot);
                        return Ok(slot);
                    }
                },
                // Back in its flow, where the next pick parks it.
                Startable::BatchPaused => self.unready(slot, now),
            }
        }
        if self.room(queue, now) == 0 {
            return Err(self.limited(queue, now));
        }
        match self.pick(queue, inspections, now) {
            Pick::Job(slot) => Ok(slot),
            Pick::Empty => Err(self.nothing_startable(queue)),
            Pick::More => Err(Stop::More),
        }
    }

    /// Nothing is in the order: either nothing waits, or everything waiting (perhaps in another queue) is at a
    /// ceiling.
    pub(super) fn nothing_startable(&self, queue: u16) -> Stop {
        let turn = (!self.held_until_turn.is_empty()).then(|| self.limiter.window_end());
        let pair = self.next_pair(queue);
        match turn.into_iter().chain(pair).min() {
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
        self.limiter.charge();
        let state = &mut self.queues[usize::from(queue)];
        state.started += 1;
        state.running += 1;
        state.downstream.start(1, now);
        self.start_pair(group, queue, now);
        let of_flow = &mut self.flows[flow as usize];
        of_flow.throughput.start(1, now);
        if of_flow.len() == 0 {
            of_flow.throughput.idle(now);
        }
        let window = self.limiter.window();
        let entry = &mut self.groups[group as usize];
        entry.started = (window, entry.started_in(window) + 1);
        let group_id = entry.id.clone();
        self.shift(group, Some(from), Some(JobState::Running), now);
        self.deadlines.insert((deadline, seq));
        self.leases.insert(
            seq,
            LeaseEntry {
                slot,
                owner: owner.clone(),
                started_at: now,
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

    /// The slot of a lease that is still the job's current one.
    pub(super) fn current(&self, lease: LeaseRef) -> Option<Slot> {
        let slot = self.leases.get(&lease.job)?.slot;
        (self.jobs[slot as usize].fence == lease.fence).then_some(slot)
    }

    pub(super) fn extend(&mut self, p: ExtendParams, now: Timestamp) -> Vec<Extended> {
        let until = now + p.by;
        let mut extend = |lease: LeaseRef| {
            let Some(slot) = self.current(lease) else {
                return Extended::Stale;
            };
            let deadline = &mut self.jobs[slot as usize].at;
            self.deadlines.remove(&(*deadline, lease.job));
            *deadline = until;
            self.deadlines.insert((until, lease.job));
            Extended::Until(until)
        };
        p.leases.into_iter().map(&mut extend).collect()
    }
}
