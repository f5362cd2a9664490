//! Engine processes on one Redis, and the evidence that their handlers leave outside of it.
//!
//! Every run and every completion callback appends one line to a file, at its beginning and in one write, so
//! that no kill leaves half a line and no run goes unseen:
//!
//! ```text
//!   run <group>/<action>/<job> <attempt> <leased at> <begun at> <process>
//!   completed <group>/<action> <succeeded> <failed> <process>
//! ```
//!
//! Rule: a run counts in the window in which it was leased, by the store's clock; that is where the limit is
//! charged. The store says so itself: a lease ends `job_timeout_ms + lease_margin_ms` after it began. When the
//! handler begins, by this machine's clock, is later by the way of the answer: short, unless the server or the
//! process was stopped in between.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate::config::BulkConfig;
use tidegate::views::QueueStats;
use tidegate::{CompletedAction, Job, JobError, Millis, Options, Redis, Submission, Tidegate};
use tidegate_store::{Clock, SystemClock};

use crate::support::child::{self, DEADLINE, Running};

pub(crate) const KIND: &str = "SEND";
pub(crate) const WINDOW: Millis = Millis(200);
pub(crate) const LIMIT: u64 = 40;
pub(crate) const WORKERS: u32 = 12;
const TIMEOUT: Millis = Millis(1_000);
const MARGIN: Millis = Millis(1_000);
/// How long a lease lasts.
pub(crate) const LEASE: Duration = Duration::from_millis(TIMEOUT.0 + MARGIN.0);
/// What every run takes.
const RUN: Duration = Duration::from_millis(100);
/// Every so many jobs, one will never work.
const ONE_FAILS_IN: u64 = 50;
/// Jobs in one call.
const BATCH: usize = 20;

pub(crate) fn options(url: &str) -> Options<Redis> {
    Options::redis(url).config(config(TIMEOUT))
}

fn config(timeout: Millis) -> BulkConfig {
    let mut config = BulkConfig::default();
    config.backpressure.rate_limit_window_sec = WINDOW.as_secs_f64();
    config.backpressure.global_rps = LIMIT as f64 / WINDOW.as_secs_f64();
    config.backpressure.default_backoff_ms = Millis(50);
    config.backpressure.max_backoff_ms = Millis(200);
    config.worker_pool.worker_count = WORKERS;
    config.worker_pool.job_timeout_ms = timeout;
    config.worker_pool.lease_margin_ms = MARGIN;
    config.worker_pool.max_retry_count = 50;
    config.worker_pool.shutdown_grace_period_ms = Millis(5_000);
    config
}

/// A connection that only submits and looks.
pub(crate) async fn client(url: &str) -> Tidegate {
    Tidegate::connect(options(url)).await.unwrap().start().unwrap()
}

