//! The clients: they enqueue, lease and settle in chunks, and time each call.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tidegate_client::{Client, Destination, JobOutcome, JobPriority, Lease, NewJob, RawValue, Settlement};
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::{self, EnqueueParams, LeaseParams, SettleParams, default_queue};
use tidegate_core::ids::{GroupId, JobId, JobType, Owner};
use tidegate_store::bulk::{BulkStore, BulkStoreExt, EmbeddedBulkOptions, EmbeddedBulkStore};
use tokio::task::JoinSet;

use super::HttpArgs;
use crate::bench::times::Times;

const KIND: &str = "NOTHING";
/// How long a lease call waits while no job is ready.
const WAIT_MS: u64 = 100;
/// Calls without a body, for the floor.
const SMALL_CALLS: u64 = 20_000;

#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) enqueue: Times,
    pub(super) lease: Times,
    pub(super) settle: Times,
}

impl Calls {
    fn add(&mut self, other: Calls) {
        self.enqueue.0.extend(other.enqueue.0);
        self.lease.0.extend(other.lease.0);
        self.settle.0.extend(other.settle.0);
    }
}

/// Numbers of chunks, handed out one by one.
#[derive(Debug, Clone)]
struct Chunks {
    next: Arc<AtomicU64>,
    jobs: u64,
    chunk: u64,
}

impl Chunks {
    fn of(args: &HttpArgs) -> Self {
        Self {
            next: Arc::default(),
            jobs: args.jobs,
            chunk: args.batch,
        }
    }

    /// The number of the next chunk and the jobs in it.
    fn next(&self) -> Option<(u64, std::ops::Range<u64>)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let from = number * self.chunk;
        (from < self.jobs).then(|| (number, from..self.jobs.min(from + self.chunk)))
    }
}

fn per_sec(count: u64, took: Duration) -> u64 {
    (count as f64 / took.as_secs_f64()) as u64
}

async fn all(mut tasks: JoinSet<anyhow::Result<Calls>>) -> anyhow::Result<Calls> {
    let mut calls = Calls::default();
    while let Some(done) = tasks.join_next().await {
        calls.add(done??);
    }
    Ok(calls)
}

#[derive(Debug, Clone)]
pub(super) struct Load {
    client: Client,
    args: Arc<HttpArgs>,
    payload: Arc<RawValue>,
}

impl Load {
    pub(super) fn new(client: Client, args: &HttpArgs) -> Self {
        let text = format!("\"{}\"", "x".repeat(args.payload.saturating_sub(2)));
        let payload = RawValue::from_string(text).expect("a text in quotes is JSON");
        Self {
            client,
            args: Arc::new(args.clone()),
            payload: payload.into(),
        }
    }

    fn jobs(&self, stage: &str, ids: std::ops::Range<u64>) -> Vec<NewJob> {
        let job = |id| NewJob {
            group: None,
            batch: None,
            id: format!("{stage}-{id}"),
            kind: KIND.to_owned(),
            priority: JobPriority::Normal,
            payload: Some(self.payload.as_ref().to_owned()),
            run_at: None,
            expires_at: None,
            cost: 1,
        };
        ids.map(job).collect()
    }

    /// Calls per second that need neither body nor store.
    pub(super) async fn small_calls(&self) -> anyhow::Result<u64> {
        let calls = SMALL_CALLS.min(self.args.jobs);
        let left = Arc::new(AtomicU64::new(calls));
        let mut tasks = JoinSet::new();
        let begun = Instant::now();
        for _ in 0..self.args.connections {
            let (client, left) = (self.client.clone(), left.clone());
            tasks.spawn(async move {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    client.me().await?;
                }
                anyhow::Ok(Calls::default())
            });
        }
        all(tasks).await?;
        Ok(per_sec(calls, begun.elapsed()))
    }

    /// Jobs per second that the service parses and refuses, because they have no group.
    pub(super) async fn refused(&self) -> anyhow::Result<u64> {
        let begun = Instant::now();
        let destination = |_| Destination::anywhere();
        all(self.producers("refused", destination, |done, jobs| {
            ensure!(done.refused == jobs, "jobs without a group were not refused");
            Ok(())
        }))
        .await?;
        Ok(per_sec(self.args.jobs, begun.elapsed()))
    }

    pub(super) async fn enqueue(&self, stage: &'static str) -> anyhow::Result<u64> {
        let begun = Instant::now();
        all(self.feed(stage)).await?;
        Ok(per_sec(self.args.jobs, begun.elapsed()))
    }

    fn feed(&self, stage: &'static str) -> JoinSet<anyhow::Result<Calls>> {
        let groups = self.args.groups;
        let destination = move |number: u64| Destination::group(format!("group-{}", number % groups));
        self.producers(stage, destination, |done, jobs| {
            ensure!(done.accepted == jobs, "jobs were not accepted: {done:?}");
            Ok(())
        })
    }

    fn producers(
        &self,
        stage: &'static str,
        destination: impl Fn(u64) -> Destination + Copy + Send + 'static,
        check: fn(&tidegate_client::Enqueued, u64) -> anyhow::Result<()>,
    ) -> JoinSet<anyhow::Result<Calls>> {
        let chunks = Chunks::of(&self.args);
        let mut tasks = JoinSet::new();
        for _ in 0..self.args.connections {
            let (load, chunks) = (self.clone(), chunks.clone());
            tasks.spawn(async move {
                let mut calls = Calls::default();
                while let Some((number, ids)) = chunks.next() {
                    let count = ids.end - ids.start;
                    let jobs = load.jobs(stage, ids);
                    let begun = Instant::now();
                    let done = load.client.enqueue_in(&destination(number), &jobs).await?;
                    calls.enqueue.0.push(begun.elapsed());
                    check(&done, count)?;
                }
                Ok(calls)
            });
        }
        tasks
    }

    /// Leases and settles until every enqueued job is settled.
    pub(super) async fn work(&self) -> anyhow::Result<u64> {
        let begun = Instant::now();
        all(self.workers()).await?;
        Ok(per_sec(self.args.jobs, begun.elapsed()))
    }

    fn workers(&self) -> JoinSet<anyhow::Result<Calls>> {
        let left = Arc::new(AtomicU64::new(self.args.jobs));
        let mut tasks = JoinSet::new();
        for _ in 0..self.args.connections {
            let (client, left) = (self.client.clone(), left.clone());
            let request = Lease {
                max: Some(self.args.batch as u32),
                wait_ms: Some(WAIT_MS),
                ..Lease::default()
            };
            tasks.spawn(async move {
                let mut calls = Calls::default();
                while left.load(Ordering::Relaxed) > 0 {
                    let begun = Instant::now();
                    let leased = client.lease(&request).await?.jobs;
                    if leased.is_empty() {
                        continue;
                    }
                    calls.lease.0.push(begun.elapsed());
                    let answers: Vec<Settlement> = leased.into_iter().map(|job| done(job.lease)).collect();
                    let begun = Instant::now();
                    let settled = client.settle(&answers).await?;
                    calls.settle.0.push(begun.elapsed());
                    left.fetch_sub(settled.len() as u64, Ordering::Relaxed);
                }
                Ok(calls)
            });
        }
        tasks
    }

    /// Producers and workers at once.
    pub(super) async fn lifecycle(&self, stage: &'static str) -> anyhow::Result<(u64, Calls)> {
        let begun = Instant::now();
        let (producers, workers) = (self.feed(stage), self.workers());
        let (produced, worked) = tokio::try_join!(all(producers), all(workers))?;
        let took = begun.elapsed();
        let mut calls = produced;
        calls.add(worked);
        Ok((per_sec(self.args.jobs, took), calls))
    }
}

