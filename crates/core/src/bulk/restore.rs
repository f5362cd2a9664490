//! Rebuilds the state machine from the records of a store.
//!
//! Groups first, then batches, then jobs by sequence number, each with its state if it has one. A job that was
//! running when the process ended comes back with an expired lease: the next `expire_leases` counts the attempt
//! and delays it, as for any worker that did not report.

use hashbrown::HashMap;

use super::command::{BatchStatus, DeathReason, DelayReason, Fence, JobSeq, Priority};
use super::config::BulkConfig;
use super::job::{Job, JobState, Spot};
use super::lease::LeaseEntry;
use super::list::{Links, Slot};
use super::record::{
    BatchRecord, BatchSeq, GroupRecord, GroupSeq, JobProgress, LimitsRecord, RememberedRecord, StoredState,
};
use super::{Bulk, FingerprintKey};
use crate::config::ConfigError;
use crate::ids::{JobType, Owner};
use crate::time::{StoreClock, Timestamp};

/// Records that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Config(#[from] ConfigErrorText),
    #[error("batch {batch:?} refers to group {group:?}, which is missing")]
    MissingGroup { batch: BatchSeq, group: GroupSeq },
    #[error("job {job:?} refers to batch {batch:?}, which is missing")]
    MissingBatch { job: JobSeq, batch: BatchSeq },
    #[error("{0} occurs twice")]
    Twice(String),
    #[error("job {0:?} has a name that is empty or too long")]
    BadName(JobSeq),
}

/// [`ConfigError`] as text, so that errors can be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigErrorText(pub String);

impl From<ConfigError> for RestoreError {
    fn from(error: ConfigError) -> Self {
        RestoreError::Config(ConfigErrorText(error.to_string()))
    }
}

/// A job in the store, without its payload.
#[derive(Debug, Clone, Copy)]
pub struct JobHead<'a> {
    pub seq: JobSeq,
    pub batch: BatchSeq,
    pub id: &'a str,
    pub kind: &'a str,
    pub priority: Priority,
    pub created_at: Timestamp,
    pub run_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub cost: u32,
}

#[derive(Debug)]
pub struct Restore {
    bulk: Bulk,
    groups: HashMap<GroupSeq, Slot>,
    batches: HashMap<BatchSeq, Slot>,
    now: Timestamp,
    /// The last type name parsed, so that equal neighbours are not parsed again.
    kind: Option<(JobType, u16)>,
}

impl Restore {
    /// `clock` as it was persisted; `next_fence` must exceed every fencing token ever issued.
    pub fn new(
        config: BulkConfig,
        fingerprint_key: FingerprintKey,
        clock: StoreClock,
        next_fence: Fence,
        wall: Timestamp,
    ) -> Result<Self, RestoreError> {
        let mut bulk = Bulk::new(config, fingerprint_key)?;
        bulk.clock = clock;
        bulk.next_fence = next_fence.0;
        let now = bulk.clock.observe(wall);
        bulk.limiter.turn(now);
        Ok(Self {
            bulk,
            groups: HashMap::new(),
            batches: HashMap::new(),
            now,
            kind: None,
        })
    }

    /// The rates set at run time.
    pub fn limits(&mut self, record: LimitsRecord) {
        self.bulk.put_limits_in_force(record, self.now);
    }

    /// Counts everything before `end` as spent: the starts of the last window are not persisted.
    pub fn spent_until(&mut self, end: Timestamp) {
        self.bulk.limiter.spend_until(end);
    }

    /// Sequence numbers up to here have been assigned.
    pub fn used_seq(&mut self, seq: u64) {
        self.bulk.next_seq = self.bulk.next_seq.max(seq + 1);
    }

    pub fn group(&mut self, record: &GroupRecord) -> Result<(), RestoreError> {
        if self.bulk.group_slots.contains_key(&record.id) {
            return Err(RestoreError::Twice(format!("group {:?}", record.id)));
        }
        self.used_seq(record.seq.0);
        let slot = self.bulk.insert_group(record, self.now);
        self.groups.insert(record.seq, slot);
        Ok(())
    }

    pub fn batch(&mut self, record: &BatchRecord) -> Result<(), RestoreError> {
        self.used_seq(record.seq.0);
        let group = *self.groups.get(&record.group).ok_or(RestoreError::MissingGroup {
            batch: record.seq,
            group: record.group,
        })?;
        if self.bulk.batch_slots.contains_key(&(group, record.id.clone())) {
            return Err(RestoreError::Twice(format!("batch {:?}", record.id)));
        }
        let slot = self.bulk.insert_batch(group, record);
        self.batches.insert(record.seq, slot);
        match record.finished_at {
            Some(at) if record.confirmed => {
                self.bulk.finished_batches.insert((at, record.seq, slot));
            }
            _ if !record.status.is_open() => {
                self.bulk.aggregating.insert((Timestamp(0), record.seq, slot));
            }
            _ => {}
        }
        Ok(())
    }

