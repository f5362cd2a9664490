//! Errors that end an engine or one call to it.

use tidegate_core::bulk::Refusal;
use tidegate_store::StoreError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("invalid configuration: {0}")]
    Config(String),
    #[error("the handler for job type {0:?} was registered twice")]
    TwoHandlers(String),
    #[error("queue {0:?} has two gates; register one and share its clones")]
    TwoGates(String),
    #[error("queue {queue:?} has a gate but no handler here; queues with a handler: {queues}")]
    IdleGate { queue: String, queues: String },
}
