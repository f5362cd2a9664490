//! Starts per window of a simulation, counted outside the limiter.

use tidegate_core::time::{Millis, Timestamp};

#[derive(Debug, Clone)]
pub(super) struct Tally {
    window: Millis,
    /// Starts per window since time 0.
    starts: Vec<u64>,
    pub(super) throttles: u64,
}

impl Tally {
    pub(super) fn new(window: Millis) -> Self {
        Self {
            window,
            starts: Vec::new(),
            throttles: 0,
        }
    }

    pub(super) fn start(&mut self, at: Timestamp) {
        let window = (at.0 / self.window.0) as usize;
        if self.starts.len() <= window {
            self.starts.resize(window + 1, 0);
        }
        self.starts[window] += 1;
    }

    #[cfg(test)]
    pub(super) fn started(&self) -> u64 {
        self.starts.iter().sum()
    }

    pub(super) fn max_per_window(&self) -> u64 {
        self.starts.iter().copied().max().unwrap_or(0)
    }

    /// Time until the last window with a start was over. A window's jobs start at its edge; its whole
    /// length is counted, so that a run which uses every window takes exactly jobs / rate.
    pub(super) fn elapsed(&self) -> Millis {
        Millis(self.starts.len() as u64 * self.window.0)
    }
}
