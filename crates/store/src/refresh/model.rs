//! The pure state machine behind the trait: nothing durable, nothing shared. It is the reference that every
//! other backend must match.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::Clock;
use tidegate_core::time::{StoreClock, Timestamp};
use tidegate_durable::{DurableError, Model, ReplyAfter, Run, Volatile};

use super::{Machine, RefreshSettings};
use crate::StoreError;

/// Limit: records inspected after every call, to forget idle ones.
const FORGET: usize = 64;

/// Coalescer and budgets in memory.
#[derive(Debug)]
pub struct ModelRefreshStore {
    model: Model<Machine>,
}

impl ModelRefreshStore {
    pub fn new(settings: RefreshSettings, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        settings.validate()?;
        let machine = Machine::new(settings, StoreClock::default(), &BTreeMap::new(), clock.now());
        Ok(Self {
            model: Model::new(machine, clock),
        })
    }
}

impl Volatile for Machine {
    fn set_steady(&mut self, steady: Timestamp) {
        Machine::set_steady(self, steady);
    }

    fn discard_changes(&mut self) {
        self.forget(FORGET);
        self.take_changed();
        self.take_due();
    }
}

#[async_trait]
impl Run<Machine> for ModelRefreshStore {
    async fn run<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut Machine, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError> {
        self.model.run(work).await
    }
}
