//! Tidegate stands between a flood of work and something scarce.
//!
//! ```no_run
//! use tidegate::{Job, JobError, Options, Submission, Tidegate};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let tide = Tidegate::open(Options::new("data"))?
//!     .handler("SEND_PROMOTION", |job: Job| async move {
//!         println!("{} for {}", job.id, job.group);
//!         Ok::<_, JobError>(())
//!     })?
//!     .start()?;
//!
//! let spring = Submission::new("customer-A")?.batch("spring")?.job("promo-1", "SEND_PROMOTION", "{}")?.seal();
//! tide.submit(spring).await?;
//! let mut progress = tide.follow("customer-A", "spring")?;
//! while let Some(now) = progress.next().await {
//!     println!("{:?}", now?.counts);
//! }
//! tide.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! One process keeps its jobs in a data folder ([`Tidegate::open`]); several share a queue, its limits and its
//! fairness through Redis ([`Tidegate::connect`]). Everything else is the same.
//!
//! [`records`] keeps records of a limited API fresh and answers reads of them at once. [`rooms`] lets people in, in order.

mod front;
mod options;
pub mod records;
pub mod rooms;
mod submission;

pub use front::{Setup, Tidegate};
pub use options::{Folder, Options, OptionsError, Redis};
pub use submission::{Submission, Submitted};

use tidegate_engine::EngineError;

pub use tidegate_core::bulk::views;
pub use tidegate_core::bulk::{Aggregation, BatchCounts, BatchOptions, BatchStatus, Priority, Target};
pub use tidegate_core::config;
pub use tidegate_core::ids;
pub use tidegate_core::time::{Millis, Timestamp};
pub use tidegate_engine::{
    CompletedBatch, Gate, Handler, IntoCallbackResult, IntoResult, Job, JobError, Progress, ProgressStream,
    Reducer,
};
pub use tidegate_store::embedded::Durability;
pub use tidegate_store::{JobDetails, Store, StoreError, StoreExt};

/// What can go wrong in a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Id(#[from] ids::IdError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] tidegate_core::bulk::Refusal),
}

impl Error {
    /// Whether the same call may work later without anyone stepping in. Submitting again is safe: jobs that
    /// were accepted are answered as duplicates.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Store(error) | Error::Engine(EngineError::Store(error)) => error.is_retryable(),
            Error::Id(_) | Error::Engine(_) | Error::Refused(_) => false,
        }
    }
}
