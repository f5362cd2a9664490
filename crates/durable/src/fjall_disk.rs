//! The durable layer on a real disk: fjall, a log-structured key-value engine.
//!
//! For the reasons and the settings see `docs/internals/durable.md` and `bench/engines`.

use std::ops::RangeInclusive;
use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot};

use crate::DurableError;
use crate::disk::{Disk, DiskError, Op, Reader, Table, Visit};

const MIB: u64 = 1024 * 1024;

/// Limit: the longest value written in one piece. The journal is preallocated, so a power cut can leave a hole
/// of a page in its last, unsynced batch. fjall recognises a hole over the head of an entry as the end of the
/// journal. It does not recognise one inside a longer value, and then fails to open.
const PIECE: usize = 2_048;

const WHOLE: u8 = 0;
const IN_PIECES: u8 = 1;

/// A folder with tables in it. Clones share it.
#[derive(Clone)]
pub struct FjallDisk {
    db: Database,
    /// By table number; none if there is no such table.
    tables: Vec<Option<Keyspace>>,
    /// Table, key, index → a piece of a long value.
    pieces: Keyspace,
}

impl std::fmt::Debug for FjallDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallDisk").finish_non_exhaustive()
    }
}

impl FjallDisk {
    /// Opens a folder that holds these tables, and creates what is missing.
    pub fn open(folder: &Path, tables: &[Table]) -> Result<Self, DurableError> {
        let failed = |error: fjall::Error| match error {
            fjall::Error::Locked => DurableError::Locked(folder.to_owned()),
            error => DurableError::Folder {
                path: folder.to_owned(),
                reason: error.to_string(),
            },
        };
        // Start-up replays the journal, so its size bounds the start time.
        let db = Database::builder(folder)
            .cache_size(64 * MIB)
            .max_journaling_size(256 * MIB)
            .worker_threads(1)
            .open()
            .map_err(failed)?;
        let keyspace = |name: &str, memtable_mib: u8| {
            let options = || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(u64::from(memtable_mib) * MIB)
                    .data_block_compression_policy(CompressionPolicy::disabled())
                    .expect_point_read_hits(true)
            };
            db.keyspace(name, options).map_err(failed)
        };
        let mut opened = Vec::new();
        for table in tables {
            let id = usize::from(table.id);
            opened.resize_with(opened.len().max(id + 1), || None);
            opened[id] = Some(keyspace(table.name, table.memtable_mib)?);
        }
        let pieces = keyspace("pieces", 32)?;
        Ok(Self {
            db,
            tables: opened,
            pieces,
        })
    }

    fn table(&self, table: Table) -> &Keyspace {
        self.tables[usize::from(table.id)]
            .as_ref()
            .expect("a machine names its own tables only")
    }

    fn put(&self, batch: &mut OwnedWriteBatch, table: Table, key: u64, mut value: Vec<u8>) {
        if value.len() < PIECE {
            value.push(WHOLE);
            batch.insert(self.table(table), key.to_be_bytes(), value);
            return;
        }
        let count = value.len().div_ceil(PIECE) as u32;
        for (index, piece) in value.chunks(PIECE).enumerate() {
            batch.insert(&self.pieces, piece_key(table, key, index as u32), piece);
        }
        let mut head = count.to_be_bytes().to_vec();
        head.push(IN_PIECES);
        batch.insert(self.table(table), key.to_be_bytes(), head);
    }
}

fn piece_key(table: Table, key: u64, index: u32) -> [u8; 13] {
    let mut bytes = [0; 13];
    bytes[0] = table.id;
    bytes[1..9].copy_from_slice(&key.to_be_bytes());
    bytes[9..].copy_from_slice(&index.to_be_bytes());
    bytes
}

fn disk_error(error: fjall::Error) -> DiskError {
    DiskError(error.to_string())
}

fn number(key: &[u8]) -> Result<u64, DiskError> {
    let bytes = key
        .try_into()
        .map_err(|_| DiskError(format!("a key of {} bytes", key.len())))?;
    Ok(u64::from_be_bytes(bytes))
}

/// A value as it was put: in one piece, or assembled by `piece`.
fn whole(
    stored: &[u8],
    piece: impl Fn(u32) -> Result<Option<fjall::UserValue>, fjall::Error>,
) -> Result<Vec<u8>, DiskError> {
    match stored.split_last() {
        Some((&WHOLE, value)) => Ok(value.to_vec()),
        Some((&IN_PIECES, &[a, b, c, d])) => {
            let mut value = Vec::new();
            for index in 0..u32::from_be_bytes([a, b, c, d]) {
                let piece = piece(index).map_err(disk_error)?;
                value.extend_from_slice(&piece.ok_or_else(|| DiskError("a piece is missing".into()))?);
            }
            Ok(value)
        }
        _ => Err(DiskError("a value without its mark".into())),
    }
}

impl Reader for FjallDisk {
    fn get(&self, table: Table, key: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let Some(stored) = self.table(table).get(key.to_be_bytes()).map_err(disk_error)? else {
            return Ok(None);
        };
        whole(&stored, |index| self.pieces.get(piece_key(table, key, index))).map(Some)
    }

