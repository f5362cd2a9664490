//! A queue of records in flight: in order within one key, in parallel across keys.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

#[derive(Debug)]
struct Line<T> {
    partition: u32,
    /// A worker is processing one of them.
    busy: bool,
    waiting: VecDeque<T>,
}

#[derive(Debug)]
pub(crate) struct KeyedQueue<T> {
    lines: HashMap<Bytes, Line<T>>,
    /// Keys that can continue, in the order in which they became ready.
    ready: VecDeque<Bytes>,
    waiting: usize,
}

impl<T> Default for KeyedQueue<T> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            ready: VecDeque::new(),
            waiting: 0,
        }
    }
}

impl<T> KeyedQueue<T> {
    /// Records that wait to start.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn push(&mut self, partition: u32, key: Bytes, item: T) {
        self.waiting += 1;
        let line = self.lines.entry(key.clone()).or_insert_with(|| Line {
            partition,
            busy: false,
            waiting: VecDeque::new(),
        });
        line.waiting.push_back(item);
        if !line.busy && line.waiting.len() == 1 {
            self.ready.push_back(key);
        }
    }

    /// The next record to start. Its key stays busy until [`finished`](Self::finished).
    pub(crate) fn start(&mut self) -> Option<(Bytes, T)> {
        while let Some(key) = self.ready.pop_front() {
            // `forget` may have removed the records of a ready key.
            let Some(line) = self.lines.get_mut(&key) else {
                continue;
            };
            if line.busy {
                continue;
            }
            if let Some(item) = line.waiting.pop_front() {
                line.busy = true;
                self.waiting -= 1;
                return Some((key, item));
            }
        }
        None
    }

    pub(crate) fn finished(&mut self, key: &Bytes) {
        let Some(line) = self.lines.get_mut(key) else {
            return;
        };
        line.busy = false;
        match line.waiting.is_empty() {
            true => drop(self.lines.remove(key)),
            false => self.ready.push_back(key.clone()),
        }
    }

    /// Drops the waiting records of a partition. Records in work keep their key busy until they finish.
    pub(crate) fn forget(&mut self, partition: u32) {
        let waiting = &mut self.waiting;
        self.lines.retain(|_, line| {
            if line.partition != partition {
                return true;
            }
            *waiting -= line.waiting.len();
            line.waiting.clear();
            line.busy
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    #[test]
    fn one_key_is_in_order_and_others_pass() {
        let mut lines = KeyedQueue::default();
        lines.push(0, key("a"), 1);
        lines.push(0, key("a"), 2);
        lines.push(0, key("b"), 3);
        assert_eq!(lines.start(), Some((key("a"), 1)));
        assert_eq!(lines.start(), Some((key("b"), 3)));
        assert_eq!(lines.start(), None);
        assert_eq!(lines.waiting(), 1);
        lines.finished(&key("a"));
        assert_eq!(lines.start(), Some((key("a"), 2)));
        lines.finished(&key("a"));
        lines.finished(&key("b"));
        assert!(lines.lines.is_empty() && lines.ready.is_empty());
    }

    #[test]
    fn a_lost_partition_leaves_only_what_runs() {
        let mut lines = KeyedQueue::default();
        lines.push(7, key("a"), 1);
        lines.push(7, key("a"), 2);
        lines.push(7, key("c"), 3);
        lines.push(8, key("b"), 4);
        assert_eq!(lines.start(), Some((key("a"), 1)));
        lines.forget(7);
        assert_eq!(lines.waiting(), 1);
        assert_eq!(lines.start(), Some((key("b"), 4)));
        // The partition came back while the old record still runs, so the new one waits for it.
        lines.push(7, key("a"), 5);
        assert_eq!(lines.start(), None);
        lines.finished(&key("a"));
        assert_eq!(lines.start(), Some((key("a"), 5)));
    }
}
