//! drop_finished: deletes finished jobs, batches and idle groups by age, by count over all, and by count per group, oldest first.

use std::collections::BTreeSet;

use super::Bulk;
use super::job::{JobState, Spot};
use super::list::{BATCH, Slot};
use super::record::Change;
use super::remember::Dropped;
use crate::time::{Millis, Timestamp};

#[derive(Debug, Clone, PartialEq)]
pub struct DropFinishedParams {
    pub max: u32,
    /// Drops jobs that finished longer ago than this; the configured age if absent.
    pub older_than: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropFinishedOutcome {
    pub jobs: u32,
    pub batches: u32,
    pub groups: u32,
    pub more: bool,
}

/// How long until a group that cannot be deleted yet is checked again.
const LOOK_AGAIN: Millis = Millis(3_600_000);

impl Bulk {
    pub(super) fn drop_finished(&mut self, p: DropFinishedParams, now: Timestamp) -> DropFinishedOutcome {
        let mut out = DropFinishedOutcome::default();
        let mut budget = p.max;
        let job_age = p.older_than.unwrap_or(self.config.retention.finished_job_ms);
        let mut touched = BTreeSet::new();
        let mut dropped = Dropped::new();
        while budget > 0
            && let Some(slot) = self.next_to_drop(job_age, now)
        {
            budget -= 1;
            out.jobs += 1;
            let job = &self.jobs[slot as usize];
            if self.outlives_its_job(job) {
                let ids = dropped.entry(job.batch).or_default();
                ids.push((job.seq, job.fingerprint));
            }
            touched.insert(self.drop_job(slot, now));
        }
        self.remember_dropped(dropped);
        // An open batch keeps the counts of its deleted jobs; a decided one has them in its record.
        for batch in touched {
            if self.batches[batch as usize].status.is_open() {
                self.put_batch(batch);
            }
        }
        self.drop_batches(&mut budget, &mut out, now);
        self.drop_groups(&mut budget, &mut out, now);
        // A call that found only data that must stay has no reason to continue at once.
        out.more = budget == 0 && out.jobs + out.batches + out.groups > 0;
        out
    }

    /// The finished job to drop next: the oldest of a group that has too many, then the oldest of all.
    fn next_to_drop(&self, age: Millis, now: Timestamp) -> Option<Slot> {
        if let Some(&(_, group)) = self.crowded.first() {
            return self.groups[group as usize].finished.front();
        }
        let &(ended, _, group) = self.finished.first()?;
        let due = now.since(ended) > age || self.finished_jobs > self.config.retention.finished_jobs_max;
        due.then(|| self.groups[group as usize].finished.front())?
    }

    /// Adds a job that has ended to the finished ones of its group.
    pub(super) fn keep_finished(&mut self, slot: Slot) {
        let job = &mut self.jobs[slot as usize];
        job.spot = Spot::Finished;
        let (ended, slot_of_group) = (job.at, self.batches[job.batch as usize].group);
        let group = &mut self.groups[slot_of_group as usize];
        if group.finished.is_empty() {
            self.finished.insert((ended, group.seq, slot_of_group));
        }
        group.finished.push_back(&mut self.jobs, slot);
        self.finished_jobs += 1;
        if u64::from(group.finished.len) > self.config.retention.finished_jobs_max_per_group {
            self.crowded.insert((group.seq, slot_of_group));
        }
    }

    /// Takes a job from the finished ones of its group.
    pub(super) fn take_finished(&mut self, slot: Slot) {
        let slot_of_group = self.batches[self.jobs[slot as usize].batch as usize].group;
        let group = &mut self.groups[slot_of_group as usize];
        let first = group.finished.front();
        group.finished.remove(&mut self.jobs, slot);
        self.finished_jobs -= 1;
        if first == Some(slot) {
            self.finished
                .remove(&(self.jobs[slot as usize].at, group.seq, slot_of_group));
            if let Some(next) = group.finished.front() {
                self.finished
                    .insert((self.jobs[next as usize].at, group.seq, slot_of_group));
            }
        }
        if u64::from(group.finished.len) <= self.config.retention.finished_jobs_max_per_group {
            self.crowded.remove(&(group.seq, slot_of_group));
        }
    }

