//! Lists the dead jobs of the whole store, those that died last first.
//!
//! The cursor is the time of death and the sequence number of the last inspected job, whether it matched or not. So a
//! job that dies or is purged meanwhile neither ends a listing nor makes another job appear twice.

use super::Bulk;
use super::command::JobSeq;
use super::list::Slot;
use super::views::{Cursor, DeadFilter, FoundView, Page};
use crate::time::Timestamp;

/// Limit: dead jobs on one page, whatever the caller requested.
pub const MAX_PAGE: u32 = 1_000;

/// Limit: dead jobs that one call inspects. A page may be short because of it; `next` shows that there is more.
pub const MAX_INSPECTIONS: u32 = 10_000;

impl Bulk {
    pub(super) fn dead_page(&self, filter: &DeadFilter, after: Option<Cursor>, max: u32) -> Page<FoundView> {
        let max = max.clamp(1, MAX_PAGE) as usize;
        let before = after.map_or((Timestamp(u64::MAX), JobSeq(u64::MAX)), Cursor::death);
        let mut dead = self.dead_jobs.range(..before).rev().peekable();
        let mut page = Page {
            items: Vec::new(),
            next: None,
        };
        for _ in 0..MAX_INSPECTIONS {
            let Some((&(died_at, seq), &slot)) = dead.next() else {
                break;
            };
            page.items.extend(self.dead_view(filter, slot));
            page.next = dead.peek().map(|_| Cursor::of_death(died_at, seq));
            if page.items.len() >= max {
                break;
            }
        }
        page
    }

    /// Returns None if the filter does not match the job.
    fn dead_view(&self, filter: &DeadFilter, slot: Slot) -> Option<FoundView> {
        let job = &self.jobs[slot as usize];
        let batch = &self.batches[job.batch as usize];
        let group = &self.groups[batch.group as usize].id;
        let kind = &self.kinds[usize::from(job.kind)].name;
        filter.matches(group, kind, job.death).then(|| FoundView {
            group: group.clone(),
            job: self.job_view(slot),
        })
    }
}
