//! `tidegate bench bulk`: enqueue, process and lifecycle in jobs per second, start latency, and what a
//! queued job takes in memory and on disk. Handlers do nothing, the rate limit is out of the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate::config::BulkConfig;
use tidegate::ids::{GroupId, JobId, JobType};
use tidegate::{Durability, Job, JobError, Level, Options, Submission, Tidegate};
use tidegate_core::bulk::{EnqueueParams, NewJob};
use tidegate_store::embedded::{EmbeddedOptions, EmbeddedStore};
use tidegate_store::{StoreExt, SystemClock};
use tokio::sync::{Notify, mpsc};

use super::usage;

const KIND: &str = "NOTHING";
/// The latency run: so many jobs, this far apart (200 per second).
const PROBES: u64 = 2_000;
const PROBE_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Args)]
pub(super) struct BulkArgs {
    /// The store to measure
    #[arg(long, value_enum, default_value = "embedded")]
    store: StoreKind,
    #[arg(long, default_value_t = 200_000)]
    jobs: u64,
    #[arg(long, default_value_t = 100)]
    groups: u64,
    /// Bytes of each job's payload
    #[arg(long, default_value_t = 200)]
    payload: usize,
    /// Jobs per enqueue call
    #[arg(long, default_value_t = 1_000)]
    batch: u64,
    /// Enqueue calls at once
    #[arg(long, default_value_t = 4)]
    producers: u64,
    /// Workers
    #[arg(long, default_value_t = 1_000)]
    workers: u32,
    #[arg(long, value_enum, default_value = "sync")]
    durability: DurabilityArg,
    /// Folder to work in; a temporary one below the current folder if absent
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoreKind {
    Embedded,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DurabilityArg {
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
struct Figures {
    enqueue_per_sec: u64,
    process_per_sec: u64,
    lifecycle_per_sec: u64,
    start_p50_ms: f64,
    start_p99_ms: f64,
    /// A page appended and synced: the floor under the two above.
    sync_floor_p50_ms: f64,
    memory_bytes_per_job: u64,
    disk_bytes_per_job: u64,
    /// Seconds to open the store again with all jobs waiting.
    reopen_seconds: f64,
    jobs: u64,
    groups: u64,
    payload: usize,
    store: &'static str,
    durability: Durability,
}

pub(super) fn run(args: &BulkArgs) -> anyhow::Result<()> {
    let StoreKind::Embedded = args.store;
    anyhow::ensure!(
        args.jobs > 0 && args.groups > 0 && args.batch > 0,
        "--jobs, --groups and --batch start at 1"
    );
    let parent = args.dir.clone().unwrap_or(std::env::current_dir()?);
    let folder = tempfile::Builder::new()
        .prefix("tidegate-bench-")
        .tempdir_in(&parent)
        .with_context(|| format!("no temporary folder in {}", parent.display()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(args, folder.path()))?;
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        print_table(&figures);
    }
    Ok(())
}

fn print_table(figures: &Figures) {
    println!(
        "bulk on {} ({:?}), {} jobs in {} groups, {}-byte payloads",
        figures.store, figures.durability, figures.jobs, figures.groups, figures.payload
    );
    let rows: [(&str, String); 9] = [
        ("enqueue", format!("{:>10} jobs/s", figures.enqueue_per_sec)),
        ("process", format!("{:>10} jobs/s", figures.process_per_sec)),
        ("lifecycle", format!("{:>10} jobs/s", figures.lifecycle_per_sec)),
        ("start latency p50", format!("{:>10.3} ms", figures.start_p50_ms)),
        ("start latency p99", format!("{:>10.3} ms", figures.start_p99_ms)),
        (
            "one sync (floor)",
            format!("{:>10.3} ms", figures.sync_floor_p50_ms),
        ),
        (
            "memory",
            format!("{:>10} bytes per queued job", figures.memory_bytes_per_job),
        ),
        (
            "disk",
            format!("{:>10} bytes per queued job", figures.disk_bytes_per_job),
        ),
        ("reopen", format!("{:>10.2} s", figures.reopen_seconds)),
    ];
    for (name, value) in rows {
        println!("  {name:<18} {value}");
    }
}

fn options(args: &BulkArgs, folder: &Path) -> Options {
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 1e9;
    // Short windows: after a restart the running one counts as spent, which is no part of the speed.
    config.backpressure.rate_limit_window_sec = 0.05;
    config.worker_pool.worker_count = args.workers;
    config.limits.max_enqueue_batch = config.limits.max_enqueue_batch.max(args.batch);
    Options::new(folder)
        .config(config)
        .durability(args.durability.into())
}

/// Counts finished handlers and rings at the last.
#[derive(Debug, Default)]
struct Finish {
    left: AtomicU64,
    bell: Notify,
}

impl Finish {
    fn after(jobs: u64) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicU64::new(jobs),
            bell: Notify::new(),
        })
    }

    async fn wait(&self) {
        self.bell.notified().await;
    }
}

fn start(options: Options, finish: &Arc<Finish>) -> anyhow::Result<Tidegate> {
    let finish = finish.clone();
    let handler = move |_: Job| {
        if finish.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            finish.bell.notify_one();
        }
        std::future::ready(Ok::<_, JobError>(()))
    };
    Ok(Tidegate::open(options)?.handler(KIND, handler)?.start()?)
}

