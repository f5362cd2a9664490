//! End-to-end tests of the service through its port.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[macro_use]
mod support;

mod bulk;
mod deploy;
#[cfg(feature = "otlp")]
mod otlp;
mod refresh;
mod room;
mod security;
mod settings;
