//! Failures of a server, as opposed to rejected requests.

/// A server or Cluster could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings cannot work.
    #[error("invalid configuration: {0}")]
    Config(String),
    /// The same call may succeed later.
    #[error("{server} is unavailable: {reason}")]
    Unavailable {
        /// The server.
        server: String,
        /// What it reported.
        reason: String,
    },
    /// The server must be changed first.
    #[error("{server} cannot be used: {reason}")]
    Unsuitable {
        /// The server.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A script found or returned something impossible.
    #[error("the stored records are inconsistent: {0}")]
    Corrupt(String),
}
