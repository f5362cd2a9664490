//! The running parts: services that wake on events and drive a store.
//!
//! | service | what it does | wakes on | at the latest after |
//! |---|---|---|---|
//! | [`pool`] | leases jobs for free workers and runs their handlers | work, a free worker, the next window | `worker_timeout_sec` |
//! | [`settler`] | takes answers to the store in chunks | answers | |
//! | [`fetcher`] | keeps ready filled for busy workers | work | `fetch_interval_ms` |
//! | [`dispatcher`] | releases delayed jobs | the next due time | `dispatch_interval_ms` |
//! | [`sweeper`] | expires leases, drops finished data, takes congestion snapshots | deadlines | a second |
//! | [`watcher`] | folds complete batches and calls back | completion | a second |
//!
//! These are the bulk part. [`refresh`] keeps cached records fresh, with services of its own;
//! [`room`] lets people into waiting rooms.
//!
//! A queue's [`gate`] stops its pool and its fetcher for a while. All services wait out a store that is
//! unavailable ([`outage`]). No HTTP, and no word of which store it is.

pub mod aggregator;
mod alarm;
mod batcher;
pub mod callback;
pub mod dispatcher;
mod engine;
mod error;
pub mod fetcher;
pub mod gate;
pub mod handler;
mod histogram;
pub mod outage;
pub mod pool;
pub mod progress;
pub mod refresh;
pub mod room;
pub mod settler;
pub mod sweeper;

pub use aggregator::Reducer;
pub use callback::{CompletedBatch, IntoCallbackResult};
pub use engine::{Engine, EngineBuilder};
pub use error::EngineError;
pub use gate::Gate;
pub use handler::{Handler, IntoResult, Job, JobError};
pub use histogram::{BOUNDS_MS, HistogramView};
pub use outage::{Outage, Unavailable};
pub use pool::PoolView;
pub use progress::{Progress, ProgressStream};
