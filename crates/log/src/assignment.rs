//! The assignment of a consumer: its partitions with their read-ahead buffers, and the changes it has not reported yet.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use crate::{Batch, Delivered, LogError};

/// A partition under one fencing token.
#[derive(Debug)]
pub(crate) struct OwnedPartition {
    pub(crate) fence: u64,
    /// Until then nobody else can own it, counted from before the last renewal. None where the server enforces that.
    pub(crate) until: Option<Instant>,
    /// The first offset not read yet.
    pub(crate) unread: u64,
    /// The first offset not handed out yet.
    pub(crate) next: u64,
    pub(crate) ahead: VecDeque<Delivered>,
    /// The offset that needs no commit: where the assignment began, or the last commit.
    pub(crate) done: u64,
}

/// What to read of a partition, if it is still owned under this fence by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) partition: u32,
    pub(crate) fence: u64,
    pub(crate) from: u64,
    pub(crate) max: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Assignment {
    pub(crate) partitions: BTreeMap<u32, OwnedPartition>,
    assigned: Vec<u32>,
    revoked: Vec<u32>,
    /// The error since the last call, if any.
    failure: Option<LogError>,
    /// The partition that goes first; it rotates, so that none starves.
    turn: u32,
}

impl Assignment {
    pub(crate) fn gain(&mut self, partition: u32, fence: u64, next: u64, until: Option<Instant>) {
        self.lose(partition);
        self.assigned.push(partition);
        let held = OwnedPartition {
            fence,
            until,
            unread: next,
            next,
            ahead: VecDeque::new(),
            done: next,
        };
        self.partitions.insert(partition, held);
    }

    /// Drops the read-ahead buffer, too: those records belong to the next owner.
    pub(crate) fn lose(&mut self, partition: u32) {
        if self.partitions.remove(&partition).is_none() {
            return;
        }
        // An assignment never reported needs no revocation.
        match self.assigned.iter().position(|assigned| *assigned == partition) {
            Some(place) => drop(self.assigned.remove(place)),
            None => self.revoked.push(partition),
        }
    }

    /// The same, if the partition is still owned under this fence.
    pub(crate) fn lose_under(&mut self, partition: u32, fence: u64) {
        let held = self.partitions.get(&partition);
        if held.is_some_and(|held| held.fence == fence) {
            self.lose(partition);
        }
    }

    /// Loses the partitions whose lease was not renewed in time: another consumer may own them.
    pub(crate) fn expire(&mut self, now: Instant) {
        let late: Vec<u32> = (self.partitions.iter())
            .filter_map(|(partition, held)| {
                held.until.is_some_and(|until| until <= now).then_some(*partition)
            })
            .collect();
        for partition in late {
            self.lose(partition);
        }
    }

    pub(crate) fn fences(&self) -> Vec<(u32, u64)> {
        self.partitions
            .iter()
            .map(|(partition, held)| (*partition, held.fence))
            .collect()
    }

    pub(crate) fn report(&mut self, error: LogError) {
        self.failure = Some(error);
    }

    /// What to read so that about `max` records are buffered, each partition its share.
    pub(crate) fn wants(&self, max: usize) -> Vec<Want> {
        let share = (max / self.partitions.len().max(1)).max(1);
        (self.partitions.iter())
            .filter(|(_, held)| held.ahead.len() < share)
            .map(|(partition, held)| Want {
                partition: *partition,
                fence: held.fence,
                from: held.unread,
                max: share - held.ahead.len(),
            })
            .collect()
    }

    /// Records in the buffers.
    #[cfg(feature = "kafka")]
    pub(crate) fn buffered(&self) -> usize {
        self.partitions.values().map(|held| held.ahead.len()).sum()
    }

    /// Takes a record that the client pushed. The first one shows where the partition begins.
    #[cfg(feature = "kafka")]
    pub(crate) fn push(&mut self, record: Delivered) {
        let Some(held) = self.partitions.get_mut(&record.position.partition) else {
            return;
        };
        if held.unread == 0 {
            held.done = record.position.offset;
            held.next = held.done;
        }
        held.unread = record.position.offset + 1;
        held.ahead.push_back(record);
    }

