//! The calls of one process.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::clock::Clock;

/// Names the calls of this process, and says what time it is.
#[derive(Debug)]
pub struct Caller {
    name: String,
    calls: AtomicU64,
    /// A test clock; without one, the server's own clock applies.
    clock: Option<Arc<dyn Clock>>,
}

impl Caller {
    /// A caller with a random name. The randomness comes from the standard library's hasher keys.
    pub fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            name: format!("{:016x}", RandomState::new().build_hasher().finish()),
            calls: AtomicU64::new(0),
            clock,
        }
    }

    /// Distinguishes this process from others: 16 characters.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A unique id: the same for every attempt of one call.
    pub fn request_id(&self) -> String {
        format!("{}{:x}", self.name, self.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// The time as the scripts take it: empty for the server's own.
    pub fn time(&self) -> String {
        let clock = self.clock.as_ref();
        clock.map_or_else(String::new, |clock| clock.now().0.to_string())
    }
}
