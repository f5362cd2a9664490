//! Waiting rooms over HTTP.

pub(crate) mod page;
