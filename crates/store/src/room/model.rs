//! The pure state machine behind the seam: nothing durable, nothing shared, and therefore the yardstick that every
//! other backend is held against.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use super::bells::RoomBells;
use super::machine::Rooms;
use super::run::HasBells;
use crate::machine::{Keep, OnMachine};
use crate::{Clock, StoreError};

#[derive(Debug)]
pub struct ModelRoomStore {
    rooms: Mutex<Rooms>,
    bells: Arc<RoomBells>,
    clock: Arc<dyn Clock>,
}

impl ModelRoomStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            rooms: Mutex::default(),
            bells: Arc::default(),
            clock,
        }
    }
}

impl HasBells for ModelRoomStore {
    fn room_bells(&self) -> &Arc<RoomBells> {
        &self.bells
    }
}

#[async_trait]
impl OnMachine<Rooms> for ModelRoomStore {
    async fn on_machine<T: Send + 'static>(
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
