//! The tables of the refresh part.

use tidegate_durable::Table;

pub(super) const META: Table = Table::new(0, "meta");
/// The state of a refreshed record, with its name.
pub(super) const RECORDS: Table = Table::new(1, "records").memtable_mib(8);
/// The durable part of a target's budget, with its name.
pub(super) const BUDGETS: Table = Table::new(2, "budgets");
pub(super) const ALL: [Table; 3] = [META, RECORDS, BUDGETS];
