//! The engine: starts the services over one store, and stops them in order.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tidegate_core::bulk::config::{BulkConfig, Hold};
use tidegate_core::bulk::{Aggregation, default_queue};
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{BatchId, GroupId, JobType, Owner, QueueId};
use tidegate_core::time::Millis;
use tidegate_store::bulk::BulkStore;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::aggregator::{Aggregator, CLAIM_FOR, Reducer, ReducerFactory};
use super::callback::{Callback, CompletedBatch, IntoCallbackResult, OnComplete};
use super::fetcher::Fetcher;
use super::gate::Gate;
use super::handler::{Handler, Handlers};
use super::pool::{Pool, PoolHandle, PoolView};
use super::progress::ProgressStream;
use super::release_due::{Dispatcher, DispatcherStats};
use super::{EngineError, settler, sweeper};
use crate::outage::Outage;
use crate::owner::unique_owner;
use crate::tasks::Tasks;

/// Limit: outcomes that wait for the settler; further workers wait.
const ANSWERS: usize = 4_096;

/// Limit: an idle pool asks at least this often. Estimates take a queue in which nobody asks for one without workers.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Limit: how long shutdown waits for services that should end at once.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// Collects the components of an engine.
pub struct BulkServiceBuilder {
    store: Arc<dyn BulkStore>,
    config: BulkConfig,
    clock: Arc<dyn Clock>,
    owner: Owner,
    handlers: Handlers,
    gates: BTreeMap<QueueId, Gate>,
    /// A registration error, reported at the start.
    mistake: Option<EngineError>,
    fold_batches: bool,
    reducer: Option<ReducerFactory>,
    on_complete: Option<OnComplete>,
    claim_for: Millis,
}

