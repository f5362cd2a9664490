//! Everything at once: a mixture of all transitions, after which every job has ended and was counted once. The
//! other cases know what must happen next; these know only what must hold in the end.

use std::collections::BTreeMap;

use tidegate_core::bulk::config::{BulkConfig, Hold, JobTypeConfig};
use tidegate_core::bulk::{
    GroupLimits, JobOutcome, LeaseRef, NewJob, Priority, Scope, Settled, default_queue,
};
use tidegate_core::limits::quota::Limit;
use tidegate_core::rng::Rng;
use tidegate_core::time::Millis;

use super::harness::*;
use crate::bulk::LeasedJob;

const GROUPS: [&str; 4] = ["A", "B", "C", "D"];
const KINDS: [&str; 2] = ["test", "mail"];
const QUEUES: [&str; 2] = ["default", "mail"];
const PER_WINDOW: usize = 12;

struct Mixture {
    q: Harness,
    rng: Rng,
    accepted: usize,
    held: Vec<LeasedJob>,
    /// The window in which each lease started.
    started: BTreeMap<LeaseRef, u64>,
    window: (u64, usize),
}

impl Mixture {
    async fn new(backend: &dyn Backend, seed: u64, hold: Hold) -> Self {
        let q = Harness::with(backend, |config: &mut BulkConfig| {
            config.backpressure.global_rps = (PER_WINDOW as f64).into();
            config.backpressure.hold = hold;
            let mail = JobTypeConfig {
                queue: Some(queue("mail")),
                max_retry_count: Some(1),
                ..Default::default()
            };
            config.job_types.insert(kind("mail"), mail);
        })
        .await;
        Self {
            q,
            rng: Rng::new(seed),
            accepted: 0,
            held: Vec::new(),
            started: BTreeMap::new(),
            window: (0, 0),
        }
    }

    async fn enqueue(&mut self) {
        let mut chunk = Vec::new();
        for _ in 0..self.rng.below(8) {
            let start = self.q.now();
            let run_at = self.rng.one_in(5).then(|| start + Millis(self.rng.below(4_000)));
            let expires_at = self.rng.one_in(8).then(|| start + Millis(5_000));
            chunk.push(NewJob {
                kind: kind(KINDS[self.rng.below(2) as usize]),
                priority: *self.rng.pick(&Priority::ALL),
                run_at,
                expires_at,
                ..job(&format!("job-{}", self.accepted))
            });
            self.accepted += 1;
        }
        let group = *self.rng.pick(&GROUPS);
        self.q.enqueue(group, chunk).await;
    }

    async fn lease(&mut self) {
        let max = 1 + self.rng.below(6) as u32;
        let queue = *self.rng.pick(&QUEUES);
        let jobs = self.q.lease_in(queue, max).await.jobs;
        let window = self.q.now().0 / 1_000;
        if self.window.0 != window {
            self.window = (window, 0);
        }
        self.window.1 += jobs.len();
        assert!(
            self.window.1 <= PER_WINDOW,
            "{} starts in one window",
            self.window.1
        );
        for job in jobs {
            assert!(
                self.started.insert(job.leased.lease, window).is_none(),
                "a lease was given twice: {job:?}"
            );
            self.held.push(job);
        }
    }

    async fn answer(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.below(self.held.len() as u64) as usize;
        let job = self.held.swap_remove(at);
        let outcome = match self.rng.below(8) {
            0 => failed("no"),
            1 => throttled(),
            2 => retry(),
            3 => JobOutcome::Released,
            // No outcome: the lease expires.
            4 => return,
            _ => done(),
        };
        // A start that did not happen is free again.
        if outcome == JobOutcome::Released
            && self.q.shards == 1
            && self.window.0 == self.started[&job.leased.lease]
        {
            self.window.1 -= 1;
        }
        self.q.settle(&job, outcome).await;
        assert_eq!(
            self.q.settle(&job, done()).await,
            Settled::Stale,
            "an answer counts once"
        );
    }

