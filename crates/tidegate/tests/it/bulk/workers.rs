//! Engine processes on one Redis, and the evidence that their handlers leave outside of it.
//!
//! Every run, at its beginning and at its end, and every completion callback append one line to a file, in one
//! write, so that no kill leaves half a line and no run goes unseen:
//!
//! ```text
//!   run <group>/<batch>/<job> <attempt> <leased at> <begun at> <process>
//!   ended <group>/<batch>/<job> <attempt> <process>
//!   completed <group>/<batch> <succeeded> <failed> <process>
//! ```
//!
//! A test cannot choose the moment at which a process stops. So it stops the process first, and then reads in these
//! lines whether that is inside of a run. If not, the process continues for a moment.
//!
//! Rule: a run counts in the window in which it was leased, by the store's clock, because the limit is charged there.
//! The lease says when that was: it ends `job_timeout_ms + lease_margin_ms` after it began. The handler begins later,
//! by this machine's clock: shortly after, unless the server or the process was stopped in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate::config::BulkConfig;
use tidegate::views::BulkStats;
use tidegate::{CompletedBatch, Job, JobError, Millis, Options, Redis, Submission, Tidegate};
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_testkit::child::{self, DEADLINE, Running};
use tokio::task::JoinHandle;

pub(crate) const KIND: &str = "SEND";
pub(crate) const WINDOW: Millis = Millis(200);
pub(crate) const LIMIT: u64 = 40;
pub(crate) const WORKERS: u32 = 12;
const TIMEOUT: Millis = Millis(1_000);
const MARGIN: Millis = Millis(1_000);
/// How long a lease lasts.
pub(crate) const LEASE: Duration = Duration::from_millis(TIMEOUT.0 + MARGIN.0);
/// Duration of a run.
const RUN: Duration = Duration::from_millis(100);
/// One job in this many always fails.
const ONE_FAILS_IN: u64 = 50;
/// Jobs in one call.
const CHUNK: usize = 20;

pub(crate) fn options(url: &str) -> Options<Redis> {
    Options::redis(url).config(config(TIMEOUT))
}

fn config(timeout: Millis) -> BulkConfig {
    let mut config = BulkConfig::default();
    config.backpressure.rate_limit_window_sec = WINDOW.as_secs_f64();
    config.backpressure.global_rps = (LIMIT as f64 / WINDOW.as_secs_f64()).into();
    config.backpressure.default_backoff_ms = Millis(50);
    config.backpressure.max_backoff_ms = Millis(200);
    config.worker_pool.worker_count = WORKERS;
    config.worker_pool.job_timeout_ms = timeout;
    config.worker_pool.lease_margin_ms = MARGIN;
    config.worker_pool.max_retry_count = 50;
    config.worker_pool.shutdown_grace_period_ms = Millis(5_000);
    config
}

/// A connection that only submits and reads. It follows the settings of the workers.
pub(crate) async fn client(url: &str) -> Tidegate {
    let options = options(url).follow_settings();
    Tidegate::connect(options).await.unwrap().start().unwrap()
}

