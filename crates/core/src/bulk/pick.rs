//! Picks what goes next: priority, then flow, then job. Shared by admit and lease.

use super::Bulk;
use super::command::{DeathReason, Fence};
use super::group::{Blocked, Held};
use super::job::{JobState, Spot};
use super::list::{List, NIL, QUEUE, Slot};
use super::pair::PairHeld;
use crate::limits::meter::Meter;
use crate::limits::rate::Rate;
use crate::time::Timestamp;

pub(super) enum Pick {
    Job(Slot),
    /// The next job costs more than the window has left, of the queue or of the whole system.
    Limited(Timestamp),
    /// No waiting job may run.
    Empty,
    /// The call used up its inspections.
    More,
}

/// What has too little room for a job that costs more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooMuch {
    /// The whole system or the queue, until then.
    All(Timestamp),
    /// The group, in all queues or in this one.
    Group(Blocked),
}

/// Whether a job may start, and if not, what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Startable {
    Yes,
    BatchPaused,
    No(DeathReason),
}

/// Limit: inspections of groups and jobs that turn out not to be startable, per call.
pub(super) fn inspections(max: u32) -> u32 {
    max.saturating_mul(10).saturating_add(1_000)
}

/// Limit: groups put back into the order per call after a window has turned.
pub(super) const UNHOLD_PER_CALL: usize = 1_000;

impl Bulk {
    /// Takes the next job of the queue out of its flow. The flow is already charged for it.
    pub(super) fn pick(&mut self, queue: u16, inspections: &mut u32, now: Timestamp) -> Pick {
        let percent = [
            0,
            self.config.fair_queue.normal_min_percent,
            self.config.fair_queue.low_min_percent,
        ];
        loop {
            if *inspections == 0 {
                return Pick::More;
            }
            let state = &self.queues[usize::from(queue)];
            let waits = [0, 1, 2].map(|priority: usize| !state.orders[priority].is_empty());
            let Some(priority) = state.credits.choose(waits) else {
                return Pick::Empty;
            };
            let flow = state.orders[priority as usize]
                .first()
                .expect("a priority that waits has a first flow");
            let group = self.flows[flow as usize].group;
            if let Some(blocked) = self.blocked(group, queue, true, now) {
                self.block(group, queue, blocked);
                *inspections -= 1;
                continue;
            }
            match self.take_startable(flow, inspections, now) {
                Ok(Some(slot)) => {
                    self.queues[usize::from(queue)]
                        .credits
                        .book(priority, waits, percent);
                    self.reenter_order(flow, now);
                    return Pick::Job(slot);
                }
                Ok(None) => {}
                Err(TooMuch::All(until)) => return Pick::Limited(until),
                Err(TooMuch::Group(blocked)) => {
                    self.block(group, queue, blocked);
                    *inspections -= 1;
                }
            }
        }
    }

    /// The first job of the flow that may start; handles those before it that may not. The flow may be gone
    /// afterwards.
    fn take_startable(
        &mut self,
        flow: Slot,
        inspections: &mut u32,
        now: Timestamp,
    ) -> Result<Option<Slot>, TooMuch> {
        while let Some(slot) = self.flows.get(flow as usize).and_then(|flow| flow.front()) {
            if *inspections == 0 {
                return Ok(None);
            }
            match self.startable(slot, now) {
                Startable::Yes => {
                    if let Some(too_much) = self.too_much(slot, true) {
                        return Err(too_much);
                    }
                    self.detach(slot);
                    return Ok(Some(slot));
                }
                Startable::BatchPaused => self.park(slot, now),
                Startable::No(reason) => {
                    self.detach(slot);
                    self.die(slot, reason, String::new(), now);
                }
            }
            *inspections -= 1;
        }
        Ok(None)
    }

