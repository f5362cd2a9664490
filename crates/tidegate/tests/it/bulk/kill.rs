//! A process that is killed twenty times in a row, while it submits and runs jobs, loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::config::BulkConfig;
use tidegate::views::{Query, View};
use tidegate::{BatchStatus, Error, Job, JobError, Millis, Options, Submission, Tidegate};
use tidegate_core::bulk::Refusal;
use tidegate_core::rng::Rng;
use tidegate_store::bulk::{BulkStoreExt, EmbeddedBulkOptions, EmbeddedBulkStore};

use tidegate_testkit::child;

const KIND: &str = "SEND";
const BATCH: &str = "spring";
const WORKERS: u32 = 16;
const KILLS: u32 = 20;
/// How long every other child lives after its start; the others are killed while they submit.
const LIFE_MS: std::ops::Range<u64> = 50..400;
/// Duration of a run. 16 workers need half a minute for all jobs, longer than all killed children live together: on a
/// machine that does not stall for long, every kill hits running jobs.
const RUN: Duration = Duration::from_millis(80);
const GROUPS: [(&str, u64); 3] = [("A", 6_600), ("B", 100), ("C", 50)];
/// No child ends by itself before this file exists.
const FINISH: &str = "finish";
/// Small, so that submitting takes a while.
const CHUNK: usize = 10;

fn options(folder: &Path) -> Options {
    let mut config = BulkConfig::default();
    config.backpressure.global_rps = 1e6.into();
    // The window in which a process ended counts as spent: a short one costs little time.
    config.backpressure.rate_limit_window_sec = 0.01;
    config.backpressure.default_backoff_ms = Millis(20);
    config.backpressure.max_backoff_ms = Millis(100);
    config.worker_pool.worker_count = WORKERS;
    config.worker_pool.max_retry_count = 50;
    Options::new(folder.join("data")).config(config)
}

fn appender(path: &Path) -> std::fs::File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The process that is killed.
async fn load(folder: &Path) {
    let log = Arc::new(appender(&folder.join("runs")));
    let handler = move |job: Job| {
        // One write, so that no kill leaves half a line; at the start, so that every run counts.
        let line = format!("{}/{} {}\n", job.group, job.id, job.attempt);
        (&*log).write_all(line.as_bytes()).unwrap();
        async {
            tokio::time::sleep(RUN).await;
            Ok::<_, JobError>(())
        }
    };
    let tide = Tidegate::open(options(folder))
        .unwrap()
        .handler(KIND, handler)
        .unwrap()
        .start()
        .unwrap();
    println!("RUNNING");
    submit_all(&tide, folder).await;
    for (group, _) in GROUPS {
        let mut progress = tide.follow(group, BATCH).unwrap();
        while let Some(now) = progress.next().await {
            now.unwrap();
        }
    }
    // On a machine that stalls, the work may be done before the last kill: then the process waits for it.
    while !folder.join(FINISH).exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tide.shutdown().await.unwrap();
    println!("FINISHED");
}

