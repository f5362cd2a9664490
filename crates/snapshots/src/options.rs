//! Settings that every backend has.

use tidegate_core::time::Millis;

/// How long a call may take, from its beginning to its answer. A call that takes longer fails with
/// [`SnapshotsError::Timeout`](crate::SnapshotsError::Timeout): a write may then have happened all the same, and is
/// safe to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For `read` (default 1 s): a reader waits for nothing else.
    pub read: Millis,
    /// For everything that changes something, and for claims (default 5 s).
    pub write: Millis,
    /// For slices of history and for counting, which move megabytes (default 30 s).
    pub bulk: Millis,
    /// For `migrate`, which may wait for another process that does the same (default 10 min).
    pub migrate: Millis,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            read: Millis::from_secs(1),
            write: Millis::from_secs(5),
            bulk: Millis::from_secs(30),
            migrate: Millis::from_secs(600),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotsOptions {
    /// Whether a snapshot that is replaced goes to the history, from where the archive takes it (default true).
    pub history: bool,
    pub timeouts: Timeouts,
    /// Connections for reading (default 8); on a server, for writing as well.
    pub connections: u32,
}

impl Default for SnapshotsOptions {
    fn default() -> Self {
        Self {
            history: true,
            timeouts: Timeouts::default(),
            connections: 8,
        }
    }
}

/// Whether a URL is one of this kind of database. The URL itself is not told: it may have a password in it.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn check_scheme(url: &str, schemes: &[&str]) -> Result<(), crate::SnapshotsError> {
    if schemes.iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(());
    }
    let wanted = schemes.join(" or ");
    Err(crate::SnapshotsError::Invalid(format!(
        "the URL of the database must begin with {wanted}"
    )))
}
