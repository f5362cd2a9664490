//! Consumes the events of one priority.
//!
//! Polling never stops: not while events wait for tokens, not while the database is unavailable, not while LOW is
//! paused. The number of events in flight is bounded, and the consumer commits only the low watermark of a partition.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tidegate_core::priority::Priority;
use tidegate_log::{Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, Delivered, LogError};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::event::Work;
use super::keyed_queue::KeyedQueue;
use super::offsets::{Offsets, Place};
use crate::refresh::publish::events::topic;
use crate::refresh::shared::Shared;

/// Longest time that one poll waits.
const POLL: Duration = Duration::from_millis(200);
/// Pause after a poll that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time that the last commit may take.
const LAST_COMMIT: Duration = Duration::from_secs(2);

pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) work: Arc<Work>,
    pub(crate) priority: Priority,
    /// While this is true, the consumer takes no further events.
    pub(crate) paused: watch::Receiver<bool>,
    pub(crate) stop: CancellationToken,
    pub(crate) abort: CancellationToken,
}

type Committed<'a> = BoxFuture<'a, (Vec<CommittedOffset>, Result<Vec<CommitOutcome>, LogError>)>;

impl Worker {
    /// Runs until stopped. Finishes the events it has started, unless `abort` fires first.
    pub(crate) async fn run(self) {
        let Some(consumer) = self.join().await else { return };
        let mut state = ConsumerState::new(self);
        state.consume(&*consumer).await;
        state.finish(&*consumer).await;
        consumer.close().await;
    }

    async fn join(&self) -> Option<Box<dyn Consumer>> {
        let (in_flight, group) = self.limits();
        let consume = || {
            self.shared.options.log.consume(ConsumeParams {
                topic: topic(self.priority),
                group: group.to_owned(),
                owner: self.shared.options.owner.to_string(),
                max_buffered: 2 * in_flight,
            })
        };
        let joined = self.shared.log_call(&self.stop, consume).await?;
        joined.map_err(|error| self.shared.fail(error.into())).ok()
    }

    fn limits(&self) -> (usize, &str) {
        let work = &self.shared.options.work;
        match self.priority {
            Priority::High => (work.high_in_flight, &work.high_group),
            Priority::Low => (work.low_in_flight, &work.low_group),
        }
    }
}

type Item = (Place, Delivered);
type Ended = (Bytes, Place, bool);

/// The events in flight and the offsets they came from.
struct ConsumerState {
    worker: Worker,
    in_flight: usize,
    offsets: Offsets,
    lines: KeyedQueue<Item>,
    tasks: JoinSet<Ended>,
    /// One for each assigned partition, cancelled when this consumer loses it.
    losses: HashMap<u32, CancellationToken>,
}

impl ConsumerState {
    fn new(worker: Worker) -> Self {
        let (in_flight, _) = worker.limits();
        Self {
            worker,
            in_flight,
            offsets: Offsets::default(),
            lines: KeyedQueue::default(),
            tasks: JoinSet::new(),
            losses: HashMap::new(),
        }
    }

