//! A member of a consumer group: two tasks keep its partitions and read ahead, whatever the caller does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Shared;
use super::server::Call;
use super::{fetch, member};
use crate::assignment::Assignment;
use crate::{Batch, CommitOutcome, ConsumeParams, Consumer, LogError, Mark, Topic};

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

    pub(super) fn trouble(&self, error: LogError) {
        self.assignment().trouble(error);
        self.filled.notify_waiters();
    }

    async fn commit(&self, mark: Mark) -> Result<CommitOutcome, LogError> {
        let held = {
            let mut assignment = self.assignment();
            assignment.expire(Instant::now());
            let held = assignment.partitions.get(&mark.partition);
            held.map(|held| (held.fence, held.next, held.done))
        };
        let Some((fence, next, done)) = held else {
            return Ok(CommitOutcome::Lost);
        };
        if mark.next <= done {
            return Ok(CommitOutcome::Committed);
        }
        if mark.next > next {
            return Ok(CommitOutcome::NotDelivered);
        }
        let keys = self.shared.keys.partition(self.topic, mark.partition);
        let call = Call::new("commit", [keys.lease(&self.group), keys.marks()])
            .saying_run()
            .arg(self.group.clone())
            .arg(self.member.clone())
            .number(fence)
            .number(mark.next);
        let stored = self.shared.server.number(&call).await? == 1;
        let mut assignment = self.assignment();
        match assignment.partitions.get_mut(&mark.partition) {
            Some(held) if held.fence == fence && stored => held.done = held.done.max(mark.next),
            _ => assignment.lose_under(mark.partition, fence),
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
            member: format!("{owner}-{}", shared.server.request()),
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

    async fn commit(&self, marks: &[Mark]) -> Result<Vec<CommitOutcome>, LogError> {
        self.joined.shared.open()?;
        let commits = marks.iter().map(|mark| self.joined.commit(*mark));
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