/// Enqueues all jobs from several tasks, a group's jobs in batches.
async fn enqueue(args: &BulkArgs, store: &Arc<EmbeddedStore>) -> anyhow::Result<()> {
    let (jobs, groups, batch) = (args.jobs, args.groups, args.batch);
    let payload: bytes::Bytes = vec![b'x'; args.payload].into();
    let kind = JobType::new(KIND)?;
    let (sender, receiver) = mpsc::channel::<(u64, u64)>(64);
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..args.producers.max(1) {
        let (store, receiver) = (store.clone(), receiver.clone());
        let (payload, kind) = (payload.clone(), kind.clone());
        producers.spawn(async move {
            loop {
                let next = receiver.lock().await.recv().await;
                let Some((group, first)) = next else {
                    return anyhow::Ok(());
                };
                // Jobs of a group are numbered first, first + groups, first + 2 × groups …
                let jobs = (first..jobs)
                    .step_by(groups as usize)
                    .take(batch as usize)
                    .map(|job| {
                        anyhow::Ok(NewJob {
                            id: JobId::new(format!("job-{job}"))?,
                            kind: kind.clone(),
                            level: Level::Normal,
                            payload: payload.clone(),
                            run_at: None,
                            expires_at: None,
                        })
                    });
                let params = EnqueueParams {
                    group: GroupId::new(format!("group-{group}"))?,
                    action: None,
                    base_priority: None,
                    jobs: jobs.collect::<Result<_, _>>()?,
                };
                store.call(params).await??;
            }
        });
    }
    // Round by round over the groups, so that all of them are waiting at once.
    for round in (0..jobs.div_ceil(groups)).step_by(batch as usize) {
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

async fn measure(args: &BulkArgs, folder: &Path) -> anyhow::Result<Figures> {
    let queued = folder.join("queued");
    let before = usage::memory_bytes();
    let Options {
        folder: path,
        durability,
        config,
    } = options(args, &queued);
    let clock = Arc::new(SystemClock);
    let store = Arc::new(EmbeddedStore::open(EmbeddedOptions {
        folder: path,
        durability,
        config,
        clock,
    })?);
    let begun = Instant::now();
    enqueue(args, &store).await?;
    let enqueue_took = begun.elapsed();
    let memory = usage::memory_bytes().saturating_sub(before) / args.jobs;
    let disk = usage::disk_bytes(&queued) / args.jobs;
    Arc::into_inner(store)
        .context("a producer still holds the store")?
        .close()
        .await?;

    let finish = Finish::after(args.jobs);
    let begun = Instant::now();
    let tide = start(options(args, &queued), &finish)?;
    let reopen_took = begun.elapsed();
    let begun = Instant::now();
    finish.wait().await;
    tide.shutdown().await?;
    let process_took = begun.elapsed();

    let finish = Finish::after(args.jobs);
    let tide = start(options(args, &folder.join("lifecycle")), &finish)?;
    let begun = Instant::now();
    enqueue(args, tide.store()).await?;
    finish.wait().await;
    // Shutdown settles the last answers.
    tide.shutdown().await?;
    let lifecycle_took = begun.elapsed();

    let floor = usage::sync_floor(folder)?;
    let (p50, p99) = latency(args, &folder.join("latency")).await?;
    Ok(Figures {
        enqueue_per_sec: per_sec(args.jobs, enqueue_took),
        process_per_sec: per_sec(args.jobs, process_took),
        lifecycle_per_sec: per_sec(args.jobs, lifecycle_took),
        start_p50_ms: p50,
        start_p99_ms: p99,
        sync_floor_p50_ms: floor.as_secs_f64() * 1_000.0,
        memory_bytes_per_job: memory,
        disk_bytes_per_job: disk,
        reopen_seconds: reopen_took.as_secs_f64(),
        jobs: args.jobs,
        groups: args.groups,
        payload: args.payload,
        store: "embedded",
        durability: args.durability.into(),
    })
}

/// From the call of submit to the first line of the handler, at 200 per second.
async fn latency(args: &BulkArgs, folder: &Path) -> anyhow::Result<(f64, f64)> {
    let begun = Instant::now();
    let (sender, mut started) = mpsc::channel::<Duration>(PROBES as usize);
    let handler = move |job: Job| {
        let sent = job
            .payload
            .as_ref()
            .try_into()
            .map(u64::from_be_bytes)
            .unwrap_or_default();
        let waited = begun.elapsed().saturating_sub(Duration::from_nanos(sent));
        // The channel holds all of them.
        let _ = sender.try_send(waited);
        std::future::ready(Ok::<_, JobError>(()))
    };
    let tide = Arc::new(
        Tidegate::open(options(args, folder))?
            .handler(KIND, handler)?
            .start()?,
    );
    let mut ticks = tokio::time::interval(PROBE_EVERY);
    let mut submits = tokio::task::JoinSet::new();
    for probe in 0..PROBES {
        ticks.tick().await;
        let tide = tide.clone();
        let group = probe % args.groups;
        submits.spawn(async move {
            let sent = begun.elapsed().as_nanos() as u64;
            let job = Submission::new(format!("group-{group}"))?.job(
                format!("job-{probe}"),
                KIND,
                sent.to_be_bytes().to_vec(),
            )?;
            tide.submit(job).await?;
            anyhow::Ok(())
        });
    }
    while let Some(submitted) = submits.join_next().await {
        submitted??;
    }
    let mut waits = Vec::with_capacity(PROBES as usize);
    for _ in 0..PROBES {
        waits.push(started.recv().await.context("the handler went away")?);
    }
    Arc::into_inner(tide)
        .context("a probe still holds the store")?
        .shutdown()
        .await?;
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1_000.0;
    Ok((at(0.50), at(0.99)))
}
