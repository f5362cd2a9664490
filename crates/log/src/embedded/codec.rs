//! Keys and values as bytes. Numbers in keys are big-endian, so that records lie in the order of their offsets.

use bytes::Bytes;
use tidegate_core::time::Timestamp;

use super::disk::{DiskError, Head, Place, Stored};
use crate::Topic;

const PLACE: usize = 5;

pub(super) fn topic_number(topic: Topic) -> u8 {
    match topic {
        Topic::High => 0,
        Topic::Low => 1,
        Topic::Dead => 2,
    }
}

pub(super) fn topic_of(number: u8) -> Result<Topic, DiskError> {
    let found = Topic::ALL
        .into_iter()
        .find(|topic| topic_number(*topic) == number);
    found.ok_or_else(|| DiskError(format!("a topic with the number {number}")))
}

pub(super) fn place_key(place: Place) -> Vec<u8> {
    let mut key = Vec::with_capacity(PLACE + 12);
    key.push(topic_number(place.topic));
    key.extend_from_slice(&place.partition.to_be_bytes());
    key
}

pub(super) fn record_key(place: Place, offset: u64) -> Vec<u8> {
    let mut key = place_key(place);
    key.extend_from_slice(&offset.to_be_bytes());
    key
}

pub(super) fn piece_key(place: Place, offset: u64, index: u32) -> Vec<u8> {
    let mut key = record_key(place, offset);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

pub(super) fn mark_key(place: Place, group: &str) -> Vec<u8> {
    let mut key = place_key(place);
    key.extend_from_slice(group.as_bytes());
    key
}

/// Reads a place, and returns the rest of the key.
pub(super) fn read_place(key: &[u8]) -> Result<(Place, &[u8]), DiskError> {
    let Some((&[topic, a, b, c, d], rest)) = key.split_first_chunk::<PLACE>() else {
        return Err(DiskError(format!("a key of {} bytes", key.len())));
    };
    let place = Place {
        topic: topic_of(topic)?,
        partition: u32::from_be_bytes([a, b, c, d]),
    };
    Ok((place, rest))
}

pub(super) fn number(bytes: &[u8]) -> Result<u64, DiskError> {
    let bytes = bytes
        .try_into()
        .map_err(|_| DiskError(format!("a number of {} bytes", bytes.len())))?;
    Ok(u64::from_be_bytes(bytes))
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
