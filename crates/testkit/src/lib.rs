//! Tests of Tidegate as a whole.
//!
//! - [`rng`]: random numbers by seed.
//! - [`differential`], [`refresh_differential`], [`room_differential`]: two stores that must answer the same.
//! - [`servers`]: real Redis servers, and a network between that fails on demand.
//! - [`simulation`]: random histories with crashes and clock steps, checked after every step.

pub mod differential;
pub mod refresh_differential;
pub mod rng;
pub mod room_differential;
pub mod servers;
pub mod simulation;
