//! The worker loop: leases jobs in batches, runs a handler for each, extends the leases of long runs, settles
//! in batches.
//!
//! ```text
//! lease (one call at a time) --> running (at most `concurrency`) --> settlements --> settle (one call at a time)
//!                                   |  at half of a run's time: extend
//! ```
//!
//! Calls batch by themselves: whatever arrives during one call goes out with the next.

mod settler;
mod stopwatch;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use tidegate_api::{
    ExtendedLease, JobOutcome, Lease, LeasedJob, LeasedJobs, RawValue, Settlement, ThrottleScope,
};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use self::stopwatch::Stopwatch;
use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::ClientError;

pub use settler::Tally;

/// Limit: leases, extensions and settlements of one call.
pub(crate) const MAX_CALL: usize = 1_000;
/// How often the loop checks for leases to extend.
const LOOK: Duration = Duration::from_millis(250);
/// An empty response that arrives sooner than this did not wait: a service that shuts down answers at once.
const HASTE: Duration = Duration::from_millis(200);

/// The outcome of a handler's run.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The job succeeded, with or without a result, any JSON.
    Completed(Option<Box<RawValue>>),
    /// The job can never succeed, for this reason.
    Failed(String),
    /// The downstream throttled the job. This uses up no attempt.
    Throttled {
        /// The downstream's Retry-After, if it sent one.
        retry_after: Option<Duration>,
        /// Whose calls were too many.
        scope: ThrottleScope,
    },
    /// The job may succeed later. This uses up an attempt.
    Retry {
        /// What went wrong.
        error: String,
        /// The shortest wait before the next run; the backoff of the job type if absent.
        after: Option<Duration>,
        /// The downstream is overloaded, so the queue slows down.
        overloaded: bool,
    },
    /// The worker gives the job back without having run it. This uses up no attempt.
    Released,
}

impl Outcome {
    /// Completes the job without a result.
    pub fn completed() -> Self {
        Self::Completed(None)
    }

    /// Completes the job with a result. If the result cannot be written as JSON, the job fails.
    pub fn completed_with(result: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(result) {
            Ok(result) => Self::Completed(Some(result)),
            Err(error) => Self::Failed(format!("the result cannot be written as JSON: {error}")),
        }
    }

    /// Fails the job for good: the service does not retry.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed(error.into())
    }

    /// Fails this attempt: the service retries after the backoff of the job type.
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry {
            error: error.into(),
            after: None,
            overloaded: false,
        }
    }

    /// Fails this attempt because the downstream is overloaded: it timed out, its gateway is broken, or it refused
    /// the connection. The queue slows down.
    pub fn overloaded(error: impl Into<String>) -> Self {
        Self::Retry {
            error: error.into(),
            after: None,
            overloaded: true,
        }
    }

    /// Reports that the downstream throttled the job, with its Retry-After if it sent one.
    pub fn throttled(retry_after: Option<Duration>) -> Self {
        Self::Throttled {
            retry_after,
            scope: ThrottleScope::Queue,
        }
    }

    /// Reports that the downstream throttled the job's group: the other groups keep their rate.
    pub fn throttled_group(retry_after: Option<Duration>) -> Self {
        Self::Throttled {
            retry_after,
            scope: ThrottleScope::Group,
        }
    }

    fn answer(self, lease: String) -> Settlement {
        let mut answer = Settlement {
            lease,
            outcome: JobOutcome::Completed,
            result: None,
            error: None,
            retry_after_ms: None,
            scope: None,
            overloaded: false,
            cost: None,
        };
        let ms = |after: Option<Duration>| after.map(|after| after.as_millis() as u64);
        match self {
            Self::Completed(result) => answer.result = result,
            Self::Failed(error) => {
                answer.outcome = JobOutcome::Failed;
                answer.error = Some(error);
            }
            Self::Throttled { retry_after, scope } => {
                answer.scope = Some(scope);
                answer.outcome = JobOutcome::Throttled;
                answer.retry_after_ms = ms(retry_after);
            }
            Self::Retry {
                error,
                after,
                overloaded,
            } => {
                answer.overloaded = overloaded;
                answer.outcome = JobOutcome::Retry;
                answer.error = Some(error);
                answer.retry_after_ms = ms(after);
            }
            Self::Released => answer.outcome = JobOutcome::Released,
        }
        answer
    }
}

/// Runs jobs of one queue until it stops.
///
/// ```no_run
/// use std::time::Duration;
/// use tidegate_client::{Client, LeasedJob, Outcome, Worker};
/// # async fn send(_job: &LeasedJob) -> Result<(), String> { Ok(()) }
/// # async fn stop_signal() {}
///
/// # async fn example() -> Result<(), tidegate_client::ClientError> {
/// let client = Client::new("http://127.0.0.1:7171")?;
/// let handler = |job: LeasedJob| async move {
///     match send(&job).await {
///         Ok(()) => Outcome::completed(),
///         Err(error) => Outcome::retry(error),
///     }
/// };
/// let tally = Worker::new(client)
///     .queue("mail")
///     .concurrency(32)
///     .grace(Duration::from_secs(10))
///     .run(handler, stop_signal())
///     .await?;
/// println!("{} completed, {} dead", tally.completed, tally.dead);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Worker {
    client: Client,
    queue: Option<String>,
    name: Option<String>,
    concurrency: usize,
    batch: usize,
    wait: Duration,
    grace: Duration,
}

