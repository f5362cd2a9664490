//! The thread that polls for a member. It keeps polling whatever the caller does, so the broker never revokes the
//! partitions of a consumer that only waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::Notify;

use super::client::unavailable;
use super::reader::delivered;
use crate::LogError;
use crate::assignment::Assignment;

/// How long one poll waits; a closing consumer waits no longer than this for its thread.
const POLL: Duration = Duration::from_millis(50);

/// State that the caller and the thread share.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) brokers: String,
    pub(super) name: String,
    pub(super) max_buffered: usize,
    assignment: Mutex<Assignment>,
    pub(super) paused: AtomicBool,
    pub(super) closing: AtomicBool,
    /// Signals that there is something to report.
    pub(super) filled: Notify,
    /// Held during a commit, so that no partition is released in between. Otherwise the commit could overtake one of
    /// the next owner.
    pub(super) committing: RwLock<()>,
    terms: AtomicU64,
}

impl Joined {
    pub(super) fn new(brokers: String, name: String, max_buffered: usize) -> Self {
        Self {
            brokers,
            name,
            max_buffered: max_buffered.max(1),
            assignment: Mutex::default(),
            paused: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            filled: Notify::new(),
            committing: RwLock::default(),
            terms: AtomicU64::new(0),
        }
    }

    pub(super) fn assignment(&self) -> MutexGuard<'_, Assignment> {
        self.assignment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, error: LogError) {
        self.assignment().report(error);
        self.filled.notify_waiters();
    }

    fn gain(&self, partitions: &TopicPartitionList) {
        let mut assignment = self.assignment();
        for element in partitions.elements_for_topic(&self.name) {
            let term = self.terms.fetch_add(1, Ordering::SeqCst) + 1;
            // The first record shows where the partition begins.
            assignment.gain(element.partition() as u32, term, 0, None);
        }
        drop(assignment);
        self.filled.notify_waiters();
    }

    fn lose(&self, partitions: &TopicPartitionList) {
        let _no_mark = self.committing.write().unwrap_or_else(PoisonError::into_inner);
        let mut assignment = self.assignment();
        for element in partitions.elements_for_topic(&self.name) {
            assignment.lose(element.partition() as u32);
        }
        drop(assignment);
        self.filled.notify_waiters();
    }
}

/// Receives partition assignments and revocations.
#[derive(Debug)]
pub(super) struct Listener(pub(super) Arc<Joined>);

impl ClientContext for Listener {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "a Kafka client");
    }
}

impl ConsumerContext for Listener {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(partitions) = rebalance {
            self.0.lose(partitions);
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => self.0.gain(partitions),
            Rebalance::Revoke(_) => {}
            Rebalance::Error(error) => self.0.report(unavailable(&self.0.brokers, error)),
        }
    }
}

/// Polls until the consumer is closed, then leaves the group here and not on an async thread.
pub(super) fn poll_for_ever(joined: &Joined, consumer: Arc<BaseConsumer<Listener>>) {
    let mut applied = (false, 0);
    while !joined.closing.load(Ordering::SeqCst) {
        let buffered = joined.assignment().buffered();
        // Resume only when half the buffer is free: a pause discards what the client has fetched.
        let full = buffered >= joined.max_buffered || applied.0 && buffered > joined.max_buffered / 2;
        // Newly assigned partitions are not paused yet.
        let wanted = (full, joined.terms.load(Ordering::SeqCst));
        if wanted != applied {
            hold_back(&consumer, full);
            applied = wanted;
        }
        match consumer.poll(POLL) {
            Some(Ok(message)) => {
                joined.assignment().push(delivered(&message));
                joined.filled.notify_waiters();
            }
            Some(Err(error)) => complain(joined, &error),
            None => {}
        }
    }
    drop(consumer);
}

fn hold_back(consumer: &BaseConsumer<Listener>, full: bool) {
    let Ok(all) = consumer.assignment() else { return };
    let done = match full {
        true => consumer.pause(&all),
        false => consumer.resume(&all),
    };
    if let Err(error) = done {
        tracing::debug!(%error, full, "partitions cannot be held back");
    }
}

fn complain(joined: &Joined, error: &KafkaError) {
    match error.rdkafka_error_code() {
        // The client resets its position on its own.
        Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
            tracing::warn!(%error, "records were dropped before they were read");
        }
        _ => {
            tracing::debug!(%error, "a poll failed");
            joined.report(unavailable(&joined.brokers, error));
        }
    }
}
