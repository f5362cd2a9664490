//! What the tests of all crates share.
//!
//! - [`mod@conformance`]: a suite of named cases over any backend, and the proof that it catches wrong ones.
//! - [`simulation`]: random histories by seed, checked after every step.
//! - [`differential`]: two stores that must answer the same.
//! - [`child`]: a second process that a test can kill or starve.
//! - [`seeds`]: which seeds a test runs.
//! - [`servers`]: real servers, and a proxy in front that fails on demand.
//!
//! Invariant: depends on no other crate of the workspace, so that every crate can use it.

pub mod child;
pub mod conformance;
pub mod differential;
pub mod seeds;
pub mod servers;
pub mod simulation;
mod trace;

pub use differential::Seen;
pub use trace::Trace;
