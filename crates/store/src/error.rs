//! Failures of a store, as opposed to rejected requests.

use tidegate_durable::DurableError;

/// A store could not do its work. Refusals are outcomes, not errors.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The data folder of an embedded store, or a write to it, failed.
    #[error(transparent)]
    Durable(DurableError),
    #[error("invalid configuration: {0}")]
    Config(String),
    #[error("the stored records are inconsistent: {0}")]
    Corrupt(String),
    #[error("{server} is unavailable: {reason}")]
    Unavailable { server: String, reason: String },
    #[error("{server} cannot be used: {reason}")]
    Unsuitable { server: String, reason: String },
    #[error("the target {target:?} has no budget here; targets with one: {known}")]
    UnknownTarget { target: String, known: String },
    #[error("unknown room {0:?}")]
    UnknownRoom(String),
    #[error("version {0} is larger than any that a store issues; the event with it is damaged")]
    Version(u64),
    #[error("the store is closed")]
    Closed,
    #[error("the stream to import cannot be read: {0}")]
    Import(String),
    #[error("failed to write the export: {reason}")]
    Export {
        kind: std::io::ErrorKind,
        reason: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without an operator.
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }
}

impl From<DurableError> for StoreError {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Closed => StoreError::Closed,
            DurableError::Corrupt(reason) => StoreError::Corrupt(reason),
            error => StoreError::Durable(error),
        }
    }
}

#[cfg(feature = "redis")]
impl From<tidegate_redis::Error> for StoreError {
    fn from(error: tidegate_redis::Error) -> Self {
        use tidegate_redis::Error;
        match error {
            Error::Config(reason) => StoreError::Config(reason),
            Error::Unavailable { server, reason } => StoreError::Unavailable { server, reason },
            Error::Unsuitable { server, reason } => StoreError::Unsuitable { server, reason },
            Error::Corrupt(reason) => StoreError::Corrupt(reason),
        }
    }
}
