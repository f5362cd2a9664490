//! Errors of a log. Rejections that concern one partition of a commit are outcomes, not errors.

use tidegate_durable::DurableError;

/// A log could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("too many records wait to be appended; try again later")]
    Full,
    /// In doubt: the only error of an append that leaves the fate of the record open.
    #[error("not confirmed within {0} ms; the record may have been appended all the same")]
    Timeout(u64),
    #[error("a record of {bytes} bytes is too large; at most {max} are allowed")]
    TooLarge { bytes: usize, max: usize },
    #[error("{server} is unavailable: {reason}")]
    Unavailable { server: String, reason: String },
    #[error("{server} cannot be used: {reason}")]
    Unsuitable { server: String, reason: String },
    #[error(
        "the topic {topic} has {found} partitions, but {configured} are configured; \
         keys would change their partition, so set {found}, or use another prefix"
    )]
    Layout {
        topic: String,
        configured: u32,
        found: u32,
    },
    #[error(
        "the topic {topic} has {setting} = {found}, but {right} is needed, or records are dropped that nobody has \
         worked on; change the topic, or use another prefix"
    )]
    TopicSetting {
        topic: String,
        setting: &'static str,
        found: String,
        /// The value that would be right.
        right: String,
    },
    #[error("invalid log configuration: {0}")]
    Config(String),
    /// The data folder of an embedded log, or a write to it, failed.
    #[error(transparent)]
    Durable(DurableError),
    #[error("the stored log is inconsistent: {0}")]
    Corrupt(String),
    #[error("the log is closed")]
    Closed,
}

impl LogError {
    /// Whether the same call may succeed later without an operator.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            LogError::Full | LogError::Timeout(_) | LogError::Unavailable { .. }
        )
    }
}

impl From<DurableError> for LogError {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Closed => LogError::Closed,
            DurableError::Corrupt(reason) => LogError::Corrupt(reason),
            error => LogError::Durable(error),
        }
    }
}

#[cfg(feature = "redis")]
impl From<tidegate_redis::Error> for LogError {
    fn from(error: tidegate_redis::Error) -> Self {
        use tidegate_redis::Error;
        match error {
            Error::Config(reason) => LogError::Config(reason),
            Error::Unavailable { server, reason } => LogError::Unavailable { server, reason },
            Error::Unsuitable { server, reason } => LogError::Unsuitable { server, reason },
            Error::Corrupt(reason) => LogError::Corrupt(reason),
        }
    }
}
