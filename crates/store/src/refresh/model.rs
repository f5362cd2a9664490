//! The pure state machine behind the trait: nothing durable, nothing shared. It is the reference that every
//! other backend must match.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_core::time::{StoreClock, Timestamp};

use super::machine::Machine;
use super::seam::RefreshSettings;
use crate::machine::{Keep, RunOn};
use crate::{Clock, StoreError};

/// Limit: records inspected after every call, to forget idle ones.
const FORGET: usize = 64;

#[derive(Debug)]
pub struct ModelRefreshStore {
    machine: Mutex<Machine>,
    clock: Arc<dyn Clock>,
}

impl ModelRefreshStore {
    pub fn new(settings: RefreshSettings, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        settings.validate()?;
        let machine = Machine::new(settings, StoreClock::default(), &BTreeMap::new(), clock.now());
        Ok(Self {
            machine: Mutex::new(machine),
            clock,
        })
    }
}

#[async_trait]
impl RunOn<Machine> for ModelRefreshStore {
    async fn run_on<T: Send + 'static>(
        &self,
        _keep: Keep,
        work: impl for<'m> FnOnce(&'m mut Machine, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.tell_steady(self.clock.steady());
        let answer = work(&mut machine, self.clock.now());
        machine.forget(FORGET);
        machine.take_changed();
        machine.take_due();
        Ok(answer)
    }
}
