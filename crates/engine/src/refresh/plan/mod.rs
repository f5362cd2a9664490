//! Work without a request: prefetching, retries, the lag, and the freshness census.

pub(super) mod freshness_census;
pub(super) mod prefetch;
pub(super) mod pressure;
pub(super) mod retries;
