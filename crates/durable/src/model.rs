//! A machine without a disk: nothing durable, nothing shared. The reference that every backend must match.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidegate_core::clock::Clock;
use tidegate_core::time::Timestamp;

use crate::{DurableError, ReplyAfter, Run};

/// A machine whose changes nobody writes.
pub trait Volatile: Send + 'static {
    /// Sets the time of the clock that nobody steps, before work runs.
    fn set_steady(&mut self, _steady: Timestamp) {}

    /// Takes the changes of the last work. The machine would collect them for ever otherwise.
    fn discard_changes(&mut self);
}

/// Runs a machine in memory, one call at a time.
pub struct Model<S> {
    state: Mutex<S>,
    clock: Arc<dyn Clock>,
}

impl<S> fmt::Debug for Model<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

impl<S: Volatile> Model<S> {
    /// A model with this state, driven by this clock.
    pub fn new(state: S, clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::new(state),
            clock,
        }
    }

    /// The state, for reads that are no work of the machine.
    pub fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work at once.
    pub fn run_now<T>(&self, work: impl FnOnce(&mut S, Timestamp) -> T) -> T {
        let mut state = self.state();
        state.set_steady(self.clock.steady());
        let outcome = work(&mut state, self.clock.now());
        state.discard_changes();
        outcome
    }
}

#[async_trait]
impl<S: Volatile> Run<S> for Model<S> {
    async fn run<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut S, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError> {
        Ok(self.run_now(work).0)
    }
}
