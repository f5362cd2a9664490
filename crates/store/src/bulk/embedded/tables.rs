//! The tables of the bulk part.

use tidegate_durable::Table;

/// Identity, epoch and progress of the store.
pub(super) const META: Table = Table::new(0, "meta");
pub(super) const GROUPS: Table = Table::new(1, "groups");
pub(super) const BATCHES: Table = Table::new(2, "batches").long_values();
/// Job number → the immutable part of a job, with its payload if that is small.
pub(super) const JOBS: Table = Table::new(3, "jobs").memtable_mib(32);
/// Job number → the mutable part. Absent: waiting for its first start.
pub(super) const STATES: Table = Table::new(4, "states").memtable_mib(8);
/// First fencing token of a lease call → the leases that it granted.
pub(super) const LEASES: Table = Table::new(5, "leases");
/// Payloads and results too large for the tables above, which are read completely at start.
pub(super) const BLOBS: Table = Table::new(6, "blobs").memtable_mib(32).long_values();

/// First job number → fingerprints of dropped jobs of a batch that is not decided.
pub(super) const REMEMBERED: Table = Table::new(7, "remembered").long_values();

/// Job number × 16 + a place → one recorded run of the job; see [`super::codec::run_key`].
pub(super) const RUNS: Table = Table::new(8, "runs").long_values();

pub(super) const ALL: [Table; 9] = [
    META, GROUPS, BATCHES, JOBS, STATES, LEASES, BLOBS, REMEMBERED, RUNS,
];
