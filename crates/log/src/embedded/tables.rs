//! The tables of the log.

use tidegate_durable::Table;

/// Topic → number of partitions.
pub(super) const LAYOUT: Table = Table::new(0, "layout");
/// Place → start, end and time of the last record.
pub(super) const HEADS: Table = Table::new(1, "heads");
/// A number → the committed offset of a group in a place.
pub(super) const OFFSETS: Table = Table::new(2, "offsets");
/// Place and offset → record.
pub(super) const RECORDS: Table = Table::new(3, "records").memtable_mib(32).long_values();

pub(super) const ALL: [Table; 4] = [LAYOUT, HEADS, OFFSETS, RECORDS];
