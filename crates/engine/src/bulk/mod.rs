//! Bulk jobs at work: the services that wake on events and drive a store.
//!
//! | service | what it does | wakes on | at the latest after |
//! |---|---|---|---|
//! | `pool` | leases and runs jobs | work, a free worker, the next window | `worker_timeout_sec` |
//! | `settler` | reports outcomes to the store in chunks | outcomes | |
//! | `fetcher` | keeps ready filled for busy workers | work | `fetch_interval_ms` |
//! | `release_due` | releases delayed jobs | the next due time | `dispatch_interval_ms` |
//! | `sweeper` | expires leases, drops finished data, takes congestion snapshots | deadlines | a second |
//! | `aggregator` | folds complete batches and calls back | completion | a second |
//!
//! A queue's [`Gate`] pauses its pool and its fetcher. All services wait until an unavailable store responds again
//! ([`Outage`](crate::Outage)).

mod aggregator;
mod callback;
mod error;
mod fetcher;
mod gate;
mod handler;
mod pool;
mod progress;
mod release_due;
mod service;
mod settler;
mod sweeper;

pub use aggregator::Reducer;
pub use callback::{CompletedBatch, IntoCallbackResult};
pub use error::EngineError;
pub use gate::Gate;
pub use handler::{Handler, IntoResult, Job, JobError};
pub use pool::PoolView;
pub use progress::{Progress, ProgressStream};
pub use release_due::{Dispatcher, DispatcherStats};
pub use service::{BulkService, BulkServiceBuilder};
