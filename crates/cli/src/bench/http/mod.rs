//! `tidegate bench http`: jobs through the HTTP API. Clients in this process enqueue, lease and settle in chunks over
//! TCP on one machine; the service is a child process. For comparison it measures HTTP alone and the store alone.

mod load;

use clap::Args;
use serde::Serialize;
use tidegate_client::Client;

use self::load::{Calls, Load};
use super::bulk::DurabilityArg;
use super::child::Child;
use super::usage;

#[derive(Debug, Clone, Args)]
pub(super) struct HttpArgs {
    #[arg(long, default_value_t = 200_000)]
    pub(super) jobs: u64,
    #[arg(long, default_value_t = 100)]
    pub(super) groups: u64,
    /// Bytes of each job's payload
    #[arg(long, default_value_t = 200)]
    pub(super) payload: usize,
    /// Jobs per call, up to 1,000
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(super) batch: u64,
    /// Concurrent calls of each kind, each on its own connection
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(super) connections: u64,
    #[arg(long, value_enum, default_value = "sync")]
    pub(super) durability: DurabilityArg,
    /// Folder to work in; a temporary one below the current folder if absent
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    enqueue_per_sec: u64,
    /// Lease and settle, with all jobs waiting.
    work_per_sec: u64,
    /// Enqueue, lease and settle at once.
    lifecycle_per_sec: u64,
    /// Latencies of the calls of the lifecycle.
    enqueue_p50_ms: f64,
    enqueue_p99_ms: f64,
    lease_p50_ms: f64,
    lease_p99_ms: f64,
    settle_p50_ms: f64,
    settle_p99_ms: f64,
    /// Resident memory of the service at the end.
    server_memory_bytes: u64,
    /// Calls without a body that need no store.
    floor_calls_per_sec: u64,
    /// The same chunks as in enqueue, refused before they reach the store.
    floor_jobs_per_sec: u64,
    /// The same lifecycle on the embedded store, without HTTP.
    store_lifecycle_per_sec: u64,
    jobs: u64,
    groups: u64,
    payload: usize,
    batch: u64,
    connections: u64,
    durability: String,
}

pub(super) fn run(args: &HttpArgs) -> anyhow::Result<()> {
    anyhow::ensure!(args.jobs > 0 && args.groups > 0, "--jobs and --groups start at 1");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(args))?;
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        print_table(&figures);
    }
    Ok(())
}

async fn measure(args: &HttpArgs) -> anyhow::Result<Figures> {
    let folder = usage::folder(args.dir.as_deref())?;
    // No rate limit, and short windows: the first one counts as spent, which would distort the speed.
    let settings = serde_json::json!({
        "server": {"listen": "127.0.0.1:0"},
        "store": {
            "data": folder.path().join("data"),
            "durability": format!("{:?}", args.durability).to_lowercase(),
        },
        "backpressure": {"global_rps": 1e9, "rate_limit_window_sec": 0.05},
    });
    let service = Child::start(folder.path(), &settings).await?;
    let load = Load::new(Client::new(service.url())?, args);

    let floor_calls = load.small_calls().await?;
    let floor_jobs = load.refused().await?;
    let enqueue = load.enqueue("queued").await?;
    let work = load.work().await?;
    let (lifecycle, calls) = load.lifecycle("lifecycle").await?;
    let server_memory_bytes = usage::memory_bytes_of(service.id());
    service.stop().await?;
    let store_lifecycle = load::store_alone(&folder.path().join("alone"), args).await?;

    let Calls {
        enqueue: e,
        lease: l,
        settle: s,
    } = calls;
    Ok(Figures {
        enqueue_per_sec: enqueue,
        work_per_sec: work,
        lifecycle_per_sec: lifecycle,
        enqueue_p50_ms: e.at(0.50),
        enqueue_p99_ms: e.at(0.99),
        lease_p50_ms: l.at(0.50),
        lease_p99_ms: l.at(0.99),
        settle_p50_ms: s.at(0.50),
        settle_p99_ms: s.at(0.99),
        server_memory_bytes,
        floor_calls_per_sec: floor_calls,
        floor_jobs_per_sec: floor_jobs,
        store_lifecycle_per_sec: store_lifecycle,
        jobs: args.jobs,
        groups: args.groups,
        payload: args.payload,
        batch: args.batch,
        connections: args.connections,
        durability: format!("{:?}", args.durability).to_lowercase(),
    })
}

fn print_table(figures: &Figures) {
    println!(
        "http, embedded store ({}), {} jobs in {} groups, {}-byte payloads, {} per call, {} connections of each kind",
        figures.durability, figures.jobs, figures.groups, figures.payload, figures.batch, figures.connections
    );
    let rate = |per_sec: u64, what: &str| format!("{per_sec:>10} {what}/s");
    let times = |p50: f64, p99: f64| format!("{p50:>10.2} ms, p99 {p99:.2} ms");
    let rows = [
        ("enqueue", rate(figures.enqueue_per_sec, "jobs")),
        ("lease and settle", rate(figures.work_per_sec, "jobs")),
        ("lifecycle", rate(figures.lifecycle_per_sec, "jobs")),
        (
            "enqueue call p50",
            times(figures.enqueue_p50_ms, figures.enqueue_p99_ms),
        ),
        (
            "lease call p50",
            times(figures.lease_p50_ms, figures.lease_p99_ms),
        ),
        (
            "settle call p50",
            times(figures.settle_p50_ms, figures.settle_p99_ms),
        ),
        (
            "service's memory",
            format!("{:>10} MiB", figures.server_memory_bytes / (1024 * 1024)),
        ),
        ("floor: empty calls", rate(figures.floor_calls_per_sec, "calls")),
        ("floor: HTTP, no store", rate(figures.floor_jobs_per_sec, "jobs")),
        (
            "floor: store, no HTTP",
            rate(figures.store_lifecycle_per_sec, "jobs"),
        ),
    ];
    for (name, value) in rows {
        println!("  {name:<22} {value}");
    }
}
