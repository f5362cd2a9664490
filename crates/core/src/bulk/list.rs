//! Doubly linked lists through the job slab: no allocation, and removal from the middle in constant time.
//!
//! A job carries two pairs of links: one for the queue it is in (at most one), one for its batch.

use slab::Slab;

use super::job::Job;

/// An index into one of the slabs.
pub(super) type Slot = u32;

/// No job.
pub(super) const NIL: Slot = u32::MAX;

/// Links of the queue that a job is in.
pub(super) const QUEUE: usize = 0;
/// Links of a job's batch.
pub(super) const BATCH: usize = 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) prev: Slot,
    pub(super) next: Slot,
}

impl Default for Links {
    fn default() -> Self {
        Self { prev: NIL, next: NIL }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct List<const W: usize> {
    pub(super) head: Slot,
    tail: Slot,
    pub(super) len: u32,
}

impl<const W: usize> Default for List<W> {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }
}

impl<const W: usize> List<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn front(&self) -> Option<Slot> {
        (self.head != NIL).then_some(self.head)
    }

    pub(super) fn back(&self) -> Option<Slot> {
        (self.tail != NIL).then_some(self.tail)
    }

    pub(super) fn push_back(&mut self, jobs: &mut Slab<Job>, slot: Slot) {
        jobs[slot as usize].links[W] = Links {
            prev: self.tail,
            next: NIL,
        };
        match self.tail {
            NIL => self.head = slot,
            tail => jobs[tail as usize].links[W].next = slot,
        }
        self.tail = slot;
        self.len += 1;
    }

    pub(super) fn push_front(&mut self, jobs: &mut Slab<Job>, slot: Slot) {
        jobs[slot as usize].links[W] = Links {
            prev: NIL,
            next: self.head,
        };
        match self.head {
            NIL => self.tail = slot,
            head => jobs[head as usize].links[W].prev = slot,
        }
        self.head = slot;
        self.len += 1;
    }

    /// Inserts before `next`, which must be in the list.
    pub(super) fn insert_before(&mut self, jobs: &mut Slab<Job>, next: Slot, slot: Slot) {
        let prev = jobs[next as usize].links[W].prev;
        if prev == NIL {
            return self.push_front(jobs, slot);
        }
        jobs[slot as usize].links[W] = Links { prev, next };
        jobs[prev as usize].links[W].next = slot;
        jobs[next as usize].links[W].prev = slot;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, jobs: &mut Slab<Job>, slot: Slot) {
        let Links { prev, next } = std::mem::take(&mut jobs[slot as usize].links[W]);
        match prev {
            NIL => self.head = next,
            prev => jobs[prev as usize].links[W].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => jobs[next as usize].links[W].prev = prev,
        }
        self.len -= 1;
    }
}
