//! The entry point of the library: opens a store, starts the engine, and forwards calls.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{BatchView, BulkStats, Cursor, GroupView, JobFilter, Page, Query, View};
use tidegate_core::bulk::{
    Aggregation, CancelOutcome, CancelParams, ChangeJobsParams, DropFinishedParams, JobCommand, JobState,
    PauseParams, Refusal, ReplayParams, ResumeParams, Scope,
};
use tidegate_core::clock::SystemClock;
use tidegate_core::ids::{BatchId, GroupId, IdError, JobId, JobType, QueueId};
use tidegate_core::time::Millis;
use tidegate_engine::bulk::{
    BulkService, BulkServiceBuilder, CompletedBatch, Gate, Handler, IntoCallbackResult, ProgressStream,
    Reducer,
};
use tidegate_store::bulk::{
    BulkStore, BulkStoreExt, EmbeddedBulkOptions, EmbeddedBulkStore, FoundJob, JobDetails,
};
#[cfg(feature = "redis")]
use tidegate_store::bulk::{RedisBulkOptions, RedisBulkStore};

#[cfg(feature = "redis")]
use super::Redis;
use super::{Error, Folder, Options, Submission, Submitted};

/// Limit: jobs that one call inspects while it cancels a batch.
const CANCEL_BATCH: u32 = 1_000;

/// Limit: finished jobs that one call deletes.
const DROP_BATCH: u32 = 1_000;

/// An open store, before its services run: register handlers, then [`start`](Self::start).
///
/// ```no_run
/// use tidegate::{CompletedBatch, Job, JobError, Options, Tidegate};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let setup = Tidegate::open(Options::new("data"))?
///     .handler("SEND_MAIL", |job: Job| async move {
///         if job.payload.is_empty() {
///             return Err(JobError::failed("the mail is empty"));
///         }
///         Ok(format!("receipt of {}", job.id))
///     })?
///     .on_complete(|done: CompletedBatch| async move { println!("{}: {:?}", done.batch, done.counts) });
/// let tide = setup.start()?;
/// # Ok(())
/// # }
/// ```
pub struct Setup {
    store: Arc<dyn BulkStore>,
    folder: Option<Arc<EmbeddedBulkStore>>,
    engine: BulkServiceBuilder,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").finish_non_exhaustive()
    }
}

impl Setup {
    fn new(store: Arc<dyn BulkStore>, config: BulkConfig, folder: Option<Arc<EmbeddedBulkStore>>) -> Self {
        Self {
            engine: BulkServiceBuilder::new(store.clone(), config),
            store,
            folder,
        }
    }

    /// Registers the handler of a job type: an async closure, or a [`Handler`].
    pub fn handler(mut self, kind: impl AsRef<str>, handler: impl Handler) -> Result<Self, IdError> {
        self.engine = self.engine.handler(JobType::new(kind)?, handler);
        Ok(self)
    }

    /// Puts a gate before a queue that has a handler here. While the gate is closed, this process leases no
    /// jobs of the queue.
    pub fn gate(mut self, queue: impl AsRef<str>, gate: Gate) -> Result<Self, IdError> {
        self.engine = self.engine.gate(QueueId::new(queue)?, gate);
        Ok(self)
    }

    /// Sets the function that chooses a reducer for each complete batch. Without a reducer, the summary is the
    /// counts and the first errors as JSON.
    #[must_use]
    pub fn reducer(
        mut self,
        make: impl Fn(&Aggregation) -> Option<Box<dyn Reducer>> + Send + Sync + 'static,
    ) -> Self {
        self.engine = self.engine.reducer(make);
        self
    }

