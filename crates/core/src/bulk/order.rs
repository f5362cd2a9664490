//! The fair order of one lane and level: who is next, and where a served line goes.

use std::collections::{BTreeMap, BTreeSet};

use slab::Slab;

use super::line::Line;
use super::list::Slot;
use super::policy::TAG_LIMIT;

/// Places are compared by key, then by the turn in which they were taken, never by name. One number, because
/// a pick compares dozens of them.
fn place((key, turn): (i64, u64)) -> u128 {
    // Negative keys (of the `score` policy) come before positive ones.
    let key = (key as u64) ^ (1 << 63);
    (u128::from(key) << 64) | u128::from(turn)
}

#[derive(Debug, Default)]
pub(super) struct FairOrder {
    places: BTreeMap<u128, Slot>,
    /// The tag of the line served last.
    virtual_time: u64,
    /// Lines without unfinished jobs whose tag is still ahead of virtual time: forgotten when it has
    /// caught up, because then `max(tag, virtual time)` gives them nothing to remember.
    remembered: BTreeSet<(u64, Slot)>,
    next_turn: u64,
}

impl FairOrder {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn first(&self) -> Option<Slot> {
        self.places.first_key_value().map(|(_, &line)| line)
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = Slot> + '_ {
        self.places.values().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn insert(&mut self, lines: &mut Slab<Line>, line: Slot, key: i64) {
        self.next_turn += 1;
        let entry = &mut lines[line as usize];
        assert!(entry.place.is_none(), "a line stands in the order once");
        entry.place = Some((key, self.next_turn));
        self.places.insert(place((key, self.next_turn)), line);
    }

    pub(super) fn remove(&mut self, lines: &mut Slab<Line>, line: Slot) {
        let Some(taken) = lines[line as usize].place.take() else {
            return;
        };
        // Nearly always it is the first, which is found without comparing.
        if self.first() == Some(line) {
            self.places.pop_first();
        } else {
            self.places.remove(&place(taken));
        }
    }

    /// The tag of a line that comes (back) into the order.
    pub(super) fn arrival_tag(&self, tag: u64) -> u64 {
        tag.max(self.virtual_time)
    }

    /// Virtual time reaches the tag of the line that is being served.
    pub(super) fn advance(&mut self, tag: u64) {
        self.virtual_time = self.virtual_time.max(tag);
    }

    #[cfg(test)]
    pub(super) fn set_virtual_time(&mut self, tag: u64) {
        self.virtual_time = tag;
    }

    /// Remembers the tag of a line that has no unfinished jobs left; false if there is nothing to remember.
    pub(super) fn remember(&mut self, line: Slot, tag: u64) -> bool {
        tag > self.virtual_time && self.remembered.insert((tag, line))
    }

    pub(super) fn recall(&mut self, line: Slot, tag: u64) {
        self.remembered.remove(&(tag, line));
    }

    /// The next remembered line that may be forgotten. When nobody stands in the order, the busy period is
    /// over: virtual time jumps ahead, and everyone starts equal.
    pub(super) fn forgettable(&mut self) -> Option<Slot> {
        let &(tag, line) = self.remembered.first()?;
        if self.places.is_empty() {
            self.virtual_time = self.virtual_time.max(tag);
        }
        (tag <= self.virtual_time).then(|| {
            self.remembered.pop_first();
            line
        })
    }

    pub(super) fn remembered(&self) -> usize {
        self.remembered.len()
    }

    pub(super) fn needs_rebase(&self, step: u64) -> bool {
        self.virtual_time >= TAG_LIMIT - step.saturating_mul(2)
    }

    /// Subtracts virtual time from every tag, so that tags stay below [`TAG_LIMIT`]. Order is unchanged.
    pub(super) fn rebase<'a>(&mut self, lines: impl Iterator<Item = (Slot, &'a mut Line)>) {
        let base = self.virtual_time;
        self.virtual_time = 0;
        self.places.clear();
        self.remembered.clear();
        for (slot, line) in lines {
            line.tag = line.tag.saturating_sub(base);
            if let Some((key, turn)) = &mut line.place {
                *key = line.tag as i64;
                self.places.insert(place((*key, *turn)), slot);
            } else if line.unfinished == 0 {
                self.remembered.insert((line.tag, slot));
            }
        }
    }
}
