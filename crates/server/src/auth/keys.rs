//! API keys: stored as hashes, compared in constant time.
//!
//! A key has 256 random bits and cannot be guessed, so a fast hash is enough.

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Caller;
use crate::config::KeyConfig;

const PREFIX: &str = "tg_";
const HASH: &str = "sha256:";
/// Limit: a longer text is not a key, and is not hashed.
const MAX_KEY_BYTES: usize = 1024;

#[derive(Default)]
pub(crate) struct Keys(Vec<(Caller, [u8; 32])>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(caller, _)| &caller.name))
            .finish()
    }
}

impl Keys {
    /// Ignores keys whose hash cannot be parsed. The check of the configuration has refused them before.
    pub(crate) fn new(keys: &[KeyConfig]) -> Self {
        let known = keys.iter().filter_map(|key| {
            let caller = Caller {
                name: key.name.clone(),
                roles: key.roles.clone(),
                groups: key.groups.clone(),
            };
            Some((caller, digest(&key.hash)?))
        });
        Self(known.collect())
    }

    /// Whether requests need a key.
    pub(crate) fn required(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the caller that the key belongs to. It compares all keys, so that the time reveals nothing.
    pub(crate) fn caller(&self, key: &str) -> Option<&Caller> {
        // Everybody knows the digest of an empty key.
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return None;
        }
        let hashed = Sha256::digest(key);
        let mut found = None;
        for (caller, known) in &self.0 {
            if bool::from(known.as_slice().ct_eq(hashed.as_slice())) {
                found = Some(caller);
            }
        }
        found
    }
}

/// The key in the headers of a request; `Err` if there is something else in its place.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<&str>, &'static str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let words = value.to_str().ok().and_then(|value| value.trim().split_once(' '));
        return match words {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(key.trim())),
            _ => Err("the header Authorization must be `Bearer <key>`"),
        };
    }
    match headers.get("x-api-key") {
        None => Ok(None),
        Some(key) => key
            .to_str()
            .map(Some)
            .map_err(|_| "the header x-api-key must hold a key in ASCII"),
    }
}

/// Parses a hash like `sha256:…`.
pub(crate) fn digest(hash: &str) -> Option<[u8; 32]> {
    let hex = hash.strip_prefix(HASH)?;
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

/// A new random key, and its hash for the configuration.
pub struct FreshKey {
    pub key: String,
    pub hash: String,
}

impl std::fmt::Debug for FreshKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FreshKey")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Generates a key with the randomness of the operating system.
pub fn fresh_key() -> std::io::Result<FreshKey> {
    let key = format!("{PREFIX}{}", super::random_text().map_err(std::io::Error::other)?);
    let hex: String = Sha256::digest(&key)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(FreshKey {
        hash: format!("{HASH}{hex}"),
        key,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_api::Role;

    use super::*;

    #[test]
    fn a_key_is_found_by_its_hash() {
        let (one, other) = (fresh_key().unwrap(), fresh_key().unwrap());
        assert_ne!(one.key, other.key);
        assert_eq!(one.key.len(), 3 + 43);
        assert!(!format!("{one:?}").contains(&one.key));
        let config = |name: &str, hash: &str| KeyConfig {
            name: name.into(),
            hash: hash.into(),
            roles: vec![Role::Read],
            groups: Vec::new(),
        };
        let nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let keys = Keys::new(&[
            config("nobody", nothing),
            config("one", &one.hash),
            config("other", &other.hash.to_uppercase().replace("SHA", "sha")),
        ]);
        assert_eq!(keys.caller(&one.key).unwrap().name, "one");
        assert_eq!(keys.caller(&other.key).unwrap().name, "other");
        for wrong in ["", "tg_", &one.hash, &one.key[..45], &"x".repeat(2_000)] {
            assert_eq!(keys.caller(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_digest_has_64_hex_digits() {
        assert!(digest(&format!("sha256:{}", "0f".repeat(32))).is_some());
        for wrong in [
            "",
            "sha256:",
            &"0f".repeat(32),
            &format!("sha256:{}", "+f".repeat(32)),
            "sha256:é",
        ] {
            assert_eq!(digest(wrong), None, "{wrong}");
        }
    }
}