    /// Jobs that were dropped before their batch was decided. Returns false if nobody needs the record any more.
    pub fn remembered(&mut self, record: &RememberedRecord) -> bool {
        let undecided = |slot: &Slot| !self.bulk.batches[*slot as usize].status.is_finished();
        let Some(slot) = self.batches.get(&record.batch).copied().filter(undecided) else {
            return false;
        };
        let batch = &mut self.bulk.batches[slot as usize];
        if batch.remembered.is_empty() {
            self.bulk.groups[batch.group as usize].remembering.push(slot);
        }
        batch.remembered.extend(&record.fingerprints);
        batch.remembered_in.push(record.first);
        true
    }

    /// `lost_lease`: the job was running when the process ended.
    pub fn job(
        &mut self,
        head: JobHead<'_>,
        state: Option<&JobProgress>,
        lost_lease: Option<Fence>,
    ) -> Result<(), RestoreError> {
        self.used_seq(head.seq.0);
        let batch = *self.batches.get(&head.batch).ok_or(RestoreError::MissingBatch {
            job: head.seq,
            batch: head.batch,
        })?;
        let kind = self.kind(&head)?;
        let expires = state.is_none_or(|state| state.expires);
        let head = JobHead {
            expires_at: head.expires_at.filter(|_| expires),
            priority: state.map_or(head.priority, |state| state.priority),
            ..head
        };
        let group = self.bulk.batches[batch as usize].group;
        let bulk = &mut self.bulk;
        let flow = bulk.flow(group, bulk.kinds[usize::from(kind)].queue, head.priority);
        let fingerprint = bulk.fingerprint(bulk.groups[group as usize].seq, head.id);
        if bulk.find_job(fingerprint).is_some() {
            return Err(RestoreError::Twice(format!("job {:?}", head.id)));
        }
        let mut job = Job {
            fingerprint,
            seq: head.seq,
            fence: state.map_or(Fence(0), |state| state.fence),
            at: self.now,
            links: [Links::default(); 2],
            flow,
            batch,
            created: Job::whole_seconds(head.created_at),
            kind,
            priority: head.priority,
            attempts: state.map_or(0, |state| state.attempts),
            throttles: state.map_or(0, |state| state.throttles),
            state: JobState::Waiting,
            spot: Spot::Nowhere,
            delay: DelayReason::Scheduled,
            death: DeathReason::Failed,
            expires: head.expires_at.is_some(),
        };
        if let Some(fence) = lost_lease.filter(|&fence| fence > job.fence) {
            job.fence = fence;
            job.state = JobState::Running;
            job.at = Timestamp(0);
            let slot = self.insert_lost(job, head);
            self.kept_of(slot, state);
            return Ok(());
        }
        let slot = match state.map(|state| &state.state) {
            Some(&StoredState::Completed { at, .. }) => {
                self.insert_finished(job, JobState::Completed, at, head.cost)
            }
            Some(&StoredState::Dead {
                at,
                reason,
                ref error,
            }) => {
                job.death = reason;
                let batch = &mut self.bulk.batches[batch as usize];
                if batch.status.is_open() && reason != DeathReason::Cancelled {
                    batch.keep_error(error);
                }
                self.insert_finished(job, JobState::Dead, at, head.cost)
            }
            Some(&StoredState::Delayed { due, reason }) => self.insert_delayed(job, head, due, reason),
            Some(StoredState::Waiting) => {
                let slot = self.insert_unfinished(job, head);
                self.bulk.push_returned(slot, self.now);
                slot
            }
            None => match head.run_at.filter(|&at| at > self.now) {
                Some(due) => self.insert_delayed(job, head, due, DelayReason::Scheduled),
                None => {
                    let slot = self.insert_unfinished(job, head);
                    self.bulk.push_fresh(slot);
                    slot
                }
            },
        };
        self.kept_of(slot, state);
        Ok(())
    }

    /// What only some jobs have.
    fn kept_of(&mut self, slot: Slot, state: Option<&JobProgress>) {
        let Some(state) = state else { return };
        if state.runs > 0 {
            self.bulk.runs.insert(slot, state.runs);
        }
        if state.cancelled {
            self.bulk.cancelled_jobs.insert(slot);
        }
    }

    fn kind(&mut self, head: &JobHead<'_>) -> Result<u16, RestoreError> {
        match &self.kind {
            Some((name, kind)) if name.as_str() == head.kind => Ok(*kind),
            _ => {
                let name = JobType::new(head.kind).map_err(|_| RestoreError::BadName(head.seq))?;
                // A job accepted once is accepted again, whatever the configuration says today.
                let known_only = std::mem::replace(&mut self.bulk.config.limits.known_job_types_only, false);
                let kind = self.bulk.kind(&name).map_err(|_| RestoreError::BadName(head.seq));
                self.bulk.config.limits.known_job_types_only = known_only;
                let kind = kind?;
                self.kind = Some((name, kind));
                Ok(kind)
            }
        }
    }

    fn insert_unfinished(&mut self, job: Job, head: JobHead<'_>) -> Slot {
        self.count(job.batch, |counts| counts.total += 1);
        let slot = self.bulk.insert_job(job, head.expires_at, self.now);
        self.bulk.set_cost(slot, head.cost);
        slot
    }