    async fn meddle(&mut self) {
        let name = *self.rng.pick(&GROUPS);
        let known = self
            .q
            .call(tidegate_core::bulk::views::Query::Group(group(name)))
            .await
            .is_ok();
        match self.rng.below(6) {
            _ if !known => {}
            0 => self.q.pause(Scope::Group(group(name))).await,
            1 | 2 => self.q.resume(Scope::Group(group(name))).await,
            3 => {
                let limit = Limit {
                    rate: Some((1.0 + self.rng.below(40) as f64 / 10.0).into()),
                    max_running: Some(1 + self.rng.below(3) as u32),
                };
                let limits = GroupLimits {
                    all: if self.rng.percent(50) {
                        limit
                    } else {
                        Limit::default()
                    },
                    queues: [(default_queue(), limit)].into(),
                };
                self.q.configure(name, None, Some(limits)).await;
            }
            4 => {
                self.q
                    .configure(name, Some(1_000_000 - self.rng.below(2_000_000) as i32), None)
                    .await
            }
            _ => {
                let batch = self.q.group(name).await.batches[0].clone();
                let scope = Scope::Batch(group(name), batch);
                self.q.pause(scope.clone()).await;
                self.lease().await;
                self.q.resume(scope).await;
            }
        }
    }

    async fn tend(&mut self) {
        self.q.release_due().await;
        self.q.expire_leases().await;
        let (name, max) = (*self.rng.pick(&QUEUES), 1 + self.rng.below(6) as u32);
        self.q.admit_in(name, max, max).await;
    }

    async fn stir(&mut self, rounds: usize) {
        for _ in 0..rounds {
            match self.rng.below(10) {
                0 => self.enqueue().await,
                1 => self.meddle().await,
                2 | 3 => self.tend().await,
                4..=6 => self.lease().await,
                _ => self.answer().await,
            }
            self.q.advance(self.rng.below(200));
        }
    }

    /// Resumes every group and completes everything.
    async fn drain(&mut self) {
        for name in GROUPS {
            self.q.configure(name, None, None).await;
            self.q.resume(Scope::Group(group(name))).await;
        }
        for _ in 0..2_000 {
            self.q.release_due().await;
            self.q.expire_leases().await;
            for name in QUEUES {
                let jobs = self.q.lease_in(name, 100).await.jobs;
                self.q.settle_all(&jobs, done()).await;
            }
            if self.q.counts().await.unfinished() == 0 {
                return;
            }
            self.q.advance(1_000);
        }
        panic!("jobs are stuck: {:?}", self.q.counts().await);
    }
}

async fn everything_ends(backend: &dyn Backend, hold: Hold) {
    for seed in 1..=6 {
        let mut mixture = Mixture::new(backend, seed, hold).await;
        mixture.stir(400).await;
        mixture.drain().await;
        let q = &mixture.q;
        let stats = q.stats().await;
        let ended = stats.counts.completed + stats.counts.dead;
        assert_eq!(
            ended, mixture.accepted as u64,
            "every job ended once (seed {seed})"
        );
        assert_eq!(stats.active_groups, 0, "seed {seed}");
        assert!(stats.most_started_per_window <= PER_WINDOW as u64, "seed {seed}");
        for name in GROUPS {
            if q.group(name).await.batches.is_empty() {
                continue;
            }
            let counts = q.first_batch(name).await.counts;
            assert_eq!(
                counts.success + counts.failed,
                counts.total,
                "batch of {name} (seed {seed})"
            );
            assert!(q.seal(name).await.batch_complete, "batch of {name} (seed {seed})");
            assert_eq!(
                q.congestion(name).await.non_ready_count,
                0,
                "{name} (seed {seed})"
            );
        }
    }
}

pub async fn every_job_ends_when_groups_are_held(backend: &dyn Backend) {
    everything_ends(backend, Hold::Group).await;
}

pub async fn every_job_ends_when_jobs_are_held(backend: &dyn Backend) {
    everything_ends(backend, Hold::Job).await;
}
