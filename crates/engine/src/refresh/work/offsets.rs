//! Low watermarks: the offset up to which each partition may be committed while its records finish in any order.
//!
//! Invariant: a watermark never passes a record that was delivered and is not done. A partition that this consumer
//! loses and regains starts a new term. Records of an earlier term no longer count.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_log::CommittedOffset;

/// A record in flight: its position, and the term of its partition in which it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) partition: u32,
    pub(crate) term: u64,
    pub(crate) offset: u64,
}

#[derive(Debug, Default)]
struct Progress {
    term: u64,
    /// Delivered and not done.
    open: BTreeSet<u64>,
    /// One above the last delivered offset; 0 before the first.
    next: u64,
    /// The offset that the log has confirmed in this term.
    committed: u64,
}

impl Progress {
    fn low_water(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Offsets {
    partitions: BTreeMap<u32, Progress>,
    terms: u64,
}

impl Offsets {
    /// The log assigned the partition to this consumer.
    pub(crate) fn assign(&mut self, partition: u32) {
        self.terms += 1;
        let progress = Progress {
            term: self.terms,
            ..Progress::default()
        };
        self.partitions.insert(partition, progress);
    }

    /// Another consumer owns the partition: drops all progress on it.
    pub(crate) fn revoke(&mut self, partition: u32) {
        self.partitions.remove(&partition);
    }

    /// A record arrived. `None`: the partition is not assigned to this consumer, or the record is a redelivery.
    pub(crate) fn deliver(&mut self, partition: u32, offset: u64) -> Option<Place> {
        let progress = self.partitions.get_mut(&partition)?;
        if offset < progress.next {
            return None;
        }
        if progress.next == 0 {
            // Delivery starts at the committed offset, so everything before it is done.
            progress.committed = offset;
        }
        progress.open.insert(offset);
        progress.next = offset + 1;
        Some(Place {
            partition,
            term: progress.term,
            offset,
        })
    }

    /// A record is done. Returns false if the partition was lost since its delivery.
    pub(crate) fn done(&mut self, place: Place) -> bool {
        match self.partitions.get_mut(&place.partition) {
            Some(progress) if progress.term == place.term => progress.open.remove(&place.offset),
            _ => false,
        }
    }

    /// Watermarks that are not committed yet.
    pub(crate) fn due(&self) -> Vec<CommittedOffset> {
        let due = |(partition, progress): (&u32, &Progress)| {
            let next = progress.low_water();
            (next > progress.committed).then_some(CommittedOffset {
                partition: *partition,
                next,
            })
        };
        self.partitions.iter().filter_map(due).collect()
    }

    /// The log confirmed this offset.
    pub(crate) fn committed(&mut self, offset: CommittedOffset) {
        if let Some(progress) = self.partitions.get_mut(&offset.partition) {
            progress.committed = progress.committed.max(offset.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn committed(partition: u32, next: u64) -> CommittedOffset {
        CommittedOffset { partition, next }
    }

    #[test]
    fn only_the_contiguous_beginning_is_committed() {
        let mut offsets = Offsets::default();
        offsets.assign(3);
        let places: Vec<Place> = (10..14)
            .map(|offset| offsets.deliver(3, offset).unwrap())
            .collect();
        assert_eq!(offsets.due(), []);
        assert!(offsets.done(places[2]));
        assert!(offsets.done(places[1]));
        assert_eq!(offsets.due(), []);
        assert!(offsets.done(places[0]));
        assert_eq!(offsets.due(), [committed(3, 13)]);
        offsets.committed(committed(3, 13));
        assert!(offsets.done(places[3]));
        assert_eq!(offsets.due(), [committed(3, 14)]);
    }

    #[test]
    fn what_was_begun_before_a_partition_was_lost_moves_no_offset() {
        let mut offsets = Offsets::default();
        offsets.assign(0);
        let before = offsets.deliver(0, 5).unwrap();
        offsets.revoke(0);
        assert!(offsets.deliver(0, 6).is_none());
        offsets.assign(0);
        let after = offsets.deliver(0, 5).unwrap();
        assert!(!offsets.done(before));
        assert_eq!(offsets.due(), []);
        assert!(offsets.done(after));
        assert_eq!(offsets.due(), [committed(0, 6)]);
    }

    #[test]
    fn a_record_that_comes_twice_is_begun_once() {
        let mut offsets = Offsets::default();
        offsets.assign(0);
        assert!(offsets.deliver(0, 7).is_some());
        assert!(offsets.deliver(0, 7).is_none());
    }

    proptest! {
        /// Records may finish in any order, and offsets may have gaps. A watermark still has nothing open below it,
        /// and in the end everything is committed.
        #[test]
        fn an_offset_never_passes_what_is_not_done(
            gaps in prop::collection::vec(1u64..5, 1..60),
            order in any::<prop::sample::Index>(),
            seed in prop::collection::vec(any::<prop::sample::Index>(), 60),
        ) {
            let mut offsets = Offsets::default();
            offsets.assign(1);
            let mut offset = order.index(1_000) as u64;
            let mut open: Vec<Place> = Vec::new();
            for gap in &gaps {
                offset += gap;
                open.push(offsets.deliver(1, offset).unwrap());
            }
            let mut last = 0;
            for pick in seed {
                if open.is_empty() {
                    break;
                }
                let place = open.swap_remove(pick.index(open.len()));
                prop_assert!(offsets.done(place));
                for due in offsets.due() {
                    prop_assert!(due.next > last);
                    prop_assert!(open.iter().all(|place| place.offset >= due.next));
                    last = due.next;
                    offsets.committed(due);
                }
            }
            prop_assert_eq!(last, offset + 1);
        }
    }
}
