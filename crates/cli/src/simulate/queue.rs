//! The real queue in virtual time: one queue, and workers that take ready jobs, as the engine drives it.

use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    AdmitParams, Bulk, CancelParams, DropFinishedParams, EnqueueParams, JobOutcome, LeaseOutcome,
    LeaseParams, LeaseRef, NewJob, Priority, ReleaseDueParams, Scope, SettleParams, Settlement, Stop,
    default_queue,
};
use tidegate_core::ids::{GroupId, JobId, JobType, Owner};
use tidegate_core::time::Timestamp;

/// The fingerprint key of a store is a secret against crafted ids; nobody crafts ids here.
const FINGERPRINT_KEY: (u64, u64) = (0, 0);

#[derive(Debug)]
pub(super) struct Queue {
    bulk: Bulk,
    kind: JobType,
    owner: Owner,
}

impl Queue {
    pub(super) fn new(config: BulkConfig) -> anyhow::Result<Self> {
        Ok(Self {
            bulk: Bulk::new(config, FINGERPRINT_KEY)?,
            kind: JobType::new("simulated")?,
            owner: Owner::new("simulated-workers")?,
        })
    }

    fn config(&self) -> &BulkConfig {
        self.bulk.config()
    }

    pub(super) fn enqueue(&mut self, group: &str, jobs: u64, now: Timestamp) -> anyhow::Result<()> {
        self.enqueue_from(group, 0, jobs, now)
    }

    /// Enqueues `jobs` more jobs of the group, numbered from `first` on.
    pub(super) fn enqueue_from(
        &mut self,
        group: &str,
        first: u64,
        jobs: u64,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let chunk = self.config().limits.max_enqueue_batch;
        let (mut next, end) = (first, first + jobs);
        while next < end {
            let until = end.min(next + chunk);
            let chunk: Result<Vec<NewJob>, _> = (next..until).map(|n| self.job(n)).collect();
            let params = EnqueueParams {
                group: GroupId::new(group)?,
                batch: None,
                base_priority: None,
                jobs: chunk?,
            };
            self.bulk.call(params, now)?;
            self.forget_changes();
            next = until;
        }
        Ok(())
    }

    fn job(&self, number: u64) -> anyhow::Result<NewJob> {
        Ok(NewJob {
            id: JobId::new(number.to_string())?,
            kind: self.kind.clone(),
            priority: Priority::Normal,
            payload: Bytes::new(),
            run_at: None,
            expires_at: None,
            cost: 1,
        })
    }

    /// Cancels every job of the group that has not started.
    pub(super) fn cancel(&mut self, group: &str, now: Timestamp) -> anyhow::Result<()> {
        let scope = Scope::Group(GroupId::new(group)?);
        loop {
            let params = CancelParams {
                scope: scope.clone(),
                max: 1_000,
            };
            let more = self.bulk.call(params, now)?.more;
            self.forget_changes();
            if !more {
                return Ok(());
            }
        }
    }

    /// One poll of the fetcher: fills READY up to twice the workers. Returns how many jobs went to DELAYED because
    /// the window was spent.
    pub(super) fn admit(&mut self, now: Timestamp) -> u64 {
        let pool = &self.config().worker_pool;
        let params = AdmitParams {
            queue: default_queue(),
            max: pool.fetch_batch_size,
            ready_cap: 2 * pool.worker_count,
        };
        let denied = self.bulk.call(params, now).denied.len() as u64;
        self.forget_changes();
        denied
    }

    pub(super) fn lease(&mut self, max: u32, now: Timestamp) -> LeaseOutcome {
        let params = LeaseParams {
            queue: default_queue(),
            max,
            owner: self.owner.clone(),
        };
        let outcome = self.bulk.call(params, now);
        self.forget_changes();
        outcome
    }

    pub(super) fn settle(&mut self, lease: LeaseRef, outcome: JobOutcome, now: Timestamp) {
        let answers = vec![Settlement {
            lease,
            outcome,
            cost: None,
        }];
        self.bulk.call(SettleParams { answers }, now);
        self.forget_changes();
    }

    /// Releases delayed jobs that are due, and drops finished ones.
    pub(super) fn housekeep(&mut self, now: Timestamp) {
        self.bulk.call(ReleaseDueParams { max: 10_000 }, now);
        let drop = DropFinishedParams {
            older_than: None,
            max: 10_000,
        };
        self.bulk.call(drop, now);
        self.forget_changes();
    }

    pub(super) fn settle_done(&mut self, leases: impl IntoIterator<Item = LeaseRef>, now: Timestamp) {
        let done = |lease| Settlement {
            lease,
            outcome: JobOutcome::Completed { result: Bytes::new() },
            cost: None,
        };
        let answers = leases.into_iter().map(done).collect();
        self.bulk.call(SettleParams { answers }, now);
        self.forget_changes();
    }

    /// Lets workers that need no time start everything that may start now; calls `started` with the group of each
    /// job, in order. Returns how many jobs went to DELAYED because the window was spent.
    pub(super) fn run_instant_workers(&mut self, now: Timestamp, mut started: impl FnMut(&GroupId)) -> u64 {
        let pressure = &self.config().backpressure;
        let release = ReleaseDueParams {
            max: pressure.dispatch_batch_size,
        };
        self.bulk.call(release, now);
        let workers = self.config().worker_pool.worker_count;
        let mut denied = 0;
        loop {
            denied += self.admit(now);
            let LeaseOutcome { jobs, stop } = self.lease(workers, now);
            jobs.iter().for_each(|job| started(&job.group));
            self.settle_done(jobs.iter().map(|job| job.lease), now);
            if matches!(stop, Stop::Limited { .. } | Stop::Held { .. } | Stop::Empty) {
                return denied;
            }
        }
    }

    /// No job is waiting, ready, delayed or running.
    pub(super) fn is_idle(&mut self, now: Timestamp) -> anyhow::Result<bool> {
        match self.bulk.call(Query::BulkStats, now)? {
            View::BulkStats(stats) => Ok(stats.counts.unfinished() == 0),
            other => anyhow::bail!("queue statistics were answered with {other:?}"),
        }
    }

    /// A store would persist them; a simulation needs no recovery.
    fn forget_changes(&mut self) {
        self.bulk.take_changes();
    }
}
