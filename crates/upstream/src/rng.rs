//! Numbers that depend on nothing but a text: the same record has the same content on every machine.

use tidegate_core::rng::scramble;

/// A number for a text: FNV-1a, scrambled so that similar keys are far apart.
pub(crate) fn number_of(text: &str) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    scramble(text.as_bytes().iter().fold(0xCBF2_9CE4_8422_2325, fold))
}
