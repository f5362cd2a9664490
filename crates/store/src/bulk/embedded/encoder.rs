//! Encodes the changes of a batch as one atomic write.

use hashbrown::{HashMap, HashSet};
use tidegate_core::bulk::{Bulk, Change, JobSeq};
use tidegate_core::time::Timestamp;
use tidegate_durable::codec::encode;
use tidegate_durable::{Changes, Op, SyncNeed, Table};

use super::codec::{self, Progress, meta_key};
use super::tables::{BATCHES, BLOBS, GROUPS, JOBS, LEASES, META, REMEMBERED, RUNS, STATES};

/// Limit: leases in one record, so that it fits in one piece.
const LEASES_PER_RECORD: usize = 100;

#[derive(Debug)]
pub(super) struct ChangeEncoder {
    /// The last value sent to the committer.
    progress: Progress,
    /// Job → the lease record that contains it.
    leased: HashMap<JobSeq, u64>,
    /// Lease record → how many of its leases are still open.
    open: HashMap<u64, u32>,
    /// Blobs on disk.
    blobs: HashSet<u64>,
    ops: Vec<Op>,
    /// Some of the ops must be on disk before the replies.
    must_sync: bool,
}

impl ChangeEncoder {
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            progress,
            leased: HashMap::new(),
            open: HashMap::new(),
            blobs: HashSet::new(),
            ops: Vec::new(),
            must_sync: false,
        }
    }

    pub(super) fn lease_kept(&mut self, record: u64, job: JobSeq) {
        self.lease_over(job);
        self.leased.insert(job, record);
        *self.open.entry(record).or_default() += 1;
    }

    /// Deletes what an undecided batch remembered, of a batch that is gone or decided.
    pub(super) fn remembered_over(&mut self, record: u64) {
        self.ops.push(Op::Delete(REMEMBERED, record));
    }

    /// Deletes a lease record from before the start that contains no open lease.
    pub(super) fn lease_record_over(&mut self, record: u64) {
        if !self.open.contains_key(&record) {
            self.ops.push(Op::Delete(LEASES, record));
        }
    }

    pub(super) fn blob_kept(&mut self, key: u64) {
        self.blobs.insert(key);
    }

    /// Adds changes to the batch.
    pub(super) fn add(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.must_sync |= !matches!(
                change,
                Change::AddLeases(_) | Change::DropJob(_) | Change::DropRuns(..)
            );
            self.add_one(change);
        }
    }

    fn add_one(&mut self, change: Change) {
        match change {
            Change::PutGroup(group) => self.put(GROUPS, group.seq.0, encode(&group)),
            Change::DropGroup(seq) => self.ops.push(Op::Delete(GROUPS, seq.0)),
            Change::PutBatch(batch) => self.put(BATCHES, batch.seq.0, encode(&batch)),
            Change::DropBatch(seq) => self.ops.push(Op::Delete(BATCHES, seq.0)),
            Change::AddJob(job) => {
                let (record, blob) = codec::encode_job(&job);
                self.put(JOBS, job.seq.0, record);
                self.put_blob(codec::payload_blob(job.seq), blob);
            }
            Change::PutState(seq, state) => {
                let (record, blob) = codec::encode_state(state);
                self.put(STATES, seq.0, record);
                self.put_blob(codec::result_blob(seq), blob);
                self.lease_over(seq);
            }
            Change::AddLeases(leases) => {
                for part in leases.chunks(LEASES_PER_RECORD) {
                    let record = part[0].fence.0;
                    self.put(LEASES, record, codec::encode_leases(part));
                    self.open.insert(record, part.len() as u32);
                    self.leased.extend(part.iter().map(|lease| (lease.job, record)));
                }
            }
            Change::Remember(record) => self.put(REMEMBERED, record.first.0, encode(&record)),
            Change::Forget(records) => {
                let delete = |first: JobSeq| Op::Delete(REMEMBERED, first.0);
                self.ops.extend(records.into_iter().map(delete));
            }
            Change::PutLimits(limits) => {
                self.put(META, meta_key::LIMITS, encode(&limits));
            }
            Change::AddRun(seq, run) => self.put(RUNS, codec::run_key(seq, run.number), encode(&run)),
            Change::DropRuns(seq, recorded) => {
                let delete = |number| Op::Delete(RUNS, codec::run_key(seq, number));
                self.ops.extend(codec::runs_kept(recorded).map(delete));
            }
            Change::DropJob(seq) => {
                self.lease_over(seq);
                self.ops.push(Op::Delete(JOBS, seq.0));
                self.ops.push(Op::Delete(STATES, seq.0));
                for key in [codec::payload_blob(seq), codec::result_blob(seq)] {
                    if self.blobs.remove(&key) {
                        self.ops.push(Op::Delete(BLOBS, key));
                    }
                }
            }
        }
    }

    fn put(&mut self, table: Table, key: u64, value: Vec<u8>) {
        self.ops.push(Op::Put(table, key, value));
    }

    fn put_blob(&mut self, key: u64, blob: Option<Vec<u8>>) {
        if let Some(blob) = blob {
            self.blobs.insert(key);
            self.put(BLOBS, key, blob);
        }
    }

    /// A state was written after the lease. Once that is true for all leases of a record, the record is
    /// obsolete.
    fn lease_over(&mut self, job: JobSeq) {
        let Some(record) = self.leased.remove(&job) else {
            return;
        };
        let Some(open) = self.open.get_mut(&record) else {
            return;
        };
        *open -= 1;
        if *open == 0 {
            self.open.remove(&record);
            self.ops.push(Op::Delete(LEASES, record));
        }
    }

    /// Takes the changes, with the mark of the current window if a lease needs it.
    pub(super) fn take(&mut self, mark: Option<u64>, bulk: &Bulk) -> Changes {
        // A window is marked as used before the reply to its first lease.
        let unmarked = mark.is_some_and(|mark| self.progress.spent_until.0 < mark);
        let must_sync = std::mem::take(&mut self.must_sync) || unmarked;
        let mut changes = Changes {
            ops: std::mem::take(&mut self.ops),
            ..Changes::default()
        };
        if must_sync {
            self.progress = Progress {
                clock: bulk.clock(),
                spent_until: bulk.window_end(),
                next_seq: bulk.next_seq(),
            };
            let progress = encode(&self.progress);
            changes.ops.push(Op::Put(META, meta_key::PROGRESS, progress));
            changes.sync = SyncNeed::AsConfigured;
            changes.mark = Some(self.progress.spent_until.0);
        }
        changes
    }

    /// Every window before this is marked as used once the taken changes are on disk.
    pub(super) fn spent_until(&self) -> Timestamp {
        self.progress.spent_until
    }
}
