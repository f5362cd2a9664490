//! Extracts a public key from its SubjectPublicKeyInfo: its kind, and the key as a verifier takes it.
//!
//! There are three kinds, and each has exactly one encoding, so this parses only lengths.

/// What a public key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Ed25519,
    P256,
    Rsa,
}

/// The algorithm's identifier, with its own tag and length.
const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];
const P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07,
];
const RSA: &[u8] = &[
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
/// Sizes of RSA keys that the verifier accepts: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The kind and the key: 32 bytes, an uncompressed point, or an `RSAPublicKey`. `None` if it is malformed or another
/// kind.
pub(in super::super) fn read(der: &[u8]) -> Option<(Kind, &[u8])> {
    let (inner, []) = value(SEQUENCE, der)? else {
        return None;
    };
    let kinds = [(Kind::Ed25519, ED25519), (Kind::P256, P256), (Kind::Rsa, RSA)];
    let (kind, rest) = kinds
        .into_iter()
        .find_map(|(kind, id)| Some((kind, inner.strip_prefix(id)?)))?;
    // The first byte is the number of unused bits at the end.
    let ([0, key @ ..], []) = value(BITS, rest)? else {
        return None;
    };
    let fits = match kind {
        Kind::Ed25519 => key.len() == 32,
        Kind::P256 => key.len() == 65 && key[0] == 4,
        Kind::Rsa => {
            let (numbers, _) = value(SEQUENCE, key)?;
            let (modulus, _) = value(INTEGER, numbers)?;
            let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
            RSA_BYTES.contains(&modulus.len())
        }
    };
    fits.then_some((kind, key))
}

/// The value of this tag, and the rest.
fn value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match der.strip_prefix(&[tag])? {
        [short @ 0..=0x7f, rest @ ..] => (usize::from(*short), rest),
        [0x81, length, rest @ ..] => (usize::from(*length), rest),
        [0x82, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_else_is_no_key() {
        let mut good = vec![SEQUENCE, 42];
        good.extend_from_slice(ED25519);
        good.extend_from_slice(&[BITS, 33, 0]);
        good.extend_from_slice(&[7; 32]);
        assert_eq!(read(&good), Some((Kind::Ed25519, &[7u8; 32][..])));
        for end in 0..good.len() {
            assert_eq!(read(&good[..end]), None, "{end} bytes");
        }
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(read(&longer), None);
        // The lengths and tags, changed one by one. The key itself may be anything.
        for at in 0..good.len() - 32 {
            let mut odd = good.clone();
            odd[at] ^= 1;
            assert_eq!(read(&odd), None, "byte {at}");
        }
    }
}
