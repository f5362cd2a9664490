//! The oracle: an independent record of what the store promised.
//!
//! It sees only commands and answers, and panics as soon as an answer contradicts a promise.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_core::bulk::{Fence, JobOutcome, JobSeq, LeaseRef, Priority, Settled};
use tidegate_core::ids::{BatchId, JobId, JobType, QueueId};
use tidegate_core::limits::quota::Limit;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::bulk::{FoundJob, LeasedJob};

#[derive(Debug, Clone)]
pub(super) struct Known {
    seq: JobSeq,
    pub(super) group: u64,
    pub(super) id: JobId,
    pub(super) batch: BatchId,
    kind: JobType,
    priority: Priority,
    cost: u32,
    /// The store promised its position among the first starts of its group, queue and priority.
    in_order: bool,
    started: bool,
    /// The lease that may still be settled.
    pub(super) current: Option<(LeaseRef, Timestamp)>,
    /// Reported as completed: nothing may undo that.
    pub(super) done: bool,
    /// Reported as dead.
    dead: bool,
    /// The store crashed during a settle: it may be completed.
    pub(super) perhaps_done: bool,
    /// Purged, or the store crashed during a purge.
    pub(super) purged: bool,
}

impl Known {
    pub(super) fn seq(&self) -> JobSeq {
        self.seq
    }
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) jobs: BTreeMap<JobSeq, Known>,
    by_id: HashMap<(u64, JobId), JobSeq>,
    /// Starts by window, over the whole history, crashes included.
    starts: HashMap<(Whose, u64), u64>,
    /// The window in which each lease started, and whose starts it counts for.
    windows: HashMap<LeaseRef, (u64, Vec<Whose>)>,
    last_fence: Fence,
    completed: BTreeSet<(u64, BatchId)>,
    pub(super) decided: BTreeSet<(u64, BatchId)>,
    /// Jobs per batch.
    pub(super) accepted: BTreeMap<(u64, BatchId), u64>,
    pub(super) replayed: BTreeSet<(u64, BatchId)>,
    /// The callbacks of the open batches.
    pub(super) callbacks: BTreeMap<(u64, BatchId), Option<String>>,
    /// Groups in which a paused batch changed the order of first starts.
    pub(super) disordered: BTreeSet<u64>,
    pub(super) starts_in_all: u64,
}

/// Whose limit it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    All,
    Queue(QueueId),
    Group(u64),
    /// A group in a queue.
    Pair(u64, QueueId),
}

/// The limits that hold for a start.
pub(super) struct Allowed {
    pub(super) window: Millis,
    pub(super) limits: Vec<(Whose, Limit)>,
}

/// What the oracle learns of an accepted job.
pub(super) struct Accepted<'a> {
    pub(super) group: u64,
    pub(super) id: &'a JobId,
    pub(super) batch: &'a BatchId,
    pub(super) kind: &'a JobType,
    pub(super) priority: Priority,
    pub(super) cost: u32,
    pub(super) in_order: bool,
}

impl Oracle {
    /// `again`: the call was sent before a crash, or this world forgets finished jobs.
    pub(super) fn accept(&mut self, seq: JobSeq, job: Accepted<'_>, again: bool) {
        assert!(
            !self.jobs.contains_key(&seq),
            "number {seq:?} was given out twice"
        );
        let key = (job.group, job.id.clone());
        assert!(
            again || !self.by_id.contains_key(&key),
            "{key:?} was accepted twice"
        );
        let before = self.by_id.insert(key, seq);
        if let Some(before) = before.and_then(|seq| self.jobs.get_mut(&seq)) {
            assert!(
                !before.done || again,
                "{before:?} was answered as done and came again"
            );
            // Cancelled: this one took its place.
            before.purged = true;
        }
        *self.accepted.entry((job.group, job.batch.clone())).or_default() += 1;
        self.jobs.insert(
            seq,
            Known {
                seq,
                group: job.group,
                id: job.id.clone(),
                batch: job.batch.clone(),
                kind: job.kind.clone(),
                priority: job.priority,
                cost: job.cost,
                in_order: job.in_order,
                started: false,
                current: None,
                done: false,
                dead: false,
                perhaps_done: false,
                purged: false,
            },
        );
    }

