//! A batch: one bulk submission of a group. A client opens it, adds jobs and seals it; it is complete when
//! every job is finished.

use bytes::Bytes;
use hashbrown::HashSet;

use super::Bulk;
use super::command::{
    BatchCounts, BatchOptions, BatchStatus, Fence, JobSeq, OpenBatchParams, Opened, SealBatchParams, Sealed,
};
use super::list::{BATCH, List, NIL, QUEUE, Slot};
use super::record::{BatchRecord, BatchSeq, Change};
use super::refusal::Refusal;
use crate::ids::{BatchId, GroupId};
use crate::time::Timestamp;

/// Limit: error texts kept per batch.
const MAX_ERRORS: usize = 10;

/// Limit: bytes of a callback's name.
const MAX_CALLBACK_BYTES: usize = 256;

impl BatchOptions {
    /// Checks that every option is within its range.
    pub fn check(&self) -> Result<(), Refusal> {
        if !(1..=100).contains(&self.failure_threshold_percent) {
            return Err(Refusal::FailureThreshold(self.failure_threshold_percent));
        }
        match self.callback.as_deref().map(str::len) {
            Some(len) if !(1..=MAX_CALLBACK_BYTES).contains(&len) => Err(Refusal::CallbackName {
                len: len as u64,
                max: MAX_CALLBACK_BYTES as u64,
            }),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) seq: BatchSeq,
    /// Its latest job.
    pub(super) last: JobSeq,
    pub(super) group: Slot,
    pub(super) id: BatchId,
    pub(super) options: BatchOptions,
    pub(super) status: BatchStatus,
    pub(super) sealed: bool,
    pub(super) paused: bool,
    pub(super) cancelled: bool,
    /// The cancellation ends the jobs whose fence is smaller: a job replayed after it has a larger one.
    pub(super) cancel_fence: Fence,
    pub(super) implicit: bool,
    pub(super) created_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) counts: BatchCounts,
    /// The part of the counts that belongs to jobs the store no longer keeps.
    pub(super) dropped: BatchCounts,
    pub(super) errors: Vec<String>,
    pub(super) summary: Option<Bytes>,
    /// Whether the aggregator has called the completion callback.
    pub(super) confirmed: bool,
    /// The claim of the current aggregator; nobody else may claim the batch until it expires.
    pub(super) claim: Option<u64>,
    pub(super) claimable_from: Timestamp,
    /// Fingerprints of jobs that retention dropped. Until the batch is decided, a client may send them again.
    pub(super) remembered: HashSet<u128>,
    /// The records that hold them.
    pub(super) remembered_in: Vec<JobSeq>,
    /// Kept jobs, in order of arrival.
    pub(super) jobs: List<BATCH>,
    /// Kept jobs that are not finished.
    pub(super) unfinished: u32,
    /// While paused: jobs taken out of their flows, per flow.
    pub(super) parked: Vec<(Slot, List<QUEUE>)>,
    /// While being cancelled: the next job to inspect.
    pub(super) cancel_cursor: Slot,
}

impl Batch {
    /// Keeps the first distinct errors: a thousand equal ones say no more than one.
    pub(super) fn keep_error(&mut self, error: &str) {
        if self.errors.len() < MAX_ERRORS && !self.errors.iter().any(|kept| kept == error) {
            self.errors.push(error.to_owned());
        }
    }

    pub(super) fn record(&self, group: super::record::GroupSeq) -> BatchRecord {
        BatchRecord {
            seq: self.seq,
            group,
            id: self.id.clone(),
            options: self.options.clone(),
            status: self.status,
            sealed: self.sealed,
            paused: self.paused,
            cancelled: self.cancelled,
            cancel_fence: self.cancel_fence,
            implicit: self.implicit,
            created_at: self.created_at,
            finished_at: self.finished_at,
            counts: if self.status.is_open() {
                self.dropped
            } else {
                self.counts
            },
            errors: self.errors.clone(),
            summary: self.summary.clone(),
            confirmed: self.confirmed,
        }
    }
}

impl Bulk {
    pub(super) fn find_batch(&self, group: &GroupId, batch: &BatchId) -> Result<Slot, Refusal> {
        let slot = self.find_group(group)?;
        self.batch_slots
            .get(&(slot, batch.clone()))
            .copied()
            .ok_or_else(|| Refusal::UnknownBatch {
                group: group.clone(),
                batch: batch.clone(),
            })
    }

    pub(super) fn put_batch(&mut self, slot: Slot) {
        let batch = &self.batches[slot as usize];
        let group = self.groups[batch.group as usize].seq;
        self.changes.push(Change::PutBatch(batch.record(group)));
    }

