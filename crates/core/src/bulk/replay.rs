//! replay: requeues a dead job, with all its attempts. Never changes a decided batch.
//!
//! A job of a cancelled batch runs again, too. Its batch stays cancelled.

use super::Bulk;
use super::command::{Fence, JobSeq, ReplayParams};
use super::job::{JobState, Spot};
use super::refusal::Refusal;
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn replay(&mut self, p: ReplayParams, now: Timestamp) -> Result<JobSeq, Refusal> {
        let group = self.find_group(&p.group)?;
        let slot = self.find_job_of(&p.group, &p.job)?;
        let job = &self.jobs[slot as usize];
        if job.state != JobState::Dead {
            return Err(Refusal::NotDead(p.job));
        }
        let (seq, kind, priority, batch) = (job.seq, job.kind, job.priority, job.batch);
        let died_at = job.at;
        if job.spot == Spot::Finished {
            self.take_finished(slot);
        }
        self.dead_jobs.remove(&(died_at, seq));
        let flow = self.flow(group, self.kinds[usize::from(kind)].queue, priority);
        let cancelled = self.batches[batch as usize].cancelled;
        let job = &mut self.jobs[slot as usize];
        job.flow = flow;
        job.state = JobState::Waiting;
        job.attempts = 0;
        job.throttles = 0;
        job.at = now;
        if cancelled {
            // The cancellation was before this.
            job.fence = Fence(self.next_fence);
            self.next_fence += 1;
        }
        self.flow_gains(flow);
        self.shift(group, Some(JobState::Dead), Some(JobState::Waiting), now);
        let batch = &mut self.batches[batch as usize];
        batch.unfinished += 1;
        if batch.status.is_open() {
            batch.counts.failed -= 1;
        }
        self.push_returned(slot, now);
        self.put_state(slot, None);
        Ok(seq)
    }
}
