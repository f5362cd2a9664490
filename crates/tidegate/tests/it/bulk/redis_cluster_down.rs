//! A Cluster that has lost one of its servers: shards on the others continue, and the outage costs them no job.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::config::BulkConfig;
use tidegate::{Job, JobError, Millis, Options, Submission, Tidegate};
use tidegate_testkit::servers::{RedisCluster, RedisOptions};

const GROUPS: u64 = 8;
const JOBS: u64 = 60;
/// Longer than any machine needs for one step.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_server_of_a_cluster_costs_the_others_nothing() {
    let mut options = RedisOptions::durable();
    options.args = [
        "--cluster-require-full-coverage",
        "no",
        // Short enough for the others to notice, and longer than a busy machine stalls.
        "--cluster-node-timeout",
        "6000",
    ]
    .map(String::from)
    .into();
    // Of three, so that the others are still a majority: without one they would not serve.
    let mut cluster = tokio::task::block_in_place(|| RedisCluster::start_with(3, options)).unwrap();
    let urls = cluster.urls();

    let mut config = BulkConfig::default();
    // Slow enough that most jobs are unfinished when the server is killed, even if that takes long.
    config.backpressure.global_rps = 30.0.into();
    config.backpressure.rate_limit_window_sec = 0.1;
    // Longer than a machine stalls, and shorter than the outage: outcomes that waited for the server would be late.
    config.worker_pool.job_timeout_ms = Millis(7_500);
    config.worker_pool.lease_margin_ms = Millis(7_500);
    // A leased job whose outcome does not arrive in time is dead.
    config.worker_pool.max_retry_count = 0;
    let workers = u64::from(config.worker_pool.worker_count);
    let ran = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = ran.clone();
    let handler = move |job: Job| {
        seen.lock().unwrap().insert(format!("{}/{}", job.group, job.id));
        // Long enough that some jobs run when the server is killed: their outcomes cannot be stored.
        async {
            tokio::time::sleep(Duration::from_millis(80)).await;
            Ok::<_, JobError>(())
        }
    };
    let options = Options::redis(&urls[0])
        .more_urls(&urls[1..])
        .shards(4)
        .config(config);
    let tide = Tidegate::connect(options).await.unwrap();
    let tide = tide.handler("SEND", handler).unwrap().start().unwrap();
    for group in 0..GROUPS {
        let mut part = Submission::new(format!("group-{group}"))
            .unwrap()
            .batch("spring")
            .unwrap();
        for job in 0..JOBS {
            part = part.job(format!("job-{job}"), "SEND", "{}").unwrap();
        }
        tide.submit(part.seal()).await.unwrap();
    }
    while ran.lock().unwrap().len() < 50 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Not the server that counts the starts of all: without it nothing may start.
    let counting = cluster.owner("bulk-action:{limit}:rate-limit").unwrap().port();
    let other = cluster
        .nodes()
        .iter()
        .position(|node| node.port() != counting)
        .unwrap();
    tokio::task::block_in_place(|| cluster.kill(other)).unwrap();
    let before = ran.lock().unwrap().clone();
    let gone = Instant::now();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let meanwhile = loop {
        let meanwhile: BTreeSet<String> = ran.lock().unwrap().difference(&before).cloned().collect();
        if meanwhile.len() > 50 {
            break meanwhile;
        }
        assert!(
            gone.elapsed() < PATIENCE,
            "only {} ran meanwhile",
            meanwhile.len()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // Jobs that were leased at the last moment still run: as many as there are workers, not more.
    let ran_meanwhile = |group: u64| {
        let group = format!("group-{group}/");
        meanwhile.iter().filter(|job| job.starts_with(&group)).count() as u64
    };
    println!(
        "{} before, {} in {:.0?} with one of three servers unavailable",
        before.len(),
        meanwhile.len(),
        gone.elapsed()
    );
    tokio::task::block_in_place(|| cluster.restart(other)).unwrap();
    let mut dead = 0;
    for group in 0..GROUPS {
        let mut progress = tide.follow(format!("group-{group}"), "spring").unwrap();
        let finished = async { while progress.next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(PATIENCE, finished).await.unwrap();
        let batch = tide.batch(format!("group-{group}"), "spring").await.unwrap();
        let meanwhile = ran_meanwhile(group);
        println!(
            "group-{group}: {meanwhile} meanwhile, {:?} {:?}",
            batch.counts, batch.errors
        );
        if meanwhile > workers {
            assert_eq!(batch.counts.failed, 0, "group-{group} is on the other server");
        }
        dead += batch.counts.failed;
    }
    let all = ran.lock().unwrap().len();
    println!("{all} ran, {dead} dead");
    assert_eq!(all as u64, GROUPS * JOBS);
    // The jobs of that server that ran when it was killed.
    assert!(dead <= workers, "{dead}");
    tide.shutdown().await.unwrap();
}
