//! What throttling does to a job: backoff, counters, delayed state.

use super::Bulk;
use super::command::DelayReason;
use super::congestion::{self, Backoff};
use super::job::{JobState, Spot};
use super::list::Slot;
use crate::time::{Millis, Timestamp};

impl Bulk {
    /// The backoff that the next throttled job of the group would get.
    pub(super) fn next_backoff(&self, group: Slot) -> Backoff {
        let ahead = u64::from(self.groups[group as usize].congested);
        congestion::backoff(
            &self.config.congestion,
            self.limiter.length(),
            ahead,
            self.speed(group),
        )
    }

    /// Counts one throttle of the job and returns its backoff.
    pub(super) fn throttle(&mut self, slot: Slot, now: Timestamp) -> Backoff {
        let group = self.flows[self.jobs[slot as usize].flow as usize].group;
        let backoff = self.next_backoff(group);
        let stats = &mut self.groups[group as usize].stats;
        stats.total_throttle_count += 1;
        stats.last_throttle_at = Some(now);
        stats.last_backoff = backoff.wait;
        self.totals.throttles += 1;
        self.totals.saved_spins += backoff.saved_spins(self.config.congestion.base_backoff_ms);
        backoff
    }

    /// Counts a waiting, detached job as denied by the window: delayed, but in its flow.
    pub(super) fn set_denied(&mut self, slot: Slot, wait: Millis, now: Timestamp) {
        let job = &mut self.jobs[slot as usize];
        job.state = JobState::Delayed;
        job.delay = DelayReason::RateLimited;
        job.spot = Spot::Throttled;
        job.at = now + wait;
        let flow = job.flow;
        self.flows[flow as usize]
            .throttled
            .push_back(&mut self.jobs, slot);
        let (group, queue) = (self.flows[flow as usize].group, self.flows[flow as usize].queue);
        self.queues[usize::from(queue)].delayed += 1;
        self.groups[group as usize].congested += 1;
        self.shift(group, Some(JobState::Waiting), Some(JobState::Delayed), now);
    }

    /// Delays a job that was running.
    pub(super) fn delay(&mut self, slot: Slot, due: Timestamp, reason: DelayReason, now: Timestamp) {
        let job = &mut self.jobs[slot as usize];
        job.state = JobState::Delayed;
        job.delay = reason;
        job.at = due;
        let flow = &mut self.flows[job.flow as usize];
        flow.due.add(due);
        let (seq, group, queue) = (job.seq, flow.group, flow.queue);
        self.delayed.insert((due, seq, slot));
        self.queues[usize::from(queue)].delayed += 1;
        self.groups[group as usize].congested += 1;
        self.shift(group, Some(JobState::Running), Some(JobState::Delayed), now);
        self.signals.timer = true;
        self.put_state(slot, None);
    }

    /// Counts a job that leaves the delayed state.
    pub(super) fn uncongest(&mut self, group: Slot, reason: DelayReason) {
        if reason != DelayReason::Scheduled {
            self.groups[group as usize].congested -= 1;
        }
    }
}
