//! Several engine processes share one queue on a real Redis: work spreads, the limit holds over all of them
//! together, and whatever is killed or stalled, nothing is lost and nothing counts twice.
//!
//! Figures are printed with `--nocapture`.

use super::workers;
use crate::support::child;

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use workers::{Figures, LEASE, LIMIT, Worker, check, client, decided, loads, submit};

/// A folder that says where the server is.
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
    println!("longest way, lease to start {:>3} ms", figures.longest_way_ms);
    println!("runs per process         {:?}", figures.evidence.processes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_spreads_over_four_processes_and_the_limit_holds_over_all() {
    if let Some(folder) = child::folder() {
        return workers::work(&folder).await;
    }
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let folder = folder(&server.url());
    // No lease runs out here, however long the machine stalls.
    std::fs::write(folder.path().join("timeout"), "20000").unwrap();
    let test = "bulk::redis_processes::work_spreads_over_four_processes_and_the_limit_holds_over_all";
    let workers = start(test, folder.path(), 4).await;
    let tide = client(&server.url()).await;
    let loads = loads(9, 100);
    for load in &loads {
        submit(&tide, load).await;
    }
    decided(&tide, &loads).await;
    for worker in workers {
        worker.stop().await;
    }
    let figures = check(&tide, folder.path(), &loads).await;
    print(&figures);
    assert_eq!((figures.repeated_runs, figures.repeated_callbacks), (0, 0));
    let shares = figures.evidence.processes();
    // An even share would be a quarter.
    assert!(
        shares.len() == 4 && shares.values().all(|&runs| runs * 20 >= figures.jobs),
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
    let tide = client(&server.url()).await;
    // More than the first can do before it is killed.
    let loads = loads(9, 200);
    for load in &loads {
        submit(&tide, load).await;
    }
    workers[0].kill().await;
    decided(&tide, &loads).await;
    let figures = check(&tide, folder.path(), &loads).await;
    print(&figures);
    let runs = &figures.evidence.runs;
    let mut seen = 0;
    for run in runs.iter().filter(|run| run.attempt == 2) {
        assert_eq!(run.process, workers[1].id);
        // One that was killed between lease and start left no trace of its first attempt.
        let Some(first) = runs.iter().find(|one| one.job == run.job && one.attempt == 1) else {
            continue;
        };
        assert_eq!(first.process, workers[0].id);
        let after = Duration::from_millis(run.leased - first.leased);
        assert!(
            after >= LEASE,
            "{run:?} was leased before the lease of {first:?} had run out"
        );
        seen += 1;
    }
    assert!(seen > 0, "the killed process was running something");
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
    let loads = loads(30, 100);

    let submitting = {
        let (url, loads) = (url.clone(), loads.clone());
        tokio::spawn(async move {
            let tide = client(&url).await;
            let mut repeated = 0;
            for load in &loads {
                repeated += submit(&tide, load).await;
                // Not all at once: the server is to be killed under submissions, too.
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            tide.shutdown().await.unwrap();
            repeated
        })
    };

    let mut stalled_at = None;
    for restart in 1..=RESTARTS {
        tokio::time::sleep(Duration::from_millis(700)).await;
        match restart {
            2 => workers[0].kill().await,
            3 => {
                workers[1].stall().await;
                stalled_at = Some(Instant::now());
            }
            8 => workers[2].kill().await,
            _ => {}
        }
        tokio::task::block_in_place(|| server.kill()).unwrap();
        tokio::time::sleep(Duration::from_millis(u64::from(restart % 4) * 150)).await;
        tokio::task::block_in_place(|| server.restart()).unwrap();
        if let Some(since) = stalled_at.filter(|since| since.elapsed() > LEASE * 2) {
            println!("stalled for {:?}, leases last {LEASE:?}", since.elapsed());
            workers[1].wake();
            stalled_at = None;
        }
    }
    assert!(stalled_at.is_none(), "it woke up");
    let repeated = submitting.await.unwrap();

    let tide = client(&url).await;
    decided(&tide, &loads).await;
    let figures = check(&tide, folder.path(), &loads).await;
    let late = workers[1].late_answers();
    print(&figures);
    println!("kills of the server      {RESTARTS:>6}, of processes 2, stalls 1");
    println!("repeated submissions     {repeated:>6}");
    println!("late answers refused     {late:>6}");
    println!("seconds                  {:>6.1}", begun.elapsed().as_secs_f64());
    assert!(late > 0, "the process that was stalled answered late");
    assert!(
        figures.repeated_runs > 0,
        "something was running when it was killed"
    );
    workers.remove(3).stop().await;
    workers.remove(1).stop().await;
    tide.shutdown().await.unwrap();
}
