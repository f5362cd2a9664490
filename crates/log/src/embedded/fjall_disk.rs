//! The durable layer on a real disk: fjall, as for the embedded store.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot};
use tidegate_core::time::Timestamp;

use super::codec;
use super::disk::{Disk, DiskError, Loaded, Op, Place, Span, Stored};
use crate::LogError;

const MIB: u64 = 1024 * 1024;

/// Limit: the longest value written in one piece. fjall preallocates the journal, so a power cut can leave a hole of
/// a page in its last, unsynced batch. Recovery does not recognise a hole inside a longer value as the end.
const PIECE: usize = 2_048;

const WHOLE: u8 = 0;
const IN_PIECES: u8 = 1;

pub(super) struct FjallDisk {
    db: Database,
    /// Topic → number of partitions.
    layout: Keyspace,
    /// Place → start, end and time of the last record.
    heads: Keyspace,
    /// Place, group → first offset that is not done.
    marks: Keyspace,
    /// Place, offset → record.
    records: Keyspace,
    /// Place, offset, index → a piece of a long record.
    pieces: Keyspace,
}

impl std::fmt::Debug for FjallDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallDisk").finish_non_exhaustive()
    }
}

impl FjallDisk {
    pub(super) fn open(folder: &Path) -> Result<Self, LogError> {
        let failed = |error: fjall::Error| match error {
            fjall::Error::Locked => LogError::Locked(folder.to_owned()),
            error => LogError::Folder {
                path: folder.to_owned(),
                reason: error.to_string(),
            },
        };
        // A start replays the journal, so its size bounds the startup time.
        let db = Database::builder(folder)
            .cache_size(32 * MIB)
            .max_journaling_size(128 * MIB)
            .worker_threads(1)
            .open()
            .map_err(failed)?;
        // A table that seldom fills its memtable keeps old journals alive: small records, small memtable.
        let keyspace = |name: &str, memtable: u64| {
            let options = || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(memtable)
                    .data_block_compression_policy(CompressionPolicy::disabled())
            };
            db.keyspace(name, options).map_err(failed)
        };
        Ok(Self {
            layout: keyspace("layout", MIB)?,
            heads: keyspace("heads", 2 * MIB)?,
            marks: keyspace("marks", 2 * MIB)?,
            records: keyspace("records", 32 * MIB)?,
            pieces: keyspace("pieces", 32 * MIB)?,
            db,
        })
    }

    fn put(&self, batch: &mut OwnedWriteBatch, place: Place, stored: &Stored) {
        let mut value = codec::record(stored);
        let key = codec::record_key(place, stored.offset);
        if value.len() < PIECE {
            value.push(WHOLE);
            batch.insert(&self.records, key, value);
            return;
        }
        let count = value.len().div_ceil(PIECE) as u32;
        for (index, piece) in value.chunks(PIECE).enumerate() {
            let key = codec::piece_key(place, stored.offset, index as u32);
            batch.insert(&self.pieces, key, piece);
        }
        let mut head = count.to_be_bytes().to_vec();
        head.push(IN_PIECES);
        batch.insert(&self.records, key, head);
    }

    /// The bounds are known offsets, so this scans no tombstones of earlier drops.
    fn drop_records(
        &self,
        batch: &mut OwnedWriteBatch,
        place: Place,
        offsets: std::ops::Range<u64>,
    ) -> Result<(), DiskError> {
        let (from, to) = (
            codec::piece_key(place, offsets.start, 0),
            codec::piece_key(place, offsets.end, 0),
        );
        for piece in self.pieces.range(from..to) {
            batch.remove(&self.pieces, piece.key().map_err(disk_error)?);
        }
        for offset in offsets {
            batch.remove(&self.records, codec::record_key(place, offset));
        }
        Ok(())
    }

    /// The bytes of a record as they were put.
    fn whole(
        &self,
        snapshot: &Snapshot,
        place: Place,
        offset: u64,
        stored: &[u8],
    ) -> Result<Vec<u8>, DiskError> {
        match stored.split_last() {
            Some((&WHOLE, value)) => Ok(value.to_vec()),
            Some((&IN_PIECES, &[a, b, c, d])) => {
                let mut value = Vec::new();
                for index in 0..u32::from_be_bytes([a, b, c, d]) {
                    let piece = snapshot
                        .get(&self.pieces, codec::piece_key(place, offset, index))
                        .map_err(disk_error)?;
                    value.extend_from_slice(&piece.ok_or_else(|| DiskError("a piece is missing".into()))?);
                }
                Ok(value)
            }
            _ => Err(DiskError("a record without its mark".into())),
        }
    }
}

fn disk_error(error: fjall::Error) -> DiskError {
    DiskError(error.to_string())
}

impl Disk for FjallDisk {
    fn load(&self) -> Result<Loaded, DiskError> {
        let mut loaded = Loaded::default();
        for entry in self.layout.iter() {
            let (key, value) = entry.into_inner().map_err(disk_error)?;
            let topic = codec::topic_of(key.first().copied().unwrap_or(u8::MAX))?;
            loaded.layout.push((topic, codec::number(&value)? as u32));
        }
        for entry in self.heads.iter() {
            let (key, value) = entry.into_inner().map_err(disk_error)?;
            loaded
                .heads
                .push((codec::read_place(&key)?.0, codec::read_head(&value)?));
        }
        for entry in self.marks.iter() {
            let (key, value) = entry.into_inner().map_err(disk_error)?;
            let (place, group) = codec::read_place(&key)?;
            let group = String::from_utf8_lossy(group).into_owned();
            loaded.marks.push((place, group, codec::number(&value)?));
        }
        Ok(loaded)
    }

