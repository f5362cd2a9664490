//! Snapshots on every database, and the archive.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(feature = "s3")]
mod archive;
mod conformance;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod databases_unavailable;
mod mutants;
mod wrapped;
