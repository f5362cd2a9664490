//! Bulk jobs as a library: [`Tidegate`], its options, and submissions.

mod error;
mod front;
mod options;
mod submission;

pub use error::Error;
pub use front::{Setup, Tidegate};
#[cfg(feature = "redis")]
pub use options::Redis;
pub use options::{Folder, Options, OptionsError};
pub use submission::{Submission, Submitted};

pub use tidegate_core::bulk::{
    Aggregation, BatchCounts, BatchOptions, BatchStatus, JobCommand, JobState, Priority, Refusal, Scope,
    config, views,
};
pub use tidegate_engine::bulk::{
    CompletedBatch, EngineError, Gate, Handler, IntoCallbackResult, IntoResult, Job, JobError, Progress,
    ProgressStream, Reducer,
};
#[cfg(feature = "redis")]
pub use tidegate_store::bulk::OnOtherSettings;
pub use tidegate_store::bulk::{BulkStore, BulkStoreExt, FoundJob, JobDetails, JobRun};
