//! A clock for leases: it runs on while the process is suspended or the machine sleeps.

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

/// Unlike `Instant`, this clock does not stop while the machine sleeps.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
