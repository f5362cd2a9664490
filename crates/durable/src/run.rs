//! How callers use a machine, wherever it runs.

use std::fmt;

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use crate::DurableError;

/// When a reply may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyAfter {
    /// After the changes are on disk. Includes work that changed nothing: "duplicate" is a promise about what an earlier
    /// command did.
    Sync,
    /// After the changes are written, so that they survive the process. A power cut may lose them.
    Write,
    /// After the machine's durable mark has reached this value; see [`Changes::mark`](crate::Changes::mark).
    Mark(u64),
}

/// Something that runs a machine of state `S`.
#[async_trait]
pub trait Run<S>: Send + Sync + fmt::Debug + 'static {
    /// Runs work on the machine, with the wall clock's time. Returns its result once the changes are as durable as the
    /// work said.
    async fn run<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut S, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError>;
}