fn appender(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

fn now() -> u64 {
    SystemClock.now().0
}

/// Whether a job will never work.
fn fails(job: u64) -> bool {
    job % ONE_FAILS_IN == 7
}

/// The part of an engine process. It ends in good order on SIGTERM.
pub(crate) async fn work(folder: &Path) {
    let log = appender(&folder.join(format!("log-{}", std::process::id())));
    tracing_subscriber::fmt()
        .with_writer(Mutex::new(log))
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
    let url = std::fs::read_to_string(folder.join("url")).unwrap();
    let timeout = std::fs::read_to_string(folder.join("timeout"));
    let timeout = timeout.map_or(TIMEOUT, |text| Millis(text.parse().unwrap()));
    let evidence = Arc::new(appender(&folder.join("evidence")));
    let callbacks = evidence.clone();
    let handler = move |job: Job| {
        let leased = (job.deadline - timeout - MARGIN).0;
        let (process, begun) = (std::process::id(), now());
        let (group, action, id, attempt) = (&job.group, &job.action, &job.id, job.attempt);
        let line = format!("run {group}/{action}/{id} {attempt} {leased} {begun} {process}\n");
        (&*evidence).write_all(line.as_bytes()).unwrap();
        async move {
            tokio::time::sleep(RUN).await;
            match fails(number(job.id.as_str())) {
                true => Err(JobError::failed("never")),
                false => Ok(format!("{} {process}", job.attempt)),
            }
        }
    };
    let completed = move |done: CompletedAction| {
        let (group, action, counts) = (done.group, done.action, done.counts);
        let (success, failed) = (counts.success, counts.failed);
        let line = format!(
            "completed {group}/{action} {success} {failed} {}\n",
            std::process::id()
        );
        (&*callbacks).write_all(line.as_bytes()).unwrap();
        async {}
    };
    let tide = Tidegate::connect(Options::redis(&url).config(config(timeout)))
        .await
        .unwrap()
        .handler(KIND, handler)
        .unwrap()
        .on_complete(completed)
        .claim_for(Millis(timeout.0 + MARGIN.0))
        .start()
        .unwrap();
    println!("RUNNING");
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    // A test that was killed leaves no process behind for long.
    let _ = tokio::time::timeout(DEADLINE, stop.recv()).await;
    tide.shutdown().await.unwrap();
    println!("FINISHED");
}

fn number(job: &str) -> u64 {
    job.rsplit_once('-').unwrap().1.parse().unwrap()
}

/// An engine process.
pub(crate) struct Worker {
    running: Running,
    folder: PathBuf,
    pub(crate) id: u32,
}

impl Worker {
    /// Runs [`work`] in the test of this name.
    pub(crate) async fn start(test: &str, folder: &Path) -> Self {
        let mut running = child::spawn(test, folder, "");
        running.says("RUNNING").await;
        let id = running.process.id().unwrap();
        let folder = folder.to_owned();
        Self { running, folder, id }
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        kill_process(id.unwrap(), signal).unwrap();
    }

    /// Waits until it has begun a run this very moment, so that a signal hits it with leases in its hands.
    async fn busy(&self) {
        let begun = Instant::now();
        loop {
            let all = Evidence::read(&self.folder);
            let last = all.runs.iter().rev().find(|run| run.process == self.id);
            if last.is_some_and(|run| now().saturating_sub(run.begun) < 40) {
                return;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "process {} has nothing to do",
                self.id
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// `kill -9` in the middle of runs.
    pub(crate) async fn kill(&mut self) {
        self.busy().await;
        self.running.process.kill().await.unwrap();
    }

    /// SIGSTOP in the middle of runs.
    pub(crate) async fn stall(&self) {
        self.busy().await;
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends in good order.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        self.running.says("FINISHED").await;
        assert!(self.running.process.wait().await.unwrap().success());
    }

    /// How many of its answers came too late, by its log.
    pub(crate) fn late_answers(&self) -> u64 {
        let log = std::fs::read_to_string(self.folder.join(format!("log-{}", self.id))).unwrap_or_default();
        let late = log.lines().filter(|line| line.contains("came too late"));
        let count = |line: &str| line.rsplit_once("late=")?.1.trim().parse::<u64>().ok();
        late.map(|line| count(line).unwrap()).sum()
    }
}

/// One action: its group, its name, its jobs.
pub(crate) type Load = (String, String, u64);

/// `actions` actions of `jobs` jobs each, over three groups.
pub(crate) fn loads(actions: u64, jobs: u64) -> Vec<Load> {
    let group = |action| ["A", "B", "C"][(action % 3) as usize].to_owned();
    (0..actions)
        .map(|action| (group(action), format!("action-{action}"), jobs))
        .collect()
}

/// Submits an action, again and again while the server is away: calls that had to be repeated.
pub(crate) async fn submit(tide: &Tidegate, (group, action, jobs): &Load) -> u64 {
    let ids: Vec<String> = (0..*jobs).map(|job| format!("{action}-{job}")).collect();
    let mut repeated = 0;
    for (index, batch) in ids.chunks(BATCH).enumerate() {
        let mut part = Submission::new(group).unwrap().action(action).unwrap();
        for id in batch {
            part = part.job(id, KIND, "{}").unwrap();
        }
        if (index + 1) * BATCH >= ids.len() {
            part = part.seal();
        }
        loop {
            match tide.submit(part.clone()).await {
                Ok(submitted) => {
                    assert_eq!(submitted.refused, []);
                    assert_eq!(submitted.accepted + submitted.duplicates, batch.len() as u64);
                    break;
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            repeated += 1;
        }
    }
    repeated
}

/// Waits until every action is decided.
pub(crate) async fn decided(tide: &Tidegate, loads: &[Load]) {
    let wait = async {
        for (group, action, _) in loads {
            let mut progress = tide.follow(group, action).unwrap();
            while let Some(now) = progress.next().await {
                now.unwrap();
            }
        }
    };
    if tokio::time::timeout(DEADLINE, wait).await.is_err() {
        panic!("not all actions are decided: {:#?}", tide.stats().await);
    }
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) job: String,
    pub(crate) attempt: u32,
    pub(crate) leased: u64,
    pub(crate) begun: u64,
    pub(crate) process: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) runs: Vec<Run>,
    /// What each callback of an action was told.
    pub(crate) completed: BTreeMap<String, Vec<(u64, u64)>>,
}

impl Evidence {
    pub(crate) fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("evidence")).unwrap_or_default();
        let mut evidence = Self::default();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["run", job, attempt, leased, begun, process] => evidence.runs.push(Run {
                    job: job.to_owned(),
                    attempt: attempt.parse().unwrap(),
                    leased: leased.parse().unwrap(),
                    begun: begun.parse().unwrap(),
                    process: process.parse().unwrap(),
                }),
                ["completed", action, success, failed, _] => {
                    let told = (success.parse().unwrap(), failed.parse().unwrap());
                    evidence
                        .completed
                        .entry(action.to_owned())
                        .or_default()
                        .push(told);
                }
                _ => panic!("{line:?}"),
            }
        }
        evidence
    }

    pub(crate) fn processes(&self) -> BTreeMap<u32, u64> {
        let mut runs = BTreeMap::new();
        for run in &self.runs {
            *runs.entry(run.process).or_default() += 1;
        }
        runs
    }
}

