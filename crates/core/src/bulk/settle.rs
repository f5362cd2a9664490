//! settle: records the outcome of a run. Also holds how a job ends, whoever ends it.

use bytes::Bytes;

use super::Bulk;
use super::command::{
    DeathReason, DelayReason, JobOutcome, LeaseRef, MAX_COST, SettleParams, Settled, Settlement,
};
use super::group::Held;
use super::job::JobState;
use super::lease::LeaseEntry;
use super::list::Slot;
use super::pair::{PairHeld, ThrottleScope};
use super::record::{Change, JobProgress, StoredState};
use crate::limits::downstream::Downstream;
use crate::time::Timestamp;

/// Limit: bytes kept of an error text.
const MAX_ERROR_BYTES: usize = 1_024;

/// Truncates an error text to the kept length.
pub fn cut_error(error: &mut String) {
    if error.len() > MAX_ERROR_BYTES {
        let cut = (0..=MAX_ERROR_BYTES)
            .rev()
            .find(|&i| error.is_char_boundary(i))
            .unwrap_or(0);
        error.truncate(cut);
    }
}

impl Bulk {
    pub(super) fn settle(&mut self, p: SettleParams, now: Timestamp) -> Vec<Settled> {
        p.answers
            .into_iter()
            .map(|answer| self.settle_one(answer, now))
            .collect()
    }

    fn settle_one(&mut self, answer: Settlement, now: Timestamp) -> Settled {
        let Some(slot) = self.current(answer.lease) else {
            return Settled::Stale;
        };
        let lease = self.end_lease(answer.lease, slot);
        self.observe(slot, &answer.outcome, lease.started_at, now);
        self.record_outcome(slot, &lease, &answer.outcome, now);
        self.settle_cost(slot, &answer, lease.started_at);
        let settled = self.carry_out(slot, answer.outcome, &lease, now);
        self.lease_ended(slot, now);
        settled
    }

    /// Takes a job out of the lease indexes; returns what they held.
    pub(super) fn end_lease(&mut self, lease: LeaseRef, slot: Slot) -> LeaseEntry {
        let entry = self.leases.remove(&lease.job).expect("the caller found it");
        self.deadlines.remove(&(self.jobs[slot as usize].at, lease.job));
        let flow = &self.flows[self.jobs[slot as usize].flow as usize];
        let (group, index) = (flow.group, flow.queue);
        let queue = &mut self.queues[usize::from(index)];
        // Somebody may wait for the place.
        self.signals.work |= queue.is_full();
        queue.running -= 1;
        self.end_pair_lease(group, index);
        entry
    }

    /// Releases a group that was held for too many running jobs, everywhere or in the queue.
    pub(super) fn lease_ended(&mut self, slot: Slot, now: Timestamp) {
        let job = &self.jobs[slot as usize];
        let group = self.batches[job.batch as usize].group;
        let queue = self.kinds[usize::from(job.kind)].queue;
        if self.groups[group as usize].held == Some(Held::Running) {
            self.unhold(group, now);
        }
        let held = self.groups[group as usize].pair(queue).and_then(|pair| pair.held);
        if held == Some(PairHeld::Running) {
            self.unhold_pair(group, queue, now);
        }
    }

    /// What an outcome says about the downstream.
    fn observe(&mut self, slot: Slot, outcome: &JobOutcome, started: Timestamp, now: Timestamp) {
        let flow = &self.flows[self.jobs[slot as usize].flow as usize];
        let (group, queue) = (flow.group, flow.queue);
        if !matches!(outcome, JobOutcome::Completed { .. } | JobOutcome::Failed { .. }) {
            self.refund_throughput(slot, started);
        }
        let cap = self.config.backpressure.max_retry_after_ms;
        let enabled = self.is_adaptive();
        let running = u64::from(self.groups[group as usize].count(JobState::Running));
        let entry = &mut self.queues[usize::from(queue)];
        let rps = entry.rps;
        match *outcome {
            JobOutcome::Released => {
                entry.downstream.release();
                self.change_pair(group, queue, now, Downstream::release);
            }
            JobOutcome::Throttled { retry_after, scope } if enabled => {
                let after = retry_after.map(|after| after.min(cap));
                match scope {
                    ThrottleScope::Queue => {
                        entry.downstream.overloaded(started, after, rps, now);
                        self.change_pair(group, queue, now, |pair| pair.lost(started, now));
                    }
                    ThrottleScope::Group => {
                        entry.downstream.answered(started, now);
                        let guess = Downstream::guess(running, started, now).min(rps);
                        self.overload_pair(group, queue, |pair| {
                            pair.overloaded(started, after, guess, now);
                        });
                    }
                }
            }
            JobOutcome::Retry { overloaded: true, .. } if enabled => {
                entry.downstream.overloaded(started, None, rps, now);
                self.change_pair(group, queue, now, |pair| pair.lost(started, now));
            }
            _ => {
                entry.downstream.answered(started, now);
                self.change_pair(group, queue, now, |pair| pair.answered(started, now));
            }
        }
    }

