//! Converts between the types of the `Snapshots` trait and the columns of a row.

use bytes::Bytes;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

use super::driver::{Fault, SqlRow};
use crate::rows::{RecordRef, StatusState};

/// Database integers are signed; times and offsets beyond their range are as good as the end of time.
pub(super) fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

pub(super) fn time(column: i64) -> Timestamp {
    Timestamp(number(column))
}

pub(super) fn version(column: i64) -> Version {
    Version(number(column))
}

pub(super) fn hash(bytes: Vec<u8>) -> Result<[u8; 32], Fault> {
    <[u8; 32]>::try_from(bytes).map_err(|bytes| Fault::Odd(format!("a hash has {} bytes", bytes.len())))
}

pub(super) fn source(bytes: Vec<u8>) -> Result<SourceId, Fault> {
    let text = String::from_utf8(bytes).map_err(|error| Fault::Odd(format!("a source: {error}")))?;
    SourceId::new(text).map_err(|error| Fault::Odd(error.to_string()))
}

pub(super) fn key(bytes: Vec<u8>) -> Result<RecordKey, Fault> {
    let text = String::from_utf8(bytes).map_err(|error| Fault::Odd(format!("a record key: {error}")))?;
    RecordKey::new(text).map_err(|error| Fault::Odd(error.to_string()))
}

/// A record from two adjacent columns.
pub(super) fn record(row: &SqlRow, index: usize) -> Result<RecordRef, Fault> {
    Ok(RecordRef {
        source: source(row.bytes(index)?)?,
        key: key(row.bytes(index + 1)?)?,
    })
}

pub(super) fn blob(bytes: Option<Vec<u8>>) -> Option<Bytes> {
    bytes.map(Bytes::from)
}

pub(super) fn state_name(state: StatusState) -> &'static str {
    match state {
        StatusState::Retrying => "RETRYING",
        StatusState::Failed => "FAILED",
    }
}

pub(super) fn state(name: &str) -> Result<StatusState, Fault> {
    match name {
        "RETRYING" => Ok(StatusState::Retrying),
        "FAILED" => Ok(StatusState::Failed),
        other => Err(Fault::Odd(format!("a status has state {other:?}"))),
    }
}

/// At most `max` characters, without those that a database rejects in text.
pub(super) fn fitting(text: &str, max: usize) -> String {
    text.chars()
        .take(max)
        .map(|char| {
            if char == '\0' {
                char::REPLACEMENT_CHARACTER
            } else {
                char
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters_and_has_no_nul() {
        assert_eq!(fitting("é\0é", 2), "é\u{fffd}");
        assert_eq!(column(u64::MAX), i64::MAX);
    }
}
