//! `tidegate bench bulk`: enqueue, process and lifecycle in jobs per second, start latency, fairness, and the
//! footprint of a queued job. Handlers do nothing, and the rate limit is out of reach.

mod subject;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate::{Durability, Job, JobError, Priority};
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::{EnqueueParams, NewJob};
use tidegate_core::ids::{GroupId, JobId, JobType};
use tidegate_engine::bulk::{BulkService, BulkServiceBuilder};
use tidegate_store::bulk::{BulkStore, BulkStoreExt};
use tokio::sync::{Notify, mpsc};

use self::subject::{StoreArg, Subject};

const KIND: &str = "NOTHING";
/// Jobs of the latency run, and the time between them (200 per second).
const PROBES: u64 = 2_000;
const PROBE_EVERY: Duration = Duration::from_millis(5);
/// Jobs of the fairness run: B submits after A.
const JOBS_OF_A: u64 = 20_000;
const JOBS_OF_B: u64 = 100;

#[derive(Debug, Clone, Args)]
pub(super) struct BulkArgs {
    /// The store to measure: `embedded`, or the URL of a Redis server (several nodes with commas)
    #[arg(long, default_value = "embedded")]
    pub(super) store: StoreArg,
    /// Shards, on Redis
    #[arg(long, default_value_t = 1)]
    pub(super) shards: u32,
    #[arg(long, default_value_t = 200_000)]
    jobs: u64,
    #[arg(long, default_value_t = 100)]
    groups: u64,
    /// Bytes of each job's payload
    #[arg(long, default_value_t = 200)]
    payload: usize,
    /// Jobs per enqueue call
    #[arg(long, default_value_t = 1_000)]
    chunk: u64,
    /// Enqueue calls at once
    #[arg(long, default_value_t = 4)]
    producers: u64,
    /// Workers
    #[arg(long, default_value_t = 1_000)]
    workers: u32,
    /// Durability of the embedded store; a Redis server has its own
    #[arg(long, value_enum, default_value = "sync")]
    pub(super) durability: DurabilityArg,
    /// Folder to work in; a temporary one below the current folder if absent
    #[arg(long)]
    pub(super) dir: Option<std::path::PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum DurabilityArg {
    Sync,
    Buffered,
}

impl From<DurabilityArg> for Durability {
    fn from(arg: DurabilityArg) -> Self {
        match arg {
            DurabilityArg::Sync => Durability::Sync,
            DurabilityArg::Buffered => Durability::Buffered,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    enqueue_per_sec: u64,
    process_per_sec: u64,
    lifecycle_per_sec: u64,
    start_p50_ms: f64,
    start_p99_ms: f64,
    /// The minimum of the two above. Embedded: one page appended and synced. Redis: one PING.
    floor_p50_ms: f64,
    /// With 20,000 jobs of A waiting, B submits 100: jobs finished when the last one of B is.
    b_done_after: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes_per_job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes_per_job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redis_bytes_per_job: Option<u64>,
    /// Seconds to open the store again with all jobs waiting.
    reopen_seconds: f64,
    jobs: u64,
    groups: u64,
    payload: usize,
    store: &'static str,
    durability: String,
}

pub(super) fn run(args: &BulkArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.jobs > 0 && args.groups > 0 && args.chunk > 0,
        "--jobs, --groups and --chunk start at 1"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(args))?;
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        print_table(&figures);
    }
    Ok(())
}

fn print_table(figures: &Figures) {
    println!(
        "bulk on {} ({}), {} jobs in {} groups, {}-byte payloads",
        figures.store, figures.durability, figures.jobs, figures.groups, figures.payload
    );
    let per_job = |bytes: u64| format!("{bytes:>10} bytes per queued job");
    let rows: [(&str, Option<String>); 11] = [
        ("enqueue", Some(format!("{:>10} jobs/s", figures.enqueue_per_sec))),
        ("process", Some(format!("{:>10} jobs/s", figures.process_per_sec))),
        (
            "lifecycle",
            Some(format!("{:>10} jobs/s", figures.lifecycle_per_sec)),
        ),
        (
            "start latency p50",
            Some(format!("{:>10.3} ms", figures.start_p50_ms)),
        ),
        (
            "start latency p99",
            Some(format!("{:>10.3} ms", figures.start_p99_ms)),
        ),
        ("floor p50", Some(format!("{:>10.3} ms", figures.floor_p50_ms))),
        (
            "B's 100 done as",
            Some(format!(
                "{:>10} of {}",
                figures.b_done_after,
                JOBS_OF_A + JOBS_OF_B
            )),
        ),
        ("memory", figures.memory_bytes_per_job.map(per_job)),
        ("disk", figures.disk_bytes_per_job.map(per_job)),
        ("Redis memory", figures.redis_bytes_per_job.map(per_job)),
        ("reopen", Some(format!("{:>10.2} s", figures.reopen_seconds))),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            println!("  {name:<18} {value}");
        }
    }
}