/// Submits everything, known or not. The store must know what it acknowledged to an earlier process.
async fn submit_all(tide: &Tidegate, folder: &Path) {
    let answered: BTreeSet<String> = lines(&folder.join("answered")).into_iter().collect();
    let mut answers = appender(&folder.join("answered"));
    for (group, jobs) in GROUPS {
        let ids: Vec<String> = (0..jobs).map(|job| format!("job-{job}")).collect();
        for chunk in ids.chunks(CHUNK) {
            let mut submission = Submission::new(group).unwrap().batch(BATCH).unwrap();
            for id in chunk {
                submission = submission.job(id, KIND, "{}").unwrap();
            }
            let name = format!("{group}/{}", chunk[0]);
            match tide.submit(submission).await {
                Ok(submitted) => {
                    assert_eq!(
                        submitted.accepted + submitted.duplicates,
                        chunk.len() as u64,
                        "{name}"
                    );
                    if answered.contains(&name) {
                        assert_eq!(submitted.accepted, 0, "{name} was acknowledged, and lost");
                    }
                }
                // An earlier process has sealed the batch.
                Err(Error::Refused(Refusal::Sealed(_))) => assert!(answered.contains(&name), "{name}"),
                Err(error) => panic!("{name}: {error}"),
            }
            answers.write_all(format!("{name}\n").as_bytes()).unwrap();
            println!("SUBMITTED {name}");
        }
        let seal = Submission::new(group).unwrap().batch(BATCH).unwrap().seal();
        match tide.submit(seal).await {
            Ok(_) | Err(Error::Refused(Refusal::Sealed(_))) => {}
            Err(error) => panic!("{group}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_lose_nothing() {
    if let Some(folder) = child::folder() {
        return load(&folder).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let seed = std::env::var("TIDEGATE_TEST_SEED").map_or(20, |seed| seed.parse().unwrap());
    println!("TIDEGATE_TEST_SEED={seed}");
    let mut moments = Rng::new(seed);
    let (mut hit_submitting, mut leased) = (0, 0);
    let chunks: u64 = GROUPS.iter().map(|(_, jobs)| jobs.div_ceil(CHUNK as u64)).sum();
    for kill in 0..KILLS {
        let before = lines(&folder.path().join("answered")).len() as u64;
        let mut running = child::spawn("bulk::kill::twenty_kills_lose_nothing", folder.path(), "");
        running.says("RUNNING").await;
        if kill % 2 == 0 {
            for _ in 0..moments.below(chunks * 3 / 4) {
                running.says("SUBMITTED").await;
            }
        } else {
            let life = Duration::from_millis(moments.between(LIFE_MS.start, LIFE_MS.end - 1));
            if let Ok(ended) = tokio::time::timeout(life, running.process.wait()).await {
                panic!("the child ended by itself before kill {kill}: {ended:?}");
            }
        }
        running.process.kill().await.unwrap();
        leased += leased_when_killed(folder.path()).await;
        let answered = lines(&folder.path().join("answered")).len() as u64;
        hit_submitting += u32::from(answered - before < chunks);
    }
    std::fs::write(folder.path().join(FINISH), "").unwrap();
    let mut last = child::spawn("bulk::kill::twenty_kills_lose_nothing", folder.path(), "");
    last.says("FINISHED").await;
    assert!(last.process.wait().await.unwrap().success());

    let tide = Tidegate::open(options(folder.path())).unwrap().start().unwrap();
    for (group, jobs) in GROUPS {
        let batch = tide.batch(group, BATCH).await.unwrap();
        assert_eq!(batch.status, BatchStatus::Completed, "{group}");
        let counts = batch.counts;
        assert_eq!(
            (counts.total, counts.success, counts.failed),
            (jobs, jobs, 0),
            "{group}"
        );
    }
    let stats = tide.stats().await.unwrap();
    assert_eq!(stats.counts.unfinished(), 0);
    tide.shutdown().await.unwrap();

    let mut runs: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for line in lines(&folder.path().join("runs")) {
        let (job, attempt) = line.split_once(' ').unwrap();
        runs.entry(job.to_owned())
            .or_default()
            .push(attempt.parse().unwrap());
    }
    let all: u64 = GROUPS.iter().map(|(_, jobs)| jobs).sum();
    assert_eq!(runs.len() as u64, all, "every job ran, and no other");
    for (job, attempts) in &runs {
        let rising = attempts.is_sorted_by(|a, b| a < b);
        assert!(rising && attempts[0] >= 1, "{job} ran as attempts {attempts:?}");
    }
    // A job runs again only if it was leased when its process was killed.
    let again = runs.values().map(Vec::len).sum::<usize>() as u64 - all;
    println!(
        "{all} jobs, {KILLS} kills ({hit_submitting} while submitting) of {leased} leases: {again} runs repeated"
    );
    assert!(
        again <= leased,
        "{again} runs were repeated, but only {leased} leases lost"
    );
}

/// A job counts as leased until its outcome is on disk, so this can be more than the workers.
async fn leased_when_killed(folder: &Path) -> u64 {
    let store = EmbeddedBulkStore::open(EmbeddedBulkOptions::new(folder.join("data"))).unwrap();
    let Ok(View::BulkStats(stats)) = store.call(Query::BulkStats).await.unwrap() else {
        panic!("no statistics");
    };
    store.close().await.unwrap();
    stats.counts.running
}
