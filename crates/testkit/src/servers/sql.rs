//! What the database servers have in common.

/// How a database server is to run. The default is as durable as in production.
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// Waits for the disk at every commit. Without it tests are quicker, and a commit may or may not survive a kill.
    pub fsync: bool,
    /// More arguments of the server. They take precedence over ours.
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