    /// Sets the callback, which runs at least once for every decided batch.
    ///
    /// After an error, the callback runs again when the claim on the batch has expired
    /// ([`claim_for`](Self::claim_for)). A callback that panics, or does not return for that long, counts as
    /// called. Several run concurrently, in no particular order.
    #[must_use]
    pub fn on_complete<Fut>(
        mut self,
        callback: impl Fn(CompletedBatch) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoCallbackResult> + Send + 'static,
    {
        self.engine = self.engine.on_complete(callback);
        self
    }

    /// Sets how long this process may take to fold a batch and call back; after that, another process takes
    /// over. Default: a minute.
    #[must_use]
    pub fn claim_for(mut self, claim_for: Millis) -> Self {
        self.engine = self.engine.claim_for(claim_for);
        self
    }

    /// Starts the services. The caller must be within a tokio runtime.
    ///
    /// This process leases jobs only from queues that have a handler here, but it leases any job of such a
    /// queue: a job without a handler dies. With nothing registered, this process only submits and reads, and
    /// leaves the work to others. Any process with handlers may fold a batch, so all of them need the same
    /// reducer and callback.
    pub fn start(self) -> Result<Tidegate, Error> {
        Ok(Tidegate {
            engine: self.engine.start()?,
            store: self.store,
            folder: self.folder,
        })
    }
}

/// A running Tidegate; [`Tidegate::open`] and [`Tidegate::connect`] create it.
///
/// While a Redis store is unavailable the services wait for it, and calls return an error that
/// [`is_retryable`](Error::is_retryable).
///
/// ```no_run
/// use tidegate::ids::GroupId;
/// use tidegate::{Submission, Scope, Tidegate};
///
/// # async fn example(tide: Tidegate) -> Result<(), Box<dyn std::error::Error>> {
/// let submission = Submission::new("customer-A")?.job("promo-1", "SEND_PROMOTION", "{}")?;
/// let submitted = tide.submit(submission).await?;
/// println!("{} accepted in batch {}", submitted.accepted, submitted.batch);
///
/// tide.pause(Scope::Group(GroupId::new("customer-A")?)).await?;
/// println!("{:?}", tide.job("customer-A", "promo-1").await?.view.state);
/// tide.resume(Scope::Group(GroupId::new("customer-A")?)).await?;
/// tide.shutdown().await?;
/// # Ok(())
/// # }
/// ```
pub struct Tidegate {
    engine: BulkService,
    store: Arc<dyn BulkStore>,
    /// The same store, if it is an embedded one, which the shutdown closes.
    folder: Option<Arc<EmbeddedBulkStore>>,
}

impl fmt::Debug for Tidegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tidegate").finish_non_exhaustive()
    }
}

impl Tidegate {
    /// Opens the data folder. Register handlers on the returned [`Setup`].
    pub fn open(options: Options<Folder>) -> Result<Setup, Error> {
        let Options { location, config } = options;
        let store = Arc::new(EmbeddedBulkStore::open(EmbeddedBulkOptions {
            folder: location.path,
            durability: location.durability,
            config: config.clone(),
            clock: Arc::new(SystemClock),
        })?);
        Ok(Setup::new(store.clone(), config, Some(store)))
    }

    /// Connects to the Redis store that any number of processes share. Register handlers on the returned
    /// [`Setup`].
    ///
    /// The call retries an unavailable server for about ten seconds.
    ///
    /// ```no_run
    /// # use tidegate::{Job, JobError, Options, Tidegate};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let tide = Tidegate::connect(Options::redis("redis://127.0.0.1:6379/"))
    ///     .await?
    ///     .handler("SEND_PROMOTION", |_: Job| async { Ok::<_, JobError>(()) })?
    ///     .start()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Options for Redis do not fit [`open`](Self::open), nor the other way round:
    ///
    /// ```compile_fail
    /// # use tidegate::{Options, Tidegate};
    /// Tidegate::open(Options::redis("redis://127.0.0.1:6379/"));
    /// ```
    #[cfg(feature = "redis")]
    pub async fn connect(options: Options<Redis>) -> Result<Setup, Error> {
        let Options { location, config } = options;
        let store = RedisBulkStore::open(RedisBulkOptions {
            urls: location.urls,
            prefix: location.key_prefix,
            shards: location.shards,
            config,
            on_other_settings: location.on_other_settings,
            clock: None,
        })
        .await?;
        let config = store.config();
        Ok(Setup::new(Arc::new(store), config, None))
    }

    /// Returns the store, for every transition without a method here.
    pub fn store(&self) -> &Arc<dyn BulkStore> {
        &self.store
    }