    /// A job that did not run uses up nothing; another one may have used up more or less than its cost.
    fn settle_cost(&mut self, slot: Slot, answer: &Settlement, started: Timestamp) {
        let flow = &self.flows[self.jobs[slot as usize].flow as usize];
        let (group, queue) = (flow.group, flow.queue);
        let charged = self.cost(slot);
        let used = match answer.outcome {
            JobOutcome::Released => 0,
            _ => answer.cost.map_or(charged, |used| used.min(MAX_COST)),
        };
        if used > charged {
            self.limiter.add(used - charged);
            self.charge(group, queue, used - charged);
            return;
        }
        let (less, window) = (charged - used, self.limiter.window());
        if started.0 / self.limiter.length().0 == window {
            self.limiter.refund(less);
            self.queues[usize::from(queue)].meter.refund(window, less);
            self.groups[group as usize].meter.refund(window, less);
            self.refund_pair(group, queue, less);
        }
    }

    /// Why a result is not kept: it is too large.
    pub(super) fn too_large(&self, result: &Bytes) -> Option<String> {
        let (len, max) = (result.len() as u64, self.config.limits.max_result_bytes);
        (len > max).then(|| format!("the result has {len} bytes; at most {max} are allowed"))
    }

    fn carry_out(&mut self, slot: Slot, outcome: JobOutcome, lease: &LeaseEntry, now: Timestamp) -> Settled {
        let job = &self.jobs[slot as usize];
        let kind = &self.kinds[usize::from(job.kind)];
        let attempts = job.attempts;
        let again = !matches!(outcome, JobOutcome::Completed { .. } | JobOutcome::Failed { .. });
        if again && self.is_cancelled(job) {
            let job = &mut self.jobs[slot as usize];
            job.attempts += u16::from(matches!(outcome, JobOutcome::Retry { .. }));
            let throttled = matches!(outcome, JobOutcome::Throttled { .. });
            job.throttles = job.throttles.saturating_add(u16::from(throttled));
            return self.dead(slot, DeathReason::Cancelled, String::new(), now);
        }
        match outcome {
            JobOutcome::Completed { result } => {
                if let Some(error) = self.too_large(&result) {
                    return self.dead(slot, DeathReason::Failed, error, now);
                }
                Settled::Completed {
                    batch_complete: self.done(slot, result, lease, now),
                }
            }
            JobOutcome::Failed { error } => self.dead(slot, DeathReason::Failed, error, now),
            JobOutcome::Throttled { retry_after, .. } => {
                let job = &mut self.jobs[slot as usize];
                job.throttles = job.throttles.saturating_add(1);
                let backoff = self.throttle(slot, now);
                let cap = self.config.backpressure.max_retry_after_ms;
                let until = now + retry_after.map_or(backoff.wait, |after| after.min(cap));
                self.delay(slot, until, DelayReason::ApiThrottled, now);
                Settled::Delayed {
                    until,
                    reason: DelayReason::ApiThrottled,
                }
            }
            JobOutcome::Retry { error, after, .. } => {
                if u32::from(attempts) >= kind.max_retries {
                    self.jobs[slot as usize].attempts += 1;
                    return self.dead(slot, DeathReason::AttemptsUsedUp, error, now);
                }
                let cap = self.config.backpressure.max_retry_after_ms;
                let wait = after.map_or(kind.retry_backoff(u32::from(attempts)), |after| after.min(cap));
                self.jobs[slot as usize].attempts += 1;
                self.delay(slot, now + wait, DelayReason::TransientError, now);
                Settled::Delayed {
                    until: now + wait,
                    reason: DelayReason::TransientError,
                }
            }
            JobOutcome::Released => {
                self.set_waiting(slot, now);
                self.give_back(slot, now);
                self.put_state(slot, None);
                Settled::Released
            }
        }
    }

