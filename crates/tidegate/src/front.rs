//! The library's front door: a store, an engine, and the calls that users make.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tidegate_core::bulk::views::{BatchView, BulkStats, Cursor, GroupView, Page, Query, View};
use tidegate_core::bulk::{
    Aggregation, CancelOutcome, CancelParams, PauseParams, Refusal, ReplayParams, ResumeParams, Target,
};
use tidegate_core::config::BulkConfig;
use tidegate_core::ids::{BatchId, GroupId, IdError, JobId, JobType, QueueId};
use tidegate_core::time::Millis;
use tidegate_engine::{
    CompletedBatch, Engine, EngineBuilder, Gate, Handler, IntoCallbackResult, ProgressStream, Reducer,
};
use tidegate_store::embedded::{EmbeddedOptions, EmbeddedStore};
use tidegate_store::redis::{RedisOptions, RedisStore};
use tidegate_store::{JobDetails, Store, StoreExt, SystemClock};

use crate::{Error, Folder, Options, Redis, Submission, Submitted};

/// Limit: jobs looked at per call while a batch is cancelled.
const CANCEL_BATCH: u32 = 1_000;

/// A store that is open, before its handlers run.
pub struct Setup {
    store: Arc<dyn Store>,
    folder: Option<Arc<EmbeddedStore>>,
    engine: EngineBuilder,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").finish_non_exhaustive()
    }
}

impl Setup {
    fn new(store: Arc<dyn Store>, config: BulkConfig, folder: Option<Arc<EmbeddedStore>>) -> Self {
        Self {
            engine: EngineBuilder::new(store.clone(), config),
            store,
            folder,
        }
    }

    /// Registers the handler of a job type: an async closure, or a [`Handler`].
    pub fn handler(mut self, kind: impl AsRef<str>, handler: impl Handler) -> Result<Self, IdError> {
        self.engine = self.engine.handler(JobType::new(kind)?, handler);
        Ok(self)
    }

    /// Puts a gate before a queue that has a handler here: while it is closed, nothing is leased from the queue.
    pub fn gate(mut self, queue: impl AsRef<str>, gate: Gate) -> Result<Self, IdError> {
        self.engine = self.engine.gate(QueueId::new(queue)?, gate);
        Ok(self)
    }

    /// Chooses a reducer for each complete batch.
    #[must_use]
    pub fn reducer(
        mut self,
        make: impl Fn(&Aggregation) -> Option<Box<dyn Reducer>> + Send + Sync + 'static,
    ) -> Self {
        self.engine = self.engine.reducer(make);
        self
    }

    /// Called at least once for every batch that is decided. One that returns an error is called again when
    /// the claim on the batch has run out ([`claim_for`](Self::claim_for)); one that panics, or does not return
    /// for as long as that, counts as called. Several run at once, in no particular order.
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

    /// How long this process may take to fold a batch and call back; after that, another does it again. A
    /// minute if not set.
    #[must_use]
    pub fn claim_for(mut self, claim_for: Millis) -> Self {
        self.engine = self.engine.claim_for(claim_for);
        self
    }

    /// Starts the services. Must be called within a tokio runtime.
    ///
    /// Jobs are leased only from queues that have a handler here, but any job of such a queue is: one without a
    /// handler here dies. With nothing registered, this process submits and looks, and leaves the work to
    /// others; among those with handlers, any may fold a batch, so all need the same reducer and callback.
    pub fn start(self) -> Result<Tidegate, Error> {
        Ok(Tidegate {
            engine: self.engine.start()?,
            store: self.store,
            folder: self.folder,
        })
    }
}

/// A running Tidegate. While a Redis store is unavailable its services wait, and calls give an error that
/// [`is_retryable`](Error::is_retryable).
pub struct Tidegate {
    engine: Engine,
    store: Arc<dyn Store>,
    /// The same store, if it is one that has to be closed.
    folder: Option<Arc<EmbeddedStore>>,
}

impl fmt::Debug for Tidegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tidegate").finish_non_exhaustive()
    }
}