    pub(super) fn open_batch(&mut self, p: OpenBatchParams, now: Timestamp) -> Result<Opened, Refusal> {
        p.options.check()?;
        let group = self.find_or_create_group(&p.group, p.base_priority, now)?;
        if let Some(&slot) = self.batch_slots.get(&(group, p.batch.clone())) {
            let batch = &self.batches[slot as usize];
            return match () {
                () if !batch.status.is_open() => Err(Refusal::BatchFinished(p.batch)),
                () if batch.cancelled => Err(Refusal::Cancelled(p.batch)),
                () if batch.sealed => Err(Refusal::Sealed(p.batch)),
                () => Ok(Opened::Already),
            };
        }
        self.create_batch(group, p.batch, p.options, false, now);
        Ok(Opened::New)
    }

    pub(super) fn create_batch(
        &mut self,
        group: Slot,
        id: BatchId,
        options: BatchOptions,
        implicit: bool,
        now: Timestamp,
    ) -> Slot {
        let record = BatchRecord {
            seq: BatchSeq(self.give_seq()),
            group: self.groups[group as usize].seq,
            id,
            options,
            status: BatchStatus::Created,
            sealed: false,
            paused: false,
            cancelled: false,
            cancel_fence: Fence(0),
            implicit,
            created_at: now,
            finished_at: None,
            counts: BatchCounts::default(),
            errors: Vec::new(),
            summary: None,
            confirmed: false,
        };
        let slot = self.insert_batch(group, &record);
        self.changes.push(Change::PutBatch(record));
        slot
    }

    pub(super) fn insert_batch(&mut self, group: Slot, record: &BatchRecord) -> Slot {
        let slot = self.batches.insert(Batch {
            seq: record.seq,
            last: JobSeq(0),
            group,
            id: record.id.clone(),
            options: record.options.clone(),
            status: record.status,
            sealed: record.sealed,
            paused: record.paused,
            cancelled: record.cancelled,
            cancel_fence: record.cancel_fence,
            implicit: record.implicit,
            created_at: record.created_at,
            finished_at: record.finished_at,
            counts: record.counts,
            dropped: record.counts,
            errors: record.errors.clone(),
            summary: record.summary.clone(),
            confirmed: record.confirmed,
            claim: None,
            claimable_from: Timestamp(0),
            remembered: HashSet::new(),
            remembered_in: Vec::new(),
            jobs: List::default(),
            unfinished: 0,
            parked: Vec::new(),
            cancel_cursor: NIL,
        }) as Slot;
        self.batch_slots.insert((group, record.id.clone()), slot);
        self.batches_by_seq.insert(record.seq, slot);
        let entry = &mut self.groups[group as usize];
        entry.batches.push(slot);
        if !record.sealed {
            entry.open_batch = Some(slot);
        }
        slot
    }

    pub(super) fn seal_batch(&mut self, p: SealBatchParams, now: Timestamp) -> Result<Sealed, Refusal> {
        let slot = match &p.batch {
            Some(batch) => self.find_batch(&p.group, batch)?,
            None => {
                let group = self.find_group(&p.group)?;
                self.groups[group as usize]
                    .open_batch
                    .ok_or(Refusal::NoOpenBatch(p.group))?
            }
        };
        let batch_complete = self.seal(slot, now);
        let batch = &self.batches[slot as usize];
        Ok(Sealed {
            batch: batch.id.clone(),
            total_jobs: batch.counts.total,
            batch_complete,
        })
    }

    /// Seals the batch; returns true if that completed it.
    pub(super) fn seal(&mut self, slot: Slot, now: Timestamp) -> bool {
        let batch = &mut self.batches[slot as usize];
        if batch.sealed {
            return false;
        }
        batch.sealed = true;
        let group = batch.group;
        let others = self.groups[group as usize].batches.iter().rev().copied();
        let open = others
            .into_iter()
            .find(|&other| !self.batches[other as usize].sealed);
        self.groups[group as usize].open_batch = open;
        let complete = self.complete_if_done(slot, now);
        if !complete {
            self.put_batch(slot);
        }
        complete
    }

    /// The only transition to AGGREGATING: sealed, every job finished, and not aggregating yet.
    pub(super) fn complete_if_done(&mut self, slot: Slot, now: Timestamp) -> bool {
        let batch = &mut self.batches[slot as usize];
        let counts = batch.counts;
        if !batch.sealed || !batch.status.is_open() || counts.success + counts.failed < counts.total {
            return false;
        }
        batch.status = BatchStatus::Aggregating;
        batch.claimable_from = now;
        self.aggregating.insert((now, batch.seq, slot));
        self.signals.aggregate = true;
        self.put_batch(slot);
        true
    }

    /// Raises the status to DISPATCHED or RUNNING; never lowers it.
    pub(super) fn raise_status(&mut self, slot: Slot, status: BatchStatus) {
        let batch = &mut self.batches[slot as usize];
        if batch.status < status {
            batch.status = status;
        }
    }
}
