//! Settings that every backend has.

use tidegate_core::time::Millis;

/// How long a call may take, from start to response. A longer one fails with
/// [`SnapshotsError::Timeout`](crate::SnapshotsError::Timeout). A write is then in doubt: it may have happened, and
/// is safe to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For `read` (default 1 s): a reader waits for nothing else.
    pub read: Millis,
    /// For everything that changes data, and for claims (default 5 s).
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
    /// Whether a replaced snapshot goes to the history, from where the archive takes it (default true).
    pub history: bool,
    pub timeouts: Timeouts,
    /// Connections for reads (default 8); on a server, for writes as well.
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

/// Checks that a URL fits this kind of database. The error leaves out the URL, which may contain a password.
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
