//! The pure state machine behind the trait: nothing durable, nothing shared. It is the reference that every
//! other backend must match.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use super::machine::Rooms;
use super::run::HasNotifier;
use super::signals::RoomNotifier;
use crate::machine::{Keep, RunOn};
use crate::{Clock, StoreError};

#[derive(Debug)]
pub struct ModelRoomStore {
    rooms: Mutex<Rooms>,
    signals: Arc<RoomNotifier>,
    clock: Arc<dyn Clock>,
}

impl ModelRoomStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            rooms: Mutex::default(),
            signals: Arc::default(),
            clock,
        }
    }
}

impl HasNotifier for ModelRoomStore {
    fn room_notifier(&self) -> &Arc<RoomNotifier> {
        &self.signals
    }
}

#[async_trait]
impl RunOn<Rooms> for ModelRoomStore {
    async fn run_on<T: Send + 'static>(
        &self,
        _keep: Keep,
        work: impl for<'m> FnOnce(&'m mut Rooms, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = work(&mut rooms, self.clock.now());
        rooms.take_changed();
        Ok(answer)
    }
}
