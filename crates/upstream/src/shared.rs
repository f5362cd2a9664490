//! What all calls share: settings, bodies, counts.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use tidegate_core::rng::Rng;
use tokio::sync::Notify;

use crate::call_counter::CallCounter;
use crate::library::Library;
use crate::settings::UpstreamSettings;

#[derive(Debug)]
pub(crate) struct Shared {
    current: RwLock<(Arc<UpstreamSettings>, Arc<Library>)>,
    pub(crate) counter: Arc<CallCounter>,
    pub(crate) started: Instant,
    seeds: AtomicU64,
    /// Signals that the settings have changed.
    changed: Notify,
}

impl Shared {
    pub(crate) fn new(settings: UpstreamSettings) -> io::Result<Self> {
        let library = Library::new(settings.payload_bytes, settings.bodies)?;
        Ok(Self {
            current: RwLock::new((Arc::new(settings), Arc::new(library))),
            counter: Arc::default(),
            started: Instant::now(),
            seeds: AtomicU64::new(0),
            changed: Notify::new(),
        })
    }

    pub(crate) fn current(&self) -> (Arc<UpstreamSettings>, Arc<Library>) {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set(&self, settings: UpstreamSettings) -> io::Result<()> {
        let (_, library) = self.current();
        let library = if library.fits(settings.payload_bytes, settings.bodies) {
            library
        } else {
            Arc::new(Library::new(settings.payload_bytes, settings.bodies)?)
        };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (Arc::new(settings), library);
        self.changed.notify_waiters();
        Ok(())
    }

    /// The same as `current`, as soon as calls are not held.
    pub(crate) async fn admit(&self) -> (Arc<UpstreamSettings>, Arc<Library>) {
        loop {
            // Before the check, so that no change is missed.
            let changed = self.changed.notified();
            let current = self.current();
            if !current.0.holding {
                return current;
            }
            changed.await;
        }
    }

    /// A different one for each call.
    pub(crate) fn rng(&self) -> Rng {
        Rng::new(self.seeds.fetch_add(0x9E37_79B9, Ordering::Relaxed))
    }
}
