//! enqueue: accepts jobs, once each.

use super::Bulk;
use super::command::{
    ActionOptions, DeathReason, DelayReason, EnqueueOutcome, EnqueueParams, Enqueued, Fence, JobSeq, NewJob,
};
use super::group::checked_base_priority;
use super::job::{Job, Phase, Spot};
use super::list::{Links, Slot};
use super::record::{Change, JobRecord};
use super::refusal::{JobRefusal, Refusal};
use crate::ids::{ActionId, GroupId};
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn enqueue(&mut self, p: EnqueueParams, now: Timestamp) -> Result<EnqueueOutcome, Refusal> {
        let (len, max) = (p.jobs.len() as u64, self.config.limits.max_enqueue_batch);
        if len > max {
            return Err(Refusal::TooManyJobs { len, max });
        }
        p.base_priority.map(checked_base_priority).transpose()?;
        let (group, action) = match self.action_for(&p.group, p.action.as_ref(), p.base_priority, now) {
            Ok(found) => found,
            // A client that did not hear the answer sends the same again, perhaps after sealing.
            Err(refusal) => return self.all_known(&p).ok_or(refusal),
        };
        let mut jobs = Vec::with_capacity(p.jobs.len());
        for job in p.jobs {
            jobs.push(self.enqueue_one(group, action, job, now));
        }
        for line in self.groups[group as usize].lines.clone() {
            self.enter_order(line, now);
        }
        let action = &self.actions[action as usize];
        Ok(EnqueueOutcome {
            action: action.id.clone(),
            total_jobs: action.counts.total,
            jobs,
        })
    }

    /// The named action, or the group's open one; opened if it does not exist.
    fn action_for(
        &mut self,
        group_id: &GroupId,
        id: Option<&ActionId>,
        base_priority: Option<i32>,
        now: Timestamp,
    ) -> Result<(Slot, Slot), Refusal> {
        let group = self.find_or_create_group(group_id, base_priority, now)?;
        let found = match id {
            Some(id) => self.action_slots.get(&(group, id.clone())).copied(),
            None => self.groups[group as usize].open_action,
        };
        let Some(slot) = found else {
            let implicit = id.is_none();
            let id = match id {
                Some(id) => id.clone(),
                None => self.unused_action_id(group),
            };
            return Ok((
                group,
                self.create_action(group, id, ActionOptions::default(), implicit, now),
            ));
        };
        let action = &self.actions[slot as usize];
        match () {
            () if action.cancelled => Err(Refusal::Cancelled(action.id.clone())),
            () if action.sealed => Err(Refusal::Sealed(action.id.clone())),
            () => Ok((group, slot)),
        }
    }

    /// A name for an action that nobody has named.
    fn unused_action_id(&self, group: Slot) -> ActionId {
        let mut name = format!("auto-{}", self.next_seq);
        loop {
            let id = ActionId::new(&name).expect("short and not empty");
            if !self.action_slots.contains_key(&(group, id.clone())) {
                return id;
            }
            name.push('-');
        }
    }

    /// The answer to a call whose jobs are all there already, whatever has become of their action.
    fn all_known(&self, p: &EnqueueParams) -> Option<EnqueueOutcome> {
        let slot = *self.group_slots.get(&p.group)?;
        let seq = self.groups[slot as usize].seq;
        let known = |job: &NewJob| self.find_job(self.fingerprint(seq, job.id.as_str()));
        let jobs: Option<Vec<Slot>> = p.jobs.iter().map(known).collect();
        let jobs = jobs.filter(|jobs| !jobs.is_empty())?;
        let action = &self.actions[self.jobs[jobs[0] as usize].action as usize];
        let duplicate = |slot: Slot| Enqueued::Duplicate(self.jobs[slot as usize].seq);
        Some(EnqueueOutcome {
            action: action.id.clone(),
            total_jobs: action.counts.total,
            jobs: jobs.into_iter().map(duplicate).collect(),
        })
    }

    fn enqueue_one(&mut self, group: Slot, action: Slot, new: NewJob, now: Timestamp) -> Enqueued {
        let fingerprint = self.fingerprint(self.groups[group as usize].seq, new.id.as_str());
        if let Some(slot) = self.find_job(fingerprint) {
            return Enqueued::Duplicate(self.jobs[slot as usize].seq);
        }
        let kind = match self.acceptable(&new, now) {
            Ok(kind) => kind,
            Err(refusal) => return Enqueued::Refused(refusal),
        };
        let seq = JobSeq(self.give_seq());
        let line = self.line(group, self.kinds[usize::from(kind)].lane, new.level);
        let scheduled = new.run_at.filter(|&at| at > now);
        let slot = self.insert_job(
            Job {
                fingerprint,
                seq,
                fence: Fence(0),
                at: scheduled.unwrap_or(now),
                links: [Links::default(); 2],
                line,
                action,
                created: Job::whole_seconds(now),
                kind,
                level: new.level,
                attempts: 0,
                throttles: 0,
                phase: if scheduled.is_some() {
                    Phase::Delayed
                } else {
                    Phase::Waiting
                },
                spot: Spot::Nowhere,
                delay: DelayReason::Scheduled,
                death: DeathReason::Failed,
                expires: new.expires_at.is_some(),
            },
            new.expires_at,
            now,
        );
        self.actions[action as usize].counts.total += 1;
        match scheduled {
            Some(due) => {
                self.delayed.insert((due, seq, slot));
                self.signals.timer = true;
            }
            None => self.push_fresh(slot),
        }
        self.changes.push(Change::AddJob(JobRecord {
            seq,
            action: self.actions[action as usize].seq,
            id: new.id,
            kind: new.kind,
            level: new.level,
            created_at: now,
            run_at: new.run_at,
            expires_at: new.expires_at,
            payload: new.payload,
        }));
        Enqueued::Accepted(seq)
    }

    fn acceptable(&mut self, new: &NewJob, now: Timestamp) -> Result<u16, JobRefusal> {
        let limits = &self.config.limits;
        let (len, max) = (new.payload.len() as u64, limits.max_payload_bytes);
        if len > max {
            return Err(JobRefusal::PayloadTooLarge { len, max });
        }
        if self.totals.unfinished() >= limits.max_queued_jobs {
            return Err(JobRefusal::Full {
                max: limits.max_queued_jobs,
            });
        }
        if let Some(expires_at) = new.expires_at
            && expires_at <= new.run_at.unwrap_or(now).max(now)
        {
            return Err(JobRefusal::AlreadyExpired { expires_at });
        }
        self.kind(&new.kind)
    }

    /// Puts an unfinished job into the slab, its indexes and its action, and counts it.
    pub(super) fn insert_job(&mut self, job: Job, expires_at: Option<Timestamp>, now: Timestamp) -> Slot {
        let (fingerprint, seq, line, action, phase) =
            (job.fingerprint, job.seq, job.line, job.action, job.phase);
        let slot = self.jobs.insert(job) as Slot;
        self.index_job(fingerprint, slot);
        if let Some(expires_at) = expires_at {
            self.expiring.insert((expires_at, seq, slot));
            self.expiry.insert(slot, expires_at);
            self.signals.timer = true;
        }
        let entry = &mut self.actions[action as usize];
        entry.jobs.push_back(&mut self.jobs, slot);
        entry.unfinished += 1;
        self.line_gains(line);
        let group = self.lines[line as usize].group;
        self.shift(group, None, Some(phase), now);
        slot
    }

    pub(super) fn push_fresh(&mut self, slot: Slot) {
        let job = &mut self.jobs[slot as usize];
        job.spot = Spot::Fresh;
        self.lines[job.line as usize]
            .fresh
            .push_back(&mut self.jobs, slot);
    }
}
