//! Errors of a log. Rejections that concern one partition of a commit are outcomes, not errors.

use std::path::PathBuf;

use tidegate_store::StoreError;

/// A log could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("too many records wait to be appended; try again later")]
    Full,
    /// In doubt: the only error of an append that leaves the fate of the record open.
    #[error("not confirmed within {0} ms; the record may have been appended all the same")]
    Timeout(u64),
    #[error("a record of {bytes} bytes is too large; at most {max} are taken")]
    TooLarge { bytes: usize, max: usize },
    #[error("{server} cannot be used now: {reason}")]
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
    #[error("the log is not set up right: {0}")]
    Config(String),
    #[error("the folder {} is used by another process; stop it, or use another folder", .0.display())]
    Locked(PathBuf),
    #[error("the folder {} cannot be used: {reason}", .path.display())]
    Folder { path: PathBuf, reason: String },
    #[error("what is stored in the log contradicts itself: {0}")]
    Corrupt(String),
    #[error(
        "a write could not be made durable ({0}); the log answers nothing more. \
         Make room or replace the disk, then start again: everything that was answered before is safe"
    )]
    Poisoned(String),
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

impl From<StoreError> for LogError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { server, reason } => LogError::Unavailable { server, reason },
            StoreError::Unsuitable { server, reason } => LogError::Unsuitable { server, reason },
            StoreError::Config(reason) => LogError::Config(reason),
            other => LogError::Corrupt(other.to_string()),
        }
    }
}