impl std::fmt::Debug for BulkServiceBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkServiceBuilder")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl BulkServiceBuilder {
    /// `config` must be the one of the store.
    pub fn new(store: Arc<dyn BulkStore>, config: BulkConfig) -> Self {
        Self {
            store,
            config,
            clock: Arc::new(SystemClock),
            owner: unique_owner(),
            handlers: Handlers::default(),
            gates: BTreeMap::new(),
            mistake: None,
            fold_batches: false,
            reducer: None,
            on_complete: None,
            claim_for: CLAIM_FOR,
        }
    }

    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The owner name on the leases of this engine.
    #[must_use]
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Registers the handler of a job type.
    #[must_use]
    pub fn handler(mut self, kind: JobType, handler: impl Handler) -> Self {
        if self.handlers.0.insert(kind.clone(), Arc::new(handler)).is_some() {
            self.mistake = Some(EngineError::TwoHandlers(kind.to_string()));
        }
        self
    }

    /// Puts a gate before a queue that has a handler here. While it is closed, the engine leases nothing from the
    /// queue. Running jobs continue, and leasing resumes as soon as the gate opens.
    #[must_use]
    pub fn gate(mut self, queue: QueueId, gate: Gate) -> Self {
        if self.gates.insert(queue.clone(), gate).is_some() {
            self.mistake = Some(EngineError::TwoGates(queue.to_string()));
        }
        self
    }

    /// Folds batches even if nothing else is registered here, for when other processes run the jobs.
    #[must_use]
    pub fn fold_batches(mut self, fold_batches: bool) -> Self {
        self.fold_batches = fold_batches;
        self
    }

    /// Chooses a reducer for each batch; see [`Reducer`].
    #[must_use]
    pub fn reducer(
        mut self,
        make: impl Fn(&Aggregation) -> Option<Box<dyn Reducer>> + Send + Sync + 'static,
    ) -> Self {
        self.reducer = Some(Arc::new(make));
        self
    }

    /// Sets the callback, which runs at least once for every decided batch. After an error, it runs again when the
    /// claim on the batch has expired ([`claim_for`](Self::claim_for)). A callback that panics, or does not return
    /// for that long, counts as called. Several run concurrently, in no particular order.
    #[must_use]
    pub fn on_complete<Fut>(
        mut self,
        callback: impl Fn(CompletedBatch) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoCallbackResult> + Send + 'static,
    {
        self.on_complete = Some(Arc::new(move |completed| {
            callback(completed)
                .map(IntoCallbackResult::into_callback_result)
                .boxed()
        }));
        self
    }

    /// How long an aggregator may take to fold a batch and call back; after that, another one takes over. Default:
    /// a minute.
    #[must_use]
    pub fn claim_for(mut self, claim_for: Millis) -> Self {
        self.claim_for = claim_for;
        self
    }

    /// Starts every service that has something to do. The engine leases jobs only from queues with a handler here.
    /// It folds batches unless nothing at all is registered or requested. So one process can submit, another work,
    /// and a third work in another queue of the same store.
    pub fn start(self) -> Result<BulkService, EngineError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let queues = self.queues();
        if let Some(queue) = self.gates.keys().find(|queue| !queues.contains(*queue)) {
            return Err(EngineError::IdleGate {
                queue: queue.to_string(),
                queues: format!("{queues:?}"),
            });
        }
        self.config
            .validate()
            .map_err(|error| EngineError::Config(error.to_string()))?;
        let (config, store, clock) = (&self.config, &self.store, &self.clock);
        let (stop_rest, abort) = <(CancellationToken, CancellationToken)>::default();
        // Stopping the engine also stops the leasing.
        let stop = stop_rest.child_token();
        let outage = Outage::new(clock.clone());
        let (answers, settled) = mpsc::channel(ANSWERS);
        let dispatcher = Dispatcher::new(
            store.clone(),
            clock.clone(),
            config.backpressure.dispatch_interval_ms.into(),
            config.backpressure.dispatch_batch_size,
        );

        let mut workers = Tasks::new(&stop_rest);
        let mut rest = Tasks::new(&stop_rest);
        let mut pools = Vec::new();
        for queue in queues {
            let gate = self.gates.get(&queue).cloned().unwrap_or_default();
            let count = config.queues.get(&queue).and_then(|queue| queue.worker_count);
            let count = count.unwrap_or(config.worker_pool.worker_count);
            // With `hold = "group"` nothing has to be ready ahead of the workers: they pick for themselves.
            if config.backpressure.hold == Hold::Job {
                let fetcher = Fetcher {
                    store: store.clone(),
                    queue: queue.clone(),
                    batch: config.worker_pool.fetch_batch_size,
                    ready_cap: count.saturating_mul(2),
                    interval: config.worker_pool.fetch_interval_ms.into(),
                    gate: gate.clone(),
                    outage: outage.clone(),
                    stop: CancellationToken::clone(&stop),
                };
                workers.add(fetcher.run());
            }
            let pool = Pool {
                store: store.clone(),
                clock: clock.clone(),
                queue,
                owner: self.owner.clone(),
                handlers: self.handlers.clone(),
                workers: count,
                running: TaskTracker::new(),
                gate,
                window: config.backpressure.window(),
                patience: Duration::from_secs_f64(config.worker_pool.worker_timeout_sec).min(HEARTBEAT),
                answers: answers.clone(),
                outage: outage.clone(),
                stop: stop.clone(),
                abort: CancellationToken::clone(&abort),
            };
            pools.push(pool.handle());
            workers.add(pool.run());
        }
        drop(answers);
        workers.add(settler::run(
            store.clone(),
            settled,
            outage.clone(),
            CancellationToken::clone(&abort),
        ));
        rest.add(dispatcher.clone().run(outage.clone(), stop_rest.clone()));
        rest.add(sweeper::expire_leases(
            store.clone(),
            clock.clone(),
            outage.clone(),
            stop_rest.clone(),
        ));
        rest.add(sweeper::drop_finished(
            store.clone(),
            outage.clone(),
            stop_rest.clone(),
        ));
        let interval = config.congestion.snapshot_interval_ms.into();
        rest.add(sweeper::snapshot_congestion(
            store.clone(),
            interval,
            outage.clone(),
            stop_rest.clone(),
        ));
        if !self.looks_on() {
            let callback = |on_complete| Callback::new(on_complete, self.claim_for);
            let aggregator = Aggregator {
                store: store.clone(),
                owner: self.owner.clone(),
                reducer: self.reducer,
                callback: self.on_complete.map(callback),
                claim_for: self.claim_for,
                outage: outage.clone(),
                stop: stop_rest.clone(),
            };
            rest.add(aggregator.run());
        }
        let grace = config.worker_pool.shutdown_grace_period_ms.into();
        Ok(BulkService {
            store: self.store,
            dispatcher,
            outage,
            pools,
            stop,
            stop_rest,
            abort,
            workers,
            rest,
            followers: TaskTracker::new(),
            stop_followers: CancellationToken::new(),
            grace,
        })
    }

    /// Nothing is registered: this engine only submits and reads.
    fn looks_on(&self) -> bool {
        self.handlers.0.is_empty()
            && self.reducer.is_none()
            && self.on_complete.is_none()
            && !self.fold_batches
    }

    /// The queues of the types that have a handler here.
    fn queues(&self) -> BTreeSet<QueueId> {
        let queue = |kind| {
            let settings = self.config.job_types.get(kind);
            settings
                .and_then(|settings| settings.queue.clone())
                .unwrap_or_else(default_queue)
        };
        self.handlers.0.keys().map(queue).collect()
    }
}

