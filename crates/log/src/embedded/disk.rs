//! The durable layer under the embedded log: records, heads and committed offsets, atomic batches, a sync.
//!
//! [`super::fjall_disk`] implements it; tests wrap that in one that makes writes fail.

use std::fmt;

use bytes::Bytes;
use tidegate_core::time::Timestamp;

use crate::Topic;

/// One partition of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) topic: Topic,
    pub(super) partition: u32,
}

/// What a partition holds: offsets from `start` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) start: u64,
    pub(super) end: u64,
    /// When the last record was appended. The next one is not older, whatever the wall clock says.
    pub(super) last_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) offset: u64,
    pub(super) appended_at: Timestamp,
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    Record(Place, Stored),
    Head(Place, Head),
    /// The committed offset of a group.
    Mark(Place, String, u64),
    /// Drops the records with these offsets.
    Drop(Place, std::ops::Range<u64>),
    /// The number of partitions of a topic.
    Layout(Topic, u32),
}

/// What a log reads when it opens.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) layout: Vec<(Topic, u32)>,
    pub(super) heads: Vec<(Place, Head)>,
    pub(super) marks: Vec<(Place, String, u64)>,
}

/// How much of a partition one read covers.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) place: Place,
    pub(super) offsets: std::ops::Range<u64>,
    /// A read returns at least one record, whatever its size.
    pub(super) max_bytes: usize,
}

/// The durable layer failed; holds its message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct DiskError(pub(super) String);

pub(super) trait Disk: Send + Sync + fmt::Debug + 'static {
    fn load(&self) -> Result<Loaded, DiskError>;
    /// Applies all of it or nothing. The result survives a crash of the process, but not a power cut.
    fn write(&self, ops: Vec<Op>) -> Result<(), DiskError>;
    /// Makes everything written so far survive a power cut, too.
    fn sync(&self) -> Result<(), DiskError>;
    /// When the record was appended, if it exists.
    fn appended_at(&self, place: Place, offset: u64) -> Result<Option<Timestamp>, DiskError>;
    /// The records of a span, in order.
    fn read(&self, span: &Span) -> Result<Vec<Stored>, DiskError>;
}
