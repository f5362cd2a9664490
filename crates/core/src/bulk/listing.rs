//! Lists the jobs of the whole store, batch by batch in the order in which batches came, and within a batch in the order of
//! arrival.
//!
//! The cursor names the batch and the sequence number of the last inspected job, whether it matched or not, and the slot where that job
//! was. If the job has been dropped since, the listing finds its place again from the head of the batch. So a job that
//! ends or is dropped meanwhile neither ends a listing nor makes another job appear twice.

use super::Bulk;
use super::job::{Job, JobState};
use super::list::{BATCH, NIL, Slot};
use super::record::BatchSeq;
use super::views::{Cursor, FoundView, JobFilter, Page};
use crate::time::Timestamp;

/// Limit: jobs on one page, whatever the caller requested.
pub const MAX_PAGE: u32 = 1_000;

/// Limit: jobs and batches that one call inspects. A page may be short because of it; `next` shows that there is more.
pub const MAX_INSPECTIONS: u32 = 10_000;

impl Bulk {
    pub(super) fn jobs_page(&self, filter: &JobFilter, after: Option<Cursor>, max: u32) -> Page<FoundView> {
        let max = max.clamp(1, MAX_PAGE) as usize;
        let mut page = Page {
            items: Vec::new(),
            next: None,
        };
        let (mut batch_seq, mut last_slot, mut last_seq) = after.map_or((0, NIL, 0), Cursor::place);
        let mut left = MAX_INSPECTIONS;
        while let Some((seq, batch)) = self.next_batch(filter, BatchSeq(batch_seq)) {
            if seq.0 != batch_seq {
                (batch_seq, last_slot, last_seq) = (seq.0, NIL, 0);
            }
            let mut slot = self.continue_at(batch, last_slot, last_seq);
            if last_seq == 0 && self.nothing_of(filter, batch) {
                slot = NIL;
            }
            left = left.saturating_sub(1);
            while slot != NIL {
                let job = &self.jobs[slot as usize];
                if left == 0 || page.items.len() >= max {
                    page.next = Some(Cursor::of_place(batch_seq, last_slot, last_seq));
                    return page;
                }
                left -= 1;
                if job.seq.0 > last_seq {
                    page.items.extend(self.found_view(filter, slot));
                    last_seq = job.seq.0;
                }
                last_slot = slot;
                slot = job.links[BATCH].next;
            }
            batch_seq += 1;
            (last_slot, last_seq) = (NIL, 0);
            if left == 0 || page.items.len() >= max {
                let more = self.next_batch(filter, BatchSeq(batch_seq));
                page.next = more.map(|_| Cursor::of_place(batch_seq, NIL, 0));
                return page;
            }
        }
        page
    }

    /// The first batch from this number on that the filter can match.
    fn next_batch(&self, filter: &JobFilter, from: BatchSeq) -> Option<(BatchSeq, Slot)> {
        let Some(group) = &filter.group else {
            return self
                .batches_by_seq
                .range(from..)
                .next()
                .map(|(&seq, &slot)| (seq, slot));
        };
        let group = &self.groups[*self.group_slots.get(group)? as usize];
        let batches = group
            .batches
            .iter()
            .map(|&slot| (self.batches[slot as usize].seq, slot));
        batches
            .filter(|&(seq, slot)| {
                let wanted = filter.batch.as_ref();
                seq >= from && wanted.is_none_or(|id| *id == self.batches[slot as usize].id)
            })
            .min()
    }

    /// The job after the last inspected one; from there on those before it are passed over.
    fn continue_at(&self, batch: Slot, last: Slot, last_seq: u64) -> Slot {
        match self.jobs.get(last as usize) {
            Some(job) if job.batch == batch && job.seq.0 <= last_seq => job.links[BATCH].next,
            _ => self.batches[batch as usize].jobs.head,
        }
    }

    /// Whether no job of the batch can match, which saves looking at them.
    fn nothing_of(&self, filter: &JobFilter, batch: Slot) -> bool {
        let unfinished = filter.state.is_some_and(|state| !state.is_finished());
        unfinished && self.batches[batch as usize].unfinished == 0
    }

    /// None if the filter does not match the job.
    fn found_view(&self, filter: &JobFilter, slot: Slot) -> Option<FoundView> {
        let job = &self.jobs[slot as usize];
        let kind = &self.kinds[usize::from(job.kind)];
        let group = self.batches[job.batch as usize].group;
        let matches = filter.kind.as_ref().is_none_or(|wanted| *wanted == kind.name)
            && filter.state.is_none_or(|wanted| wanted == job.state)
            && filter
                .queue
                .as_ref()
                .is_none_or(|wanted| *wanted == self.queues[usize::from(kind.queue)].name)
            && filter.created(Job::created_at(job));
        matches.then(|| FoundView {
            group: self.groups[group as usize].id.clone(),
            job: self.job_view(slot),
        })
    }
}

impl JobFilter {
    /// Whether the filter matches a job that was accepted in this second.
    pub fn created(&self, at: Timestamp) -> bool {
        let seconds = |at: Timestamp| at.0 / 1_000;
        self.created_after
            .is_none_or(|after| seconds(at) >= seconds(after))
            && self
                .created_before
                .is_none_or(|before| seconds(at) < seconds(before))
    }

    /// Whether the filter selects anything less than every job.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a job in this state can match.
    pub fn wants(&self, state: JobState) -> bool {
        self.state.is_none_or(|wanted| wanted == state)
    }
}
