//! Fetching records over HTTP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(feature = "http")]
mod fetch;
