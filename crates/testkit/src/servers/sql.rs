//! What the database servers have in common.

use std::time::Duration;

/// For a start on a busy machine, with everything that is to be recovered after a kill.
pub(super) const START_LIMIT: Duration = Duration::from_secs(300);

/// How a database server is to run. The default is as durable as it would be in earnest.
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// Waits for the disk at every commit. Without it tests are quicker, and what was committed survives a kill
    /// or not.
    pub fsync: bool,
    /// More arguments of the server. They win over ours.
    pub args: Vec<String>,
}

impl Default for SqlOptions {
    fn default() -> Self {
        Self {
            fsync: true,
            args: Vec::new(),
        }
    }
}
