//! Signatures by the Standard Webhooks specification: HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use tidegate_core::time::Timestamp;

const PREFIX: &str = "whsec_";
/// Limit: shorter secrets can be guessed, and the specification allows no longer ones.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs with a secret, and never shows it.
#[derive(Clone)]
pub(crate) struct Signer(Vec<u8>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(***)")
    }
}

impl Signer {
    /// Parses `whsec_` and base64. The error does not contain the secret.
    pub(crate) fn new(secret: &str) -> Result<Self, String> {
        let wanted =
            || "must be whsec_ and base64 of 24 to 64 bytes, like `openssl rand -base64 32` makes".to_owned();
        let text = secret.strip_prefix(PREFIX).ok_or_else(wanted)?;
        let key = STANDARD.decode(text).map_err(|_| wanted())?;
        if SECRET_BYTES.contains(&key.len()) {
            Ok(Self(key))
        } else {
            Err(wanted())
        }
    }

    /// The value of `webhook-signature`.
    pub(crate) fn signature(&self, id: &str, at: Timestamp, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{}.", seconds(at)).as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The value of `webhook-timestamp`.
pub(crate) fn seconds(at: Timestamp) -> u64 {
    at.0 / 1_000
}

/// The id of a message: the same for all its attempts, and different from that of any other message.
pub(crate) fn message_id(kind: &str, group: &str, name: &str) -> String {
    let mut hash = Sha256::new();
    // The length separates group and name, so that no two pairs hash the same bytes.
    hash.update((group.len() as u64).to_be_bytes());
    hash.update(group.as_bytes());
    hash.update(name.as_bytes());
    format!("{kind}_{}", URL_SAFE_NO_PAD.encode(&hash.finalize()[..18]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's own example.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = signer.signature(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            Timestamp(1_614_265_330_000),
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secrets_are_checked_and_not_shown() {
        for odd in ["", "secret", "whsec_", "whsec_!!", "whsec_c2hvcnQ="] {
            let error = Signer::new(odd).unwrap_err();
            assert!(error.contains("whsec_ and base64"), "{error}");
        }
        let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(format!("{signer:?}"), "Signer(***)");
    }

    #[test]
    fn ids_are_stable_and_differ() {
        assert_eq!(message_id("job", "a", "b"), message_id("job", "a", "b"));
        assert_ne!(message_id("job", "a", "bc"), message_id("job", "ab", "c"));
    }
}