impl Tidegate {
    /// Opens the data folder; handlers are registered on what this returns.
    pub fn open(options: Options<Folder>) -> Result<Setup, Error> {
        let Options { place, config } = options;
        let store = Arc::new(EmbeddedStore::open(EmbeddedOptions {
            folder: place.path,
            durability: place.durability,
            config: config.clone(),
            clock: Arc::new(SystemClock),
        })?);
        Ok(Setup::new(store.clone(), config, Some(store)))
    }

    /// Connects to the Redis store that any number of processes share; handlers are registered on what this
    /// returns. A server that is away is waited for, for some ten seconds.
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
    pub async fn connect(options: Options<Redis>) -> Result<Setup, Error> {
        let Options { place, config } = options;
        let store = RedisStore::open(RedisOptions {
            urls: place.urls,
            prefix: place.key_prefix,
            shards: place.shards,
            config: config.clone(),
            clock: None,
        });
        Ok(Setup::new(Arc::new(store.await?), config, None))
    }

    /// The store behind it, for every transition that has no call of its own here.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Opens the batch if need be, accepts its jobs, and seals it if asked to. What is returned is durable.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, Error> {
        submission.submit_to(&*self.store).await
    }

    /// Follows a batch until it is decided.
    pub fn follow(&self, group: impl AsRef<str>, batch: impl AsRef<str>) -> Result<ProgressStream, Error> {
        Ok(self.engine.follow(GroupId::new(group)?, BatchId::new(batch)?))
    }

    /// The jobs of a batch with their results, a page at a time.
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

    /// One job with everything that is kept of it.
    pub async fn job(&self, group: impl AsRef<str>, job: impl AsRef<str>) -> Result<JobDetails, Error> {
        Ok(self.store.job(&GroupId::new(group)?, &JobId::new(job)?).await??)
    }

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

    pub async fn group(&self, group: impl AsRef<str>) -> Result<GroupView, Error> {
        match self.store.call(Query::Group(GroupId::new(group)?)).await?? {
            View::Group(view) => Ok(view),
            other => unreachable!("a group is answered with a group, not {other:?}"),
        }
    }

    pub async fn stats(&self) -> Result<BulkStats, Error> {
        match self.store.call(Query::BulkStats).await?? {
            View::BulkStats(stats) => Ok(stats),
            other => unreachable!("statistics are answered with statistics, not {other:?}"),
        }
    }

    pub async fn pause(&self, target: Target) -> Result<(), Error> {
        Ok(self.store.call(PauseParams { target }).await??)
    }

    pub async fn resume(&self, target: Target) -> Result<(), Error> {
        Ok(self.store.call(ResumeParams { target }).await??)
    }

    /// Ends every job that is not running; running ones are left to their handlers.
    pub async fn cancel(&self, target: Target) -> Result<CancelOutcome, Error> {
        let mut total = CancelOutcome::default();
        loop {
            let params = CancelParams {
                target: target.clone(),
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

    /// Gives a dead job another life.
    pub async fn replay(&self, group: impl AsRef<str>, job: impl AsRef<str>) -> Result<(), Error> {
        let params = ReplayParams {
            group: GroupId::new(group)?,
            job: JobId::new(job)?,
        };
        let replayed: Result<_, Refusal> = self.store.call(params).await?;
        Ok(replayed.map(|_| ())?)
    }

    /// Resolves when the store has failed for good: nothing more will run here.
    pub async fn failed(&self) {
        self.engine.failed().await;
    }

    /// Leases no more, lets running jobs finish within the grace period, gives back the rest, and lets go
    /// of the data folder or the connections.
    pub async fn shutdown(self) -> Result<(), Error> {
        let Self {
            engine,
            store,
            folder,
        } = self;
        let result = engine.shutdown().await;
        drop(store);
        // Someone may still hold the store; then the folder is let go of when they do.
        if let Some(store) = folder.and_then(Arc::into_inner) {
            store.close().await?;
        }
        Ok(result?)
    }
}
