//! replay: another life for a dead job. A completed action is never changed by it.

use super::Bulk;
use super::command::{JobSeq, ReplayParams};
use super::job::{Phase, Spot};
use super::refusal::Refusal;
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn replay(&mut self, p: ReplayParams, now: Timestamp) -> Result<JobSeq, Refusal> {
        let group = self.find_group(&p.group)?;
        let slot = self.find_job_of(&p.group, &p.job)?;
        let job = &self.jobs[slot as usize];
        if job.phase != Phase::Dead {
            return Err(Refusal::NotDead(p.job));
        }
        let (seq, kind, level, action) = (job.seq, job.kind, job.level, job.action);
        if self.actions[action as usize].cancelled {
            return Err(Refusal::Cancelled(self.actions[action as usize].id.clone()));
        }
        if job.spot == Spot::Finished {
            self.finished.remove(&mut self.jobs, slot);
        }
        self.dead_jobs.remove(&seq);
        let line = self.line(group, self.kinds[usize::from(kind)].lane, level);
        let job = &mut self.jobs[slot as usize];
        job.line = line;
        job.phase = Phase::Waiting;
        job.attempts = 0;
        job.at = now;
        self.line_gains(line);
        self.shift(group, Some(Phase::Dead), Some(Phase::Waiting), now);
        let action = &mut self.actions[action as usize];
        action.unfinished += 1;
        if action.status.is_open() {
            action.counts.failed -= 1;
        }
        self.push_returned(slot, now);
        self.put_state(slot, None);
        Ok(seq)
    }
}
