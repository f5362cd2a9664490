//! The hash that shows whether a record has changed.

use sha2::{Digest, Sha256};

/// SHA-256 of a projection.
pub type Hash = [u8; 32];

/// Covers the projection's version, as four big-endian bytes, and the canonical bytes. So a source that starts to
/// keep other fields stores all its records anew, even those whose bytes happen to be the same.
pub fn hash(projection_version: u32, canonical: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(projection_version.to_be_bytes());
    hasher.update(canonical);
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_bytes_count() {
        assert_eq!(hash(1, b"{}"), hash(1, b"{}"));
        assert_ne!(hash(1, b"{}"), hash(2, b"{}"));
        assert_ne!(hash(1, b"{}"), hash(1, b"[]"));
    }
}