    pub(crate) fn read(&mut self, want: Want, records: Vec<Delivered>) {
        let Some(held) = self.partitions.get_mut(&want.partition) else {
            return;
        };
        if held.fence != want.fence || held.unread != want.from {
            return;
        }
        if let Some(last) = records.last() {
            held.unread = last.position.offset + 1;
        }
        held.ahead.extend(records);
    }

    /// Returns what there is to report; the error only if there is nothing else.
    pub(crate) fn take(&mut self, max: usize, paused: bool, now: Instant) -> Result<Batch, LogError> {
        self.expire(now);
        let mut records = Vec::new();
        if !paused {
            let turn = self.turn;
            let (before, after): (Vec<_>, Vec<_>) = self
                .partitions
                .iter_mut()
                .partition(|(partition, _)| **partition < turn);
            for (partition, held) in after.into_iter().chain(before) {
                let count = held.ahead.len().min(max - records.len());
                if count > 0 {
                    records.extend(held.ahead.drain(..count));
                    self.turn = partition + 1;
                }
                held.next = records
                    .last()
                    .filter(|_| count > 0)
                    .map_or(held.next, |last: &Delivered| last.position.offset + 1);
            }
        }
        let batch = Batch {
            assigned: std::mem::take(&mut self.assigned),
            revoked: std::mem::take(&mut self.revoked),
            records,
        };
        match self.failure.take() {
            Some(error) if batch.is_empty() => Err(error),
            _ => Ok(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tidegate_core::time::Timestamp;

    use super::*;
    use crate::Position;

    fn records(partition: u32, offsets: std::ops::Range<u64>) -> Vec<Delivered> {
        offsets
            .map(|offset| Delivered {
                position: Position { partition, offset },
                key: Bytes::new(),
                value: Bytes::new(),
                appended_at: Timestamp(0),
            })
            .collect()
    }

    fn want(partition: u32, fence: u64, from: u64) -> Want {
        Want {
            partition,
            fence,
            from,
            max: 10,
        }
    }

    #[tokio::test]
    async fn what_was_read_under_another_fence_is_not_taken() {
        let now = Instant::now();
        let later = Some(now + Duration::from_secs(1));
        let mut assignment = Assignment::default();
        assignment.gain(3, 1, 5, later);
        assert_eq!(assignment.take(10, false, now).unwrap().assigned, [3]);
        let old = want(3, 1, 5);
        assignment.gain(3, 2, 4, later);
        assignment.read(old, records(3, 5..8));
        let batch = assignment.take(10, false, now).unwrap();
        assert_eq!(
            (batch.revoked, batch.assigned, batch.records),
            (vec![3], vec![3], vec![])
        );
        assignment.read(want(3, 2, 4), records(3, 4..8));
        assert_eq!(assignment.take(3, false, now).unwrap().records.len(), 3);
        assert_eq!(assignment.partitions[&3].next, 7);
    }

    #[tokio::test]
    async fn what_was_not_renewed_is_lost_with_what_was_read_ahead() {
        let now = Instant::now();
        let mut assignment = Assignment::default();
        assignment.gain(0, 1, 0, Some(now + Duration::from_secs(1)));
        assignment.gain(1, 1, 0, None);
        for partition in [0, 1] {
            assignment.read(want(partition, 1, 0), records(partition, 0..2));
        }
        assignment.take(0, true, now).unwrap();
        let batch = assignment.take(10, false, now + Duration::from_secs(2)).unwrap();
        assert_eq!(batch.revoked, [0]);
        assert!(batch.records.iter().all(|record| record.position.partition == 1));
    }

    #[tokio::test]
    async fn every_partition_has_its_turn() {
        let now = Instant::now();
        let mut assignment = Assignment::default();
        for partition in 0..3 {
            assignment.gain(partition, 1, 0, None);
            assignment.read(want(partition, 1, 0), records(partition, 0..5));
        }
        let seen: Vec<u32> = (0..6)
            .map(|_| {
                assignment.take(1, false, now).unwrap().records[0]
                    .position
                    .partition
            })
            .collect();
        assert_eq!(seen, [0, 1, 2, 0, 1, 2]);
    }
}
