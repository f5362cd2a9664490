//! The durable layer on a real disk: fjall, a log-structured key-value engine.
//!
//! For the reasons and the settings see "The embedded store" in ARCHITECTURE.md and `bench/engines`.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot};

use super::disk::{Disk, DiskError, Op, Reader, Table, Visit};
use crate::StoreError;

const MIB: u64 = 1024 * 1024;

/// Limit: the longest value written in one piece. The journal is preallocated, so a power cut can leave a hole
/// of a page in its last, unsynced batch. fjall recognises a hole over the head of an entry as the end of the
/// journal. It does not recognise one inside a longer value, and then fails to open.
const PIECE: usize = 2_048;

const WHOLE: u8 = 0;
const IN_PIECES: u8 = 1;

#[derive(Clone)]
pub(super) struct FjallDisk {
    db: Database,
    /// By table number; none if the table was not opened.
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
    /// Opens a folder that holds these tables.
    pub(super) fn open(folder: &Path, tables: &[Table]) -> Result<Self, StoreError> {
        let failed = |error: fjall::Error| match error {
            fjall::Error::Locked => StoreError::Locked(folder.to_owned()),
            error => StoreError::Folder {
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
        let keyspace = |name: &str, memtable: u64| {
            let options = || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(memtable)
                    .data_block_compression_policy(CompressionPolicy::disabled())
                    .expect_point_read_hits(true)
            };
            db.keyspace(name, options).map_err(failed)
        };
        // A table that seldom fills its memtable keeps old journals alive: small records, small memtable.
        let memtable = |table: Table| match table {
            Table::Jobs | Table::Blobs => 32 * MIB,
            Table::States | Table::Records | Table::Tickets => 8 * MIB,
            _ => 2 * MIB,
        };
        let tables = Table::ALL
            .into_iter()
            .map(|table| {
                let wanted = tables.contains(&table);
                wanted
                    .then(|| keyspace(table.name(), memtable(table)))
                    .transpose()
            })
            .collect::<Result<_, _>>()?;
        let pieces = keyspace("pieces", 32 * MIB)?;
        Ok(Self { db, tables, pieces })
    }

    fn table(&self, table: Table) -> &Keyspace {
        self.tables[table as usize]
            .as_ref()
            .expect("each part names its own tables")
    }

    /// Bytes of all files, without the preallocated journal.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.tables
            .iter()
            .flatten()
            .chain([&self.pieces])
            .map(Keyspace::disk_space)
            .sum()
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

    /// Only these tables can hold long values.
    fn may_be_in_pieces(table: Table) -> bool {
        matches!(table, Table::Blobs | Table::Batches)
    }
}

fn piece_key(table: Table, key: u64, index: u32) -> [u8; 13] {
    let mut bytes = [0; 13];
    bytes[0] = table as u8;
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

    fn scan(&self, table: Table, visit: Visit<'_>) -> Result<(), DiskError> {
        Moment {
            disk: self.clone(),
            snapshot: self.db.snapshot(),
        }
        .scan(table, visit)
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
                    if Self::may_be_in_pieces(table) {
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

    fn scan(&self, table: Table, visit: Visit<'_>) -> Result<(), DiskError> {
        for entry in self.snapshot.iter(self.disk.table(table)) {
            let (key, stored) = entry.into_inner().map_err(disk_error)?;
            let key = number(&key)?;
            // The usual case, without a copy.
            if let Some((&WHOLE, value)) = stored.split_last() {
                visit(key, value)?;
            } else {
                let piece = |index| self.snapshot.get(&self.disk.pieces, piece_key(table, key, index));
                visit(key, &whole(&stored, piece)?)?;
            }
        }
        Ok(())
    }
}
