//! The durable layer under the embedded stores: small tables of numbered records, atomic batches, a sync.
//!
//! Two of them: `fjall_disk` on a real disk, and [`super::memory_disk`], which forgets everything
//! that was not synced whenever a test cuts the power.

use std::fmt;

/// The tables; every key is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Identity, epoch and progress of the store.
    Meta,
    Groups,
    Batches,
    /// Job number → what does not change of a job, with its payload if that is small.
    Jobs,
    /// Job number → what does change. Absent: waiting for its first start.
    States,
    /// First fence of a lease call → the leases that it handed out.
    Leases,
    /// Payloads and results that are too large for the tables above, which are read whole at start.
    Blobs,
    /// What is remembered of a refreshed record, with its name.
    Records,
    /// What must survive of a target's budget, with its name.
    Budgets,
    /// What is known of a waiting room as a whole, with its name.
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

    /// Those of the bulk part.
    pub const BULK: &[Table] = &[
        Table::Meta,
        Table::Groups,
        Table::Batches,
        Table::Jobs,
        Table::States,
        Table::Leases,
        Table::Blobs,
    ];

    /// Those of the refresh part, which has a folder of its own.
    pub const REFRESH: &[Table] = &[Table::Meta, Table::Records, Table::Budgets];

    /// Those of the rooms, which have a folder of their own.
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

/// A durable layer failed; what it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiskError(pub String);

/// Called for each record of a scan; stops the scan by returning an error.
pub type Visit<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), DiskError>;

/// Records as they are at one moment.
pub trait Reader: Send + Sync {
    fn get(&self, table: Table, key: u64) -> Result<Option<Vec<u8>>, DiskError>;
    /// All records of a table in the order of their keys.
    fn scan(&self, table: Table, visit: Visit<'_>) -> Result<(), DiskError>;
}

pub trait Disk: Reader + fmt::Debug + 'static {
    /// Applies all of it or nothing; survives the process, but not the power.
    fn commit(&self, ops: Vec<Op>) -> Result<(), DiskError>;
    /// Everything committed so far survives the power, too.
    fn sync(&self) -> Result<(), DiskError>;
    /// The records as they are now, whatever is committed later.
    fn snapshot(&self) -> Box<dyn Reader>;
}
