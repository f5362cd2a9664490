//! The format of an object: `TGA1`, then rows, all as one zstd frame with its checksum.
//!
//! Rows follow each other. Numbers are little-endian; a length precedes every text and all data: id u64, source u16+,
//! key u16+, version u64, hash 32, last_checked_at u64, last_updated_at u64, replaced_at u64, data u32+. The format
//! is binary because the data of a snapshot is compressed already: as text it would be a third larger, and
//! compression would not recover that.

use std::io::{Read, Write};

use bytes::{Buf, Bytes};
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

use super::MAX_OBJECT_BYTES;
use crate::MAX_DATA_BYTES;
use crate::rows::{HistoryRow, RecordRef, Snapshot};

const MAGIC: &[u8; 4] = b"TGA1";
/// Limit: bytes of an object after decompression: its data, one row beyond the limit, and the framing.
const MAX_UNPACKED: u64 = (2 * MAX_OBJECT_BYTES + MAX_DATA_BYTES) as u64;

pub(super) fn pack(rows: &[HistoryRow], level: i32) -> Result<Bytes, String> {
    let pack = || -> std::io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(Vec::new(), level)?;
        encoder.include_checksum(true)?;
        encoder.write_all(MAGIC)?;
        for row in rows {
            write_row(&mut encoder, row)?;
        }
        encoder.finish()
    };
    pack().map(Bytes::from).map_err(|error| error.to_string())
}

fn write_row(out: &mut impl Write, row: &HistoryRow) -> std::io::Result<()> {
    let snapshot = &row.snapshot;
    out.write_all(&row.id.to_le_bytes())?;
    for text in [row.record.source.as_str(), row.record.key.as_str()] {
        // Names have at most 256 bytes.
        out.write_all(&(text.len() as u16).to_le_bytes())?;
        out.write_all(text.as_bytes())?;
    }
    out.write_all(&snapshot.version.0.to_le_bytes())?;
    out.write_all(&snapshot.hash)?;
    for time in [
        snapshot.last_checked_at,
        snapshot.last_updated_at,
        row.replaced_at,
    ] {
        out.write_all(&time.0.to_le_bytes())?;
    }
    let length = u32::try_from(snapshot.data.len()).map_err(std::io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&snapshot.data)
}

pub(super) fn unpack(body: &[u8]) -> Result<Vec<HistoryRow>, String> {
    let mut unpacked = Vec::new();
    zstd::Decoder::new(body)
        .and_then(|decoder| decoder.take(MAX_UNPACKED + 1).read_to_end(&mut unpacked))
        .map_err(|error| error.to_string())?;
    if unpacked.len() as u64 > MAX_UNPACKED {
        return Err(format!("it has more than {MAX_UNPACKED} bytes"));
    }
    let mut bytes = Bytes::from(unpacked);
    if piece(&mut bytes, MAGIC.len())?.as_ref() != MAGIC {
        return Err("it is not an object of this archive".to_owned());
    }
    let mut rows = Vec::new();
    while bytes.has_remaining() {
        rows.push(read_row(&mut bytes)?);
    }
    Ok(rows)
}

fn read_row(bytes: &mut Bytes) -> Result<HistoryRow, String> {
    let id = number(bytes)?;
    let source = SourceId::new(text(bytes)?).map_err(|error| error.to_string())?;
    let key = RecordKey::new(text(bytes)?).map_err(|error| error.to_string())?;
    let version = Version(number(bytes)?);
    let hash = piece(bytes, 32)?;
    let [last_checked_at, last_updated_at, replaced_at] = [number(bytes)?, number(bytes)?, number(bytes)?];
    let length = piece(bytes, 4)?.get_u32_le();
    Ok(HistoryRow {
        id,
        record: RecordRef { source, key },
        snapshot: Snapshot {
            data: piece(bytes, length as usize)?,
            hash: hash
                .as_ref()
                .try_into()
                .map_err(|_| "a hash is cut off".to_owned())?,
            version,
            last_checked_at: Timestamp(last_checked_at),
            last_updated_at: Timestamp(last_updated_at),
        },
        replaced_at: Timestamp(replaced_at),
    })
}

fn piece(bytes: &mut Bytes, length: usize) -> Result<Bytes, String> {
    if bytes.remaining() < length {
        return Err("it ends in the middle of a row".to_owned());
    }
    Ok(bytes.split_to(length))
}

fn number(bytes: &mut Bytes) -> Result<u64, String> {
    Ok(piece(bytes, 8)?.get_u64_le())
}

fn text(bytes: &mut Bytes) -> Result<String, String> {
    let length = piece(bytes, 2)?.get_u16_le();
    String::from_utf8(piece(bytes, length.into())?.to_vec()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<HistoryRow> {
        let row = |id: u64| HistoryRow {
            id,
            record: RecordRef {
                source: SourceId::new("characters").unwrap(),
                key: RecordKey::new(format!("ключ\0{id}")).unwrap(),
            },
            snapshot: Snapshot {
                data: Bytes::from(vec![id as u8; id as usize * 100]),
                hash: [id as u8; 32],
                version: Version(id * 7),
                last_checked_at: Timestamp(id),
                last_updated_at: Timestamp(id + 1),
            },
            replaced_at: Timestamp(u64::MAX - id),
        };
        (0..5).map(row).collect()
    }

    #[test]
    fn rows_are_read_back_as_they_were_and_packed_the_same_twice() {
        let packed = pack(&rows(), 3).unwrap();
        assert_eq!(unpack(&packed).unwrap(), rows());
        assert_eq!(pack(&rows(), 3).unwrap(), packed);
    }

    #[test]
    fn a_damaged_object_is_an_error() {
        let packed = pack(&rows(), 3).unwrap();
        assert!(unpack(&packed[..packed.len() - 1]).is_err());
        for index in 0..packed.len() {
            let mut damaged = packed.to_vec();
            damaged[index] ^= 0x10;
            // A bit of the frame header may be unused; then the rows are the same.
            if let Ok(found) = unpack(&damaged) {
                assert_eq!(found, rows(), "byte {index}");
            }
        }
        assert!(unpack(b"").is_err());
    }
}
