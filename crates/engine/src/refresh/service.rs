//! Starts the components of a refresh service over one set of stores, and stops them in order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate_core::priority::Priority;
use tidegate_store::StoreError;
use tidegate_store::refresh::RefreshStore;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::dead_letters::DeadLetterReader;
use super::error::RefreshError;
use super::handle::RefreshHandle;
use super::options::RefreshOptions;
use super::plan::freshness_census::Censuses;
use super::plan::prefetch::Prefetch;
use super::plan::pressure::LagWatcher;
use super::plan::retries;
use super::publish::publisher::{PublishWorker, Publisher};
use super::read::activity::Activity;
use super::read::reader::Reader;
use super::shared::Shared;
use super::work::claims::Claims;
use super::work::consumer::Worker;
use super::work::dead_letter_writer::DeadLetterWriter;
use super::work::event::{Begins, Inspections, Settles, Work};
use super::work::token_dispenser::TokenDispenser;
use super::work::writer::Writer;
use crate::batcher::Batcher;
use crate::tasks::Tasks;

/// Limit: how long shutdown waits for components that should end at once.
const LAST_GRACE: Duration = Duration::from_secs(5);
/// Limit: inspections, begins or settlements in one call to the store.
const BATCH: usize = 256;
/// Limit: how long a start checks whether every target has a budget.
const LOOK: Duration = Duration::from_secs(3);

/// A running refresh service. End it with [`shutdown`](Self::shutdown): dropping it aborts all work, and the log
/// delivers the events in flight again.
#[derive(Debug)]
pub struct RefreshService {
    handle: RefreshHandle,
    shared: Arc<Shared>,
    stop: CancellationToken,
    stop_rest: CancellationToken,
    abort: CancellationToken,
    workers: Tasks,
    rest: Tasks,
}

impl RefreshService {
    /// Starts every component that its roles need.
    pub async fn start(options: RefreshOptions) -> Result<Self, RefreshError> {
        options.validate()?;
        let shared = Arc::new(Shared::new(options));
        check_targets(&shared).await?;
        shared.time.look(&*shared.options.store).await;

        let roles = shared.options.roles;
        // Stopping the rest also stops the polling.
        let stop_rest = shared.failed.child_token();
        let (stop, abort) = (stop_rest.child_token(), shared.failed.child_token());
        let (mut workers, mut rest) = (Tasks::new(&shared.failed), Tasks::new(&shared.failed));

        let (counters, guard) = (shared.counters.clone(), shared.store_guard.clone());
        let token_dispenser = TokenDispenser::new(shared.options.store.clone(), guard, counters);
        let lags = Arc::new(LagWatcher::new(shared.clone()));
        let censuses = Arc::new(Censuses::default());
        let publish_worker = Arc::new(PublishWorker::new(shared.clone()));
        let (activity, noting) = Activity::new(shared.clone(), stop_rest.clone());
        rest.add_sure(noting);
        let store = shared.options.store.clone();
        rest.add_sure(shared.time.clone().follow(store, stop_rest.clone()));
        rest.add_sure(lags.clone().run(stop_rest.clone()));

        let mut reader = None;
        if roles.query {
            let (publisher, asking) = Publisher::new(shared.clone());
            let (reading, reads) = Reader::new(shared.clone(), publisher, activity.clone(), lags.clone());
            rest.add_until(&stop_rest, asking);
            rest.add_until(&stop_rest, reads);
            reader = Some(Arc::new(reading));
        }
        if roles.work {
            let parts = Parts {
                shared: &shared,
                token_dispenser: &token_dispenser,
                activity: &activity,
                lags: &lags,
                stop: &stop,
                abort: &abort,
                stop_rest: &stop_rest,
            };
            parts.start(&mut workers, &mut rest);
        }
        if roles.plan {
            rest.add_sure(retries::run(shared.clone(), publish_worker.clone(), stop.clone()));
            rest.add_sure(censuses.clone().run(shared.clone(), stop_rest.clone()));
            let prefetch = Prefetch {
                shared: shared.clone(),
                publish_worker: publish_worker.clone(),
                lags: lags.clone(),
                stop: stop.clone(),
            };
            rest.add_sure(prefetch.run());
        }
        let handle = RefreshHandle {
            shared: shared.clone(),
            reader,
            token_dispenser,
            lags,
            censuses,
            dead_letters: DeadLetterReader::new(shared.clone(), publish_worker),
            stop: stop_rest.clone(),
        };
        Ok(Self {
            handle,
            shared,
            stop,
            stop_rest,
            abort,
            workers,
            rest,
        })
    }