    fn scan(&self, table: Table, keys: RangeInclusive<u64>, visit: Visit<'_>) -> Result<(), DiskError> {
        Moment {
            disk: self.clone(),
            snapshot: self.db.snapshot(),
        }
        .scan(table, keys, visit)
    }
}

impl Disk for FjallDisk {
    fn commit(&self, ops: Vec<Op>) -> Result<(), DiskError> {
        let mut batch =
            OwnedWriteBatch::with_capacity(self.db.clone(), ops.len()).durability(Some(PersistMode::Buffer));
        for op in ops {
            match op {
                Op::Put(table, key, value) => self.put(&mut batch, table, key, value),
                Op::Delete(table, key) => {
                    batch.remove(self.table(table), key.to_be_bytes());
                    if table.long_values {
                        for piece in self.pieces.prefix(&piece_key(table, key, 0)[..9]) {
                            batch.remove(&self.pieces, piece.key().map_err(disk_error)?);
                        }
                    }
                }
            }
        }
        batch.commit().map_err(disk_error)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.db.persist(PersistMode::SyncData).map_err(disk_error)
    }

    fn snapshot(&self) -> Box<dyn Reader> {
        Box::new(Moment {
            disk: self.clone(),
            snapshot: self.db.snapshot(),
        })
    }

    fn bytes(&self) -> u64 {
        let tables = self.tables.iter().flatten();
        tables.chain([&self.pieces]).map(Keyspace::disk_space).sum()
    }
}

struct Moment {
    disk: FjallDisk,
    snapshot: Snapshot,
}

impl Reader for Moment {
    fn get(&self, table: Table, key: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let stored = self
            .snapshot
            .get(self.disk.table(table), key.to_be_bytes())
            .map_err(disk_error)?;
        let piece = |index| self.snapshot.get(&self.disk.pieces, piece_key(table, key, index));
        stored.map(|stored| whole(&stored, piece)).transpose()
    }

    fn scan(&self, table: Table, keys: RangeInclusive<u64>, visit: Visit<'_>) -> Result<(), DiskError> {
        let keys = keys.start().to_be_bytes()..=keys.end().to_be_bytes();
        for entry in self.snapshot.range(self.disk.table(table), keys) {
            let (key, stored) = entry.into_inner().map_err(disk_error)?;
            let key = number(&key)?;
            // The usual case, without a copy.
            let visited = if let Some((&WHOLE, value)) = stored.split_last() {
                visit(key, value)?
            } else {
                let piece = |index| self.snapshot.get(&self.disk.pieces, piece_key(table, key, index));
                visit(key, &whole(&stored, piece)?)?
            };
            if visited.is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{ALL_KEYS, scan_all};

    const SHORT: Table = Table::new(0, "short");
    const LONG: Table = Table::new(3, "long").long_values();

    fn all(disk: &FjallDisk, table: Table) -> Vec<(u64, usize)> {
        let mut found = Vec::new();
        scan_all(disk, table, |key, value| {
            found.push((key, value.len()));
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn values_of_every_size_come_back_and_go_with_their_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FjallDisk::open(folder.path(), &[SHORT, LONG]).unwrap();
        let sizes = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 1, 1_000_000];
        let put = |(key, size): (u64, &usize)| Op::Put(LONG, key, vec![key as u8; *size]);
        disk.commit((0..).zip(&sizes).map(put).collect()).unwrap();
        disk.sync().unwrap();
        let expected: Vec<(u64, usize)> = (0..).zip(sizes).collect();
        assert_eq!(all(&disk, LONG), expected);
        for (key, size) in &expected {
            assert_eq!(disk.get(LONG, *key).unwrap(), Some(vec![*key as u8; *size]));
        }
        assert!(all(&disk, SHORT).is_empty());

        disk.commit((0..7).map(|key| Op::Delete(LONG, key)).collect())
            .unwrap();
        assert!(all(&disk, LONG).is_empty());
        assert_eq!(disk.pieces.iter().count(), 0, "no piece is left behind");
    }

    #[test]
    fn a_scan_keeps_to_its_keys_and_stops_when_the_caller_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FjallDisk::open(folder.path(), &[SHORT]).unwrap();
        disk.commit((0..10).map(|key| Op::Put(SHORT, key, vec![1])).collect())
            .unwrap();
        let seen = |keys: RangeInclusive<u64>, max: usize| {
            let mut seen = Vec::new();
            disk.scan(SHORT, keys, &mut |key, _| {
                seen.push(key);
                Ok(match seen.len() < max {
                    true => std::ops::ControlFlow::Continue(()),
                    false => std::ops::ControlFlow::Break(()),
                })
            })
            .unwrap();
            seen
        };
        assert_eq!(seen(2..=5, 100), [2, 3, 4, 5]);
        assert_eq!(seen(ALL_KEYS, 3), [0, 1, 2]);
    }
}
