//! Keys and values as numbers and bytes. A record's key is its place and its offset, so that the records of a partition lie
//! in the order of their offsets.

use std::ops::RangeInclusive;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::time::Timestamp;
use tidegate_durable::DiskError;

use super::place::{Head, Place, Stored};
use crate::Topic;

/// Bits of a record's key for the offset. Limit: 2^48 records of a partition, which is 17,000 years at 500 a second.
const OFFSET_BITS: u32 = 48;
/// Bits of a place's number for the partition. Limit: 4,096 partitions.
const PARTITION_BITS: u32 = 12;

/// The committed offset of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Committed {
    pub(super) place: u64,
    pub(super) group: String,
    pub(super) next: u64,
}

pub(super) fn topic_number(topic: Topic) -> u64 {
    match topic {
        Topic::High => 0,
        Topic::Low => 1,
        Topic::Dead => 2,
    }
}

pub(super) fn topic_of(number: u64) -> Result<Topic, DiskError> {
    let found = Topic::ALL
        .into_iter()
        .find(|topic| topic_number(*topic) == number);
    found.ok_or_else(|| DiskError(format!("a topic with the number {number}")))
}

pub(super) fn place_number(place: Place) -> u64 {
    topic_number(place.topic) << PARTITION_BITS | u64::from(place.partition)
}

pub(super) fn place_of(number: u64) -> Result<Place, DiskError> {
    Ok(Place {
        topic: topic_of(number >> PARTITION_BITS)?,
        partition: (number & ((1 << PARTITION_BITS) - 1)) as u32,
    })
}

pub(super) fn record_key(place: Place, offset: u64) -> u64 {
    place_number(place) << OFFSET_BITS | offset
}

pub(super) fn record_keys(place: Place, offsets: std::ops::Range<u64>) -> RangeInclusive<u64> {
    // An empty range of offsets must not reach into the partition before.
    match offsets.is_empty() {
        true => RangeInclusive::new(1, 0),
        false => record_key(place, offsets.start)..=record_key(place, offsets.end - 1),
    }
}

pub(super) fn offset_of(key: u64) -> u64 {
    key & ((1 << OFFSET_BITS) - 1)
}

fn number(bytes: &[u8]) -> Result<u64, DiskError> {
    let bytes = bytes
        .try_into()
        .map_err(|_| DiskError(format!("a number of {} bytes", bytes.len())))?;
    Ok(u64::from_be_bytes(bytes))
}

/// When a record was appended: its first bytes.
pub(super) fn appended_at(record: &[u8]) -> Result<Timestamp, DiskError> {
    let time = record
        .get(..8)
        .ok_or_else(|| DiskError("a record without a time".into()))?;
    Ok(Timestamp(number(time)?))
}

pub(super) fn head(head: Head) -> Vec<u8> {
    [head.start, head.end, head.last_at.0]
        .map(u64::to_be_bytes)
        .as_flattened()
        .to_vec()
}

pub(super) fn read_head(bytes: &[u8]) -> Result<Head, DiskError> {
    if bytes.len() != 24 {
        return Err(DiskError(format!("a head of {} bytes", bytes.len())));
    }
    Ok(Head {
        start: number(&bytes[..8])?,
        end: number(&bytes[8..16])?,
        last_at: Timestamp(number(&bytes[16..])?),
    })
}

/// Layout: time, length of the key, key, value.
pub(super) fn record(record: &Stored) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(13 + record.key.len() + record.value.len());
    bytes.extend_from_slice(&record.appended_at.0.to_be_bytes());
    bytes.extend_from_slice(&(record.key.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&record.key);
    bytes.extend_from_slice(&record.value);
    bytes
}

/// A frame in a foreign layout becomes a record without a key and with the whole frame as its value. The consumer
/// dead-letters it and moves on.
pub(super) fn read_record(offset: u64, bytes: Vec<u8>) -> Stored {
    let frame = Bytes::from(bytes);
    let appended_at = frame.first_chunk().map_or(0, |time| u64::from_be_bytes(*time));
    let (key, value) = key_and_value(frame.clone()).unwrap_or((Bytes::new(), frame));
    Stored {
        offset,
        appended_at: Timestamp(appended_at),
        key,
        value,
    }
}

fn key_and_value(mut frame: Bytes) -> Option<(Bytes, Bytes)> {
    let length = frame.get(8..12)?.first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    let mut rest = frame.split_off(12);
    if rest.len() < length {
        return None;
    }
    let key = rest.split_to(length);
    Some((key, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_heads_come_back_as_they_were() {
        let stored = Stored {
            offset: 7,
            appended_at: Timestamp(99),
            key: Bytes::from_static(b"\0\xffkey"),
            value: Bytes::new(),
        };
        assert_eq!(read_record(7, record(&stored)), stored);
        let known = Head {
            start: 1,
            end: 2,
            last_at: Timestamp(3),
        };
        assert_eq!(read_head(&head(known)).unwrap(), known);
    }

    #[test]
    fn places_and_offsets_come_back_from_their_numbers() {
        for (topic, partition, offset) in [(Topic::High, 0, 0), (Topic::Dead, 1_023, (1 << 48) - 1)] {
            let place = Place { topic, partition };
            assert_eq!(place_of(place_number(place)).unwrap(), place);
            assert_eq!(offset_of(record_key(place, offset)), offset);
            assert!(record_keys(place, 5..5).is_empty());
        }
        place_of(3 << PARTITION_BITS).unwrap_err();
    }

    #[test]
    fn half_a_record_is_handed_out_as_it_is() {
        for (broken, at) in [
            (vec![], 0),
            (vec![0; 11], 0),
            (
                [vec![0, 0, 0, 0, 0, 0, 0, 5], vec![0, 0, 0, 9], vec![1]].concat(),
                5,
            ),
        ] {
            let read = read_record(3, broken.clone());
            assert_eq!((read.offset, read.appended_at), (3, Timestamp(at)));
            assert_eq!((&read.key[..], &read.value[..]), (&b""[..], &broken[..]));
        }
    }
}