    /// One lease: of a waiting job, with the highest fence, within the limit, in order.
    pub(super) fn leased(&mut self, job: &LeasedJob, lease_time: Millis, allowed: &Allowed) {
        let LeaseRef { job: seq, fence } = job.leased.lease;
        let at = job.leased.deadline - lease_time;
        assert!(
            fence > self.last_fence,
            "{fence:?} after {:?}: fences must rise",
            self.last_fence
        );
        self.last_fence = fence;

        self.check_limits(job, at, allowed);
        self.starts_in_all += 1;

        let known = self
            .jobs
            .get_mut(&seq)
            .unwrap_or_else(|| panic!("{seq:?} was leased but never accepted"));
        assert_eq!(
            (&known.id, &known.kind),
            (&job.id, &job.leased.kind),
            "{seq:?} is another job"
        );
        assert_eq!(
            job.payload,
            known.id.as_str().as_bytes(),
            "{seq:?} has another payload"
        );
        assert!(!known.done, "{seq:?} was answered as done and leased again");
        assert!(!known.dead, "{seq:?} was answered as dead and leased again");
        if let Some((lease, deadline)) = known.current {
            assert!(
                deadline <= at,
                "{seq:?} is leased twice: {lease:?} runs until {deadline:?}, it is {at:?}"
            );
        }
        known.current = Some((job.leased.lease, job.leased.deadline));
        let first = !std::mem::replace(&mut known.started, true);
        if first && known.in_order {
            let known = known.clone();
            self.check_order(seq, &known);
        }
    }

    /// No limit is exceeded: of the whole system, the queue, the group, and the group in the queue.
    fn check_limits(&mut self, job: &LeasedJob, at: Timestamp, allowed: &Allowed) {
        let number = at.0 / allowed.window.0;
        let lease = job.leased.lease;
        let cost = u64::from(self.jobs.get(&lease.job).map_or(1, |known| known.cost));
        for (whose, limit) in &allowed.limits {
            let starts = self.starts.entry((whose.clone(), number)).or_default();
            *starts += cost;
            let rate = limit.rate.map(|rate| rate.in_windows(allowed.window));
            let rate = rate.map(|rate| (rate.allowed(number), rate.most()));
            // What no window can hold may start in any.
            assert!(
                rate.is_none_or(|(rate, most)| *starts <= rate || cost > most),
                "{starts} starts of {whose:?} in one window at {at:?}; the limit is {limit:?}, {rate:?} in this one"
            );
            let Some(most) = limit.max_running else { continue };
            // Only those that surely run: a lease that was not answered may have ended.
            let running = self.jobs.values().filter_map(|known| known.current);
            let of_it = |lease: &LeaseRef| self.windows[lease].1.contains(whose);
            let running = running.filter(|(other, end)| *end > at && of_it(other)).count();
            assert!(
                running < most as usize,
                "{running} jobs of {whose:?} run at {at:?}, and one more starts; the limit is {most}"
            );
        }
        let whose = allowed.limits.iter().map(|(whose, _)| whose.clone());
        self.windows.insert(lease, (number, whose.collect()));
    }

    /// First starts of one group, queue and priority come in the order of enqueueing. (A type has one queue.)
    fn check_order(&self, seq: JobSeq, started: &Known) {
        if self.disordered.contains(&started.group) {
            return;
        }
        let earlier = self.jobs.range(..seq).find(|(_, other)| {
            !other.started
                && other.in_order
                && !other.dead
                && (other.group, other.priority, &other.kind)
                    == (started.group, started.priority, &started.kind)
        });
        if let Some((other, _)) = earlier {
            panic!("{seq:?} started before {other:?} of the same group, queue and priority");
        }
    }