pub(super) fn config(args: &BulkArgs) -> BulkConfig {
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 1e9.into();
    // Short windows: after a restart the current one counts as spent, which would distort the speed.
    config.backpressure.rate_limit_window_sec = 0.05;
    config.worker_pool.worker_count = args.workers;
    config.limits.max_enqueue_batch = config.limits.max_enqueue_batch.max(args.chunk);
    config
}

/// Counts finished handlers and signals the last one.
#[derive(Debug, Default)]
struct Finish {
    left: AtomicU64,
    signal: Notify,
}

impl Finish {
    fn after(jobs: u64) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicU64::new(jobs),
            signal: Notify::new(),
        })
    }

    async fn wait(&self) {
        self.signal.notified().await;
    }
}

fn engine(
    args: &BulkArgs,
    store: &Arc<dyn BulkStore>,
    handler: impl tidegate::Handler,
) -> anyhow::Result<BulkService> {
    let engine = BulkServiceBuilder::new(store.clone(), config(args)).handler(JobType::new(KIND)?, handler);
    Ok(engine.start()?)
}

fn counting_engine(
    args: &BulkArgs,
    store: &Arc<dyn BulkStore>,
    finish: &Arc<Finish>,
) -> anyhow::Result<BulkService> {
    let finish = finish.clone();
    engine(args, store, move |_: Job| {
        if finish.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            finish.signal.notify_one();
        }
        std::future::ready(Ok::<_, JobError>(()))
    })
}

fn new_job(id: String, payload: bytes::Bytes) -> anyhow::Result<NewJob> {
    Ok(NewJob {
        id: JobId::new(id)?,
        kind: JobType::new(KIND)?,
        priority: Priority::Normal,
        payload,
        run_at: None,
        expires_at: None,
        cost: 1,
    })
}

async fn submit(store: &Arc<dyn BulkStore>, group: &str, jobs: Vec<NewJob>) -> anyhow::Result<()> {
    let params = EnqueueParams {
        group: GroupId::new(group)?,
        batch: None,
        base_priority: None,
        jobs,
    };
    store.call(params).await??;
    Ok(())
}

/// Enqueues all jobs from several tasks, a group's jobs in chunks.
async fn enqueue(args: &BulkArgs, store: &Arc<dyn BulkStore>) -> anyhow::Result<()> {
    let (jobs, groups, chunk) = (args.jobs, args.groups, args.chunk);
    let payload: bytes::Bytes = vec![b'x'; args.payload].into();
    let (sender, receiver) = mpsc::channel::<(u64, u64)>(64);
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..args.producers.max(1) {
        let (store, receiver, payload) = (store.clone(), receiver.clone(), payload.clone());
        producers.spawn(async move {
            loop {
                let next = receiver.lock().await.recv().await;
                let Some((group, first)) = next else {
                    return anyhow::Ok(());
                };
                // Jobs of a group are numbered first, first + groups, first + 2 × groups …
                let jobs = (first..jobs)
                    .step_by(groups as usize)
                    .take(chunk as usize)
                    .map(|job| new_job(format!("job-{job}"), payload.clone()));
                submit(&store, &format!("group-{group}"), jobs.collect::<Result<_, _>>()?).await?;
            }
        });
    }
    // Round by round over the groups, so that all of them wait at once.
    for round in (0..jobs.div_ceil(groups)).step_by(chunk as usize) {
        for group in 0..groups.min(jobs - round * groups) {
            sender.send((group, round * groups + group)).await?;
        }
    }
    drop(sender);
    while let Some(done) = producers.join_next().await {
        done??;
    }
    Ok(())
}

fn per_sec(jobs: u64, took: Duration) -> u64 {
    (jobs as f64 / took.as_secs_f64()) as u64
}

