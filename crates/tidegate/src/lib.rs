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
//! let spring = Submission::new("customer-A")?.action("spring")?.job("promo-1", "SEND_PROMOTION", "{}")?.seal();
//! tide.submit(spring).await?;
//! let mut progress = tide.follow("customer-A", "spring")?;
//! while let Some(now) = progress.next().await {
//!     println!("{:?}", now?.counts);
//! }
//! tide.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod front;
mod options;
mod submission;

pub use front::{Setup, Tidegate};
pub use options::{Options, OptionsError};
pub use submission::{Submission, Submitted};

pub use tidegate_core::bulk::views;
pub use tidegate_core::bulk::{ActionCounts, ActionOptions, ActionStatus, Aggregation, Level, Target};
pub use tidegate_core::config;
pub use tidegate_core::ids;
pub use tidegate_core::time::{Millis, Timestamp};
pub use tidegate_engine::{
    CompletedAction, Handler, IntoResult, Job, JobError, Progress, ProgressStream, Reducer,
};
pub use tidegate_store::embedded::Durability;
pub use tidegate_store::{JobDetails, StoreError};

/// What can go wrong in a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Id(#[from] ids::IdError),
    #[error(transparent)]
    Engine(#[from] tidegate_engine::EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] tidegate_core::bulk::Refusal),
}