    /// Opens the batch if necessary, enqueues its jobs, and seals it if the submission says so. The store has
    /// persisted everything that the result reports.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, Error> {
        submission.submit_to(&*self.store).await
    }

    /// Follows a batch until it is decided.
    pub fn follow(&self, group: impl AsRef<str>, batch: impl AsRef<str>) -> Result<ProgressStream, Error> {
        Ok(self.engine.follow(GroupId::new(group)?, BatchId::new(batch)?))
    }

    /// Reads one page of a batch's jobs with their results, at most `max`, after the cursor of the previous
    /// page.
    pub async fn results(
        &self,
        group: impl AsRef<str>,
        batch: impl AsRef<str>,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<JobDetails>, Error> {
        let (group, batch) = (GroupId::new(group)?, BatchId::new(batch)?);
        Ok(self.store.results(&group, &batch, after, max).await??)
    }

    /// Reads one job with everything that the store keeps of it.
    pub async fn job(&self, group: impl AsRef<str>, job: impl AsRef<str>) -> Result<JobDetails, Error> {
        Ok(self.store.job(&GroupId::new(group)?, &JobId::new(job)?).await??)
    }

    /// Reads one batch with its progress.
    pub async fn batch(&self, group: impl AsRef<str>, batch: impl AsRef<str>) -> Result<BatchView, Error> {
        match self
            .store
            .call(Query::Batch(GroupId::new(group)?, BatchId::new(batch)?))
            .await??
        {
            View::Batch(view) => Ok(view),
            other => unreachable!("a batch is answered with a batch, not {other:?}"),
        }
    }

    /// Reads one group with its weight, limits and counts.
    pub async fn group(&self, group: impl AsRef<str>) -> Result<GroupView, Error> {
        match self.store.call(Query::Group(GroupId::new(group)?)).await?? {
            View::Group(view) => Ok(view),
            other => unreachable!("a group is answered with a group, not {other:?}"),
        }
    }

    /// Reads the statistics of the whole store.
    pub async fn stats(&self) -> Result<BulkStats, Error> {
        match self.store.call(Query::BulkStats).await?? {
            View::BulkStats(stats) => Ok(stats),
            other => unreachable!("statistics are answered with statistics, not {other:?}"),
        }
    }

    /// Pauses a group or a batch: none of its jobs start, and running ones continue.
    pub async fn pause(&self, scope: Scope) -> Result<(), Error> {
        Ok(self.store.call(PauseParams { scope }).await??)
    }

    /// Resumes a paused group or batch.
    pub async fn resume(&self, scope: Scope) -> Result<(), Error> {
        Ok(self.store.call(ResumeParams { scope }).await??)
    }

    /// Cancels every job of a group or a batch that is not running; running ones stay with their handlers.
    pub async fn cancel(&self, scope: Scope) -> Result<CancelOutcome, Error> {
        let mut total = CancelOutcome::default();
        loop {
            let params = CancelParams {
                scope: scope.clone(),
                max: CANCEL_BATCH,
            };
            let outcome = self.store.call(params).await??;
            total.cancelled += outcome.cancelled;
            total.running += outcome.running;
            if !outcome.more {
                return Ok(total);
            }
        }
    }

    /// Replays a dead job: it waits again with all its attempts.
    pub async fn replay(&self, group: impl AsRef<str>, job: impl AsRef<str>) -> Result<(), Error> {
        let params = ReplayParams {
            group: GroupId::new(group)?,
            job: JobId::new(job)?,
        };
        let replayed: Result<_, Refusal> = self.store.call(params).await?;
        Ok(replayed.map(|_| ())?)
    }

    /// Reads one page of the jobs that match, at most `max`, batch by batch in the order of arrival. A page may be short, or
    /// empty, although there are more: only one without `next` is the last.
    pub async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, Error> {
        Ok(self.store.jobs(filter, after, max).await?)
    }

    /// Runs a command on jobs of one group. Returns for each the state it has now, or why the command did nothing.
    ///
    /// ```no_run
    /// # async fn example(tide: tidegate::Tidegate) -> Result<(), tidegate::Error> {
    /// use tidegate::JobCommand;
    ///
    /// for changed in tide.change_jobs("acme", &["mail-1", "mail-2"], JobCommand::RunNow).await? {
    ///     if let Err(refusal) = changed {
    ///         println!("{refusal}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn change_jobs(
        &self,
        group: impl AsRef<str>,
        jobs: &[impl AsRef<str>],
        command: JobCommand,
    ) -> Result<Vec<Result<JobState, Refusal>>, Error> {
        let jobs: Result<Vec<JobId>, IdError> = jobs.iter().map(JobId::new).collect();
        let params = ChangeJobsParams {
            group: GroupId::new(group)?,
            jobs: jobs?,
            command,
        };
        Ok(self.store.call(params).await?)
    }

    /// Deletes jobs that finished longer ago than `older_than`, also those that the configuration would keep. Returns how
    /// many.
    pub async fn drop_finished(&self, older_than: Millis) -> Result<u64, Error> {
        let mut dropped = 0;
        loop {
            let params = DropFinishedParams {
                max: DROP_BATCH,
                older_than: Some(older_than),
            };
            let outcome = self.store.call(params).await?;
            dropped += u64::from(outcome.jobs);
            if !outcome.more {
                return Ok(dropped);
            }
        }
    }

    /// Resolves when the store has failed for good: this process runs no more jobs.
    pub async fn failed(&self) {
        self.engine.failed().await;
    }

    /// Stops leasing, lets running jobs finish within the grace period, releases the rest, and closes the data
    /// folder or the connections.
    pub async fn shutdown(self) -> Result<(), Error> {
        let Self {
            engine,
            store,
            folder,
        } = self;
        let result = engine.shutdown().await;
        drop(store);
        // A caller may still hold the store: its folder then closes with the last reference.
        if let Some(store) = folder.and_then(Arc::into_inner) {
            store.close().await?;
        }
        Ok(result?)
    }
}