    /// What has too little room for this job, if it costs more than one and anything has. With `promised`, ready jobs
    /// start first.
    pub(super) fn too_much(&self, slot: Slot, promised: bool) -> Option<TooMuch> {
        let cost = self.cost(slot);
        if cost == 1 {
            return None;
        }
        let (window, length) = (self.limiter.window(), self.limiter.length());
        let flow = &self.flows[self.jobs[slot as usize].flow as usize];
        let (queue, group) = (
            &self.queues[usize::from(flow.queue)],
            &self.groups[flow.group as usize],
        );
        let ready = |n: u64| if promised { n } else { 0 };
        if !self.limiter.fits(ready(self.ready), cost) {
            return Some(TooMuch::All(self.limiter.until()));
        }
        let next = |meter: &Meter, rate: Rate| self.limiter.start_of(meter.next(rate, window));
        if !queue
            .meter
            .fits(queue.rate, window, ready(u64::from(queue.ready.len)), cost)
        {
            return Some(TooMuch::All(next(&queue.meter, queue.rate)));
        }
        let of_group = ready(u64::from(group.count(JobState::Ready)));
        if let Some(rate) = group.limits.all.rate.map(|rate| rate.in_windows(length))
            && !group.meter.fits(rate, window, of_group, cost)
        {
            let until = next(&group.meter, rate);
            return Some(TooMuch::Group(Blocked::Everywhere(Held::Until(until))));
        }
        let (meter, of_pair) = group
            .pair(flow.queue)
            .map_or((Meter::default(), 0), |pair| (pair.meter, u64::from(pair.ready)));
        if let Some(rate) = self.pair_limit(flow.group, flow.queue).rate
            && !meter.fits(rate, window, ready(of_pair), cost)
        {
            let until = next(&meter, rate);
            return Some(TooMuch::Group(Blocked::InQueue(PairHeld::Until(until))));
        }
        None
    }

    pub(super) fn startable(&self, slot: Slot, now: Timestamp) -> Startable {
        let job = &self.jobs[slot as usize];
        let batch = &self.batches[job.batch as usize];
        match () {
            () if self.is_cancelled(job) => Startable::No(DeathReason::Cancelled),
            () if job.expires && self.expiry.get(&slot).is_some_and(|&at| at <= now) => {
                Startable::No(DeathReason::Expired)
            }
            () if batch.paused => Startable::BatchPaused,
            () => Startable::Yes,
        }
    }

    /// Takes a job out of whatever holds it: flow, parking, ready or the delayed index. Its state stays.
    pub(super) fn detach(&mut self, slot: Slot) {
        let (spot, flow, batch) = {
            let job = &self.jobs[slot as usize];
            (job.spot, job.flow, job.batch)
        };
        let entry = &mut self.flows[flow as usize];
        match spot {
            Spot::Returned => entry.returned.remove(&mut self.jobs, slot),
            Spot::Throttled => entry.throttled.remove(&mut self.jobs, slot),
            Spot::Fresh => entry.fresh.remove(&mut self.jobs, slot),
            Spot::Parked => {
                let parked = &mut self.batches[batch as usize].parked;
                let list = parked
                    .iter_mut()
                    .find(|(of, _)| *of == flow)
                    .expect("a parked job has its list");
                list.1.remove(&mut self.jobs, slot);
            }
            Spot::Ready => {
                self.queues[usize::from(entry.queue)]
                    .ready
                    .remove(&mut self.jobs, slot);
                self.ready -= 1;
                let (group, queue) = (entry.group, entry.queue);
                self.count_ready_in_pair(group, queue, -1);
            }
            Spot::Nowhere => {
                let job = &self.jobs[slot as usize];
                if job.state == JobState::Delayed {
                    self.delayed.remove(&(job.at, job.seq, slot));
                    entry.due.remove(job.at);
                }
            }
            Spot::Finished => unreachable!("a finished job is in no flow"),
        }
        self.jobs[slot as usize].spot = Spot::Nowhere;
        if self.flows[flow as usize].len() == 0 {
            self.leave_order(flow);
        }
    }