    /// A separate handle, to keep and to clone.
    pub fn handle(&self) -> RefreshHandle {
        self.handle.clone()
    }

    /// Resolves when an unrecoverable failure has ended the service.
    pub async fn failed(&self) {
        self.shared.failed.cancelled().await;
    }

    /// Stops polling, lets started events finish within the grace period, commits them, releases partitions and
    /// claims, then stops the rest. Returns the error that ended the service, if any.
    pub async fn shutdown(mut self) -> Result<(), RefreshError> {
        // The tasks themselves return no error: they record what failed.
        self.stop.cancel();
        let grace = Duration::from(self.shared.options.work.grace_ms);
        if tokio::time::timeout(grace, self.workers.join()).await.is_err() {
            self.abort.cancel();
            self.workers.join_within(LAST_GRACE).await.ok();
        }
        self.stop_rest.cancel();
        self.rest.join_within(LAST_GRACE).await.ok();
        self.handle.token_dispenser.close().await;
        match self.shared.failure() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// A target without a budget would wait for tokens forever. An unavailable store does not fail the start: reads
/// work without it, and later calls wait for it.
async fn check_targets(shared: &Shared) -> Result<(), RefreshError> {
    let check = async {
        for source in shared.options.sources.values() {
            match shared.options.store.budget(&source.target).await {
                Ok(_) => {}
                Err(error) if error.is_retryable() => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    };
    tokio::time::timeout(LOOK, check).await.unwrap_or(Ok(()))
}

type StoreCall<P, O> = for<'a> fn(&'a dyn RefreshStore, Vec<P>) -> BoxFuture<'a, Result<Vec<O>, StoreError>>;

/// What the workers need to start.
struct Parts<'a> {
    shared: &'a Arc<Shared>,
    token_dispenser: &'a TokenDispenser,
    activity: &'a Activity,
    lags: &'a LagWatcher,
    stop: &'a CancellationToken,
    abort: &'a CancellationToken,
    stop_rest: &'a CancellationToken,
}

impl Parts<'_> {
    fn start(&self, workers: &mut Tasks, rest: &mut Tasks) {
        let claims = Claims::new(self.shared.clone());
        let inspections: Inspections = self.batched(workers, |store, batch| store.look(batch));
        let begins: Begins = self.batched(workers, |store, batch| store.begin(batch));
        let settles: Settles = self.batched(workers, |store, batch| store.settle(batch));
        for priority in Priority::ALL {
            let (writer, writing) = Writer::new(self.shared.clone(), priority, self.abort.clone());
            workers.add_sure(writing);
            let work = Work {
                shared: self.shared.clone(),
                token_dispenser: self.token_dispenser.clone(),
                claims: claims.clone(),
                inspections: inspections.clone(),
                begins: begins.clone(),
                settles: settles.clone(),
                writer,
                dead_letters: DeadLetterWriter::new(self.shared.clone()),
                activity: self.activity.clone(),
            };
            let worker = Worker {
                shared: self.shared.clone(),
                work: Arc::new(work),
                priority,
                paused: match priority {
                    Priority::High => watch::Sender::new(false).subscribe(),
                    Priority::Low => self.lags.low_paused(),
                },
                stop: self.stop.clone(),
                abort: self.abort.clone(),
            };
            workers.add_sure(worker.run());
        }
        rest.add_sure(claims.run(self.stop_rest.clone()));
    }

    /// Batches one kind of call of all events, and retries each batch until the store answers.
    fn batched<P, O>(&self, workers: &mut Tasks, call: StoreCall<P, O>) -> Batcher<P, O>
    where
        P: Clone + Send + Sync + 'static,
        O: Send + 'static,
    {
        let (batcher, batches) = Batcher::new(BATCH);
        let (shared, abort) = (self.shared.clone(), self.abort.clone());
        workers.add_sure(batches.run(BATCH, move |batch: Vec<P>| {
            let (shared, abort) = (shared.clone(), abort.clone());
            async move {
                let store = &*shared.options.store;
                shared.store_call(&abort, || call(store, batch.clone())).await
            }
        }));
        batcher
    }
}
