//! replay: requeues a dead job. Never changes a completed batch.

use super::Bulk;
use super::command::{JobSeq, ReplayParams};
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
        if self.batches[batch as usize].cancelled {
            return Err(Refusal::Cancelled(self.batches[batch as usize].id.clone()));
        }
        if job.spot == Spot::Finished {
            self.finished.remove(&mut self.jobs, slot);
        }
        self.dead_jobs.remove(&seq);
        let flow = self.flow(group, self.kinds[usize::from(kind)].queue, priority);
        let job = &mut self.jobs[slot as usize];
        job.flow = flow;
        job.state = JobState::Waiting;
        job.attempts = 0;
        job.at = now;
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
