//! The durable layer under the embedded stores: small tables of numbered records, atomic batches, a sync.
//!
//! Two implementations: `fjall_disk` on a real disk, and [`super::memory_disk`], which loses everything
//! unsynced whenever a test cuts the power.

use std::fmt;

/// The tables; every key is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Identity, epoch and progress of the store.
    Meta,
    Groups,
    Batches,
    /// Job number → the immutable part of a job, with its payload if that is small.
    Jobs,
    /// Job number → the mutable part. Absent: waiting for its first start.
    States,
    /// First fencing token of a lease call → the leases that it granted.
    Leases,
    /// Payloads and results too large for the tables above, which are read completely at start.
    Blobs,
    /// The state of a refreshed record, with its name.
    Records,
    /// The durable part of a target's budget, with its name.
    Budgets,
    /// The state of a waiting room as a whole, with its name.
    Rooms,
    /// A ticket, with its room and its person.
    Tickets,
}

impl Table {
    pub const ALL: [Table; 11] = [
        Table::Meta,
        Table::Groups,
        Table::Batches,
        Table::Jobs,
        Table::States,
        Table::Leases,
        Table::Blobs,
        Table::Records,
        Table::Budgets,
        Table::Rooms,
        Table::Tickets,
    ];

    /// Tables of the bulk part.
    pub const BULK: &[Table] = &[
        Table::Meta,
        Table::Groups,
        Table::Batches,
        Table::Jobs,
        Table::States,
        Table::Leases,
        Table::Blobs,
    ];

    /// Tables of the refresh part, which has its own folder.
    pub const REFRESH: &[Table] = &[Table::Meta, Table::Records, Table::Budgets];

    /// Tables of the rooms, which have their own folder.
    pub const ROOM: &[Table] = &[Table::Meta, Table::Rooms, Table::Tickets];

    pub fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Groups => "groups",
            Table::Batches => "batches",
            Table::Jobs => "jobs",
            Table::States => "states",
            Table::Leases => "leases",
            Table::Blobs => "blobs",
            Table::Records => "records",
            Table::Budgets => "budgets",
            Table::Rooms => "rooms",
            Table::Tickets => "tickets",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Put(Table, u64, Vec<u8>),
    Delete(Table, u64),
}

/// The error message of a durable layer that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiskError(pub String);

/// Called for each record of a scan; an error stops the scan.
pub type Visit<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), DiskError>;

/// Reads records as of one moment.
pub trait Reader: Send + Sync {
    fn get(&self, table: Table, key: u64) -> Result<Option<Vec<u8>>, DiskError>;
    /// All records of a table in key order.
    fn scan(&self, table: Table, visit: Visit<'_>) -> Result<(), DiskError>;
}

pub trait Disk: Reader + fmt::Debug + 'static {
    /// Applies all of it or nothing; survives the process, but not a power cut.
    fn commit(&self, ops: Vec<Op>) -> Result<(), DiskError>;
    /// Makes everything committed so far survive a power cut, too.
    fn sync(&self) -> Result<(), DiskError>;
    /// The current records, unaffected by later commits.
    fn snapshot(&self) -> Box<dyn Reader>;
}