    /// Deletes one finished job; returns its batch.
    pub(super) fn drop_job(&mut self, slot: Slot, now: Timestamp) -> Slot {
        if self.jobs[slot as usize].spot == Spot::Finished {
            self.take_finished(slot);
        }
        let next = self.jobs[slot as usize].links[BATCH].next;
        let batch = self.jobs[slot as usize].batch;
        let entry = &mut self.batches[batch as usize];
        if entry.cancel_cursor == slot {
            entry.cancel_cursor = next;
        }
        entry.jobs.remove(&mut self.jobs, slot);
        let job = self.jobs.remove(slot as usize);
        self.costs.remove(&slot);
        entry.dropped.total += 1;
        match job.state {
            JobState::Completed => entry.dropped.success += 1,
            _ => {
                entry.dropped.failed += 1;
                self.dead_jobs.remove(&(job.at, job.seq));
            }
        }
        let group = entry.group;
        self.unindex_job(job.fingerprint, slot);
        self.shift(group, Some(job.state), None, now);
        self.changes.push(Change::DropJob(job.seq));
        if let Some(runs) = self.runs.remove(&slot) {
            self.changes.push(Change::DropRuns(job.seq, runs));
        }
        batch
    }

    fn drop_batches(&mut self, budget: &mut u32, out: &mut DropFinishedOutcome, now: Timestamp) {
        let (age, most) = (
            self.config.retention.finished_batch_ms,
            self.config.retention.finished_batches_max,
        );
        let mut candidates = self.finished_batches.len();
        while *budget > 0
            && candidates > 0
            && let Some(&(finished_at, seq, slot)) = self.finished_batches.first()
            && (now.since(finished_at) > age || self.finished_batches.len() as u64 > most)
        {
            *budget -= 1;
            candidates -= 1;
            if self.batches[slot as usize].unfinished > 0 {
                // A replayed job still refers to it.
                self.finished_batches.remove(&(finished_at, seq, slot));
                self.finished_batches.insert((now, seq, slot));
                self.batches[slot as usize].finished_at = Some(now);
                continue;
            }
            if self.drop_jobs_of(slot, budget, out, now) {
                self.finished_batches.remove(&(finished_at, seq, slot));
                self.drop_batch(slot);
                out.batches += 1;
            }
        }
    }

    fn drop_jobs_of(
        &mut self,
        batch: Slot,
        budget: &mut u32,
        out: &mut DropFinishedOutcome,
        now: Timestamp,
    ) -> bool {
        while let Some(job) = self.batches[batch as usize].jobs.front() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            out.jobs += 1;
            self.drop_job(job, now);
        }
        true
    }

    fn drop_batch(&mut self, slot: Slot) {
        self.forget_dropped(slot);
        let batch = self.batches.remove(slot as usize);
        self.batch_slots.remove(&(batch.group, batch.id));
        self.batches_by_seq.remove(&batch.seq);
        self.cancelling.remove(&(batch.seq, slot));
        let group = &mut self.groups[batch.group as usize];
        group.batches.retain(|&other| other != slot);
        if group.open_batch == Some(slot) {
            group.open_batch = None;
        }
        self.changes.push(Change::DropBatch(batch.seq));
    }

    fn drop_groups(&mut self, budget: &mut u32, out: &mut DropFinishedOutcome, now: Timestamp) {
        let (age, most) = (
            self.config.retention.finished_batch_ms,
            self.config.retention.finished_batches_max,
        );
        let mut candidates = self.idle_groups.len();
        while *budget > 0
            && candidates > 0
            && let Some(&(idle_since, seq, slot)) = self.idle_groups.first()
            && (now.since(idle_since) > age || self.idle_groups.len() as u64 > most)
        {
            *budget -= 1;
            candidates -= 1;
            self.idle_groups.remove(&(idle_since, seq, slot));
            // What it started in this window counts for a group of this name that comes at once.
            let limited = self.is_metered(slot);
            let group = &self.groups[slot as usize];
            let unused = |&batch: &Slot| {
                let batch = &self.batches[batch as usize];
                batch.implicit && !batch.sealed && batch.jobs.is_empty()
            };
            let has_settings = group.paused || group.base_priority != 0 || group.limits != Default::default();
            if has_settings
                || limited
                || group.counts.iter().any(|&n| n > 0)
                || !group.batches.iter().all(unused)
            {
                // A group over the count but not over the age moves behind the others, or it would hide them.
                let too_old = now.since(idle_since) > age;
                let again = if too_old { now - age + LOOK_AGAIN } else { now };
                self.groups[slot as usize].idle_since = again;
                self.idle_groups.insert((again, seq, slot));
                continue;
            }
            for batch in group.batches.clone() {
                self.drop_batch(batch);
            }
            let flows = std::mem::take(&mut self.groups[slot as usize].flows);
            for flow in flows {
                let flow_entry = self.flows.remove(flow as usize);
                let queue = &mut self.queues[usize::from(flow_entry.queue)];
                queue.orders[flow_entry.priority as usize].recall(flow, flow_entry.tag);
            }
            self.forget_holds(slot);
            let group = self.groups.remove(slot as usize);
            self.group_slots.remove(&group.id);
            self.groups_by_seq.remove(&group.seq);
            self.changes.push(Change::DropGroup(group.seq));
            out.groups += 1;
        }
    }
}