fn appender(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

fn now() -> u64 {
    SystemClock.now().0
}

/// Whether a job always fails.
fn fails(job: u64) -> bool {
    job % ONE_FAILS_IN == 7
}

/// The timeout of a run, which a test can set.
fn timeout(folder: &Path) -> Millis {
    let text = std::fs::read_to_string(folder.join("timeout"));
    text.map_or(TIMEOUT, |text| Millis(text.parse().unwrap()))
}

/// Records the end of a run, however it ends: a handler that takes too long is dropped.
struct Ends {
    evidence: Arc<File>,
    line: String,
}

impl Drop for Ends {
    fn drop(&mut self) {
        // A panic here could meet another one.
        let _ = (&*self.evidence).write_all(self.line.as_bytes());
    }
}

/// Returns when this many runs have begun in all processes together.
async fn begun_by_all(folder: &Path, wanted: usize) {
    static SEEN: AtomicBool = AtomicBool::new(false);
    while !SEEN.load(Ordering::Relaxed) {
        let seen = Evidence::read(folder).runs.len() >= wanted;
        SEEN.fetch_or(seen, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs as an engine process until SIGTERM shuts it down.
pub(crate) async fn work(folder: &Path) {
    let log = appender(&folder.join(format!("log-{}", std::process::id())));
    tracing_subscriber::fmt()
        .with_writer(Mutex::new(log))
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
    let url = std::fs::read_to_string(folder.join("url")).unwrap();
    let timeout = timeout(folder);
    // No run ends before this many have begun.
    let together = std::fs::read_to_string(folder.join("together"));
    let together = together.map_or(0, |text| text.parse().unwrap());
    let evidence = Arc::new(appender(&folder.join("evidence")));
    let callbacks = evidence.clone();
    let seen = folder.to_owned();
    let handler = move |job: Job| {
        let leased = (job.deadline - timeout - MARGIN).0;
        let (process, begun) = (std::process::id(), now());
        let (group, batch, id, attempt) = (&job.group, &job.batch, &job.id, job.attempt);
        let line = format!("run {group}/{batch}/{id} {attempt} {leased} {begun} {process}\n");
        (&*evidence).write_all(line.as_bytes()).unwrap();
        let ends = Ends {
            evidence: evidence.clone(),
            line: format!("ended {group}/{batch}/{id} {attempt} {process}\n"),
        };
        let seen = seen.clone();
        async move {
            let _ends = ends;
            if together > 0 {
                begun_by_all(&seen, together).await;
            }
            tokio::time::sleep(RUN).await;
            match fails(number(job.id.as_str())) {
                true => Err(JobError::failed("never")),
                false => Ok(format!("{} {process}", job.attempt)),
            }
        }
    };
    let completed = move |done: CompletedBatch| {
        let (group, batch, counts) = (done.group, done.batch, done.counts);
        let (success, failed) = (counts.success, counts.failed);
        let line = format!(
            "completed {group}/{batch} {success} {failed} {}\n",
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

    /// Whether all its threads are stopped.
    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id)).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The second field is the thread's name in parentheses, whatever characters that has.
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Stops the process (SIGSTOP) inside of runs, and returns those. No other process has begun any of them by then.
    pub(crate) async fn stall(&self) -> Vec<Run> {
        let begun = Instant::now();
        loop {
            self.signal(Signal::STOP);
            while !self.is_stopped() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let inside = Evidence::read(&self.folder).inside(self.id);
            if !inside.is_empty() {
                return inside;
            }
            self.signal(Signal::CONT);
            assert!(
                begun.elapsed() < DEADLINE,
                "process {} has nothing to do",
                self.id
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the process (`kill -9`) inside of runs, and returns those: they never end.
    pub(crate) async fn kill(&mut self) -> Vec<Run> {
        let inside = self.stall().await;
        self.running.process.kill().await.unwrap();
        inside
    }

    /// Continues the process (SIGCONT).
    pub(crate) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    /// Shuts the process down.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        self.running.says("FINISHED").await;
        assert!(self.running.process.wait().await.unwrap().success());
    }

    /// How many of its outcomes were too late, by its log. Waits for the first.
    pub(crate) async fn late_answers(&self) -> u64 {
        let begun = Instant::now();
        loop {
            let log =
                std::fs::read_to_string(self.folder.join(format!("log-{}", self.id))).unwrap_or_default();
            let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let late = whole.filter(|line| line.contains("came too late"));
            let count = |line: &str| line.rsplit_once("late=")?.1.trim().parse::<u64>().ok();
            let late: u64 = late.map(|line| count(line).unwrap()).sum();
            if late > 0 {
                return late;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "no outcome of process {} was refused",
                self.id
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whether another process has begun one of these runs again.
pub(crate) fn begun_again(folder: &Path, stalled: &[Run]) -> bool {
    let again = |run: &Run, one: &Run| run.job == one.job && run.attempt > one.attempt;
    let runs = Evidence::read(folder).runs;
    stalled.iter().any(|one| runs.iter().any(|run| again(run, one)))
}

/// One batch: its group, its name, its jobs.
pub(crate) type Load = (String, String, u64);

/// A batch of `jobs` jobs, in one of three groups.
fn load(batch: u64, jobs: u64) -> Load {
    let group = ["A", "B", "C"][(batch % 3) as usize];
    (group.to_owned(), format!("batch-{batch}"), jobs)
}

/// `batches` batches of `jobs` jobs each, over three groups.
pub(crate) fn loads(batches: u64, jobs: u64) -> Vec<Load> {
    (0..batches).map(|batch| load(batch, jobs)).collect()
}

/// Submits batches of a hundred jobs, one after the other, for as long as a test needs busy processes, however slow the
/// machine is.
pub(crate) struct Submitting {
    over: Arc<AtomicBool>,
    task: JoinHandle<(Vec<Load>, u64)>,
}

impl Submitting {
    /// At least `least` batches.
    pub(crate) async fn start(url: &str, least: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (tide, seen) = (client(url).await, over.clone());
        let task = tokio::spawn(async move {
            let (mut all, mut repeated) = (Vec::new(), 0);
            while all.len() < least || !seen.load(Ordering::Relaxed) {
                let next = load(all.len() as u64, 100);
                repeated += submit(&tide, &next).await;
                all.push(next);
                // Not all at once: the server is killed during submissions, too. After the minimum, no more
                // come than can run: 40 jobs in 200 ms.
                let pause = if all.len() < least { 300 } else { 500 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            tide.shutdown().await.unwrap();
            (all, repeated)
        });
        Self { over, task }
    }

    /// Ends the load. Returns the submitted batches, and how many calls had to be repeated.
    pub(crate) async fn end(self) -> (Vec<Load>, u64) {
        self.over.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Submits a batch, and retries while the server is unavailable. Returns how many calls had to be repeated.
pub(crate) async fn submit(tide: &Tidegate, (group, batch, jobs): &Load) -> u64 {
    let ids: Vec<String> = (0..*jobs).map(|job| format!("{batch}-{job}")).collect();
    let mut repeated = 0;
    for (index, chunk) in ids.chunks(CHUNK).enumerate() {
        let mut part = Submission::new(group).unwrap().batch(batch).unwrap();
        for id in chunk {
            part = part.job(id, KIND, "{}").unwrap();
        }
        if (index + 1) * CHUNK >= ids.len() {
            part = part.seal();
        }
        loop {
            match tide.submit(part.clone()).await {
                Ok(submitted) => {
                    assert_eq!(submitted.refused, []);
                    assert_eq!(submitted.accepted + submitted.duplicates, chunk.len() as u64);
                    break;
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            repeated += 1;
        }
    }
    repeated
}

/// Waits until every batch has completed and its callback was called, which is a moment later.
pub(crate) async fn all_completed(tide: &Tidegate, folder: &Path, loads: &[Load]) {
    let wait = async {
        for (group, batch, _) in loads {
            let mut progress = tide.follow(group, batch).unwrap();
            while let Some(now) = progress.next().await {
                now.unwrap();
            }
        }
        while Evidence::read(folder).completed.len() < loads.len() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, wait).await.is_err() {
        panic!("not all batches have completed: {:#?}", tide.stats().await);
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
    /// Job, attempt and process of every run that is over.
    ended: BTreeSet<(String, u32, u32)>,
    /// The counts that each callback of a batch received.
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
                ["ended", job, attempt, process] => {
                    let (attempt, process) = (attempt.parse().unwrap(), process.parse().unwrap());
                    evidence.ended.insert((job.to_owned(), attempt, process));
                }
                ["completed", batch, success, failed, _] => {
                    let counts = (success.parse().unwrap(), failed.parse().unwrap());
                    evidence
                        .completed
                        .entry(batch.to_owned())
                        .or_default()
                        .push(counts);
                }
                _ => panic!("{line:?}"),
            }
        }
        evidence
    }

    /// Runs that a process is in the middle of, and that are the last of their jobs so far.
    fn inside(self, process: u32) -> Vec<Run> {
        let mut last: BTreeMap<String, u32> = BTreeMap::new();
        for run in &self.runs {
            let known = last.entry(run.job.clone()).or_default();
            *known = run.attempt.max(*known);
        }
        let (runs, ended) = (self.runs, self.ended);
        let is_inside = |run: &Run| {
            let over = ended.contains(&(run.job.clone(), run.attempt, run.process));
            run.process == process && !over && last[&run.job] == run.attempt
        };
        runs.into_iter().filter(is_inside).collect()
    }

    pub(crate) fn processes(&self) -> BTreeMap<u32, u64> {
        let mut runs = BTreeMap::new();
        for run in &self.runs {
            *runs.entry(run.process).or_default() += 1;
        }
        runs
    }
}

/// The results of a test.
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
    /// Runs whose first line came after the end of their lease. A worker checks the clock before it begins a run, but
    /// may be stopped between that check and the line.
    pub(crate) begun_too_late: u64,
    pub(crate) longest_lease_to_start_ms: u64,
    pub(crate) evidence: Evidence,
}

/// Checks everything that must hold, whatever was killed: nothing lost, counts exact, completed once, never over the
/// limit, late outcomes refused. It does not check how long anything takes.
pub(crate) async fn check(tide: &Tidegate, folder: &Path, loads: &[Load]) -> Figures {
    let evidence = Evidence::read(folder);
    let mut attempts: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    let (mut windows, mut begun) = <(BTreeMap<u64, u64>, BTreeMap<u64, u64>)>::default();
    for run in &evidence.runs {
        attempts.entry(&run.job).or_default().push(run);
        *windows.entry(run.leased / WINDOW.0).or_default() += 1;
        *begun.entry(run.begun / WINDOW.0).or_default() += 1;
        assert!(run.begun >= run.leased, "{run:?} began before it was leased");
    }
    let most = windows.values().copied().max().unwrap_or_default();
    assert!(most <= LIMIT, "{most} starts in a window that allows {LIMIT}");

    let jobs: u64 = loads.iter().map(|(.., jobs)| jobs).sum();
    assert_eq!(attempts.len() as u64, jobs, "every job ran, and no other");
    for (job, attempts) in &mut attempts {
        // By their leases, as the store granted them, and not by their lines: a process may be stopped before its line.
        attempts.sort_by_key(|run| run.leased);
        let rising = attempts.is_sorted_by(|a, b| a.leased < b.leased && a.attempt < b.attempt);
        assert!(rising, "{job} ran as attempts {attempts:?}");
    }

    for (group, batch, jobs) in loads {
        let failed = (0..*jobs).filter(|&job| fails(job)).count() as u64;
        let expected = (jobs - failed, failed);
        let view = tide.batch(group, batch).await.unwrap();
        let counts = view.counts;
        assert!(
            view.status.is_finished() && view.finished_at.is_some(),
            "{view:?}"
        );
        assert_eq!(
            (counts.total, counts.success, counts.failed),
            (*jobs, expected.0, expected.1)
        );
        let completed = &evidence.completed[&format!("{group}/{batch}")];
        assert!(
            completed.iter().all(|one| *one == expected),
            "{group}/{batch}: {completed:?}"
        );

        // A run counts only if no other was leased after it: the outcome of an earlier one was late, and refused.
        let mut after = None;
        loop {
            let page = tide.results(group, batch, after, 100).await.unwrap();
            for job in &page.items {
                let ran = &attempts[format!("{group}/{batch}/{}", job.id).as_str()];
                let last = ran.last().unwrap();
                let expected = format!("{} {}", last.attempt, last.process);
                match &job.result {
                    Some(result) => assert_eq!(result, expected.as_bytes(), "{ran:?}"),
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

    let stats: BulkStats = tide.stats().await.unwrap();
    assert_eq!(stats.counts.unfinished(), 0, "{stats:?}");
    assert_eq!(stats.counts.completed + stats.counts.dead, jobs);
    assert_eq!(stats.limit_per_window, LIMIT);
    assert!(stats.most_started_per_window <= LIMIT, "{stats:?}");
    assert!(stats.most_started_per_window >= most, "{stats:?}");
    let callbacks = evidence.completed.values().map(Vec::len).sum::<usize>();
    let lease = timeout(folder).0 + MARGIN.0;
    Figures {
        jobs,
        lost: jobs - (stats.counts.completed + stats.counts.dead),
        repeated_runs: evidence.runs.len() as u64 - jobs,
        repeated_callbacks: (callbacks - loads.len()) as u64,
        most_per_window: (most, stats.most_started_per_window),
        most_begun_per_window: begun.values().copied().max().unwrap_or_default(),
        begun_too_late: evidence
            .runs
            .iter()
            .filter(|run| run.begun >= run.leased + lease)
            .count() as u64,
        longest_lease_to_start_ms: evidence
            .runs
            .iter()
            .map(|run| run.begun - run.leased)
            .max()
            .unwrap(),
        evidence,
    }
}
