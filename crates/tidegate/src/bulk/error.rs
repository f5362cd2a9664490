//! The errors of bulk calls.

use tidegate_core::bulk::Refusal;
use tidegate_core::ids::IdError;
use tidegate_engine::bulk::EngineError;
use tidegate_store::StoreError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The services could not start, or have failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store failed or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refused the call, for example because the batch is unknown.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Error {
    /// Returns whether the same call may succeed later without an operator. Submitting again is safe: the store
    /// reports accepted jobs as duplicates.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Store(error) | Error::Engine(EngineError::Store(error)) => error.is_retryable(),
            Error::Id(_) | Error::Engine(_) | Error::Refused(_) => false,
        }
    }
}