/// Running bulk services. End them with [`BulkService::shutdown`]: dropping it aborts the services, and the leases of running
/// jobs expire.
pub struct BulkService {
    store: Arc<dyn BulkStore>,
    dispatcher: Dispatcher,
    outage: Outage,
    pools: Vec<PoolHandle>,
    stop: CancellationToken,
    stop_rest: CancellationToken,
    abort: CancellationToken,
    workers: Tasks,
    rest: Tasks,
    /// Tasks behind progress streams; users hold the streams themselves.
    followers: TaskTracker,
    stop_followers: CancellationToken,
    grace: Duration,
}

impl std::fmt::Debug for BulkService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkService").finish_non_exhaustive()
    }
}

impl BulkService {
    pub fn store(&self) -> &Arc<dyn BulkStore> {
        &self.store
    }

    pub fn dispatcher_stats(&self) -> DispatcherStats {
        self.dispatcher.stats()
    }

    /// Reports whether the store is available. A separate handle, to keep.
    pub fn outage(&self) -> Outage {
        self.outage.clone()
    }

    /// The current state of the worker pools, by queue.
    pub fn pools(&self) -> Vec<PoolView> {
        self.pools.iter().map(PoolHandle::view).collect()
    }

    /// Follows a batch until it is decided.
    pub fn follow(&self, group: GroupId, batch: BatchId) -> ProgressStream {
        let stop = self.stop_followers.clone();
        let (stream, task) =
            ProgressStream::follow(self.store.clone(), group, batch, self.outage.clone(), stop);
        self.followers.spawn(task);
        stream
    }

    /// Resolves when the store has failed, and the engine with it.
    pub async fn failed(&self) {
        self.stop_rest.cancelled().await;
    }

    /// Stops leasing, lets running jobs finish within the grace period, releases the rest, then stops the other
    /// services. Returns the error that ended the engine, if any.
    pub async fn shutdown(mut self) -> Result<(), EngineError> {
        self.stop.cancel();
        let finished = tokio::time::timeout(self.grace, self.workers.join()).await;
        let result = match finished {
            Ok(result) => result,
            Err(_) => {
                self.abort.cancel();
                self.workers.join_within(LAST_GRACE).await
            }
        };
        self.stop_rest.cancel();
        let rest = self.rest.join_within(self.grace.max(LAST_GRACE)).await;
        // Last, so that followers still report the outcome of the running jobs. A follower that lived on would keep
        // the store open.
        self.stop_followers.cancel();
        self.followers.close();
        self.followers.wait().await;
        Ok(result.and(rest)?)
    }
}
