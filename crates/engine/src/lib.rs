//! The services that wake on events and drive a store.
//!
//! | service | what it does | wakes on | at the latest after |
//! |---|---|---|---|
//! | [`pool`] | leases and runs jobs | work, a free worker, the next window | `worker_timeout_sec` |
//! | [`settler`] | reports outcomes to the store in chunks | outcomes | |
//! | [`fetcher`] | keeps ready filled for busy workers | work | `fetch_interval_ms` |
//! | [`dispatcher`] | releases delayed jobs | the next due time | `dispatch_interval_ms` |
//! | [`sweeper`] | expires leases, drops finished data, takes congestion snapshots | deadlines | a second |
//! | [`aggregator`] | folds complete batches and calls back | completion | a second |
//!
//! These are the bulk part. [`refresh`] keeps cached records fresh, with its own services; [`room`] lets people
//! into waiting rooms.
//!
//! A queue's [`gate`] pauses its pool and its fetcher. All services wait until an unavailable store responds again
//! ([`outage`]). Nothing here speaks HTTP or names a particular store.

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
