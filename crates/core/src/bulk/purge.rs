//! purge: deletes a dead job at once. Its batch still counts it.
//!
//! A batch that keeps its results promises every job to the reducer, so it rejects a purge until it is decided.

use super::Bulk;
use super::job::JobState;
use super::refusal::Refusal;
use crate::ids::{GroupId, JobId};
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub struct PurgeParams {
    pub group: GroupId,
    pub job: JobId,
}

impl Bulk {
    pub(super) fn purge(&mut self, p: PurgeParams, now: Timestamp) -> Result<(), Refusal> {
        let slot = self.find_job_of(&p.group, &p.job)?;
        let job = &self.jobs[slot as usize];
        if job.state != JobState::Dead {
            return Err(Refusal::NotDead(p.job));
        }
        let batch = &self.batches[job.batch as usize];
        if batch.options.keep_results && !batch.status.is_finished() {
            return Err(Refusal::ResultsKept(batch.id.clone()));
        }
        let batch = self.drop_job(slot, now);
        // An open batch keeps the count after its job is gone; a decided one has it in its record.
        if self.batches[batch as usize].status.is_open() {
            self.put_batch(batch);
        }
        Ok(())
    }
}
