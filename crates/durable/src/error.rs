//! Failures of the durable layer.

use std::path::PathBuf;

use crate::DiskError;

/// The durable layer could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurableError {
    /// Another process has the folder open.
    #[error("the data folder {} is used by another process; stop it, or use another folder", .0.display())]
    Locked(PathBuf),
    /// The folder cannot be created, read or written.
    #[error("the data folder {} cannot be used: {reason}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system reported.
        reason: String,
    },
    /// Another version of Tidegate wrote the folder.
    #[error(
        "the data folder {} has format {found}, this program reads format {known}; \
         use the version of Tidegate that wrote it, or export there and import here", .path.display()
    )]
    Format {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: String,
        /// The format of this program.
        known: u32,
    },
    /// A record cannot be read, or contradicts another one.
    #[error("the records on disk contradict each other: {0}")]
    Corrupt(String),
    /// A write or sync failed. Memory is ahead of the disk, so the runner answers nothing more.
    #[error(
        "a write could not be made durable ({0}), so the store answers nothing more. \
         Free disk space or replace the disk, then restart: everything that it answered before is safe"
    )]
    Poisoned(String),
    /// The runner has ended.
    #[error("the store is closed")]
    Closed,
    /// The system gave no thread.
    #[error("the thread {name} does not start: {reason}")]
    Thread {
        /// The thread.
        name: String,
        /// What the system reported.
        reason: String,
    },
}

/// A read failed: what is stored cannot be understood.
impl From<DiskError> for DurableError {
    fn from(error: DiskError) -> Self {
        DurableError::Corrupt(error.to_string())
    }
}
