//! Numbers that depend on nothing but a seed: the same record has the same content on every machine.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.0)
    }

    /// From 0 to `end`, without it.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in `share` of all cases, from 0 to 1.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        // 53 bits fit a float exactly, so 0.0 is never and 1.0 always true.
        ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number for a text: FNV-1a, scrambled so that similar keys are far apart.
pub(crate) fn number_of(text: &str) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    scramble(text.as_bytes().iter().fold(0xCBF2_9CE4_8422_2325, fold))
}
