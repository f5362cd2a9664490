//! Several engine processes share one queue on a real Redis: work spreads, the limit holds over all of them
//! together, and whatever is killed or stalled, nothing is lost and nothing counts twice.
//!
//! The tests print figures with `--nocapture`.

use std::path::Path;
use std::time::{Duration, Instant};

use super::workers;
use tempfile::TempDir;
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use workers::{
    Figures, LEASE, LIMIT, Submitting, WORKERS, Worker, all_completed, begun_again, check, client, loads,
    submit,
};

use tidegate_testkit::child::{self, DEADLINE};

/// A folder with the URL of the server.
fn folder(url: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("url"), url).unwrap();
    folder
}

async fn start(test: &str, folder: &Path, count: usize) -> Vec<Worker> {
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(Worker::start(test, folder).await);
    }
    workers
}

fn print(figures: &Figures) {
    println!("jobs                     {:>6}", figures.jobs);
    println!("lost                     {:>6}", figures.lost);
    println!("repeated runs            {:>6}", figures.repeated_runs);
    println!("repeated callbacks       {:>6}", figures.repeated_callbacks);
    let (seen, counted) = figures.most_per_window;
    println!("most started per window  {seen:>6} by evidence, {counted} by the store, {LIMIT} allowed");
    println!(
        "most begun per window    {:>6} by this machine's clock",
        figures.most_begun_per_window
    );
    println!(
        "longest, lease to start  {:>6} ms",
        figures.longest_lease_to_start_ms
    );
    println!("begun after the lease    {:>6}", figures.begun_too_late);
    println!("runs per process         {:?}", figures.evidence.processes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_spreads_over_four_processes_and_the_limit_holds_over_all() {
    if let Some(folder) = child::folder() {
        return workers::work(&folder).await;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let folder = folder(&server.url());
    // No lease expires here, however long the machine stalls.
    std::fs::write(folder.path().join("timeout"), "120000").unwrap();
    // No process runs more jobs at once than it has workers. When this many have begun and none has ended, each process
    // has its share, and none was too quick for the others.
    let all_workers = 4 * u64::from(WORKERS);
    std::fs::write(folder.path().join("together"), all_workers.to_string()).unwrap();
    let test = "bulk::redis_processes::work_spreads_over_four_processes_and_the_limit_holds_over_all";
    let workers = start(test, folder.path(), 4).await;
    let tide = client(&server.url()).await;
    let loads = loads(9, 100);
    for load in &loads {
        submit(&tide, load).await;
    }
    all_completed(&tide, folder.path(), &loads).await;
    for worker in workers {
        worker.stop().await;
    }
    let figures = check(&tide, folder.path(), &loads).await;
    print(&figures);
    assert_eq!((figures.repeated_runs, figures.repeated_callbacks), (0, 0));
    let shares = figures.evidence.processes();
    assert!(
        shares.len() == 4 && shares.values().all(|&runs| runs >= u64::from(WORKERS)),
        "{shares:?}"
    );
    tide.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_was_running_runs_again_elsewhere() {
    if let Some(folder) = child::folder() {
        return workers::work(&folder).await;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let folder = folder(&server.url());
    let test = "bulk::redis_processes::what_a_killed_process_was_running_runs_again_elsewhere";
    let mut workers = start(test, folder.path(), 2).await;
    let submitting = Submitting::start(&server.url(), 9).await;
    let killed = workers[0].kill().await;
    let (loads, _) = submitting.end().await;
    let tide = client(&server.url()).await;
    all_completed(&tide, folder.path(), &loads).await;
    let figures = check(&tide, folder.path(), &loads).await;
    print(&figures);
    // On a machine that stalls, a run of the other process may outlive its lease and be repeated, too. The runs of the
    // killed process must be repeated.
    for first in &killed {
        let again = figures.evidence.runs.iter();
        let again: Vec<_> = again
            .filter(|run| run.job == first.job && run.attempt > first.attempt)
            .collect();
        assert!(
            again.iter().any(|run| run.process == workers[1].id),
            "{first:?} ended with its process, and ran again as {again:?}"
        );
        for run in again {
            let after = Duration::from_millis(run.leased - first.leased);
            assert!(
                after >= LEASE,
                "{run:?} was leased before the lease of {first:?} had expired"
            );
        }
    }
    workers.remove(1).stop().await;
    tide.shutdown().await.unwrap();
}

const RESTARTS: u32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_loses_nothing_and_never_exceeds_the_limit() {
    if let Some(folder) = child::folder() {
        return workers::work(&folder).await;
    }
    let begun = Instant::now();
    let mut server = RedisServer::start(RedisOptions::durable()).unwrap();
    let url = server.url();
    let folder = folder(&url);
    let test = "bulk::redis_processes::chaos_loses_nothing_and_never_exceeds_the_limit";
    let mut workers = start(test, folder.path(), 4).await;
    // Processes are busy whenever one is killed, however long that takes.
    let submitting = Submitting::start(&url, 30).await;

    let mut stalled = None;
    for restart in 1..=RESTARTS {
        tokio::time::sleep(Duration::from_millis(700)).await;
        match restart {
            2 => drop(workers[0].kill().await),
            3 => stalled = Some((Instant::now(), workers[1].stall().await)),
            8 => drop(workers[2].kill().await),
            _ => {}
        }
        tokio::task::block_in_place(|| server.kill()).unwrap();
        tokio::time::sleep(Duration::from_millis(u64::from(restart % 4) * 150)).await;
        tokio::task::block_in_place(|| server.restart()).unwrap();
        // It stays stopped until another process has begun one of its runs: then its outcome is late and refused.
        while let Some((since, inside)) = &stalled {
            if begun_again(folder.path(), inside) {
                println!("stalled for {:?}, leases last {LEASE:?}", since.elapsed());
                workers[1].wake();
                stalled = None;
            } else if restart < RESTARTS {
                break;
            } else {
                assert!(since.elapsed() < DEADLINE, "nobody runs {inside:?} again");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    let (loads, repeated) = submitting.end().await;

    let tide = client(&url).await;
    all_completed(&tide, folder.path(), &loads).await;
    let figures = check(&tide, folder.path(), &loads).await;
    let late = workers[1].late_answers().await;
    print(&figures);
    println!("kills of the server      {RESTARTS:>6}, of processes 2, stalls 1");
    println!("repeated submissions     {repeated:>6}");
    println!("late answers refused     {late:>6}");
    println!("seconds                  {:>6.1}", begun.elapsed().as_secs_f64());
    assert!(
        figures.repeated_runs > 0,
        "what was killed and stalled in the middle ran again"
    );
    workers.remove(3).stop().await;
    workers.remove(1).stop().await;
    tide.shutdown().await.unwrap();
}
