//! Failures of a store, as opposed to rejected requests.

use std::path::PathBuf;

/// A store could not do its work. Refusals are outcomes, not errors.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the data folder {} is used by another process; stop it, or use another folder", .0.display())]
    Locked(PathBuf),
    #[error("the data folder {} cannot be used: {reason}", .path.display())]
    Folder { path: PathBuf, reason: String },
    #[error(
        "the data folder {} has format {found}, this program reads format {known}; \
         use the version of Tidegate that wrote it, or export there and import here", .path.display()
    )]
    Format {
        path: PathBuf,
        found: String,
        known: u32,
    },
    #[error("the configuration does not work: {0}")]
    Config(String),
    #[error("the records in the store contradict each other: {0}")]
    Corrupt(String),
    #[error(
        "a write could not be made durable ({0}); the store answers nothing more. \
         Make room or replace the disk, then start again: everything that was answered before is safe"
    )]
    Poisoned(String),
    #[error("{server} cannot be used now: {reason}")]
    Unavailable { server: String, reason: String },
    #[error("{server} cannot be used: {reason}")]
    Unsuitable { server: String, reason: String },
    #[error("the target {target:?} has no budget here; targets with one: {known}")]
    UnknownTarget { target: String, known: String },
    #[error("there is no room {0:?} here")]
    UnknownRoom(String),
    #[error("version {0} is larger than any that a store issues: what carries it is damaged")]
    Version(u64),
    #[error("the store is closed")]
    Closed,
    #[error("the stream to import cannot be read: {0}")]
    Import(String),
    #[error("the export cannot be written: {reason}")]
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
