//! cancel: ends every job of a group or a batch that is not running, a bounded number per call.

use super::Bulk;
use super::command::{CancelOutcome, CancelParams, DeathReason, Fence, Scope};
use super::job::{Job, JobState};
use super::list::{BATCH, NIL, Slot};
use super::refusal::Refusal;
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn cancel(&mut self, p: CancelParams, now: Timestamp) -> Result<CancelOutcome, Refusal> {
        let batches = match &p.scope {
            Scope::Group(id) => {
                let group = self.find_group(id)?;
                self.groups[group as usize].batches.clone()
            }
            Scope::Batch(group, id) => vec![self.find_batch(group, id)?],
        };
        let mut out = CancelOutcome::default();
        for &slot in &batches {
            self.begin_cancelling(slot, now);
        }
        let mut budget = p.max;
        for &slot in &batches {
            self.cancel_jobs(slot, &mut budget, &mut out, now);
        }
        out.more = batches.iter().any(|&slot| self.is_cancelling(slot));
        Ok(out)
    }

    fn is_cancelling(&self, slot: Slot) -> bool {
        self.cancelling.contains(&(self.batches[slot as usize].seq, slot))
    }

    /// From here on none of its jobs starts: the picker ends every job it finds. Jobs replayed later do start.
    fn begin_cancelling(&mut self, slot: Slot, now: Timestamp) {
        let batch = &self.batches[slot as usize];
        // A batch that is decided or cancelled may have replayed jobs.
        let over = batch.cancelled || !batch.status.is_open();
        if self.is_cancelling(slot) || over && batch.unfinished == 0 {
            return;
        }
        let batch = &mut self.batches[slot as usize];
        batch.cancelled = true;
        batch.cancel_fence = Fence(self.next_fence);
        batch.cancel_cursor = batch.jobs.head;
        self.cancelling.insert((batch.seq, slot));
        if batch.sealed {
            self.put_batch(slot);
        } else {
            self.seal(slot, now);
        }
    }

    /// Whether it, or its batch, was cancelled since the job was accepted or replayed: it must not start again.
    pub(super) fn is_cancelled(&self, job: &Job) -> bool {
        let batch = &self.batches[job.batch as usize];
        batch.cancelled && job.fence < batch.cancel_fence
            || !self.cancelled_jobs.is_empty() && self.was_cancelled_running(job)
    }

    /// Whether the job itself was cancelled while it ran.
    fn was_cancelled_running(&self, job: &Job) -> bool {
        let slot = self.find_job(job.fingerprint);
        slot.is_some_and(|slot| self.cancelled_jobs.contains(&slot))
    }

    /// Continues pending cancellations, including those begun before a restart.
    pub(super) fn continue_cancelling(&mut self, max: u32, now: Timestamp) {
        let mut budget = max;
        while budget > 0
            && let Some(&(_, slot)) = self.cancelling.first()
        {
            self.cancel_jobs(slot, &mut budget, &mut CancelOutcome::default(), now);
        }
    }

    fn cancel_jobs(&mut self, batch: Slot, budget: &mut u32, out: &mut CancelOutcome, now: Timestamp) {
        if !self.is_cancelling(batch) {
            return;
        }
        while *budget > 0 {
            let slot = self.batches[batch as usize].cancel_cursor;
            if slot == NIL {
                self.cancelling.remove(&(self.batches[batch as usize].seq, batch));
                return;
            }
            *budget -= 1;
            self.batches[batch as usize].cancel_cursor = self.jobs[slot as usize].links[BATCH].next;
            match self.jobs[slot as usize].state {
                JobState::Completed | JobState::Dead => {}
                JobState::Running => out.running += 1,
                // Replayed since.
                _ if !self.is_cancelled(&self.jobs[slot as usize]) => {}
                JobState::Waiting | JobState::Ready | JobState::Delayed => {
                    self.detach(slot);
                    self.die(slot, DeathReason::Cancelled, String::new(), now);
                    out.cancelled += 1;
                }
            }
        }
    }
}