    /// Appends an unfinished, detached job to the returned jobs of its flow.
    pub(super) fn push_returned(&mut self, slot: Slot, now: Timestamp) {
        let flow = self.jobs[slot as usize].flow;
        self.jobs[slot as usize].spot = Spot::Returned;
        self.flows[flow as usize].returned.push_back(&mut self.jobs, slot);
        self.enter_order(flow, now);
    }

    /// Puts a job back at the head of its flow. Jobs that were never leased keep their order of arrival among
    /// each other, however many return and in whatever order.
    pub(super) fn give_back(&mut self, slot: Slot, now: Timestamp) {
        let (flow, seq) = (self.jobs[slot as usize].flow, self.jobs[slot as usize].seq);
        self.jobs[slot as usize].spot = Spot::Returned;
        let returned = &mut self.flows[flow as usize].returned;
        let mut next = returned.head;
        while next != NIL && self.jobs[next as usize].fence == Fence(0) && self.jobs[next as usize].seq < seq
        {
            next = self.jobs[next as usize].links[QUEUE].next;
        }
        match next {
            NIL => returned.push_back(&mut self.jobs, slot),
            next => returned.insert_before(&mut self.jobs, next, slot),
        }
        self.enter_order(flow, now);
    }

    /// Moves a job of a paused batch from its flow to the batch's parking.
    fn park(&mut self, slot: Slot, now: Timestamp) {
        self.detach(slot);
        self.set_waiting(slot, now);
        let (flow, batch) = (self.jobs[slot as usize].flow, self.jobs[slot as usize].batch);
        let parked = &mut self.batches[batch as usize].parked;
        let list = match parked.iter_mut().position(|(of, _)| *of == flow) {
            Some(found) => &mut parked[found].1,
            None => {
                parked.push((flow, List::default()));
                &mut parked.last_mut().expect("just pushed").1
            }
        };
        list.push_back(&mut self.jobs, slot);
        self.jobs[slot as usize].spot = Spot::Parked;
    }

    /// Counts a job as waiting, whatever it was before.
    pub(super) fn set_waiting(&mut self, slot: Slot, now: Timestamp) {
        let job = &self.jobs[slot as usize];
        let (from, flow, delay) = (job.state, job.flow, job.delay);
        if from == JobState::Waiting {
            return;
        }
        let group = self.flows[flow as usize].group;
        if from == JobState::Delayed {
            self.uncongest(group, delay);
            let queue = self.flows[flow as usize].queue;
            self.queues[usize::from(queue)].delayed -= 1;
        }
        self.jobs[slot as usize].state = JobState::Waiting;
        self.shift(group, Some(from), Some(JobState::Waiting), now);
    }

    /// Moves a ready job back to the head of its flow and reverts its pick.
    pub(super) fn unready(&mut self, slot: Slot, now: Timestamp) {
        let flow = self.jobs[slot as usize].flow;
        self.detach(slot);
        self.set_waiting(slot, now);
        self.leave_order(flow);
        self.refund_pick(flow);
        self.give_back(slot, now);
    }

    /// Moves back all ready jobs of the flow that `slot` belongs to: those behind it must not overtake it. The last one
    /// goes first, so that they keep the order in which they were picked.
    pub(super) fn unready_flow(&mut self, slot: Slot, now: Timestamp) {
        let flow = self.jobs[slot as usize].flow;
        let ready = &self.queues[usize::from(self.flows[flow as usize].queue)].ready;
        let mut of_flow = Vec::new();
        let mut next = ready.head;
        while next != NIL {
            if self.jobs[next as usize].flow == flow {
                of_flow.push(next);
            }
            next = self.jobs[next as usize].links[QUEUE].next;
        }
        for slot in of_flow.into_iter().rev() {
            self.unready(slot, now);
        }
    }
}