fn done(lease: String) -> Settlement {
    Settlement {
        lease,
        outcome: JobOutcome::Completed,
        result: None,
        error: None,
        retry_after_ms: None,
        scope: None,
        overloaded: false,
        cost: None,
    }
}

/// The same lifecycle in the same chunks, on an embedded store in this process.
pub(super) async fn store_alone(folder: &Path, args: &HttpArgs) -> anyhow::Result<u64> {
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 1e9.into();
    config.backpressure.rate_limit_window_sec = 0.05;
    let options = EmbeddedBulkOptions {
        durability: args.durability.into(),
        config,
        ..EmbeddedBulkOptions::new(folder)
    };
    let opened = Arc::new(EmbeddedBulkStore::open(options)?);
    let store: Arc<dyn BulkStore> = opened.clone();
    let chunks = Chunks::of(args);
    let left = Arc::new(AtomicU64::new(args.jobs));
    let payload = bytes::Bytes::from(vec![b'x'; args.payload]);
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..args.connections {
        let (store, chunks, payload, groups) = (store.clone(), chunks.clone(), payload.clone(), args.groups);
        tasks.spawn(async move {
            while let Some((number, ids)) = chunks.next() {
                let jobs = ids.map(|id| {
                    anyhow::Ok(bulk::NewJob {
                        id: JobId::new(format!("job-{id}"))?,
                        kind: JobType::new(KIND)?,
                        priority: bulk::Priority::Normal,
                        payload: payload.clone(),
                        run_at: None,
                        expires_at: None,
                        cost: 1,
                    })
                });
                let params = EnqueueParams {
                    group: GroupId::new(format!("group-{}", number % groups))?,
                    batch: None,
                    base_priority: None,
                    jobs: jobs.collect::<Result<_, _>>()?,
                };
                store.call(params).await??;
            }
            Ok(Calls::default())
        });
        let (store, left) = (opened.clone() as Arc<dyn BulkStore>, left.clone());
        let params = LeaseParams {
            queue: default_queue(),
            max: args.batch as u32,
            owner: Owner::new("bench")?,
        };
        tasks.spawn(async move {
            let signals = store.notifier();
            while left.load(Ordering::Relaxed) > 0 {
                let signal = signals.work.notified();
                let leased = store.lease(params.clone()).await?.jobs;
                if leased.is_empty() {
                    let _notified_or_not = tokio::time::timeout(Duration::from_millis(WAIT_MS), signal).await;
                    continue;
                }
                let answers = leased.into_iter().map(|job| bulk::Settlement {
                    lease: job.leased.lease,
                    outcome: bulk::JobOutcome::Completed {
                        result: bytes::Bytes::new(),
                    },
                    cost: None,
                });
                let params = SettleParams {
                    answers: answers.collect(),
                };
                let settled = store.call(params).await?;
                left.fetch_sub(settled.len() as u64, Ordering::Relaxed);
            }
            Ok(Calls::default())
        });
    }
    all(tasks).await?;
    let took = begun.elapsed();
    drop(store);
    let opened = Arc::into_inner(opened).context("the store is still in use")?;
    opened.close().await?;
    Ok(per_sec(args.jobs, took))
}
