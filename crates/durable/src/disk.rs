//! The durable layer: small tables of numbered records, atomic writes, a sync.
//!
//! Two implementations: [`crate::fjall_disk`] on a real disk, and [`crate::memory_disk`], which loses everything unsynced
//! whenever a test cuts the power.

use std::fmt;
use std::ops::{ControlFlow, RangeInclusive};

/// A table of records; every key is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table {
    /// Its number within one folder; part of the keys of long values.
    pub id: u8,
    /// Its name on disk.
    pub name: &'static str,
    /// How much of it a real disk collects in memory before it writes a file. A table that seldom fills this keeps old
    /// journals alive: small records, small number.
    pub memtable_mib: u8,
    /// Its values may be longer than a page.
    pub long_values: bool,
}

impl Table {
    /// A table of few, short records.
    pub const fn new(id: u8, name: &'static str) -> Self {
        Self {
            id,
            name,
            memtable_mib: 2,
            long_values: false,
        }
    }

    /// The same for a table that grows.
    #[must_use]
    pub const fn memtable_mib(mut self, mib: u8) -> Self {
        self.memtable_mib = mib;
        self
    }

    /// The same for a table of long values.
    #[must_use]
    pub const fn long_values(mut self) -> Self {
        self.long_values = true;
        self
    }
}

/// A change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a record.
    Put(Table, u64, Vec<u8>),
    /// Deletes a record, if there is one.
    Delete(Table, u64),
}

/// The error message of a durable layer that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiskError(pub String);

/// Whether a scan goes on.
pub type Visited = Result<ControlFlow<()>, DiskError>;

/// Called for each record of a scan; an error stops the scan, too.
pub type Visit<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Visited;

/// All keys of a table.
pub const ALL_KEYS: RangeInclusive<u64> = 0..=u64::MAX;

/// Reads records as of one moment.
pub trait Reader: Send + Sync {
    /// One record.
    fn get(&self, table: Table, key: u64) -> Result<Option<Vec<u8>>, DiskError>;

    /// The records of a table with these keys, in key order.
    fn scan(&self, table: Table, keys: RangeInclusive<u64>, visit: Visit<'_>) -> Result<(), DiskError>;
}

/// Visits every record of a table, in key order.
pub fn scan_all(
    reader: &(impl Reader + ?Sized),
    table: Table,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), DiskError>,
) -> Result<(), DiskError> {
    reader.scan(table, ALL_KEYS, &mut |key, value| {
        visit(key, value).map(ControlFlow::Continue)
    })
}

/// Keeps records.
pub trait Disk: Reader + fmt::Debug + 'static {
    /// Applies all of it or nothing; survives the process, but not a power cut.
    fn commit(&self, ops: Vec<Op>) -> Result<(), DiskError>;

    /// Makes everything committed so far survive a power cut, too.
    fn sync(&self) -> Result<(), DiskError>;

    /// The current records, unaffected by later commits.
    fn snapshot(&self) -> Box<dyn Reader>;

    /// Bytes of all files, without a preallocated journal; 0 if this is no real disk.
    fn bytes(&self) -> u64 {
        0
    }
}
