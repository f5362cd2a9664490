//! enqueue: accepts each job exactly once.

use super::Bulk;
use super::command::{
    BatchOptions, DeathReason, DelayReason, EnqueueOutcome, EnqueueParams, Enqueued, Fence, JobSeq, MAX_COST,
    NewJob,
};
use super::group::checked_base_priority;
use super::job::{Job, JobState, Spot};
use super::list::{Links, Slot};
use super::record::{Change, JobRecord};
use super::refusal::{JobRefusal, Refusal};
use crate::ids::{BatchId, GroupId};
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn enqueue(&mut self, p: EnqueueParams, now: Timestamp) -> Result<EnqueueOutcome, Refusal> {
        let (len, max) = (p.jobs.len() as u64, self.config.limits.max_enqueue_batch);
        if len > max {
            return Err(Refusal::TooManyJobs { len, max });
        }
        p.base_priority.map(checked_base_priority).transpose()?;
        let (group, batch) = match self.batch_for(&p.group, p.batch.as_ref(), p.base_priority, now) {
            Ok(found) => found,
            // A client that lost the response sends the same call again, perhaps after sealing.
            Err(refusal) => return self.all_known(&p).ok_or(refusal),
        };
        let mut jobs = Vec::with_capacity(p.jobs.len());
        for job in p.jobs {
            jobs.push(self.enqueue_one(group, batch, job, now));
        }
        for flow in self.groups[group as usize].flows.clone() {
            self.enter_order(flow, now);
        }
        let batch = &self.batches[batch as usize];
        Ok(EnqueueOutcome {
            batch: batch.id.clone(),
            total_jobs: batch.counts.total,
            jobs,
        })
    }

    /// The named batch, or the group's open one; opens it if it does not exist.
    fn batch_for(
        &mut self,
        group_id: &GroupId,
        id: Option<&BatchId>,
        base_priority: Option<i32>,
        now: Timestamp,
    ) -> Result<(Slot, Slot), Refusal> {
        let group = self.find_or_create_group(group_id, base_priority, now)?;
        let found = match id {
            Some(id) => self.batch_slots.get(&(group, id.clone())).copied(),
            None => self.groups[group as usize].open_batch,
        };
        let Some(slot) = found else {
            let implicit = id.is_none();
            let id = match id {
                Some(id) => id.clone(),
                None => self.unused_batch_id(group),
            };
            return Ok((
                group,
                self.create_batch(group, id, BatchOptions::default(), implicit, now),
            ));
        };
        let batch = &self.batches[slot as usize];
        match () {
            () if batch.cancelled => Err(Refusal::Cancelled(batch.id.clone())),
            () if batch.sealed => Err(Refusal::Sealed(batch.id.clone())),
            () => Ok((group, slot)),
        }
    }

    /// Generates an id for a batch that the caller did not name.
    fn unused_batch_id(&self, group: Slot) -> BatchId {
        let mut name = format!("auto-{}", self.next_seq);
        loop {
            let id = BatchId::new(&name).expect("short and not empty");
            if !self.batch_slots.contains_key(&(group, id.clone())) {
                return id;
            }
            name.push('-');
        }
    }

    /// The outcome of a call whose jobs all exist already, whatever has become of their batch.
    fn all_known(&self, p: &EnqueueParams) -> Option<EnqueueOutcome> {
        let slot = *self.group_slots.get(&p.group)?;
        let seq = self.groups[slot as usize].seq;
        // Each with its batch.
        let known = |job: &NewJob| {
            let fingerprint = self.fingerprint(seq, job.id.as_str());
            match self.find_job(fingerprint) {
                Some(job) => Some((self.jobs[job as usize].batch, Some(self.jobs[job as usize].seq))),
                None => Some((self.remembered_by(slot, fingerprint)?, None)),
            }
        };
        let jobs: Option<Vec<(Slot, Option<JobSeq>)>> = p.jobs.iter().map(known).collect();
        let jobs = jobs.filter(|jobs| !jobs.is_empty())?;
        let batch = &self.batches[jobs[0].0 as usize];
        Some(EnqueueOutcome {
            batch: batch.id.clone(),
            total_jobs: batch.counts.total,
            jobs: jobs
                .into_iter()
                .map(|(_, seq)| Enqueued::Duplicate(seq))
                .collect(),
        })
    }

    fn enqueue_one(&mut self, group: Slot, batch: Slot, new: NewJob, now: Timestamp) -> Enqueued {
        let fingerprint = self.fingerprint(self.groups[group as usize].seq, new.id.as_str());
        let known = self.find_job(fingerprint);
        if let Some(slot) = known.filter(|&slot| !self.may_come_again(slot)) {
            return Enqueued::Duplicate(Some(self.jobs[slot as usize].seq));
        }
        if self.remembered_by(group, fingerprint).is_some() {
            return Enqueued::Duplicate(None);
        }
        let kind = match self.acceptable(group, &new, now) {
            Ok(kind) => kind,
            Err(refusal) => return Enqueued::Refused(refusal),
        };
        if let Some(slot) = known {
            let batch = self.drop_job(slot, now);
            if self.batches[batch as usize].status.is_open() {
                self.put_batch(batch);
            }
        }
        let seq = JobSeq(self.give_seq());
        let flow = self.flow(group, self.kinds[usize::from(kind)].queue, new.priority);
        let scheduled = new.run_at.filter(|&at| at > now);
        let slot = self.insert_job(
            Job {
                fingerprint,
                seq,
                fence: Fence(0),
                at: scheduled.unwrap_or(now),
                links: [Links::default(); 2],
                flow,
                batch,
                created: Job::whole_seconds(now),
                kind,
                priority: new.priority,
                attempts: 0,
                throttles: 0,
                state: if scheduled.is_some() {
                    JobState::Delayed
                } else {
                    JobState::Waiting
                },
                spot: Spot::Nowhere,
                delay: DelayReason::Scheduled,
                death: DeathReason::Failed,
                expires: new.expires_at.is_some(),
            },
            new.expires_at,
            now,
        );
        self.set_cost(slot, new.cost);
        self.batches[batch as usize].counts.total += 1;
        match scheduled {
            Some(due) => {
                self.delayed.insert((due, seq, slot));
                let queue = self.kinds[usize::from(kind)].queue;
                self.queues[usize::from(queue)].delayed += 1;
                self.flows[flow as usize].due.add(due);
                self.signals.timer = true;
            }
            None => self.push_fresh(slot),
        }
        self.changes.push(Change::AddJob(JobRecord {
            seq,
            batch: self.batches[batch as usize].seq,
            id: new.id,
            kind: new.kind,
            priority: new.priority,
            created_at: now,
            run_at: new.run_at,
            expires_at: new.expires_at,
            cost: new.cost,
            payload: new.payload,
        }));
        Enqueued::Accepted(seq)
    }

    /// The id of a cancelled job is free again. While its batch may still need it, it is not: a client that repeats a
    /// broken call must not run a job again that an operator cancelled.
    fn may_come_again(&self, slot: Slot) -> bool {
        let job = &self.jobs[slot as usize];
        let batch = &self.batches[job.batch as usize];
        let over = batch.status.is_finished() || batch.cancelled && !batch.options.keep_results;
        over && job.state == JobState::Dead && job.death == DeathReason::Cancelled
    }

    fn acceptable(&mut self, group: Slot, new: &NewJob, now: Timestamp) -> Result<u16, JobRefusal> {
        let limits = &self.config.limits;
        let (len, max) = (new.payload.len() as u64, limits.max_payload_bytes);
        if len > max {
            return Err(JobRefusal::PayloadTooLarge { len, max });
        }
        if !(1..=MAX_COST).contains(&new.cost) {
            return Err(JobRefusal::Cost {
                cost: new.cost,
                max: MAX_COST,
            });
        }
        if self.totals.unfinished() >= limits.max_queued_jobs {
            return Err(JobRefusal::Full {
                max: limits.max_queued_jobs,
            });
        }
        if self.groups[group as usize].unfinished() >= limits.max_queued_jobs_per_group {
            return Err(JobRefusal::GroupFull {
                max: limits.max_queued_jobs_per_group,
            });
        }
        if let Some(expires_at) = new.expires_at
            && expires_at <= new.run_at.unwrap_or(now).max(now)
        {
            return Err(JobRefusal::AlreadyExpired { expires_at });
        }
        self.kind(&new.kind)
    }

    /// Adds an unfinished job to the slab, its indexes and its batch, and counts it.
    pub(super) fn insert_job(&mut self, job: Job, expires_at: Option<Timestamp>, now: Timestamp) -> Slot {
        let (fingerprint, seq, flow, batch, state) =
            (job.fingerprint, job.seq, job.flow, job.batch, job.state);
        let slot = self.jobs.insert(job) as Slot;
        self.index_job(fingerprint, slot);
        if let Some(expires_at) = expires_at {
            self.expiring.insert((expires_at, seq, slot));
            self.expiry.insert(slot, expires_at);
            self.signals.timer = true;
        }
        let entry = &mut self.batches[batch as usize];
        entry.jobs.push_back(&mut self.jobs, slot);
        entry.unfinished += 1;
        entry.last = entry.last.max(seq);
        self.flow_gains(flow);
        let group = self.flows[flow as usize].group;
        self.shift(group, None, Some(state), now);
        slot
    }

    /// Most jobs cost one, and take no memory for it.
    pub(super) fn set_cost(&mut self, slot: Slot, cost: u32) {
        if cost != 1 {
            self.costs.insert(slot, cost);
        }
    }

    pub(super) fn cost(&self, slot: Slot) -> u32 {
        self.costs.get(&slot).copied().unwrap_or(1)
    }

    pub(super) fn push_fresh(&mut self, slot: Slot) {
        let job = &mut self.jobs[slot as usize];
        job.spot = Spot::Fresh;
        self.flows[job.flow as usize]
            .fresh
            .push_back(&mut self.jobs, slot);
    }
}
