//! The one place that reads a wall clock. Decisions take the time as an argument instead.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::time::{Millis, Timestamp};

/// The source of wall time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    fn now(&self) -> Timestamp;

    /// A clock set from the wall clock at start and never stepped since. It continues while the process is
    /// stopped or the machine sleeps. A clock that only time moves is steady by itself.
    fn steady(&self) -> Timestamp {
        self.now()
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one Clock")]
    fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(since_epoch.as_millis() as u64)
    }

    fn steady(&self) -> Timestamp {
        static START: OnceLock<(Duration, Timestamp)> = OnceLock::new();
        let (booted, at) = START.get_or_init(|| (since_boot(), self.now()));
        *at + Millis(since_boot().saturating_sub(*booted).as_millis() as u64)
    }
}

/// Unlike `Instant`, this also advances while the machine sleeps.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A clock that a test moves forwards or back.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicU64::new(now.0))
    }

    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    pub fn advance(&self, by: Millis) {
        self.0.fetch_add(by.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