/// What came of it all.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) jobs: u64,
    pub(crate) lost: u64,
    pub(crate) repeated_runs: u64,
    pub(crate) repeated_callbacks: u64,
    /// By evidence, and by the store.
    pub(crate) most_per_window: (u64, u64),
    /// Handlers that began in one window by this machine's clock, whenever they were leased.
    pub(crate) most_begun_per_window: u64,
    pub(crate) longest_way_ms: u64,
    pub(crate) evidence: Evidence,
}

/// Checks everything that must hold however often what was killed: nothing lost, counts exact, decided once,
/// never over the limit, late answers refused.
pub(crate) async fn check(tide: &Tidegate, folder: &Path, loads: &[Load]) -> Figures {
    let evidence = Evidence::read(folder);
    let mut attempts: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
    let (mut windows, mut begun) = <(BTreeMap<u64, u64>, BTreeMap<u64, u64>)>::default();
    for run in &evidence.runs {
        attempts
            .entry(&run.job)
            .or_default()
            .push((run.attempt, run.process));
        *windows.entry(run.leased / WINDOW.0).or_default() += 1;
        *begun.entry(run.begun / WINDOW.0).or_default() += 1;
        assert!(run.begun >= run.leased, "{run:?} began before it was leased");
    }
    let most = windows.values().copied().max().unwrap_or_default();
    assert!(most <= LIMIT, "{most} starts in a window that allows {LIMIT}");

    let jobs: u64 = loads.iter().map(|(.., jobs)| jobs).sum();
    assert_eq!(attempts.len() as u64, jobs, "every job ran, and no other");
    for (job, attempts) in &attempts {
        let rising = attempts.is_sorted_by(|a, b| a.0 < b.0);
        assert!(rising, "{job} ran as attempts {attempts:?}");
    }

    for (group, action, jobs) in loads {
        let failed = (0..*jobs).filter(|&job| fails(job)).count() as u64;
        let told = (jobs - failed, failed);
        let view = tide.action(group, action).await.unwrap();
        let counts = view.counts;
        assert!(
            view.status.is_finished() && view.finished_at.is_some(),
            "{view:?}"
        );
        assert_eq!(
            (counts.total, counts.success, counts.failed),
            (*jobs, told.0, told.1)
        );
        let completed = &evidence.completed[&format!("{group}/{action}")];
        assert!(
            completed.iter().all(|one| *one == told),
            "{group}/{action}: {completed:?}"
        );

        // A run counts only if no other began after it: the answer of an earlier one was late, and refused.
        let mut after = None;
        loop {
            let page = tide.results(group, action, after, 100).await.unwrap();
            for job in &page.items {
                let ran = &attempts[format!("{group}/{action}/{}", job.id).as_str()];
                let (attempt, process) = ran.last().unwrap();
                match &job.result {
                    Some(result) => assert_eq!(result, format!("{attempt} {process}").as_bytes(), "{ran:?}"),
                    None => assert_eq!(job.error.as_deref(), Some("never"), "{job:?}"),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    assert_eq!(evidence.completed.len(), loads.len());

    let stats: QueueStats = tide.stats().await.unwrap();
    assert_eq!(stats.counts.unfinished(), 0, "{stats:?}");
    assert_eq!(stats.counts.done + stats.counts.dead, jobs);
    assert_eq!(stats.limit_per_window, LIMIT);
    assert!(stats.most_started_per_window <= LIMIT, "{stats:?}");
    assert!(stats.most_started_per_window >= most, "{stats:?}");
    let callbacks = evidence.completed.values().map(Vec::len).sum::<usize>();
    Figures {
        jobs,
        lost: jobs - (stats.counts.done + stats.counts.dead),
        repeated_runs: evidence.runs.len() as u64 - jobs,
        repeated_callbacks: (callbacks - loads.len()) as u64,
        most_per_window: (most, stats.most_started_per_window),
        most_begun_per_window: begun.values().copied().max().unwrap_or_default(),
        longest_way_ms: evidence
            .runs
            .iter()
            .map(|run| run.begun - run.leased)
            .max()
            .unwrap(),
        evidence,
    }
}