impl Worker {
    /// Creates a worker of the queue `default` that runs up to ten jobs at once.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            queue: None,
            name: None,
            concurrency: 10,
            batch: 100,
            wait: Duration::from_secs(10),
            grace: Duration::from_secs(30),
        }
    }

    /// Sets the queue to lease from. Default: `default`.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the name that operators see. Default: the name of the key.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the most jobs that run at once, at least 1. Default: 10.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs.max(1);
        self
    }

    /// Sets the most jobs of one lease call, 1 to 1,000. Default: 100.
    pub fn batch(mut self, jobs: usize) -> Self {
        self.batch = jobs.clamp(1, MAX_CALL);
        self
    }

    /// Sets how long a lease call waits for jobs, from 200 ms to a minute. Default: 10 seconds. A stop waits
    /// for the call in progress: abandoning it could strand its jobs until their leases expire.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.clamp(HASTE, Duration::from_secs(60));
        self
    }

    /// Sets how long running jobs may continue after a stop before the worker releases them. Default: 30
    /// seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Works until `stop` resolves, then finishes or releases the running jobs and returns the totals.
    ///
    /// While the service is unavailable the worker retries. An error that waiting cannot cure, like a key
    /// without the role `WORK`, ends the worker after its running jobs have finished.
    pub async fn run<H, F>(self, handler: H, stop: impl Future<Output = ()>) -> Result<Tally, ClientError>
    where
        H: Fn(LeasedJob) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        // Each running job has a slot for its settlement, so that sending one never blocks.
        let (answers, inbox) = mpsc::channel(self.concurrency + 2 * MAX_CALL);
        let settler = tokio::spawn(settler::run(self.client.clone(), inbox));
        let shift = Shift {
            worker: self,
            handler,
            answers,
            running: JoinSet::new(),
            leases: HashMap::new(),
        };
        let failed = shift.work(stop).await;
        // The last sender is gone: the settler sends what it has and ends.
        let tally = settler
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        failed.map_or(Ok(tally), Err)
    }
}

/// The lease of a running job.
struct Held {
    lease: String,
    task: AbortHandle,
    timeout: Duration,
    renew_at: Instant,
}

type Calling<T> = Option<Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>>;

/// One run of a worker.
struct Shift<H> {
    worker: Worker,
    handler: H,
    answers: mpsc::Sender<Settlement>,
    running: JoinSet<Outcome>,
    leases: HashMap<Id, Held>,
}

