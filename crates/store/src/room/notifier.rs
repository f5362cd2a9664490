//! Wakes the services that wait on a room. Subscribe first, then check: this order misses no signal. A signal
//! may be spurious, and every service also polls from time to time.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use tidegate_core::ids::RoomId;
use tidegate_core::room::command::{Signals, TakenOver};
use tokio::sync::{Notify, broadcast};

/// Limit: notices that wait for a listener. The next heartbeats of its streams make up for those it misses.
const NOTICES: usize = 256;

/// The signals of one room.
#[derive(Debug)]
pub struct RoomSignal {
    /// Somebody may be admitted.
    pub promote: Notify,
    /// Somebody was admitted, or the room changed.
    pub update: Notify,
    /// Streams that superseded others, here or in another process.
    pub taken_over: broadcast::Sender<Arc<[TakenOver]>>,
}

impl Default for RoomSignal {
    fn default() -> Self {
        Self {
            promote: Notify::default(),
            update: Notify::default(),
            taken_over: broadcast::Sender::new(NOTICES),
        }
    }
}

impl RoomSignal {
    fn notify(&self, signals: Signals) {
        if !signals.taken_over.is_empty() {
            // Nobody listens: no streams are open here.
            let _ = self.taken_over.send(signals.taken_over.into());
        }
        if signals.promote {
            self.promote.notify_waiters();
        }
        if signals.update {
            self.update.notify_waiters();
        }
    }
}

/// The signals of all rooms that have listeners.
#[derive(Debug, Default)]
pub struct RoomNotifier(Mutex<HashMap<RoomId, Arc<RoomSignal>>>);

impl RoomNotifier {
    /// The signal of a room, shared by everybody in this process.
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

    /// Drops the signal of a removed room.
    pub fn forget(&self, room: &RoomId) {
        let mut signals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signals.remove(room);
    }

    /// Signals everything, because signals may have been missed.
    pub fn notify_all(&self) {
        let signals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in signals.values() {
            signal.notify(Signals {
                promote: true,
                update: true,
                ..Signals::default()
            });
        }
    }
}
