//! Time that goes on while the process is stopped or the machine sleeps: what a lease must be measured by.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    started: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            started: since_boot(),
        }
    }

    pub(crate) fn elapsed(self) -> Duration {
        since_boot().saturating_sub(self.started)
    }
}

/// `Instant` stands still while the machine sleeps; this does not.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
