//! Bulk jobs over HTTP: routes, pull and push workers, and the metrics of both.

pub(crate) mod batches;
pub(crate) mod change_jobs;
pub(crate) mod congestion;
pub(crate) mod convert;
pub(crate) mod dead;
pub(crate) mod groups;
pub(crate) mod jobs;
pub(crate) mod leases;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod observed_store;
pub(crate) mod pull_workers;
pub(crate) mod push;
pub(crate) mod why;
