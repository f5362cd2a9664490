//! Pure state machines that run on one thread: what the model stores and the embedded stores of a part share.

use std::fmt;

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use crate::StoreError;

/// When the store may reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The change must be on disk first.
    Synced,
    /// The change must be written, so that it survives the process.
    Written,
    /// As the budget's record requires.
    Granted,
}

/// Something that runs a machine.
#[async_trait]
pub trait RunOn<M>: Send + Sync + fmt::Debug + 'static {
    /// Runs work on the machine, with the wall clock's time, and returns once its changes are persisted as
    /// `keep` says.
    async fn run_on<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl for<'m> FnOnce(&'m mut M, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError>;
}
