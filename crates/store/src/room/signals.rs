//! Notifier for the services that wait on a room. Listen first, then look: a signal that signals in between is heard. A signal
//! may notify without cause; every service also looks by itself from time to time.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use tidegate_core::ids::RoomId;
use tidegate_core::room::command::{Signals, TakenOver};
use tokio::sync::{Notify, broadcast};

/// Limit: notices that wait for a listener. Those it misses are told with the next heartbeats of its streams.
const NOTICES: usize = 256;

/// The signals of one room.
#[derive(Debug)]
pub struct RoomSignal {
    /// Somebody may be let in.
    pub promote: Notify,
    /// Somebody was let in, or the room changed.
    pub tell: Notify,
    /// Streams that took over from others, here or in another process.
    pub taken_over: broadcast::Sender<Arc<[TakenOver]>>,
}

impl Default for RoomSignal {
    fn default() -> Self {
        Self {
            promote: Notify::default(),
            tell: Notify::default(),
            taken_over: broadcast::Sender::new(NOTICES),
        }
    }
}

impl RoomSignal {
    fn notify(&self, signals: Signals) {
        if !signals.taken_over.is_empty() {
            // Nobody listens: nobody has streams here.
            let _ = self.taken_over.send(signals.taken_over.into());
        }
        if signals.promote {
            self.promote.notify_waiters();
        }
        if signals.tell {
            self.tell.notify_waiters();
        }
    }
}

/// The signals of all rooms that somebody listens to.
#[derive(Debug, Default)]
pub struct RoomNotifier(Mutex<HashMap<RoomId, Arc<RoomSignal>>>);

impl RoomNotifier {
    /// The signal of a room, the same for everybody in this process.
    pub fn of(&self, room: &RoomId) -> Arc<RoomSignal> {
        let mut signals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signals.entry(room.clone()).or_default().clone()
    }

    pub fn notify(&self, room: &RoomId, signals: Signals) {
        if !signals.any() {
            return;
        }
        let signal = {
            let signals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            signals.get(room).cloned()
        };
        if let Some(signal) = signal {
            signal.notify(signals);
        }
    }

    /// Of a room that is gone.
    pub fn forget(&self, room: &RoomId) {
        let mut signals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signals.remove(room);
    }

    /// Something may have been missed.
    pub fn notify_all(&self) {
        let signals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in signals.values() {
            signal.notify(Signals {
                promote: true,
                tell: true,
                ..Signals::default()
            });
        }
    }
}
