//! Bells for the services that wait on a room. Listen first, then look: a bell that rings in between is heard. A bell
//! may ring without cause; every service also looks by itself from time to time.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use tidegate_core::ids::RoomId;
use tidegate_core::room::command::{Rings, TakenOver};
use tokio::sync::{Notify, broadcast};

/// Limit: notices that wait for a listener. Those it misses are told with the next signs of life of its streams.
const NOTICES: usize = 256;

/// The bells of one room.
#[derive(Debug)]
pub struct RoomBell {
    /// Somebody may be let in.
    pub promote: Notify,
    /// Somebody was let in, or the room changed.
    pub tell: Notify,
    /// Streams that took over from others, here or in another process.
    pub taken_over: broadcast::Sender<Arc<[TakenOver]>>,
}

impl Default for RoomBell {
    fn default() -> Self {
        Self {
            promote: Notify::default(),
            tell: Notify::default(),
            taken_over: broadcast::Sender::new(NOTICES),
        }
    }
}

impl RoomBell {
    fn ring(&self, rings: Rings) {
        if !rings.taken_over.is_empty() {
            // Nobody listens: nobody has streams here.
            let _ = self.taken_over.send(rings.taken_over.into());
        }
        if rings.promote {
            self.promote.notify_waiters();
        }
        if rings.tell {
            self.tell.notify_waiters();
        }
    }
}

/// The bells of all rooms that somebody listens to.
#[derive(Debug, Default)]
pub struct RoomBells(Mutex<HashMap<RoomId, Arc<RoomBell>>>);

impl RoomBells {
    /// The bell of a room, the same for everybody in this process.
    pub fn of(&self, room: &RoomId) -> Arc<RoomBell> {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bells.entry(room.clone()).or_default().clone()
    }

    pub fn ring(&self, room: &RoomId, rings: Rings) {
        if !rings.any() {
            return;
        }
        let bell = {
            let bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            bells.get(room).cloned()
        };
        if let Some(bell) = bell {
            bell.ring(rings);
        }
    }

    /// Of a room that is gone.
    pub fn forget(&self, room: &RoomId) {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bells.remove(room);
    }

    /// Something may have been missed.
    pub fn ring_all(&self) {
        let bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for bell in bells.values() {
            bell.ring(Rings {
                promote: true,
                tell: true,
                ..Rings::default()
            });
        }
    }
}