impl<H, F> Shift<H>
where
    H: Fn(LeasedJob) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    /// Returns the error that ended the run; none after a stop.
    async fn work(mut self, stop: impl Future<Output = ()>) -> Option<ClientError> {
        let mut stop = std::pin::pin!(stop);
        let mut stopping: Option<Instant> = None;
        let mut failed = None;
        let mut leasing: Calling<LeasedJobs> = None;
        let mut extending: Calling<Vec<(Id, ExtendedLease)>> = None;
        let mut backoff = Backoff::default();
        let mut rest_until = Instant::now();
        let mut asked = Stopwatch::start();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let free = self.free();
            if stopping.is_none() && leasing.is_none() && free > 0 && Instant::now() >= rest_until {
                asked = Stopwatch::start();
                leasing = self.lease(free);
            }
            if stopping.is_some() && leasing.is_none() && self.running.is_empty() {
                return failed;
            }
            tokio::select! {
                leased = call(&mut leasing), if leasing.is_some() => {
                    leasing = None;
                    match leased {
                        Ok(leased) if stopping.is_some() => self.give_back(leased.jobs).await,
                        Ok(leased) => {
                            backoff = Backoff::default();
                            if leased.jobs.is_empty() && asked.elapsed() < HASTE {
                                rest_until = Instant::now() + HASTE;
                            }
                            // The service waited for work before it leased any.
                            let age = asked.elapsed().saturating_sub(Duration::from_millis(leased.waited_ms));
                            for job in leased.jobs {
                                match age < Duration::from_millis(job.timeout_ms) {
                                    true => self.begin(job, age),
                                    // This process or the machine was suspended: the lease may have expired.
                                    false => self.give_back(vec![job]).await,
                                }
                            }
                        }
                        Err(error) if error.is_retryable() => {
                            let pause = backoff.pause(error.retry_after());
                            tracing::warn!(%error, "failed to lease jobs; retrying in {} ms", pause.as_millis());
                            rest_until = Instant::now() + pause;
                        }
                        Err(error) => {
                            stopping.get_or_insert_with(|| Instant::now() + self.worker.grace);
                            failed = Some(error);
                        }
                    }
                }
                Some(ended) = self.running.join_next_with_id() => self.end(ended).await,
                extended = call(&mut extending), if extending.is_some() => {
                    extending = None;
                    self.extended(extended);
                }
                _ = looks.tick() => {
                    if extending.is_none() {
                        extending = self.extend();
                    }
                }
                () = tokio::time::sleep_until(rest_until), if stopping.is_none() && leasing.is_none() && free > 0 => {}
                () = &mut stop, if stopping.is_none() => {
                    stopping = Some(Instant::now() + self.worker.grace);
                }
                () = until(stopping), if stopping.is_some() => {
                    leasing = None;
                    // They end as cancelled, and the worker releases them.
                    self.running.abort_all();
                    stopping = Some(Instant::now() + self.worker.grace);
                }
            }
        }
    }

    /// Returns how many jobs the next call may lease.
    fn free(&self) -> usize {
        let running = self.running.len();
        let places = self.worker.concurrency.saturating_sub(running);
        // While the service takes no settlements, the worker begins no more jobs.
        let answers = self.answers.capacity().saturating_sub(running);
        places.min(answers).min(self.worker.batch)
    }

    fn lease(&self, max: usize) -> Calling<LeasedJobs> {
        // The loop retries by itself, and must notice a stop.
        let client = self.worker.client.clone().with_retry_for(Duration::ZERO);
        let asked = Lease {
            queue: self.worker.queue.clone(),
            max: Some(max as u32),
            wait_ms: Some(self.worker.wait.as_millis() as u64),
            worker: self.worker.name.clone(),
        };
        Some(Box::pin(async move { client.lease(&asked).await }))
    }

    /// Runs a job whose lease is `age` old.
    fn begin(&mut self, job: LeasedJob, age: Duration) {
        let (lease, timeout) = (job.lease.clone(), Duration::from_millis(job.timeout_ms));
        // A handler may panic before it returns its future, too.
        let begun = std::panic::catch_unwind(AssertUnwindSafe(|| (self.handler)(job)));
        let run = async move {
            match begun {
                Ok(run) => AssertUnwindSafe(run).catch_unwind().await,
                Err(panic) => Err(panic),
            }
            .unwrap_or_else(|panic| Outcome::retry(format!("the handler panicked: {}", said(&*panic))))
        };
        let task = self.running.spawn(run);
        let held = Held {
            lease,
            timeout,
            // A lease lasts a little longer than the timeout of a run. Half of the timeout is early enough,
            // whatever the clocks of the two machines say.
            renew_at: Instant::now() + (timeout / 2).saturating_sub(age),
            task,
        };
        self.leases.insert(held.task.id(), held);
    }

    async fn end(&mut self, ended: Result<(Id, Outcome), tokio::task::JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            // The run catches panics, so this is an abort.
            Err(error) => (error.id(), Outcome::Released),
        };
        // Without a lease there is nothing to settle.
        if let Some(held) = self.leases.remove(&id) {
            let _the_settler_outlives_us = self.answers.send(outcome.answer(held.lease)).await;
        }
    }

    async fn give_back(&mut self, jobs: Vec<LeasedJob>) {
        for job in jobs {
            let _the_settler_outlives_us = self.answers.send(Outcome::Released.answer(job.lease)).await;
        }
    }

    fn extend(&self) -> Calling<Vec<(Id, ExtendedLease)>> {
        let now = Instant::now();
        let due: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, held)| held.renew_at <= now)
            .take(MAX_CALL)
            .collect();
        let by = due.iter().map(|(_, held)| held.timeout).max()?;
        let (ids, leases): (Vec<Id>, Vec<String>) = due
            .into_iter()
            .map(|(id, held)| (*id, held.lease.clone()))
            .unzip();
        let client = self.worker.client.clone();
        Some(Box::pin(async move {
            let extended = client.extend(&leases, by.max(Duration::from_millis(1))).await?;
            Ok(ids.into_iter().zip(extended).collect())
        }))
    }

    fn extended(&mut self, extended: Result<Vec<(Id, ExtendedLease)>, ClientError>) {
        let extended = match extended {
            Ok(extended) => extended,
            Err(error) => {
                tracing::warn!(%error, "leases could not be extended; trying again");
                return;
            }
        };
        for (id, lease) in extended {
            match (lease.until, self.leases.get_mut(&id)) {
                (_, None) => {}
                (Some(_), Some(held)) => held.renew_at = Instant::now() + held.timeout / 2,
                (None, Some(held)) => {
                    tracing::warn!(lease = held.lease, "the lease had ended; the job runs elsewhere");
                    held.task.abort();
                    self.leases.remove(&id);
                }
            }
        }
    }
}

/// Awaits the call in progress; pends for ever if there is none.
async fn call<T>(calling: &mut Calling<T>) -> Result<T, ClientError> {
    match calling {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}
