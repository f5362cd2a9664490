//! release_due and expire_leases: transitions driven by time. Bounded per call; a dispatcher calls them.

use super::Bulk;
use super::command::{
    DeathReason, DelayReason, ExpireLeasesOutcome, ExpireLeasesParams, LeaseRef, ReleaseDueOutcome,
    ReleaseDueParams,
};
use super::job::JobState;
use super::list::Slot;
use super::run::RunOutcome;
use crate::time::{Millis, Timestamp};

impl Bulk {
    pub(super) fn release_due(&mut self, p: ReleaseDueParams, now: Timestamp) -> ReleaseDueOutcome {
        self.unhold_due(now);
        let mut out = ReleaseDueOutcome::default();
        while out.released < p.max
            && let Some(&(due, _, slot)) = self.delayed.first()
            && due <= now
        {
            self.detach(slot);
            self.set_waiting(slot, now);
            self.push_returned(slot, now);
            out.released += 1;
        }
        self.expire_waiting(p.max, &mut out, now);
        self.recall_ready(p.max, &mut out, now);
        self.continue_cancelling(p.max, now);
        out.more = !self.cancelling.is_empty();
        let due = self.delayed.first().map(|&(at, ..)| at);
        let expiring = self.expiring.first().map(|&(at, ..)| at);
        let pair = self.held_pairs.first().map(|&(at, ..)| at);
        out.next_due = due.into_iter().chain(expiring).chain(pair).min();
        out
    }

    fn expire_waiting(&mut self, max: u32, out: &mut ReleaseDueOutcome, now: Timestamp) {
        while out.expired < max
            && let Some(&(at, seq, slot)) = self.expiring.first()
            && at <= now
        {
            // A running job stays with its worker; the next pick would see that it has expired.
            self.expiring.remove(&(at, seq, slot));
            if self.jobs[slot as usize].state != JobState::Running {
                self.detach(slot);
                self.die(slot, DeathReason::Expired, String::new(), now);
                out.expired += 1;
            }
        }
    }

    /// Ready jobs reserve starts in the window. If no worker has fetched the first of them for two windows,
    /// they give their reservations back to queues that have workers. The last admitted goes back first, which
    /// keeps the order.
    fn recall_ready(&mut self, max: u32, out: &mut ReleaseDueOutcome, now: Timestamp) {
        let patience = Millis(self.limiter.length().0.saturating_mul(2));
        for queue in 0..self.queues.len() {
            while out.recalled < max
                && let Some(first) = self.queues[queue].ready.front()
                && self.jobs[first as usize].at + patience <= now
                && let Some(last) = self.queues[queue].ready.back()
            {
                self.unready(last, now);
                out.recalled += 1;
            }
        }
    }

    /// A lease ended without an answer: if the call was a probe, another one follows.
    fn lose(&mut self, slot: Slot, started: Timestamp, now: Timestamp) {
        let flow = &self.flows[self.jobs[slot as usize].flow as usize];
        let (group, queue) = (flow.group, flow.queue);
        self.refund_throughput(slot, started);
        self.queues[usize::from(queue)].downstream.lost(started, now);
        self.change_pair(group, queue, now, |pair| pair.lost(started, now));
    }

    pub(super) fn expire_leases(&mut self, p: ExpireLeasesParams, now: Timestamp) -> ExpireLeasesOutcome {
        let mut out = ExpireLeasesOutcome::default();
        while out.delayed + out.dead < p.max
            && let Some(&(deadline, seq)) = self.deadlines.first()
            && deadline <= now
        {
            let slot = self.leases[&seq].slot;
            let fence = self.jobs[slot as usize].fence;
            let lease = self.end_lease(LeaseRef { job: seq, fence }, slot);
            self.lose(slot, lease.started_at, now);
            self.record_run(slot, &lease, RunOutcome::LeaseExpired, String::new(), now);
            let job = &mut self.jobs[slot as usize];
            let attempts = u32::from(job.attempts);
            job.attempts += 1;
            let job = &self.jobs[slot as usize];
            let kind = &self.kinds[usize::from(job.kind)];
            if self.is_cancelled(job) {
                self.die(slot, DeathReason::Cancelled, String::new(), now);
                out.dead += 1;
            } else if attempts >= kind.max_retries {
                let error = format!("no answer from worker {} before its lease ended", lease.owner);
                self.die(slot, DeathReason::AttemptsUsedUp, error, now);
                out.dead += 1;
            } else {
                let due = now + kind.retry_backoff(attempts);
                self.delay(slot, due, DelayReason::LeaseExpired, now);
                out.delayed += 1;
            }
            self.lease_ended(slot, now);
        }
        out.next_deadline = self.deadlines.first().map(|&(at, _)| at);
        out
    }
}
