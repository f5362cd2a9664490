//! Errors that end an engine or one call to it.

use tidegate_core::bulk::Refusal;
use tidegate_store::StoreError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the configuration does not work: {0}")]
    Config(String),
    #[error("the handler for job type {0:?} was registered twice")]
    TwoHandlers(String),
    #[error("queue {0:?} was given two gates: give it one, and share its clones")]
    TwoGates(String),
    #[error("queue {queue:?} was given a gate but has no handler here; queues that have one: {queues}")]
    IdleGate { queue: String, queues: String },
}