    fn write(&self, ops: Vec<Op>) -> Result<(), DiskError> {
        let mut batch =
            OwnedWriteBatch::with_capacity(self.db.clone(), ops.len()).durability(Some(PersistMode::Buffer));
        for op in ops {
            match op {
                Op::Record(place, stored) => self.put(&mut batch, place, &stored),
                Op::Head(place, head) => {
                    batch.insert(&self.heads, codec::place_key(place), codec::head(head))
                }
                Op::Mark(place, group, next) => {
                    batch.insert(&self.marks, codec::mark_key(place, &group), next.to_be_bytes());
                }
                Op::Drop(place, offsets) => self.drop_records(&mut batch, place, offsets)?,
                Op::Layout(topic, partitions) => {
                    let key = [codec::topic_number(topic)];
                    batch.insert(&self.layout, key, u64::from(partitions).to_be_bytes());
                }
            }
        }
        batch.commit().map_err(disk_error)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.db.persist(PersistMode::SyncData).map_err(disk_error)
    }

    fn appended_at(&self, place: Place, offset: u64) -> Result<Option<Timestamp>, DiskError> {
        let snapshot = self.db.snapshot();
        let key = codec::record_key(place, offset);
        let Some(stored) = snapshot.get(&self.records, key).map_err(disk_error)? else {
            return Ok(None);
        };
        // The time comes first: of a long record the first piece is enough.
        let front = match stored.split_last() {
            Some((&IN_PIECES, _)) => snapshot
                .get(&self.pieces, codec::piece_key(place, offset, 0))
                .map_err(disk_error)?
                .ok_or_else(|| DiskError("a piece is missing".into()))?,
            _ => stored,
        };
        let time = front
            .get(..8)
            .ok_or_else(|| DiskError("a record without a time".into()))?;
        Ok(Some(Timestamp(codec::number(time)?)))
    }

    fn read(&self, span: &Span) -> Result<Vec<Stored>, DiskError> {
        let snapshot = self.db.snapshot();
        let (from, to) = (
            codec::record_key(span.place, span.offsets.start),
            codec::record_key(span.place, span.offsets.end),
        );
        let (mut found, mut bytes) = (Vec::new(), 0);
        for entry in snapshot.range(&self.records, from..to) {
            let (key, stored) = entry.into_inner().map_err(disk_error)?;
            let offset = codec::number(codec::read_place(&key)?.1)?;
            let record = self.whole(&snapshot, span.place, offset, &stored)?;
            bytes += record.len();
            found.push(codec::read_record(offset, record));
            if bytes >= span.max_bytes {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Topic;

    const PLACE: Place = Place {
        topic: Topic::Low,
        partition: 3,
    };

    fn stored(offset: u64, size: usize) -> Stored {
        Stored {
            offset,
            appended_at: Timestamp(1_000 + offset),
            key: Bytes::from_static(b"key"),
            value: Bytes::from(vec![offset as u8; size]),
        }
    }

    fn all(disk: &FjallDisk) -> Vec<Stored> {
        let span = Span {
            place: PLACE,
            offsets: 0..100,
            max_bytes: usize::MAX,
        };
        disk.read(&span).unwrap()
    }

    #[test]
    fn records_of_every_size_come_back_and_go_with_their_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FjallDisk::open(folder.path()).unwrap();
        let sizes = [0, 1, PIECE - 16, PIECE - 15, PIECE, 3 * PIECE + 1, 1_000_000];
        let put: Vec<Stored> = (0..)
            .zip(sizes)
            .map(|(offset, size)| stored(offset, size))
            .collect();
        disk.write(
            put.iter()
                .map(|stored| Op::Record(PLACE, stored.clone()))
                .collect(),
        )
        .unwrap();
        disk.sync().unwrap();
        assert_eq!(all(&disk), put);
        for stored in &put {
            assert_eq!(
                disk.appended_at(PLACE, stored.offset).unwrap(),
                Some(stored.appended_at)
            );
        }
        assert_eq!(disk.appended_at(PLACE, 99).unwrap(), None);

        disk.write(vec![Op::Drop(PLACE, 0..6)]).unwrap();
        assert_eq!(all(&disk), put[6..]);
        disk.write(vec![Op::Drop(PLACE, 6..7)]).unwrap();
        assert!(all(&disk).is_empty());
        assert_eq!(disk.pieces.iter().count(), 0, "no piece is left behind");
    }

    #[test]
    fn a_read_ends_at_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FjallDisk::open(folder.path()).unwrap();
        disk.write(
            (0..10)
                .map(|offset| Op::Record(PLACE, stored(offset, 100)))
                .collect(),
        )
        .unwrap();
        let read = |max_bytes| {
            let span = Span {
                place: PLACE,
                offsets: 2..8,
                max_bytes,
            };
            disk.read(&span).unwrap().len()
        };
        assert_eq!((read(1), read(200), read(usize::MAX)), (1, 2, 6));
    }
}
