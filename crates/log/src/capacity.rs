//! Bounds the records that wait to be appended: a caller that finds no capacity is rejected at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::LogError;

#[derive(Debug, Clone)]
pub(crate) struct Capacity {
    max: usize,
    used: Arc<AtomicUsize>,
}

/// A permit for some records; dropping it returns the capacity.
#[derive(Debug)]
pub(crate) struct Taken {
    records: usize,
    used: Arc<AtomicUsize>,
}

impl Capacity {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            used: Arc::default(),
        }
    }

    pub(crate) fn take(&self, records: usize) -> Result<Taken, LogError> {
        let taken = Taken {
            records,
            used: self.used.clone(),
        };
        let before = self.used.fetch_add(records, Ordering::SeqCst);
        if before + records > self.max {
            return Err(LogError::Full);
        }
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.used.fetch_sub(self.records, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let room = Capacity::new(10);
        let some = room.take(6).unwrap();
        room.take(5).unwrap_err();
        let rest = room.take(4).unwrap();
        drop((some, rest));
        room.take(11).unwrap_err();
        room.take(10).unwrap();
    }
}
