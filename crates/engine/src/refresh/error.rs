//! Errors that end a refresh service or one call to it.

use tidegate_core::ids::SourceId;
use tidegate_log::LogError;
use tidegate_snapshots::SnapshotsError;
use tidegate_store::StoreError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum RefreshError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Snapshots(#[from] SnapshotsError),
    #[error("the database did not answer within {0} ms")]
    ReadTimeout(u64),
    #[error("too many reads wait for the database")]
    Overloaded,
    #[error("invalid configuration: {0}")]
    Config(String),
    #[error("unknown source {0:?}")]
    UnknownSource(SourceId),
    #[error("invalid key for source {source_id:?}: {reason}")]
    BadKey { source_id: SourceId, reason: String },
    #[error("this process answers no reads: it does not have the query role")]
    NotQuerying,
    #[error("the refresh service has ended")]
    Closed,
}

impl RefreshError {
    /// Whether the same call may succeed later without an operator.
    pub fn is_retryable(&self) -> bool {
        match self {
            RefreshError::Store(error) => error.is_retryable(),
            RefreshError::Log(error) => error.is_retryable(),
            RefreshError::Snapshots(error) => error.is_retryable(),
            RefreshError::ReadTimeout(_) | RefreshError::Overloaded => true,
            _ => false,
        }
    }
}
