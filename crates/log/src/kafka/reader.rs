//! Reads the log without joining a group: lag, and records by offset. All of this blocks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};
use tidegate_core::time::Timestamp;

use super::client::{ReaderClient, unavailable};
use super::{PATIENCE, Shared};
use crate::{Delivered, Lag, LogError, PartitionLag, Position, Topic};

const POLL: Duration = Duration::from_millis(50);

pub(super) fn delivered(message: &BorrowedMessage<'_>) -> Delivered {
    Delivered {
        position: Position {
            partition: message.partition() as u32,
            offset: message.offset() as u64,
        },
        key: Bytes::copy_from_slice(message.key().unwrap_or_default()),
        value: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
        appended_at: Timestamp(message.timestamp().to_millis().unwrap_or_default() as u64),
    }
}

/// What a read encounters.
enum Seen {
    Record(Delivered),
    /// The end of this partition.
    End(u32),
}

/// A reader that releases its partitions when done.
struct Assigned<'a>(&'a ReaderClient);

impl Drop for Assigned<'_> {
    fn drop(&mut self) {
        // Every use assigns partitions anew.
        let _ = self.0.unassign();
    }
}

impl Shared {
    fn failed(&self, error: &KafkaError) -> LogError {
        unavailable(self.clients.brokers(), error)
    }

    fn late(&self) -> LogError {
        LogError::Unavailable {
            server: format!("Kafka at {}", self.clients.brokers()),
            reason: format!("no answer within {} s", PATIENCE.as_secs()),
        }
    }

    /// Reads from these offsets on, until `take` has enough of every requested partition.
    fn visit(
        &self,
        reader: &ReaderClient,
        topic: Topic,
        from: &BTreeMap<u32, u64>,
        mut take: impl FnMut(Seen) -> bool,
    ) -> Result<(), LogError> {
        let name = self.settings.name(topic);
        let mut list = TopicPartitionList::new();
        for (partition, offset) in from {
            list.add_partition_offset(&name, *partition as i32, Offset::Offset(*offset as i64))
                .map_err(|error| self.failed(&error))?;
        }
        reader.assign(&list).map_err(|error| self.failed(&error))?;
        let _assigned = Assigned(reader);
        let until = Instant::now() + PATIENCE;
        loop {
            match reader.poll(POLL) {
                Some(Ok(message)) => {
                    let partition = message.partition() as u32;
                    // Skip leftovers of an earlier read.
                    let ours = message.topic() == name
                        && from
                            .get(&partition)
                            .is_some_and(|from| *from <= message.offset() as u64);
                    if ours && take(Seen::Record(delivered(&message))) {
                        return Ok(());
                    }
                }
                // Retention may have dropped records that existed a moment ago.
                Some(Err(KafkaError::PartitionEOF(partition))) if take(Seen::End(partition as u32)) => {
                    return Ok(());
                }
                Some(Err(KafkaError::PartitionEOF(_))) | None => {}
                Some(Err(error)) => tracing::debug!(%error, "reading the log failed"),
            }
            if Instant::now() > until {
                return Err(self.late());
            }
        }
    }

    fn bounds(&self, reader: &ReaderClient, topic: Topic, partition: u32) -> Result<(u64, u64), LogError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match reader.fetch_watermarks(&self.settings.name(topic), partition as i32, PATIENCE) {
                Ok((start, end)) => return Ok((start as u64, end as u64)),
                // A new topic, or a leader election: the client refreshes its metadata.
                Err(error) if moving(&error) && Instant::now() < until => std::thread::park_timeout(POLL),
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }
}

fn moving(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownPartition
        )
    )
}

pub(super) fn read(
    shared: &Shared,
    topic: Topic,
    from: Position,
    max: usize,
) -> Result<Vec<Delivered>, LogError> {
    let reader = shared.clients.reader();
    let (start, end) = shared.bounds(&reader, topic, from.partition)?;
    let begin = from.offset.max(start);
    let mut found = Vec::new();
    if begin >= end || max == 0 {
        return Ok(found);
    }
    let from = BTreeMap::from([(from.partition, begin)]);
    shared.visit(&reader, topic, &from, |seen| match seen {
        Seen::Record(record) => {
            let last = record.position.offset + 1 >= end;
            found.push(record);
            last || found.len() >= max
        }
        Seen::End(_) => true,
    })?;
    Ok(found)
}

pub(super) fn lag(shared: &Shared, topic: Topic, group: &str) -> Result<Lag, LogError> {
    let committed = committed_offsets(shared, topic, group)?;
    let reader = shared.clients.reader();
    let mut partitions = Vec::new();
    for partition in 0..shared.settings.partitions(topic) {
        let (start, end) = shared.bounds(&reader, topic, partition)?;
        partitions.push(PartitionLag {
            partition,
            start,
            end,
            committed: committed.get(&partition).copied(),
            oldest: None,
        });
    }
    let mut behind: BTreeMap<u32, u64> = (partitions.iter())
        .filter(|lag| lag.records() > 0)
        .map(|lag| (lag.partition, lag.next()))
        .collect();
    if !behind.is_empty() {
        let from = behind.clone();
        shared.visit(&reader, topic, &from, |seen| {
            match seen {
                Seen::Record(record) => {
                    let partition = record.position.partition;
                    if behind.remove(&partition).is_some() {
                        partitions[partition as usize].oldest = Some(record.appended_at);
                    }
                }
                Seen::End(partition) => drop(behind.remove(&partition)),
            }
            behind.is_empty()
        })?;
    }
    Ok(Lag { partitions })
}

fn committed_offsets(shared: &Shared, topic: Topic, group: &str) -> Result<BTreeMap<u32, u64>, LogError> {
    let name = shared.settings.name(topic);
    let mut list = TopicPartitionList::new();
    list.add_partition_range(&name, 0, shared.settings.partitions(topic) as i32 - 1);
    let observer = shared.clients.observer(group)?;
    let committed = observer.committed_offsets(list, PATIENCE);
    let committed = committed.map_err(|error| shared.failed(&error))?;
    let known = |(partition, offset): (i32, Offset)| match offset {
        Offset::Offset(offset) => Some((partition as u32, offset as u64)),
        _ => None,
    };
    let elements = committed.elements_for_topic(&name);
    Ok(elements
        .iter()
        .filter_map(|one| known((one.partition(), one.offset())))
        .collect())
}
