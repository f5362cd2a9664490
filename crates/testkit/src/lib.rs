//! Tests of Tidegate as a whole.
//!
//! - [`rng`]: random numbers by seed.
//! - [`simulation`]: random histories with crashes and clock steps, checked after every step.

pub mod rng;
pub mod simulation;
