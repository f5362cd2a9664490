//! A bitmap of the waiting tickets, one bit per index, and how many of them are ahead of an index.
//!
//! Indices are assigned in growing order, so the bits of the waiting tickets are close together. A million
//! people take 125 KB, which a reader loads as a whole to compute everybody's position.

use std::collections::VecDeque;

const WORD: u64 = 64;
/// Words per block; each block has one count.
const BLOCK: usize = 64;
const BLOCK_INDICES: u64 = WORD * BLOCK as u64;

/// The bit of an index in its word: the first index is the highest bit, as in a Redis byte string.
fn bit(index: u64) -> u64 {
    1 << (WORD - 1 - index % WORD)
}

/// The bits of a word before an index in it.
fn before(word: u64, index: u64) -> u64 {
    let bits = index % WORD;
    match bits {
        0 => 0,
        _ => u64::from((word >> (WORD - bits)).count_ones()),
    }
}

/// The mutable bitmap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Positions {
    /// Earlier blocks that stay empty.
    gone: u64,
    words: VecDeque<u64>,
    /// People in each block.
    counts: VecDeque<u64>,
    total: u64,
}

impl Positions {
    fn word(&self, index: u64) -> Option<usize> {
        let first = self.gone * BLOCK_INDICES;
        usize::try_from(index.checked_sub(first)? / WORD).ok()
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn has(&self, index: u64) -> bool {
        let word = self.word(index).and_then(|word| self.words.get(word));
        word.is_some_and(|word| word & bit(index) != 0)
    }

    /// Marks an index as waiting. An index in the discarded blocks cannot be taken: that is a programmer error.
    pub fn add(&mut self, index: u64) {
        if self.total == 0 {
            // Nothing is before the first one.
            self.words.clear();
            self.counts.clear();
            self.gone = index / BLOCK_INDICES;
        }
        while self.gone > 0 && index / BLOCK_INDICES < self.gone {
            // An index that a draw skipped returns before the existing ones.
            self.gone -= 1;
            (0..BLOCK).for_each(|_| self.words.push_front(0));
            self.counts.push_front(0);
        }
        let Some(word) = self.word(index) else {
            unreachable!("blocks were added down to this index")
        };
        while self.words.len() <= word {
            self.words.extend([0; BLOCK]);
            self.counts.push_back(0);
        }
        if self.words[word] & bit(index) == 0 {
            self.words[word] |= bit(index);
            self.counts[word / BLOCK] += 1;
            self.total += 1;
        }
    }

    /// Marks an index as no longer waiting.
    pub fn remove(&mut self, index: u64) {
        let Some(word) = self.word(index).filter(|_| self.has(index)) else {
            return;
        };
        self.words[word] &= !bit(index);
        self.counts[word / BLOCK] -= 1;
        self.total -= 1;
        while self.counts.len() > 1 && self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.words.drain(..BLOCK);
            self.gone += 1;
        }
    }

    /// How many wait ahead of this index.
    pub fn ahead(&self, index: u64) -> u64 {
        let Some(word) = self.word(index) else {
            return 0;
        };
        if word >= self.words.len() {
            return self.total;
        }
        let block = word / BLOCK;
        let blocks: u64 = self.counts.range(..block).sum();
        let words: u64 = self
            .words
            .range(block * BLOCK..word)
            .map(|word| u64::from(word.count_ones()))
            .sum();
        blocks + words + before(self.words[word], index)
    }

    pub fn view(&self) -> PositionsView {
        PositionsView::new(self.gone * BLOCK_INDICES, self.words.iter().copied().collect())
    }
}

/// An immutable view of one moment: everybody's position in constant time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PositionsView {
    /// The first index of the words; a multiple of 64.
    first: u64,
    words: Vec<u64>,
    /// How many wait ahead of each word.
    ahead: Vec<u64>,
    total: u64,
    undrawn: Undrawn,
}

/// People whose indices are reserved but not drawn yet: they are ahead of every index from `before` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Undrawn {
    pub before: u64,
    pub people: u64,
}

impl Undrawn {
    /// How many of them are ahead of this index.
    pub fn ahead(self, index: u64) -> u64 {
        match index >= self.before {
            true => self.people,
            false => 0,
        }
    }
}

impl PositionsView {
    fn new(first: u64, words: Vec<u64>) -> Self {
        let mut total = 0;
        let ahead = words
            .iter()
            .map(|word| {
                let ahead = total;
                total += u64::from(word.count_ones());
                ahead
            })
            .collect();
        Self {
            first,
            words,
            ahead,
            total,
            undrawn: Undrawn::default(),
        }
    }

    /// The same, including people without a drawn index.
    pub fn with_undrawn(self, undrawn: Undrawn) -> Self {
        Self { undrawn, ..self }
    }

    /// From bytes whose first bit is the index `first`, a multiple of 64.
    pub fn from_bytes(first: u64, bytes: &[u8]) -> Self {
        assert!(first.is_multiple_of(WORD), "views begin with a whole word");
        let word = |chunk: &[u8]| {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            u64::from_be_bytes(whole)
        };
        Self::new(first, bytes.chunks(8).map(word).collect())
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    fn word(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.first)? / WORD).ok()
    }

    pub fn has(&self, index: u64) -> bool {
        let word = self.word(index).and_then(|word| self.words.get(word));
        word.is_some_and(|word| word & bit(index) != 0)
    }

    /// How many wait ahead of this index.
    pub fn ahead(&self, index: u64) -> u64 {
        let placed = match self.word(index) {
            None => 0,
            Some(word) if word >= self.words.len() => self.total,
            Some(word) => self.ahead[word] + before(self.words[word], index),
        };
        placed + self.undrawn.ahead(index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_those_of_a_set(steps in prop::collection::vec((0_u64..20_000, any::<bool>()), 1..400)) {
            let (mut positions, mut set) = (Positions::default(), BTreeSet::new());
            for (index, joins) in steps {
                match joins {
                    true => { positions.add(index); set.insert(index); }
                    false => { positions.remove(index); set.remove(&index); }
                }
                let view = positions.view();
                prop_assert_eq!((positions.total(), view.total()), (set.len() as u64, set.len() as u64));
                for probe in [index, index + 1, index.saturating_sub(63), index + 4_096, 0, 30_000] {
                    let ahead = set.range(..probe).count() as u64;
                    prop_assert_eq!((positions.ahead(probe), view.ahead(probe)), (ahead, ahead), "before {}", probe);
                    prop_assert_eq!((positions.has(probe), view.has(probe)), (set.contains(&probe), set.contains(&probe)));
                }
            }
        }
    }

    #[test]
    fn what_is_empty_for_good_is_let_go() {
        let mut positions = Positions::default();
        (0..1_000_000).for_each(|index| positions.add(index));
        (0..999_990).for_each(|index| positions.remove(index));
        assert_eq!(positions.total(), 10);
        assert!(
            positions.words.len() <= 2 * BLOCK,
            "{} words",
            positions.words.len()
        );
        assert_eq!(positions.ahead(999_995), 5);
    }

    #[test]
    fn bytes_are_read_highest_bit_first() {
        let view = PositionsView::from_bytes(128, &[0b1010_0000, 0, 0, 0, 0, 0, 0, 0, 0b1000_0000]);
        assert!(view.has(128) && !view.has(129) && view.has(130) && view.has(192));
        assert_eq!((view.total(), view.ahead(192), view.ahead(193)), (3, 2, 3));
    }
}
