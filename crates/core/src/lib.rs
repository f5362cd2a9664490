//! Pure decisions of Tidegate.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no randomness. Time is passed in,
//! so that a simulation can replay any history and every backend can be held equal to this code.
//!
//! - [`bulk`]: jobs of many groups in fair order, under one rate, through leases to aggregated results.
//! - [`config`]: every setting with its unit, default and the relations that must hold.
//! - [`ids`], [`time`]: the words that cross every boundary.

pub mod bulk;
pub mod config;
pub mod ids;
pub mod time;
