//! A member of a consumer group.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use tokio::time::Instant;

use super::Shared;
use super::client::unavailable;
use super::poll::{Joined, Listener, poll_for_ever};
use crate::{Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, LogError};

/// Limit: attempts of a commit during a rebalance.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct KafkaConsumer {
    shared: Arc<Shared>,
    joined: Arc<Joined>,
    /// The thread owns the client, so that it is never dropped on an async thread.
    client: Weak<BaseConsumer<Listener>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Serialize `next` and `commit`, so that records and offsets stay in order.
    calling: tokio::sync::Mutex<()>,
    committing: tokio::sync::Mutex<()>,
}

impl fmt::Debug for KafkaConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConsumer")
            .field("topic", &self.joined.name)
            .finish_non_exhaustive()
    }
}

impl KafkaConsumer {
    pub(super) fn join(shared: Arc<Shared>, params: ConsumeParams) -> Result<Self, LogError> {
        let ConsumeParams {
            topic,
            group,
            owner,
            max_buffered,
        } = params;
        let name = shared.settings.name(topic);
        let brokers = shared.clients.brokers().to_owned();
        let joined = Arc::new(Joined::new(brokers, name.clone(), max_buffered));
        let listener = Listener(joined.clone());
        let client = Arc::new(
            shared
                .clients
                .member(&shared.settings, &group, &owner, listener)?,
        );
        client
            .subscribe(&[&name])
            .map_err(|error| unavailable(shared.clients.brokers(), &error))?;
        let weak = Arc::downgrade(&client);
        let polled = joined.clone();
        let thread = std::thread::Builder::new()
            .name("log-poll".into())
            .spawn(move || poll_for_ever(&polled, client))
            .map_err(|error| LogError::Config(format!("no thread for a consumer: {error}")))?;
        Ok(Self {
            shared,
            joined,
            client: weak,
            thread: Some(thread),
            calling: tokio::sync::Mutex::default(),
            committing: tokio::sync::Mutex::default(),
        })
    }
}

/// Commits the offsets of owned partitions. Blocks.
fn store(
    joined: &Joined,
    client: &BaseConsumer<Listener>,
    offsets: &[CommittedOffset],
) -> Result<Vec<CommitOutcome>, LogError> {
    let mut tries = 0;
    loop {
        match try_store(joined, client, offsets) {
            Ok(outcomes) => return Ok(outcomes),
            // A rebalance is in progress: after it we know which partitions we still own.
            Err(error) if fenced(&error) && tries < TRIES => {
                tries += 1;
                std::thread::park_timeout(PAUSE);
            }
            Err(error) => return Err(unavailable(&joined.brokers, &error)),
        }
    }
}

fn fenced(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::RebalanceInProgress
                | RDKafkaErrorCode::IllegalGeneration
                | RDKafkaErrorCode::UnknownMemberId
                | RDKafkaErrorCode::AssignmentLost
        )
    )
}

fn try_store(
    joined: &Joined,
    client: &BaseConsumer<Listener>,
    offsets: &[CommittedOffset],
) -> Result<Vec<CommitOutcome>, KafkaError> {
    let _no_partition_is_released = joined.committing.read().unwrap_or_else(PoisonError::into_inner);
    let mut list = TopicPartitionList::new();
    let mut outcomes = Vec::with_capacity(offsets.len());
    {
        let assignment = joined.assignment();
        for offset in offsets {
            let outcome = match assignment.partitions.get(&offset.partition) {
                None => CommitOutcome::Lost,
                Some(held) if offset.next <= held.done => CommitOutcome::Committed,
                Some(held) if offset.next > held.next => CommitOutcome::NotDelivered,
                Some(_) => {
                    let next = Offset::Offset(offset.next as i64);
                    list.add_partition_offset(&joined.name, offset.partition as i32, next)?;
                    CommitOutcome::Committed
                }
            };
            outcomes.push(outcome);
        }
    }
    if list.count() == 0 {
        return Ok(outcomes);
    }
    client.commit(&list, CommitMode::Sync)?;
    let mut assignment = joined.assignment();
    for offset in offsets {
        if let Some(held) = assignment.partitions.get_mut(&offset.partition)
            && offset.next <= held.next
        {
            held.done = held.done.max(offset.next);
        }
    }
    Ok(outcomes)
}

#[async_trait]
impl Consumer for KafkaConsumer {
    async fn next(&self, max: usize, wait: Duration) -> Result<Batch, LogError> {
        let _calling = self.calling.lock().await;
        let until = Instant::now() + wait;
        loop {
            // Subscribe first, then read: no signal in between gets lost.
            let filled = self.joined.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            self.shared.open()?;
            let paused = self.joined.paused.load(Ordering::SeqCst);
            let batch = self.joined.assignment().take(max, paused, Instant::now())?;
            if !batch.is_empty() || tokio::time::timeout_at(until, filled).await.is_err() {
                return Ok(batch);
            }
        }
    }

    async fn commit(&self, offsets: &[CommittedOffset]) -> Result<Vec<CommitOutcome>, LogError> {
        self.shared.open()?;
        let _committing = self.committing.lock().await;
        let (joined, client, offsets) = (self.joined.clone(), self.client.clone(), offsets.to_vec());
        let stored = tokio::task::spawn_blocking(move || {
            let client = client.upgrade().ok_or(LogError::Closed)?;
            store(&joined, &client, &offsets)
        });
        let stored = stored.await;
        stored.unwrap_or_else(|error| Err(LogError::Corrupt(format!("a commit failed: {error}"))))
    }

    fn set_paused(&self, paused: bool) {
        self.joined.paused.store(paused, Ordering::SeqCst);
        self.joined.filled.notify_waiters();
    }

    async fn close(mut self: Box<Self>) {
        self.joined.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended as well.
            let _ = tokio::task::spawn_blocking(move || thread.join().map_err(drop)).await;
        }
    }
}

impl Drop for KafkaConsumer {
    fn drop(&mut self) {
        self.joined.closing.store(true, Ordering::SeqCst);
    }
}
