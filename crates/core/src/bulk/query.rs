//! query: reads without changing anything.

use super::Bulk;
use super::command::{DeathReason, JobSeq, Priority};
use super::congestion;
use super::group::Group;
use super::job::JobState;
use super::list::{BATCH, NIL, Slot};
use super::record::GroupSeq;
use super::refusal::Refusal;
use super::views::*;
use crate::ids::{BatchId, GroupId, JobId};
use crate::time::Timestamp;

impl Bulk {
    pub(super) fn query(&self, query: Query, now: Timestamp) -> Result<View, Refusal> {
        Ok(match query {
            Query::Group(id) => View::Group(self.group_view(self.find_group(&id)?, now)),
            Query::Groups { after, max } => {
                View::Groups(self.page_of_groups(after, max, |slot| self.group_view(slot, now)))
            }
            Query::Batch(group, batch) => View::Batch(self.batch_view(&group, &batch, now)?),
            Query::Job(group, job) => View::Job(self.job_view(self.find_job_of(&group, &job)?)),
            Query::BatchJobs {
                group,
                batch,
                after,
                max,
            } => View::BatchJobs(self.batch_jobs(&group, &batch, after, max)?),
            Query::Dead { filter, after, max } => View::Dead(self.dead_page(&filter, after, max)),
            Query::BulkStats => View::BulkStats(self.bulk_stats()),
            Query::LimitStatus(group) => View::LimitStatus(self.limit_status(&group)?),
            Query::WhyJob(group, job) => View::Why(self.why_job(self.find_job_of(&group, &job)?, now)),
            Query::WhyGroup(group) => View::Why(self.why_group(self.find_group(&group)?, now)),
            Query::Jobs { filter, after, max } => View::Jobs(self.jobs_page(&filter, after, max)),
            Query::Queues => View::Queues(self.queue_views(now)),
            Query::Backlog => View::Backlog(self.backlog()),
            Query::Limits => View::Limits(self.limits_view()),
            Query::Congestion(group) => View::Congestion(self.congestion_state(self.find_group(&group)?)),
            Query::CongestionSummary { after, max } => {
                View::CongestionSummary(self.congestion_summary(after, max))
            }
            Query::CongestionHistory { group, max } => {
                let history = &self.groups[self.find_group(&group)? as usize].stats.history;
                let skip = history.len().saturating_sub(max as usize);
                View::CongestionHistory(history.iter().skip(skip).copied().collect())
            }
        })
    }

    pub(super) fn find_job_of(&self, group: &GroupId, job: &JobId) -> Result<Slot, Refusal> {
        let slot = self.find_group(group)?;
        self.find_job(self.fingerprint(self.groups[slot as usize].seq, job.as_str()))
            .ok_or_else(|| Refusal::UnknownJob {
                group: group.clone(),
                job: job.clone(),
            })
    }

    fn group_view(&self, slot: Slot, now: Timestamp) -> GroupView {
        let group = &self.groups[slot as usize];
        let counts = state_counts(group.counts.map(u64::from));
        GroupView {
            id: group.id.clone(),
            base_priority: group.base_priority,
            limits: group.limits.clone(),
            paused: group.paused,
            held: group.held.is_some(),
            active: group.is_active(),
            counts,
            batches: group
                .batches
                .iter()
                .map(|&batch| self.batches[batch as usize].id.clone())
                .collect(),
            waiting_since: self.waiting_since(group),
            estimate: self.group_estimate(slot, now),
        }
    }

    /// When the oldest of the first jobs of its flows was accepted. Jobs of a paused batch stay in their flow
    /// until the picker finds them.
    fn waiting_since(&self, group: &Group) -> Option<Timestamp> {
        let firsts = group
            .flows
            .iter()
            .filter_map(|&flow| self.flows[flow as usize].front());
        let created = firsts.map(|slot| self.jobs[slot as usize].created).min();
        created.map(|seconds| Timestamp(u64::from(seconds) * 1_000))
    }

