//! The seam itself: what a backend must be able to do.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::time::Timestamp;

use crate::{LogError, LogSettings, Topic};

/// Limit: key and value of one record together.
pub(crate) const MAX_RECORD: usize = 1_100_000;
/// Limit: the same of a dead letter. It may hold a whole record that nobody could read, as two characters for each byte,
/// and says a little about it.
pub(crate) const MAX_DEAD_LETTER: usize = 2 * MAX_RECORD + 100_000;

/// Limit: key and value of one record of a topic together.
pub(crate) fn max_record(topic: Topic) -> usize {
    match topic {
        Topic::High | Topic::Low => MAX_RECORD,
        Topic::Dead => MAX_DEAD_LETTER,
    }
}

/// What is appended. Records of one key stay in order.
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

/// Where a record of a topic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub partition: u32,
    pub offset: u64,
}

/// A record as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    pub position: Position,
    pub key: Bytes,
    pub value: Bytes,
    /// By the clock of the log; never goes back within a partition.
    pub appended_at: Timestamp,
}

/// What a consumer got. Take `revoked` first, then `assigned`, then the records: a partition that was lost and
/// came back is in both, and begins at its mark again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub assigned: Vec<u32>,
    pub revoked: Vec<u32>,
    /// Within a partition in order.
    pub records: Vec<Delivered>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.assigned.is_empty() && self.revoked.is_empty() && self.records.is_empty()
    }
}

/// The low-water mark of a partition: everything before `next` is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub partition: u32,
    /// The first offset that is not done.
    pub next: u64,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Durable. A mark never goes back: one that is behind the stored one leaves that as it is.
    Committed,
    /// The partition is not this consumer's any more; nothing was stored.
    Lost,
    /// The mark is beyond what this consumer was given since it owns the partition; nothing was stored.
    NotDelivered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumeParams {
    pub topic: Topic,
    /// Consumers of one group share the partitions; groups know nothing of each other.
    pub group: String,
    /// Who consumes, for people who look; need not be unique.
    pub owner: String,
    /// Records that are read ahead.
    pub max_buffered: usize,
}

/// How far a group is behind in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionLag {
    pub partition: u32,
    /// The oldest offset that is kept; `end` if none is.
    pub start: u64,
    /// The offset that the next record gets.
    pub end: u64,
    /// The mark of the group, if it ever committed one.
    pub committed: Option<u64>,
    /// When the oldest record that is kept and not done was appended.
    pub oldest: Option<Timestamp>,
}

impl PartitionLag {
    /// The first offset that is kept and not done.
    pub fn next(&self) -> u64 {
        self.committed.unwrap_or_default().max(self.start)
    }

    /// Records that are kept and not done.
    pub fn records(&self) -> u64 {
        self.end.saturating_sub(self.next())
    }
}

/// How far a group is behind, by partition.
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

    /// Ok means durable as far as the backend can be. Each record is answered for itself, in the order of the
    /// call, and never later than the send timeout: a log that cannot keep up answers `Full`, not slowly.
    /// After `Timeout` a record may be there or come to be; after any other error it is not there.
    /// Records of one key keep their order.
    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>>;

    /// Joins a group. The first partitions come with the first batches.
    async fn consume(&self, params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError>;

    /// How far a group is behind; one that never committed is behind by everything that is kept.
    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError>;

    /// Records of one partition from an offset on, without a group: for looking at dead letters. Begins at the
    /// oldest that is kept when `from` is older.
    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError>;

    /// Whether the log can be used and is laid out as configured.
    async fn check(&self) -> Result<(), LogError>;

    /// Waits for what is under way, then answers `Closed`.
    async fn close(&self);
}

/// A member of a group. Dropped without [`close`](Consumer::close) it is as one that died: its partitions go to
/// others as soon as the backend notices.
#[async_trait]
pub trait Consumer: Send + Sync + fmt::Debug {
    /// At most `max` records, as soon as there is something to say, at the latest after `wait`. The membership
    /// does not depend on how often this is called. An error that can be retried leaves the consumer usable.
    async fn next(&self, max: usize, wait: Duration) -> Result<Batch, LogError>;

    /// Stores the marks; one outcome for each.
    async fn commit(&self, marks: &[Mark]) -> Result<Vec<CommitOutcome>, LogError>;

    /// While paused no records are handed out; the partitions stay.
    fn set_paused(&self, paused: bool);

    /// Leaves the group; its partitions are free at once.
    async fn close(self: Box<Self>);
}