    fn done(&mut self, slot: Slot, result: Bytes, lease: &LeaseEntry, now: Timestamp) -> bool {
        let throttles = u64::from(self.jobs[slot as usize].throttles);
        let group = self.flows[self.jobs[slot as usize].flow as usize].group;
        let stats = &mut self.groups[group as usize].stats;
        stats.completed += 1;
        stats.completed_throttles += throttles;
        self.finish(slot, JobState::Completed, now);
        let state = StoredState::Completed {
            at: now,
            started_at: lease.started(),
            worker: lease.owner.clone(),
            result,
        };
        self.put_state(slot, Some(state));
        let batch = self.jobs[slot as usize].batch;
        let entry = &mut self.batches[batch as usize];
        if entry.status.is_open() {
            entry.counts.success += 1;
        }
        self.complete_if_done(batch, now)
    }

    fn dead(&mut self, slot: Slot, reason: DeathReason, error: String, now: Timestamp) -> Settled {
        Settled::Dead {
            reason,
            batch_complete: self.die(slot, reason, error, now),
        }
    }

    /// Ends a detached job without success; returns true if that completed its batch.
    pub(super) fn die(&mut self, slot: Slot, reason: DeathReason, mut error: String, now: Timestamp) -> bool {
        cut_error(&mut error);
        if error.is_empty() {
            error = match reason {
                DeathReason::Failed => "failed without a reason",
                DeathReason::AttemptsUsedUp => "attempts used up",
                DeathReason::Expired => "expired before it could start",
                DeathReason::Cancelled => "cancelled",
            }
            .to_owned();
        }
        let batch = self.jobs[slot as usize].batch;
        self.jobs[slot as usize].death = reason;
        self.finish(slot, JobState::Dead, now);
        self.dead_jobs.insert((now, self.jobs[slot as usize].seq), slot);
        let entry = &mut self.batches[batch as usize];
        if entry.status.is_open() {
            entry.counts.failed += 1;
            if reason != DeathReason::Cancelled {
                entry.keep_error(&error);
            }
        }
        self.put_state(
            slot,
            Some(StoredState::Dead {
                at: now,
                reason,
                error,
            }),
        );
        self.complete_if_done(batch, now)
    }

    /// Counts a detached job as finished.
    fn finish(&mut self, slot: Slot, state: JobState, now: Timestamp) {
        if self.jobs[slot as usize].state == JobState::Delayed {
            self.set_waiting(slot, now);
        }
        if let Some(at) = self.expiry.remove(&slot) {
            self.expiring.remove(&(at, self.jobs[slot as usize].seq, slot));
        }
        self.cancelled_jobs.remove(&slot);
        let job = &mut self.jobs[slot as usize];
        let (from, flow, batch) = (job.state, job.flow, job.batch);
        job.state = state;
        job.at = now;
        job.expires = false;
        let group = self.flows[flow as usize].group;
        self.shift(group, Some(from), Some(state), now);
        self.flow_loses(flow);
        let entry = &mut self.batches[batch as usize];
        entry.unfinished -= 1;
        // If the batch keeps its results, its jobs are deleted together with it.
        if !entry.options.keep_results {
            self.keep_finished(slot);
        }
    }

    /// Emits a write of the job's state; `finished` carries what only the caller has.
    pub(super) fn put_state(&mut self, slot: Slot, finished: Option<StoredState>) {
        let job = &self.jobs[slot as usize];
        let state = finished.unwrap_or(match job.state {
            JobState::Delayed => StoredState::Delayed {
                due: job.at,
                reason: job.delay,
            },
            _ => StoredState::Waiting,
        });
        let state = JobProgress {
            attempts: job.attempts,
            throttles: job.throttles,
            runs: self.runs_of(slot),
            fence: job.fence,
            priority: job.priority,
            cancelled: self.cancelled_jobs.contains(&slot),
            expires: job.expires,
            state,
        };
        self.changes.push(Change::PutState(job.seq, state));
    }
}