    fn batch_view(&self, group: &GroupId, batch: &BatchId, now: Timestamp) -> Result<BatchView, Refusal> {
        let slot = self.find_batch(group, batch)?;
        let batch = &self.batches[slot as usize];
        Ok(BatchView {
            group: group.clone(),
            id: batch.id.clone(),
            status: batch.status,
            sealed: batch.sealed,
            paused: batch.paused,
            group_paused: self.groups[batch.group as usize].paused,
            cancelled: batch.cancelled,
            counts: batch.counts,
            errors: batch.errors.clone(),
            summary: batch.summary.clone(),
            created_at: batch.created_at,
            finished_at: batch.finished_at,
            callback: batch.options.callback.clone(),
            estimate: self.batch_estimate(slot, now),
        })
    }

    pub(super) fn job_view(&self, slot: Slot) -> JobView {
        let job = &self.jobs[slot as usize];
        let kind = &self.kinds[usize::from(job.kind)];
        // The run that is under way or was the last, unless it failed and was counted.
        let last = match job.state {
            JobState::Running | JobState::Completed => 1,
            JobState::Dead => u32::from(job.death == DeathReason::Failed),
            _ => 0,
        };
        JobView {
            seq: job.seq,
            batch: self.batches[job.batch as usize].id.clone(),
            kind: kind.name.clone(),
            queue: self.queues[usize::from(kind.queue)].name.clone(),
            priority: job.priority,
            state: job.state,
            attempts: u32::from(job.attempts) + last,
            max_attempts: kind.max_retries + 1,
            throttles: u32::from(job.throttles),
            delayed: (job.state == JobState::Delayed).then_some((job.at, job.delay)),
            running: self.leases.get(&job.seq).map(|lease| RunningView {
                started_at: lease.started(),
                worker: lease.owner.clone(),
                progress: lease.progress.clone(),
                cancelled: self.cancelled_jobs.contains(&slot),
            }),
            deadline: (job.state == JobState::Running).then_some(job.at),
            dead: (job.state == JobState::Dead).then_some(job.death),
            finished_at: job.state.is_finished().then_some(job.at),
        }
    }

