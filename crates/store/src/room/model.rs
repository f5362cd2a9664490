//! The pure state machine behind the trait: nothing durable, nothing shared. It is the reference that every
//! other backend must match.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::Clock;
use tidegate_core::time::Timestamp;
use tidegate_durable::{DurableError, Model, ReplyAfter, Run, Volatile};

use super::{HasNotifier, RoomNotifier, Rooms};

/// Waiting rooms in memory.
#[derive(Debug)]
pub struct ModelRoomStore {
    model: Model<Rooms>,
    notifier: Arc<RoomNotifier>,
}

impl ModelRoomStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            model: Model::new(Rooms::default(), clock),
            notifier: Arc::default(),
        }
    }
}

impl Volatile for Rooms {
    fn discard_changes(&mut self) {
        self.take_changed();
    }
}

impl HasNotifier for ModelRoomStore {
    fn room_notifier(&self) -> &Arc<RoomNotifier> {
        &self.notifier
    }
}

#[async_trait]
impl Run<Rooms> for ModelRoomStore {
    async fn run<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut Rooms, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError> {
        self.model.run(work).await
    }
}