    async fn consume(&mut self, consumer: &dyn Consumer) {
        let stop = self.worker.stop.clone();
        let mut paused = self.worker.paused.clone();
        let mut commits = tokio::time::interval(self.worker.shared.options.work.commit_every_ms.into());
        commits.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut committing: Option<Committed<'_>> = None;
        while !stop.is_cancelled() {
            self.stand_back(consumer);
            let mut next = consumer.next(self.room().max(1), POLL);
            let batch = loop {
                tokio::select! {
                    batch = &mut next => break batch,
                    Some(ended) = self.tasks.join_next() => {
                        self.ended(ended);
                        self.start();
                        self.stand_back(consumer);
                    }
                    done = settled(&mut committing) => {
                        committing = None;
                        self.committed(done);
                    }
                    _ = commits.tick(), if committing.is_none() => committing = self.commit(consumer),
                    Ok(()) = paused.changed() => self.stand_back(consumer),
                    // The log delivers the events of a dropped poll again.
                    () = stop.cancelled() => return,
                }
            };
            match batch {
                Ok(batch) => self.take(batch),
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%error, "failed to poll events");
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                }
                Err(error) => return self.worker.shared.fail(error.into()),
            }
            self.start();
        }
    }

    /// Lets the started events finish, and commits them.
    async fn finish(&mut self, consumer: &dyn Consumer) {
        let partitions: Vec<u32> = self.losses.keys().copied().collect();
        for partition in partitions {
            self.lines.forget(partition);
        }
        while let Some(ended) = self.tasks.join_next().await {
            self.ended(ended);
        }
        if let Some(commit) = self.commit(consumer)
            && let Ok(done) = tokio::time::timeout(LAST_COMMIT, commit).await
        {
            self.committed(done);
        }
    }

    /// Capacity for further events: twice the limit in flight, so that a free worker always finds one.
    fn room(&self) -> usize {
        (2 * self.in_flight).saturating_sub(self.lines.waiting() + self.tasks.len())
    }

    fn stand_back(&self, consumer: &dyn Consumer) {
        consumer.set_paused(*self.worker.paused.borrow() || self.room() == 0);
    }

    fn take(&mut self, batch: Batch) {
        for partition in batch.revoked {
            self.offsets.revoke(partition);
            self.lines.forget(partition);
            if let Some(loss) = self.losses.remove(&partition) {
                loss.cancel();
            }
        }
        for partition in batch.assigned {
            self.offsets.assign(partition);
            self.losses.insert(partition, self.worker.abort.child_token());
        }
        for delivered in batch.records {
            let position = delivered.position;
            if let Some(place) = self.offsets.deliver(position.partition, position.offset) {
                self.lines
                    .push(position.partition, delivered.key.clone(), (place, delivered));
            }
        }
    }

    fn start(&mut self) {
        while self.tasks.len() < self.in_flight
            && let Some((key, (place, delivered))) = self.lines.start()
        {
            let Some(lost) = self.losses.get(&place.partition).cloned() else {
                self.lines.finished(&key);
                continue;
            };
            let work = self.worker.work.clone();
            self.tasks.spawn(async move {
                let done = work.handle(delivered, &lost).await;
                (key, place, done)
            });
        }
    }

    fn ended(&mut self, ended: Result<Ended, JoinError>) {
        // `Work` catches panics of fetchers, so this one is a bug of ours.
        let (key, place, done) = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.lines.finished(&key);
        if done {
            self.offsets.done(place);
        }
    }

    fn commit<'a>(&self, consumer: &'a dyn Consumer) -> Option<Committed<'a>> {
        let offsets = self.offsets.due();
        if offsets.is_empty() {
            return None;
        }
        let commit = async move {
            let outcomes = consumer.commit(&offsets).await;
            (offsets, outcomes)
        };
        Some(commit.boxed())
    }

    fn committed(
        &mut self,
        (offsets, outcomes): (Vec<CommittedOffset>, Result<Vec<CommitOutcome>, LogError>),
    ) {
        match outcomes {
            Ok(outcomes) => {
                for (offset, outcome) in offsets.into_iter().zip(outcomes) {
                    match outcome {
                        CommitOutcome::Committed => self.offsets.committed(offset),
                        // The next batch reports the lost partition, too.
                        CommitOutcome::Lost => {}
                        CommitOutcome::NotDelivered => {
                            tracing::error!(?offset, "a committed offset is beyond what was delivered");
                        }
                    }
                }
            }
            // The offsets stay due, so the next commit retries them.
            Err(error) => tracing::warn!(%error, "failed to commit offsets; the next commit retries them"),
        }
    }
}

/// Resolves when the commit in progress has ended.
async fn settled<'a>(
    committing: &mut Option<Committed<'a>>,
) -> (Vec<CommittedOffset>, Result<Vec<CommitOutcome>, LogError>) {
    match committing {
        Some(commit) => commit.await,
        None => std::future::pending().await,
    }
}
