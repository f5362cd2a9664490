//! `tidegate demo`: a large customer and two small ones share one rate. Then users share a provider's limit, in
//! `refresh/`, and a crowd waits for a concert, in `room/`.
//!
//! Everything is real: the service with its dashboard, an embedded store in a temporary folder with the default
//! durability, and handlers that sleep for a few milliseconds. Only the rate limits the jobs, so each customer's
//! share of it is the queue's doing.

mod bars;
mod refresh;
mod report;
mod room;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tidegate::views::{BulkStats, Query, View};
use tidegate::{BatchCounts, BulkStoreExt, CompletedBatch, Job, JobError, Submission, Submitted};
use tidegate_core::ids::{BatchId, GroupId, JobType};
use tidegate_core::time::Millis;
use tidegate_engine::bulk::BulkServiceBuilder;
use tidegate_server::config::Config;
use tidegate_server::{Service, ServiceError};
use tidegate_upstream::Upstream;
use tokio::sync::mpsc;

use self::bars::Bars;
use self::refresh::RefreshFigures;
use self::report::{CustomerFigures, Figures};
use self::room::RoomFigures;
use super::simulate::{Customer, ideal};

const KIND: &str = "SEND_PROMOTION";
const BATCH: &str = "spring";
const B_JOBS: u64 = 100;
const C_JOBS: u64 = 50;
/// 64 workers × 5 ms: 12,800 jobs per second, far above the rate.
const WORKERS: u32 = 64;
const RUN: Duration = Duration::from_millis(5);
/// Short, so that a customer that needs a tenth of a second is not measured in windows.
const WINDOW: Millis = Millis(20);
/// Starts per window at least: a low rate gets a longer window, or it would round to zero.
const MIN_LIMIT: f64 = 10.0;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Jobs of customer A, the large one
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Starts per second that all customers share
    #[arg(long, default_value_t = 3_500.0)]
    rate: f64,
    /// Where the dashboard listens; another port if this one is taken
    #[arg(long, default_value = "127.0.0.1:7171")]
    listen: SocketAddr,
    /// Keep the dashboard open afterwards, until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// Print the figures as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::Builder::new().prefix("tidegate-demo-").tempdir()?;
        let scene = Scene::new(args.jobs);
        let (finished, finishes) = mpsc::channel(scene.names.len());
        let upstream = refresh::upstream()?;
        let mut config = config(args, folder.path());
        refresh::configure(&mut config, &upstream)?;
        room::configure(&mut config)?;
        let service = start(config, &scene, finished).await?;
        let figures = tokio::select! {
            figures = play_all(args, &service, &scene, finishes, &upstream) => figures,
            // Returning drops the temporary folder; a process that is killed leaves it behind.
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                Err(anyhow::anyhow!("interrupted"))
            }
        };
        if let Ok(figures) = &figures {
            if args.json {
                println!("{}", serde_json::to_string(&figures)?);
            }
            if args.stay {
                eprintln!("\nThe dashboard stays at {} until Ctrl-C.", service.url());
                tokio::signal::ctrl_c().await?;
            }
        }
        service.shutdown().await?;
        figures.map(|_| ())
    })
}

/// Colours on a terminal, unless `NO_COLOR` is set.
fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn config(args: &DemoArgs, folder: &Path) -> Config {
    let mut config = Config::default();
    let rate = args.rate;
    config.server.listen = args.listen;
    // Do not wait for open dashboard pages.
    config.server.shutdown_grace_period_ms = Millis(200);
    config.store.data = folder.join("data");
    let window = WINDOW.as_secs_f64().max(MIN_LIMIT / rate);
    config.backpressure.global_rps = rate.into();
    config.backpressure.rate_limit_window_sec = window;
    config.worker_pool.worker_count = WORKERS;
    config
}

/// The customers and their progress.
#[derive(Debug)]
struct Scene {
    names: [&'static str; 3],
    jobs: [u64; 3],
    done: [AtomicU64; 3],
}

impl Scene {
    fn new(jobs: u64) -> Arc<Self> {
        Arc::new(Self {
            names: ["A", "B", "C"],
            jobs: [jobs, B_JOBS, C_JOBS],
            done: Default::default(),
        })
    }

