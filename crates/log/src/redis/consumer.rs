//! A member of a consumer group: two tasks keep its partitions and read ahead, whatever the caller does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::server::call;
use super::{Shared, fetch, member, scripts};
use crate::assignment::Assignment;
use crate::{Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, LogError, Topic};

/// State that the caller and the tasks share.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) shared: Arc<Shared>,
    pub(super) topic: Topic,
    pub(super) group: String,
    /// A unique name.
    pub(super) member: String,
    pub(super) session: Duration,
    pub(super) max_buffered: usize,
    assignment: Mutex<Assignment>,
    paused: AtomicBool,
    /// Signals that there is something to report.
    pub(super) filled: Notify,
    /// Signals that there may be something to read: free capacity, another partition.
    pub(super) changed: Notify,
}

impl Joined {
    pub(super) fn assignment(&self) -> MutexGuard<'_, Assignment> {
        self.assignment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self, error: LogError) {
        self.assignment().report(error);
        self.filled.notify_waiters();
    }

    async fn commit(&self, offset: CommittedOffset) -> Result<CommitOutcome, LogError> {
        let held = {
            let mut assignment = self.assignment();
            assignment.expire(Instant::now());
            let held = assignment.partitions.get(&offset.partition);
            held.map(|held| (held.fence, held.next, held.done))
        };
        let Some((fence, next, done)) = held else {
            return Ok(CommitOutcome::Lost);
        };
        if offset.next <= done {
            return Ok(CommitOutcome::Committed);
        }
        if offset.next > next {
            return Ok(CommitOutcome::NotDelivered);
        }
        let keys = self.shared.keys.partition(self.topic, offset.partition);
        let call = call(&scripts::COMMIT, [keys.lease(&self.group), keys.offsets()])
            .run_id()
            .arg(self.group.clone())
            .arg(self.member.clone())
            .number(fence)
            .number(offset.next);
        let stored = self.shared.server.number(&call).await? == 1;
        let mut assignment = self.assignment();
        match assignment.partitions.get_mut(&offset.partition) {
            Some(held) if held.fence == fence && stored => held.done = held.done.max(offset.next),
            _ => assignment.lose_under(offset.partition, fence),
        }
        Ok(match stored {
            true => CommitOutcome::Committed,
            false => CommitOutcome::Lost,
        })
    }
}

#[derive(Debug)]
pub(super) struct RedisConsumer {
    joined: Arc<Joined>,
    tasks: [JoinHandle<()>; 2],
    /// Serializes calls of `next`, so that records stay in order.
    calling: tokio::sync::Mutex<()>,
}

impl RedisConsumer {
    pub(super) fn join(shared: Arc<Shared>, params: ConsumeParams) -> Self {
        let ConsumeParams {
            topic,
            group,
            owner,
            max_buffered,
        } = params;
        let joined = Arc::new(Joined {
            topic,
            group,
            member: format!("{owner}-{}", shared.server.caller.request_id()),
            session: shared.settings.session_timeout.into(),
            max_buffered,
            assignment: Mutex::default(),
            paused: AtomicBool::new(false),
            filled: Notify::new(),
            changed: Notify::new(),
            shared,
        });
        Self {
            tasks: [
                tokio::spawn(member::attend_for_ever(joined.clone())),
                tokio::spawn(fetch::fetch_for_ever(joined.clone())),
            ],
            joined,
            calling: tokio::sync::Mutex::default(),
        }
    }
}

#[async_trait]
impl Consumer for RedisConsumer {
    async fn next(&self, max: usize, wait: Duration) -> Result<Batch, LogError> {
        let _calling = self.calling.lock().await;
        let until = Instant::now() + wait;
        loop {
            // Subscribe first, then read: no signal in between gets lost. Either may bring something to report.
            let (filled, changed) = (self.joined.filled.notified(), self.joined.changed.notified());
            tokio::pin!(filled, changed);
            filled.as_mut().enable();
            changed.as_mut().enable();
            self.joined.shared.open()?;
            let paused = self.joined.paused.load(Ordering::SeqCst);
            let batch = self.joined.assignment().take(max, paused, Instant::now())?;
            if !batch.records.is_empty() {
                self.joined.changed.notify_waiters();
            }
            if !batch.is_empty() {
                return Ok(batch);
            }
            let rung = futures_util::future::select(filled, changed);
            if tokio::time::timeout_at(until, rung).await.is_err() {
                return Ok(batch);
            }
        }
    }

    async fn commit(&self, offsets: &[CommittedOffset]) -> Result<Vec<CommitOutcome>, LogError> {
        self.joined.shared.open()?;
        let commits = offsets.iter().map(|offset| self.joined.commit(*offset));
        join_all(commits).await.into_iter().collect()
    }

    fn set_paused(&self, paused: bool) {
        self.joined.paused.store(paused, Ordering::SeqCst);
        self.joined.filled.notify_waiters();
    }

    async fn close(self: Box<Self>) {
        for task in &self.tasks {
            task.abort();
        }
        self.joined.leave().await;
    }
}

impl Drop for RedisConsumer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