    fn insert_delayed(
        &mut self,
        mut job: Job,
        head: JobHead<'_>,
        due: Timestamp,
        reason: DelayReason,
    ) -> Slot {
        job.state = JobState::Delayed;
        job.delay = reason;
        job.at = due;
        let flow = job.flow as usize;
        let (group, queue) = (self.bulk.flows[flow].group, self.bulk.flows[flow].queue);
        self.bulk.queues[usize::from(queue)].delayed += 1;
        let slot = self.insert_unfinished(job, head);
        self.bulk.flows[flow].due.add(due);
        self.bulk.delayed.insert((due, head.seq, slot));
        if reason != DelayReason::Scheduled {
            self.bulk.groups[group as usize].congested += 1;
        }
        slot
    }

    fn insert_lost(&mut self, job: Job, head: JobHead<'_>) -> Slot {
        let (seq, batch) = (job.seq, job.batch);
        let queue = self.bulk.flows[job.flow as usize].queue;
        self.bulk.queues[usize::from(queue)].running += 1;
        let group = self.bulk.batches[batch as usize].group;
        self.bulk.restore_pair(group, queue);
        let slot = self.insert_unfinished(job, head);
        let owner = Owner::new("of a process that ended").expect("a constant within the limits");
        self.bulk.deadlines.insert((Timestamp(0), seq));
        self.bulk.leases.insert(
            seq,
            LeaseEntry {
                slot,
                owner,
                started_at: Timestamp(0),
                progress: None,
            },
        );
        self.raise(batch, BatchStatus::Running);
        slot
    }

    fn insert_finished(&mut self, mut job: Job, state: JobState, at: Timestamp, cost: u32) -> Slot {
        job.state = state;
        job.at = at;
        job.expires = false;
        let (fingerprint, seq, batch) = (job.fingerprint, job.seq, job.batch);
        let group = self.bulk.batches[batch as usize].group;
        let slot = self.bulk.jobs.insert(job) as Slot;
        self.bulk.set_cost(slot, cost);
        self.bulk.index_job(fingerprint, slot);
        if state == JobState::Dead {
            self.bulk.dead_jobs.insert((at, seq), slot);
        }
        let entry = &mut self.bulk.batches[batch as usize];
        entry.jobs.push_back(&mut self.bulk.jobs, slot);
        self.bulk.shift(group, None, Some(state), self.now);
        self.count(batch, |counts| {
            counts.total += 1;
            match state {
                JobState::Completed => counts.success += 1,
                _ => counts.failed += 1,
            }
        });
        self.raise(batch, BatchStatus::Running);
        slot
    }

    /// Counts of open batches follow from their jobs; decided ones carry theirs.
    fn count(&mut self, batch: Slot, change: impl FnOnce(&mut super::BatchCounts)) {
        let batch = &mut self.bulk.batches[batch as usize];
        if batch.status.is_open() {
            change(&mut batch.counts);
        }
    }

    fn raise(&mut self, batch: Slot, status: BatchStatus) {
        if self.bulk.batches[batch as usize].status.is_open() {
            self.bulk.raise_status(batch, status);
        }
    }

    pub fn finish(mut self) -> Bulk {
        let now = self.now;
        let bulk = &mut self.bulk;
        bulk.finish_restored(now);
        bulk.changes.clear();
        bulk.signals = super::Signals {
            work: true,
            aggregate: true,
            timer: true,
        };
        self.bulk
    }
}

impl Bulk {
    fn finish_restored(&mut self, now: Timestamp) {
        // Finished jobs go to the retention list in the order in which they ended.
        let mut finished: Vec<(Timestamp, JobSeq, Slot)> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.state.is_finished())
            .filter(|(_, job)| !self.batches[job.batch as usize].options.keep_results)
            .map(|(slot, job)| (job.at, job.seq, slot as Slot))
            .collect();
        finished.sort_unstable();
        for (_, _, slot) in finished {
            self.keep_finished(slot);
        }
        // Flows that only finished jobs refer to.
        let unused: Vec<Slot> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.unfinished == 0)
            .map(|(slot, _)| slot as Slot)
            .collect();
        for flow in unused {
            let group = self.flows.remove(flow as usize).group;
            self.groups[group as usize].flows.retain(|&other| other != flow);
        }
        // In order of arrival: the group with the oldest waiting job goes first.
        let mut waiting: Vec<(JobSeq, Slot)> = self
            .flows
            .iter()
            .filter_map(|(slot, flow)| Some((self.jobs[flow.front()? as usize].seq, slot as Slot)))
            .collect();
        waiting.sort_unstable();
        for &(_, flow) in &waiting {
            self.leave_order(flow);
        }
        for (_, flow) in waiting {
            self.enter_order(flow, now);
        }
        for slot in 0..self.batches.capacity() as u32 {
            let Some(batch) = self.batches.get_mut(slot as usize) else {
                continue;
            };
            if batch.cancelled && batch.unfinished > 0 {
                batch.cancel_cursor = batch.jobs.head;
                self.cancelling.insert((batch.seq, slot));
            }
            self.complete_if_done(slot, now);
        }
    }
}