    fn position(&self, group: &str) -> Option<usize> {
        self.names.iter().position(|name| *name == group)
    }
}

/// Figures of all scenes.
#[derive(Debug, Serialize)]
struct AllFigures {
    #[serde(flatten)]
    bulk: Figures,
    refresh: RefreshFigures,
    room: RoomFigures,
}

/// Plays one scene after the other, and reports each as soon as it ends.
async fn play_all(
    args: &DemoArgs,
    service: &Service,
    scene: &Arc<Scene>,
    finishes: mpsc::Receiver<(usize, Instant)>,
    upstream: &Upstream,
) -> anyhow::Result<AllFigures> {
    let coloured = colours(&std::io::stdout());
    eprintln!("Watch it live: {}", service.url());
    let bulk = play(args, service, scene, finishes).await?;
    if !args.json {
        println!("{}", bulk.report(coloured));
    }
    let refresh = refresh::play(service, upstream).await?;
    if !args.json {
        println!("{}", refresh.report(coloured));
    }
    let room = room::play(service).await?;
    if !args.json {
        print!("{}", room.report(coloured));
    }
    Ok(AllFigures { bulk, refresh, room })
}

async fn play(
    args: &DemoArgs,
    service: &Service,
    scene: &Arc<Scene>,
    mut finishes: mpsc::Receiver<(usize, Instant)>,
) -> anyhow::Result<Figures> {
    let window = config(args, Path::new("")).backpressure.window();
    let bars = Bars::show(scene, args.rate);

    let begun = Instant::now();
    let a = submit(service, scene, 0).await?;
    let counts = stats(service).await?.counts;
    let waiting_before = counts.waiting + counts.ready;
    let small_join = begun.elapsed();
    bars.accepted();
    let (b, c) = tokio::try_join!(submit(service, scene, 1), submit(service, scene, 2))?;

    let joins = [Duration::ZERO, small_join, small_join];
    let mut took = [Duration::ZERO; 3];
    for _ in 0..scene.names.len() {
        let (customer, at) = tokio::select! {
            finish = finishes.recv() => finish.context("the engine dropped its callbacks")?,
            () = service.failed() => anyhow::bail!("the engine stopped before all jobs were done"),
        };
        took[customer] = at.duration_since(begun) - joins[customer];
        bars.finished(customer, took[customer]);
    }
    bars.close().await;

    let stats = stats(service).await?;
    let mut ended = 0;
    for name in scene.names {
        let of = ended_jobs(service, name).await?;
        ended += of.success + of.failed;
    }

    // The rate in whole starts per window, as the limiter counts it.
    let rate = stats.limit_per_window as f64 / window.as_secs_f64();
    let millis = |span: Duration| Millis(span.as_millis() as u64);
    let customers = [0, 1, 2].map(|i| Customer {
        joins: millis(joins[i]),
        ..Customer::new(scene.names[i], scene.jobs[i])
    });
    let ideals = ideal::finish_seconds(&customers, rate);
    let accepted = a.accepted + b.accepted + c.accepted;
    let seconds = took.iter().zip(joins).map(|(took, joins)| *took + joins).max();
    let seconds = seconds.unwrap_or_default().as_secs_f64();
    Ok(Figures {
        customers: [0, 1, 2].map(|i| CustomerFigures {
            customer: scene.names[i],
            jobs: scene.jobs[i],
            seconds: to_millisecond(took[i].as_secs_f64()),
            ideal_seconds: to_millisecond(ideals[i] - customers[i].joins.as_secs_f64()),
        }),
        seconds: to_millisecond(seconds),
        rate,
        window_ms: window.0,
        windows: (seconds / window.as_secs_f64()).ceil() as u64,
        limit_per_window: stats.limit_per_window,
        max_started_per_window: stats.most_started_per_window,
        waiting_before_b_and_c: waiting_before,
        accepted,
        lost: accepted.saturating_sub(ended),
        throttles_per_job: stats.throttles as f64 / accepted as f64,
    })
}

/// The precision of the measurements.
fn to_millisecond(seconds: f64) -> f64 {
    (seconds * 1_000.0).round() / 1_000.0
}

async fn stats(service: &Service) -> anyhow::Result<BulkStats> {
    match service.store().call(Query::BulkStats).await?? {
        View::BulkStats(stats) => Ok(stats),
        other => unreachable!("statistics are answered with statistics, not {other:?}"),
    }
}

async fn ended_jobs(service: &Service, group: &str) -> anyhow::Result<BatchCounts> {
    let query = Query::Batch(GroupId::new(group)?, BatchId::new(BATCH)?);
    match service.store().call(query).await?? {
        View::Batch(batch) => Ok(batch.counts),
        other => unreachable!("a batch is answered with a batch, not {other:?}"),
    }
}

/// The service with handlers of its own; on another port if the wanted one is taken.
async fn start(
    mut config: Config,
    scene: &Arc<Scene>,
    finished: mpsc::Sender<(usize, Instant)>,
) -> anyhow::Result<Service> {
    loop {
        let register = handlers(scene.clone(), finished.clone())?;
        match Service::start_with(config.clone(), register).await {
            Err(ServiceError::Listen { error, .. })
                if error.kind() == std::io::ErrorKind::AddrInUse && config.server.listen.port() != 0 =>
            {
                config.server.listen.set_port(0);
            }
            started => return Ok(started?),
        }
    }
}

/// The job handler, and the callback that reports a finished customer.
fn handlers(
    scene: Arc<Scene>,
    finished: mpsc::Sender<(usize, Instant)>,
) -> anyhow::Result<impl FnOnce(BulkServiceBuilder) -> BulkServiceBuilder> {
    let kind = JobType::new(KIND)?;
    let handled = scene.clone();
    let handler = move |job: Job| {
        let scene = handled.clone();
        async move {
            tokio::time::sleep(RUN).await;
            if let Some(customer) = scene.position(job.group.as_str()) {
                scene.done[customer].fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, JobError>(())
        }
    };
    // Called when the last outcome of a customer is on disk: its time includes that.
    let on_complete = move |batch: CompletedBatch| {
        if let Some(customer) = scene.position(batch.group.as_str()) {
            // The channel has room for every customer.
            let _ = finished.try_send((customer, Instant::now()));
        }
        std::future::ready(())
    };
    Ok(|engine: BulkServiceBuilder| engine.handler(kind, handler).on_complete(on_complete))
}

async fn submit(service: &Service, scene: &Scene, customer: usize) -> anyhow::Result<Submitted> {
    let mut submission = Submission::new(scene.names[customer])?.batch(BATCH)?;
    for job in 0..scene.jobs[customer] {
        submission = submission.job(format!("promo-{job}"), KIND, "{}")?;
    }
    let submitted = submission.seal().submit_to(&**service.store()).await?;
    if let Some((job, refusal)) = submitted.refused.first() {
        anyhow::bail!("job {job} was refused: {refusal}");
    }
    Ok(submitted)
}