    /// One settlement: stale exactly when the lease is over.
    pub(super) fn settled(
        &mut self,
        lease: LeaseRef,
        outcome: &JobOutcome,
        settled: Settled,
        used: Option<u32>,
        now: Timestamp,
    ) {
        let known = self.jobs.get_mut(&lease.job).expect("answers are for known jobs");
        let current = known.current.filter(|(current, _)| *current == lease);
        match current {
            None => assert_eq!(settled, Settled::Stale, "{lease:?} was over"),
            Some((_, deadline)) if deadline > now => {
                assert_ne!(
                    settled,
                    Settled::Stale,
                    "{lease:?} runs until {deadline:?}, it is {now:?}"
                );
            }
            Some(_) => {}
        }
        if settled == Settled::Stale {
            return;
        }
        known.current = None;
        let used = if settled == Settled::Released {
            Some(0)
        } else {
            used
        };
        // What was used beyond the cost is not counted here: later windows pay it.
        let less = used.map_or(0, |used| known.cost.saturating_sub(used));
        if less > 0 {
            // Only the store knows whether its window has ended: if so, the start counts, and the next one is checked
            // against a smaller count than need be.
            let (number, whose) = &self.windows[&lease];
            for whose in whose {
                *self.starts.entry((whose.clone(), *number)).or_default() -= u64::from(less);
            }
        }
        let complete = match settled {
            Settled::Completed { batch_complete } => {
                assert!(
                    matches!(outcome, JobOutcome::Completed { .. }),
                    "{outcome:?} gave {settled:?}"
                );
                known.done = true;
                batch_complete
            }
            Settled::Dead { batch_complete, .. } => {
                known.dead = true;
                batch_complete
            }
            Settled::Delayed { .. } | Settled::Released | Settled::Stale => false,
        };
        if complete {
            let batch = (known.group, known.batch.clone());
            assert!(self.completed.insert(batch.clone()), "{batch:?} completed twice");
        }
    }

    /// The store crashed during the settle.
    pub(super) fn unsettled(&mut self, lease: LeaseRef, outcome: &JobOutcome) {
        let known = self.jobs.get_mut(&lease.job).expect("answers are for known jobs");
        known.perhaps_done |= matches!(outcome, JobOutcome::Completed { .. });
    }

    pub(super) fn decided(&mut self, group: u64, batch: BatchId) {
        let key = (group, batch);
        assert!(self.decided.insert(key.clone()), "{key:?} was decided twice");
    }

    pub(super) fn replayed(&mut self, seq: JobSeq) {
        let known = self.jobs.get_mut(&seq).expect("replayed jobs are known");
        known.dead = false;
        known.started = true;
        self.replayed.insert((known.group, known.batch.clone()));
    }

    /// A restart may have lost a lease: it may end at any moment.
    pub(super) fn crashed(&mut self) {
        for (_, deadline) in self.jobs.values_mut().filter_map(|known| known.current.as_mut()) {
            *deadline = Timestamp(0);
        }
    }

    /// The store crashed during a replay.
    pub(super) fn perhaps_replayed(&mut self, seq: JobSeq) {
        let known = self.jobs.get_mut(&seq).expect("a known job");
        if known.dead {
            known.dead = false;
            self.replayed.insert((known.group, known.batch.clone()));
        }
    }

    /// A job in the list of dead jobs: accepted, with its own id and number, and not reported as completed.
    pub(super) fn listed_as_dead(&self, group: u64, dead: &FoundJob) {
        let seq = dead.details.view.seq;
        let known = self.jobs.get(&seq).expect("dead jobs were accepted");
        assert_eq!(
            (known.group, &known.batch, &known.id),
            (group, &dead.details.view.batch, &dead.details.id),
            "{seq:?} is another job"
        );
        assert_eq!(dead.details.payload, known.id.as_str().as_bytes());
        assert!(
            !known.done,
            "{known:?} was answered as done and is listed as dead"
        );
    }

    /// A purge was answered, or the store crashed during it: the id is free again.
    pub(super) fn purged(&mut self, group: u64, id: &JobId) {
        let seq = self.by_id.remove(&(group, id.clone()));
        let known = seq.and_then(|seq| self.jobs.get_mut(&seq));
        if let Some(known) = known {
            assert!(!known.done, "{known:?} was answered as done and is purged");
            known.purged = true;
        }
    }

    /// The lease's deadline is earlier now: it may end at any moment.
    pub(super) fn shortened(&mut self, lease: LeaseRef) {
        let known = self.jobs.get_mut(&lease.job).expect("a known job");
        if let Some((current, deadline)) = &mut known.current
            && *current == lease
        {
            *deadline = Timestamp(0);
        }
    }

    pub(super) fn current_leases(&self) -> Vec<LeaseRef> {
        self.jobs
            .values()
            .filter_map(|known| known.current.map(|(lease, _)| lease))
            .collect()
    }
}