    /// The cursor is the last job seen; see [`job_cursor`].
    fn batch_jobs(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<JobView>, Refusal> {
        let slot = self.find_batch(group, batch)?;
        let mut next = match after {
            None => self.batches[slot as usize].jobs.head,
            Some(cursor) => {
                let last = (cursor.0 as u64 >> CURSOR_SEQ_BITS) as Slot;
                match self.jobs.get(last as usize) {
                    Some(job) if job.batch == slot && job_cursor(last, job.seq) == cursor => {
                        job.links[BATCH].next
                    }
                    _ => return Err(Refusal::CursorLost),
                }
            }
        };
        let mut page = Page {
            items: Vec::new(),
            next: None,
        };
        while next != NIL {
            page.items.push(self.job_view(next));
            let last = next;
            next = self.jobs[next as usize].links[BATCH].next;
            if page.items.len() as u32 >= max.max(1) {
                page.next = (next != NIL).then(|| job_cursor(last, self.jobs[last as usize].seq));
                break;
            }
        }
        Ok(page)
    }

    fn bulk_stats(&self) -> BulkStats {
        let groups_at = |priority: Priority| {
            self.queues
                .iter()
                .map(|queue| queue.orders[priority as usize].len() as u64)
                .sum::<u64>()
        };
        let [high, normal, low] = Priority::ALL.map(groups_at);
        let remembered = |queue: &super::flow::Queue| {
            queue
                .orders
                .iter()
                .map(|order| order.remembered() as u64)
                .sum::<u64>()
        };
        BulkStats {
            high_priority_groups: high,
            normal_priority_groups: normal,
            low_priority_groups: low,
            total_groups: high + normal + low,
            active_groups: self.active_groups,
            counts: state_counts(self.totals.counts),
            started: self.totals.started,
            most_started_per_window: self.totals.most_started_per_window,
            limit_per_window: self.limiter.rate().most(),
            throttles: self.totals.throttles,
            saved_spins: self.totals.saved_spins,
            groups_in_memory: self.groups.len() as u64,
            batches_in_memory: self.batches.len() as u64,
            flows_in_memory: self.flows.len() as u64,
            tags_remembered: self.queues.iter().map(remembered).sum(),
        }
    }

    fn limit_status(&self, group: &GroupId) -> Result<LimitStatus, Refusal> {
        let group = &self.groups[self.find_group(group)? as usize];
        Ok(LimitStatus {
            global_count: self.limiter.started(),
            global_limit: self.limiter.limit(),
            group_count: self.started_by(group),
            per_group_limit: self.per_group_limit(),
            active_group_count: self.active_groups,
            window_ends: self.limiter.window_end(),
        })
    }

    /// What the group was charged in this window.
    pub(super) fn started_by(&self, group: &Group) -> u64 {
        let (window, length) = (self.limiter.window(), self.limiter.length());
        let rate = group.limits.all.rate.map(|rate| rate.in_windows(length));
        group.meter.turned(rate, window).charged(window)
    }

    fn congestion_state(&self, slot: Slot) -> CongestionState {
        let group = &self.groups[slot as usize];
        let backoff = self.next_backoff(slot);
        CongestionState {
            group: group.id.clone(),
            non_ready_count: u64::from(group.congested),
            rate_limit_speed: self.speed(slot),
            current_backoff_ms: backoff.wait,
            congestion_level: backoff.level,
            total_throttle_count: group.stats.total_throttle_count,
            last_throttle_at: group.stats.last_throttle_at,
            last_backoff_ms: group.stats.last_backoff,
            avg_throttle_per_job: group.stats.avg_throttle_per_job(),
        }
    }

    fn congestion_summary(&self, after: Option<Cursor>, max: u32) -> CongestionSummary {
        let mut worst = (congestion::CongestionLevel::None, None);
        let mut total = 0;
        for &slot in self.groups_by_seq.values() {
            let group = &self.groups[slot as usize];
            total += u64::from(group.congested);
            let level = self.next_backoff(slot).level;
            if group.congested > 0 && level > worst.0 {
                worst = (level, Some(group.id.clone()));
            }
        }
        CongestionSummary {
            active_group_count: self.active_groups,
            total_non_ready_count: total,
            worst_congestion_level: worst.0,
            worst_congestion_group: worst.1,
            groups: self.page_of_groups(after, max, |slot| self.congestion_state(slot)),
        }
    }

    /// Groups in order of creation; the cursor is the number of the last one seen.
    fn page_of_groups<T>(&self, after: Option<Cursor>, max: u32, view: impl Fn(Slot) -> T) -> Page<T> {
        let from = after.map_or(0, |Cursor(last)| (last as u64).saturating_add(1));
        let mut groups = self.groups_by_seq.range(GroupSeq(from)..).peekable();
        let mut page = Page {
            items: Vec::new(),
            next: None,
        };
        while let Some((seq, &slot)) = groups.next() {
            page.items.push(view(slot));
            if page.items.len() as u32 >= max.max(1) {
                page.next = groups.peek().map(|_| Cursor(seq.0.into()));
                break;
            }
        }
        page
    }
}

/// Limit: with a slot of 32 bits a cursor stays below 2^53 and is exact in a double.
const CURSOR_SEQ_BITS: u32 = 21;

/// A job's slot with the low bits of its sequence number. The slab reuses the slot of a dropped job, and such a
/// cursor must not point into the listing.
fn job_cursor(slot: Slot, seq: JobSeq) -> Cursor {
    let mark = seq.0 & ((1 << CURSOR_SEQ_BITS) - 1);
    Cursor((u64::from(slot) << CURSOR_SEQ_BITS | mark).into())
}

fn state_counts([waiting, ready, running, delayed, completed, dead]: [u64; 6]) -> StateCounts {
    StateCounts {
        waiting,
        ready,
        running,
        delayed,
        completed,
        dead,
    }
}