async fn measure(args: &BulkArgs) -> anyhow::Result<Figures> {
    let subject = Subject::new(args)?;
    let mut queued = subject.open("queued", args).await?;
    let before = queued.usage().await?;
    let begun = Instant::now();
    enqueue(args, queued.store()).await?;
    let enqueue_took = begun.elapsed();
    let usage = queued.usage().await?.per_job(before, args.jobs);

    let begun = Instant::now();
    queued = queued.reopen(args).await?;
    let reopen_took = begun.elapsed();
    let finish = Finish::after(args.jobs);
    let begun = Instant::now();
    let running = counting_engine(args, queued.store(), &finish)?;
    finish.wait().await;
    // Shutdown settles the last jobs.
    running.shutdown().await?;
    let process_took = begun.elapsed();
    queued.close().await?;

    let whole = subject.open("lifecycle", args).await?;
    let finish = Finish::after(args.jobs);
    let running = counting_engine(args, whole.store(), &finish)?;
    let begun = Instant::now();
    enqueue(args, whole.store()).await?;
    finish.wait().await;
    running.shutdown().await?;
    let lifecycle_took = begun.elapsed();
    let floor = whole.floor().await?;
    whole.close().await?;

    let (p50, p99) = latency(args, &subject).await?;
    let b_done_after = fairness(args, &subject).await?;
    Ok(Figures {
        enqueue_per_sec: per_sec(args.jobs, enqueue_took),
        process_per_sec: per_sec(args.jobs, process_took),
        lifecycle_per_sec: per_sec(args.jobs, lifecycle_took),
        start_p50_ms: p50,
        start_p99_ms: p99,
        floor_p50_ms: floor.as_secs_f64() * 1_000.0,
        b_done_after,
        memory_bytes_per_job: usage.memory,
        disk_bytes_per_job: usage.disk,
        redis_bytes_per_job: usage.redis,
        reopen_seconds: reopen_took.as_secs_f64(),
        jobs: args.jobs,
        groups: args.groups,
        payload: args.payload,
        store: args.store.name(),
        durability: subject.durability(args).await?,
    })
}

/// Start latency: from the enqueue call to the first line of the handler, at 200 jobs per second.
async fn latency(args: &BulkArgs, subject: &Subject) -> anyhow::Result<(f64, f64)> {
    let opened = subject.open("latency", args).await?;
    let begun = Instant::now();
    let (sender, mut started) = mpsc::channel::<Duration>(PROBES as usize);
    let running = engine(args, opened.store(), move |job: Job| {
        let sent = job
            .payload
            .as_ref()
            .try_into()
            .map(u64::from_be_bytes)
            .unwrap_or_default();
        let waited = begun.elapsed().saturating_sub(Duration::from_nanos(sent));
        // The channel has room for every probe.
        let _ = sender.try_send(waited);
        std::future::ready(Ok::<_, JobError>(()))
    })?;
    let mut ticks = tokio::time::interval(PROBE_EVERY);
    let mut submits = tokio::task::JoinSet::new();
    for probe in 0..PROBES {
        ticks.tick().await;
        let store = opened.store().clone();
        let group = probe % args.groups;
        submits.spawn(async move {
            let sent = begun.elapsed().as_nanos() as u64;
            let job = new_job(format!("job-{probe}"), sent.to_be_bytes().to_vec().into())?;
            submit(&store, &format!("group-{group}"), vec![job]).await
        });
    }
    while let Some(submitted) = submits.join_next().await {
        submitted??;
    }
    let mut waits = Vec::with_capacity(PROBES as usize);
    for _ in 0..PROBES {
        waits.push(started.recv().await.context("the handlers ended early")?);
    }
    running.shutdown().await?;
    opened.close().await?;
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1_000.0;
    Ok((at(0.50), at(0.99)))
}

/// Jobs finished when the last job of B is, if both customers wait before the first worker starts.
async fn fairness(args: &BulkArgs, subject: &Subject) -> anyhow::Result<u64> {
    let opened = subject.open("fairness", args).await?;
    let payload: bytes::Bytes = vec![b'x'; args.payload].into();
    for (customer, jobs) in [("A", JOBS_OF_A), ("B", JOBS_OF_B)] {
        for from in (0..jobs).step_by(1_000) {
            let chunk = from..jobs.min(from + 1_000);
            let chunk = chunk.map(|job| new_job(format!("job-{job}"), payload.clone()));
            submit(opened.store(), customer, chunk.collect::<Result<_, _>>()?).await?;
        }
    }
    // Finished jobs, those of B, and the rank of B's last one.
    let counts = Arc::new(Mutex::new((0, 0, 0)));
    let done = Arc::new(Notify::new());
    let (seen, signal) = (counts.clone(), done.clone());
    let few = BulkArgs {
        workers: 10,
        ..args.clone()
    };
    let running = engine(&few, opened.store(), move |job: Job| {
        let mut counts = seen.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0 += 1;
        if job.group.as_str() == "B" {
            counts.1 += 1;
            if counts.1 == JOBS_OF_B {
                counts.2 = counts.0;
                signal.notify_one();
            }
        }
        std::future::ready(Ok::<_, JobError>(()))
    })?;
    done.notified().await;
    running.shutdown().await?;
    opened.close().await?;
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(counts.2)
}
