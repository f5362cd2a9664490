//! Where records are: the partition of a topic, and what it holds.

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

/// How much of a partition one read covers.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) place: Place,
    pub(super) offsets: std::ops::Range<u64>,
    /// A read returns at least one record, whatever its size.
    pub(super) max_bytes: usize,
}
