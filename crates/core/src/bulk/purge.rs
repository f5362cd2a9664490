//! purge: forgets a dead job at once. Its action counts it as before.
//!
//! A reducer is promised every job of an action that keeps its results, so such an action gives none away before it
//! is decided.

use super::Bulk;
use super::job::Phase;
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
        if job.phase != Phase::Dead {
            return Err(Refusal::NotDead(p.job));
        }
        let action = &self.actions[job.action as usize];
        if action.options.keep_results && !action.status.is_finished() {
            return Err(Refusal::ResultsKept(action.id.clone()));
        }
        let action = self.drop_job(slot, now);
        // The count of an open action lives on after its job; that of a decided one is in its record.
        if self.actions[action as usize].status.is_open() {
            self.put_action(action);
        }
        Ok(())
    }
}
