//! The `Log` and `Consumer` traits: what a backend must be able to do.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::time::Timestamp;

use crate::{LogError, LogSettings, Topic};

/// Limit: key and value of one record together.
pub(crate) const MAX_RECORD: usize = 1_100_000;
/// Limit: key and value of a dead letter together. It may hold a whole undecodable record, with two characters for
/// each byte, and a short description.
pub(crate) const MAX_DEAD_LETTER: usize = 2 * MAX_RECORD + 100_000;

/// Limit: key and value of one record of a topic together.
pub(crate) fn max_record(topic: Topic) -> usize {
    match topic {
        Topic::High | Topic::Low => MAX_RECORD,
        Topic::Dead => MAX_DEAD_LETTER,
    }
}

/// A record to append. Records of one key stay in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub topic: Topic,
    pub key: Bytes,
    pub value: Bytes,
}

impl Record {
    pub(crate) fn check(&self) -> Result<(), LogError> {
        let bytes = self.key.len() + self.value.len();
        let max = max_record(self.topic);
        if bytes > max {
            return Err(LogError::TooLarge { bytes, max });
        }
        Ok(())
    }
}

/// The position of a record in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub partition: u32,
    pub offset: u64,
}

/// A record as the log delivers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    pub position: Position,
    pub key: Bytes,
    pub value: Bytes,
    /// In the log's time; never decreases within a partition.
    pub appended_at: Timestamp,
}

/// What a consumer received. Handle `revoked` first, then `assigned`, then the records: a partition that was lost and
/// came back is in both, and starts at its committed offset again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub assigned: Vec<u32>,
    pub revoked: Vec<u32>,
    /// In order within a partition.
    pub records: Vec<Delivered>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.assigned.is_empty() && self.revoked.is_empty() && self.records.is_empty()
    }
}

/// The low watermark of a partition: everything before `next` is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedOffset {
    pub partition: u32,
    /// The first offset that is not done.
    pub next: u64,
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Durable. A committed offset never decreases: a lower one leaves it unchanged.
    Committed,
    /// This consumer no longer owns the partition; nothing was stored.
    Lost,
    /// The offset is beyond what this consumer received since its assignment; nothing was stored.
    NotDelivered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumeParams {
    pub topic: Topic,
    /// Consumers of one group share the partitions; groups are independent.
    pub group: String,
    /// Names the consumer for operators; need not be unique.
    pub owner: String,
    /// Records to read ahead.
    pub max_buffered: usize,
}

/// The lag of a group in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionLag {
    pub partition: u32,
    /// The oldest retained offset; `end` if there is none.
    pub start: u64,
    /// The offset of the next record.
    pub end: u64,
    /// The committed offset of the group, if any.
    pub committed: Option<u64>,
    /// When the oldest retained record that is not done was appended.
    pub oldest: Option<Timestamp>,
}

impl PartitionLag {
    /// The first retained offset that is not done.
    pub fn next(&self) -> u64 {
        self.committed.unwrap_or_default().max(self.start)
    }

    /// Retained records that are not done.
    pub fn records(&self) -> u64 {
        self.end.saturating_sub(self.next())
    }
}

/// The lag of a group, by partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lag {
    pub partitions: Vec<PartitionLag>,
}

impl Lag {
    pub fn records(&self) -> u64 {
        self.partitions.iter().map(PartitionLag::records).sum()
    }

    /// When the oldest record that is not done was appended.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.partitions.iter().filter_map(|lag| lag.oldest).min()
    }
}

/// A backend for refresh events and dead letters.
#[async_trait]
pub trait Log: Send + Sync + fmt::Debug + 'static {
    fn settings(&self) -> &LogSettings;

    /// Ok means durable, as far as the backend can be. Returns one result per record, in the order of the call, and
    /// never later than the send timeout: an overloaded log returns `Full` instead of slowing down. After `Timeout` a
    /// record is in doubt: it may exist or still appear. After any other error it does not exist. Records of one key
    /// keep their order.
    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>>;

    /// Joins a consumer group. The first partitions come with the first batches.
    async fn consume(&self, params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError>;

    /// The lag of a group; a group that never committed lags behind by everything retained.
    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError>;

    /// Records of one partition from an offset on, without a group: to inspect dead letters. Starts at the oldest
    /// retained record if `from` is older.
    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError>;

    /// Whether the log is available and its layout matches the configuration.
    async fn check(&self) -> Result<(), LogError>;

    /// Waits for calls in flight; later calls return `Closed`.
    async fn close(&self);
}

/// A member of a consumer group. Dropped without [`close`](Consumer::close), it counts as dead: its partitions go to
/// others as soon as the backend notices.
#[async_trait]
pub trait Consumer: Send + Sync + fmt::Debug {
    /// At most `max` records, as soon as there is something to report, at the latest after `wait`. The membership
    /// does not depend on how often callers call this. A retryable error leaves the consumer usable.
    async fn next(&self, max: usize, wait: Duration) -> Result<Batch, LogError>;

    /// Commits the offsets; returns one outcome for each.
    async fn commit(&self, offsets: &[CommittedOffset]) -> Result<Vec<CommitOutcome>, LogError>;

    /// While paused, the consumer hands out no records; it keeps its partitions.
    fn set_paused(&self, paused: bool);

    /// Leaves the group; its partitions are free at once.
    async fn close(self: Box<Self>);
}
