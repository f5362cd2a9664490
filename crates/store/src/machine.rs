//! Pure state machines that one thread runs: what the model stores and the embedded stores of a part have in common.

use std::fmt;

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use crate::StoreError;

/// When an answer may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// What it changed must be on disk first.
    Synced,
    /// What it changed must be written, so that it outlives the process.
    Written,
    /// As the budget's record demands.
    Granted,
}

/// Something that runs a machine.
#[async_trait]
pub trait RunOn<M>: Send + Sync + fmt::Debug + 'static {
    /// Runs work on the machine, with the wall's time, and answers when its changes are kept as `keep` says.
    async fn run_on<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl for<'m> FnOnce(&'m mut M, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError>;
}
