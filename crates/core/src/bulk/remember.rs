//! What retention leaves behind: the ids of dropped jobs, until their batch is decided.
//!
//! A client whose stream broke sends the whole batch again. Jobs that ran and were dropped meanwhile must not run again.
//! Batches that nobody opened or named are exempt: they may stay open for ever.

use std::collections::BTreeMap;

use super::Bulk;
use super::command::{DeathReason, JobSeq};
use super::job::{Job, JobState};
use super::list::Slot;
use super::record::{Change, RememberedRecord};

/// Limit: fingerprints in one record.
const PER_RECORD: usize = 1_000;

/// Jobs dropped by one call, per batch.
pub(super) type Dropped = BTreeMap<Slot, Vec<(JobSeq, u128)>>;

impl Bulk {
    /// The undecided batch of the group that has dropped a job with this fingerprint.
    pub(super) fn remembered_by(&self, group: Slot, fingerprint: u128) -> Option<Slot> {
        let batches = &self.groups[group as usize].remembering;
        let remembers = |slot: &&Slot| self.batches[**slot as usize].remembered.contains(&fingerprint);
        batches.iter().find(remembers).copied()
    }

    /// Whether the id of this job is still needed once the job is dropped.
    pub(super) fn outlives_its_job(&self, job: &Job) -> bool {
        let batch = &self.batches[job.batch as usize];
        let free = batch.cancelled && job.state == JobState::Dead && job.death == DeathReason::Cancelled;
        !batch.status.is_finished() && !batch.implicit && !free
    }

    pub(super) fn remember_dropped(&mut self, dropped: Dropped) {
        for (slot, jobs) in dropped {
            let batch = &mut self.batches[slot as usize];
            if batch.remembered.is_empty() {
                self.groups[batch.group as usize].remembering.push(slot);
            }
            for jobs in jobs.chunks(PER_RECORD) {
                let record = RememberedRecord {
                    first: jobs[0].0,
                    batch: batch.seq,
                    fingerprints: jobs.iter().map(|(_, fingerprint)| *fingerprint).collect(),
                };
                batch.remembered.extend(&record.fingerprints);
                batch.remembered_in.push(record.first);
                self.changes.push(Change::Remember(record));
            }
        }
    }

    /// The batch is decided: from here on its ids are known as long as its jobs are kept.
    pub(super) fn forget_dropped(&mut self, slot: Slot) {
        let batch = &mut self.batches[slot as usize];
        if batch.remembered_in.is_empty() {
            return;
        }
        batch.remembered = Default::default();
        let records = std::mem::take(&mut batch.remembered_in);
        let group = batch.group;
        self.groups[group as usize]
            .remembering
            .retain(|&other| other != slot);
        self.changes.push(Change::Forget(records));
    }
}
