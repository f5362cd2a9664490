//! Tokens that a shop signs for its visitors.

use std::fmt;
use std::path::PathBuf;

use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tidegate_core::ids::RoomId;
use tidegate_core::secret::Secret;
use tidegate_core::time::Timestamp;

use super::cookie::IdentityCookie;
use super::named;
use super::public_key::{self, Kind};
use crate::room::jwt::{self, Parts};

/// Limit: an attacker could guess a shorter secret from one token.
pub const MIN_SECRET_BYTES: usize = 32;
/// How far the shop's clock may be ahead of ours, in seconds.
const EARLY_SECONDS: f64 = 60.0;

/// One key of the shop: `secret` or `public_key`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShopKeyConfig {
    /// A secret for HS256: at least 32 bytes, like the output of `openssl rand -base64 32`.
    pub secret: Option<Secret>,
    /// A PEM file (`BEGIN PUBLIC KEY`): Ed25519 for EdDSA, P-256 for ES256, RSA from 2048 bits for RS256.
    pub public_key: Option<PathBuf>,
}

/// Why a shop's token is rejected. The texts are for the shop's developers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    #[error("the token is longer than 4096 bytes; it needs `sub`, `aud` and `exp`, and little else")]
    TooLong,
    #[error("not a signed token; send a JWT with the claims `sub`, `aud` and `exp`")]
    Malformed,
    #[error("the algorithm of the token matches none of the room's keys")]
    WrongAlgorithm,
    #[error("invalid signature: the token was signed with another key, or changed")]
    Forged,
    #[error("the token has no expiry; add the claim `exp`")]
    NoEnd,
    #[error("the token has expired; the shop has to issue another one")]
    Expired,
    #[error("the token is not valid yet; compare the clocks")]
    NotYetValid,
    #[error("the token is for another room; its claim `aud` must name this one")]
    ForeignRoom,
    #[error("the token names no visitor; add the claim `sub`")]
    NoSubject,
}

/// The keys with which a shop signs its visitors' tokens; several during a key rotation.
pub struct ShopKeys(Vec<ShopKey>);

enum ShopKey {
    Shared(Secret),
    Public(Kind, Vec<u8>),
}

impl fmt::Debug for ShopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms = self.0.iter().map(ShopKey::algorithm);
        f.debug_list().entries(algorithms).finish()
    }
}

impl ShopKeys {
    /// Reads the files; the error says which setting of `what` cannot be used, and contains no secret.
    pub fn open(what: &str, keys: &[ShopKeyConfig]) -> Result<Self, String> {
        let open = |key: &ShopKeyConfig| match (&key.secret, &key.public_key) {
            (Some(secret), None) if secret.len() >= MIN_SECRET_BYTES => Ok(ShopKey::Shared(secret.clone())),
            (Some(secret), None) => Err(format!(
                "{what}: the secret has {} bytes, and can be guessed; it needs {MIN_SECRET_BYTES}, as \
                 `openssl rand -base64 32` makes them",
                secret.len()
            )),
            (None, Some(file)) => {
                let failed = |error: &dyn fmt::Display| format!("{what}: {}: {error}", file.display());
                let der = SubjectPublicKeyInfoDer::from_pem_file(file).map_err(|error| failed(&error))?;
                let (kind, key) = public_key::read(&der).ok_or_else(|| {
                    failed(&"no public key of Ed25519, of P-256 or of RSA with 2048 to 8192 bits")
                })?;
                Ok(ShopKey::Public(kind, key.to_vec()))
            }
            _ => Err(format!("{what}: give either a secret or a public_key")),
        };
        keys.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are none: then visitors are browsers only.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The person whom this token names, and until when it is valid. It may have expired: the caller decides what an
    /// expired token allows.
    pub fn named(&self, token: &str, room: &RoomId, now: Timestamp) -> Result<IdentityCookie, TokenRefused> {
        if token.len() > jwt::MAX_BYTES {
            return Err(TokenRefused::TooLong);
        }
        let parts = Parts::of(token).ok_or(TokenRefused::Malformed)?;
        // A key decides whether it fits the token's algorithm; the token does not choose how a key is used.
        let fitting = || self.0.iter().filter(|key| key.algorithm() == parts.header.alg);
        if fitting().next().is_none() {
            return Err(TokenRefused::WrongAlgorithm);
        }
        if !fitting().any(|key| key.signed(&parts)) {
            return Err(TokenRefused::Forged);
        }
        let claims: Claims = serde_json::from_slice(&parts.claims).map_err(|_| TokenRefused::Malformed)?;
        let now = now.0 as f64 / 1_000.0;
        let end = claims.exp.ok_or(TokenRefused::NoEnd)?;
        if claims.nbf.is_some_and(|from| from > now + EARLY_SECONDS) {
            return Err(TokenRefused::NotYetValid);
        }
        if !claims.aud.is_some_and(|rooms| rooms.name(room)) {
            return Err(TokenRefused::ForeignRoom);
        }
        let sub = claims.sub.filter(|sub| !sub.is_empty());
        Ok(IdentityCookie {
            person: named(room, &sub.ok_or(TokenRefused::NoSubject)?),
            // Whole milliseconds, and never so many that they wrap: a cast stops at the largest number.
            until: Timestamp((end * 1_000.0) as u64),
        })
    }
}

impl ShopKey {
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Shared(_) => "HS256",
            Self::Public(Kind::Ed25519, _) => "EdDSA",
            Self::Public(Kind::P256, _) => "ES256",
            Self::Public(Kind::Rsa, _) => "RS256",
        }
    }

    fn signed(&self, parts: &Parts<'_>) -> bool {
        let (kind, key) = match self {
            Self::Shared(secret) => {
                let mut mac =
                    Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
                mac.update(parts.signed);
                // In constant time.
                return mac.verify_slice(&parts.signature).is_ok();
            }
            Self::Public(kind, key) => (kind, key),
        };
        let algorithm: &'static dyn VerificationAlgorithm = match kind {
            Kind::Ed25519 => &ED25519,
            Kind::P256 => &ECDSA_P256_SHA256_FIXED,
            Kind::Rsa => &RSA_PKCS1_2048_8192_SHA256,
        };
        let key = UnparsedPublicKey::new(algorithm, key);
        key.verify(parts.signed, &parts.signature).is_ok()
    }
}

#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    aud: Option<Rooms>,
    exp: Option<f64>,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rooms {
    One(String),
    Several(Vec<String>),
}

impl Rooms {
    fn name(&self, room: &RoomId) -> bool {
        match self {
            Self::One(one) => one == room.as_str(),
            Self::Several(several) => several.iter().any(|one| one == room.as_str()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::process::Command;

    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    };
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use crate::room::jwt::encoded;

    pub(in crate::room::identity) const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const NOW: Timestamp = Timestamp(1_772_357_400_000);
    const GOOD: &str = r#"{"sub":"ada","aud":"concert","exp":1772357401}"#;

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    fn token(algorithm: &str, claims: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#);
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        format!("{signed}.{}", encoded(sign(signed.as_bytes())))
    }

    pub(in crate::room::identity) fn hs256(secret: &[u8], claims: &str) -> String {
        token("HS256", claims, |signed| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
            mac.update(signed);
            mac.finalize().into_bytes().to_vec()
        })
    }

    fn shared() -> ShopKeys {
        let key = |secret: &str| ShopKeyConfig {
            secret: Some(secret.into()),
            public_key: None,
        };
        let keys = [key("another secret, that is being replaced"), key(SECRET)];
        ShopKeys::open("rooms.concert.shop_keys", &keys).unwrap()
    }

    #[test]
    fn the_shop_says_who_comes() {
        let keys = shared();
        let person = |claims: &str| {
            keys.named(&hs256(SECRET.as_bytes(), claims), &room("concert"), NOW)
                .map(|kept| kept.person)
        };
        let ada = Ok(named(&room("concert"), "ada"));
        assert_eq!(person(GOOD), ada);
        assert_eq!(
            person(r#"{"sub":"ada","aud":["x","concert"],"exp":1772357400.5,"name":"A"}"#),
            ada
        );
        assert_eq!(
            person(r#"{"sub":"ada","aud":"concert","exp":1e12,"nbf":1772357460}"#),
            ada
        );
        for (claims, refused) in [
            (r#"{"sub":"ada","aud":"concert"}"#, TokenRefused::NoEnd),
            (
                r#"{"sub":"ada","aud":"concert","exp":1e12,"nbf":1772357461}"#,
                TokenRefused::NotYetValid,
            ),
            (
                r#"{"sub":"ada","aud":"theatre","exp":1e12}"#,
                TokenRefused::ForeignRoom,
            ),
            (r#"{"sub":"ada","aud":[],"exp":1e12}"#, TokenRefused::ForeignRoom),
            (r#"{"sub":"ada","exp":1e12}"#, TokenRefused::ForeignRoom),
            (r#"{"aud":"concert","exp":1e12}"#, TokenRefused::NoSubject),
            (
                r#"{"sub":"","aud":"concert","exp":1e12}"#,
                TokenRefused::NoSubject,
            ),
            (r#"{"sub":7,"aud":"concert","exp":1e12}"#, TokenRefused::Malformed),
            ("ada", TokenRefused::Malformed),
        ] {
            assert_eq!(person(claims), Err(refused), "{claims}");
        }
        for (exp, until) in [
            ("1772357400", NOW.0),
            ("1772357400.5", NOW.0 + 500),
            ("-1", 0),
            ("1e300", u64::MAX),
        ] {
            let claims = format!(r#"{{"sub":"ada","aud":"concert","exp":{exp}}}"#);
            let kept = keys.named(&hs256(SECRET.as_bytes(), &claims), &room("concert"), NOW);
            assert_eq!(kept.unwrap().until, Timestamp(until), "{exp}");
        }
        let refused = |token: &str| keys.named(token, &room("concert"), NOW).unwrap_err();
        assert_eq!(
            refused(&hs256(b"0123456789abcdef0123456789abcdeF", GOOD)),
            TokenRefused::Forged
        );
        assert_eq!(
            refused(&token("HS256", GOOD, |_| Vec::new())),
            TokenRefused::Forged
        );
        for algorithm in ["none", "hs256", "EdDSA", "HS512", "RS256"] {
            let token = token(algorithm, GOOD, |_| Vec::new());
            assert_eq!(refused(&token), TokenRefused::WrongAlgorithm, "{algorithm}");
        }
        assert_eq!(refused(&"A".repeat(4_097)), TokenRefused::TooLong);
        assert_eq!(refused("ada"), TokenRefused::Malformed);
    }

    /// Keys as shops have them, from OpenSSL.
    #[test]
    fn public_keys_of_every_kind_are_taken_for_their_algorithm_only() {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |arguments: &[&str]| {
            let status = Command::new("openssl")
                .args(arguments)
                .current_dir(&folder)
                .output()
                .unwrap();
            assert!(status.status.success(), "{arguments:?}");
        };
        let all = [
            ("EdDSA", &["-algorithm", "ed25519"][..]),
            (
                "ES256",
                &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            ),
            (
                "RS256",
                &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            ),
        ];
        let mut made = Vec::new();
        for (algorithm, how) in all {
            openssl(&[&["genpkey", "-out", "private.pem"], how].concat());
            let public = format!("{algorithm}.pem");
            openssl(&["pkey", "-in", "private.pem", "-pubout", "-out", &public]);
            let private = PrivatePkcs8KeyDer::from_pem_file(folder.path().join("private.pem")).unwrap();
            let der = private.secret_pkcs8_der();
            let random = SystemRandom::new();
            let token = token(algorithm, GOOD, |signed| match algorithm {
                "EdDSA" => {
                    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).unwrap();
                    key.sign(signed).as_ref().to_vec()
                }
                "ES256" => {
                    let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
                    let key = EcdsaKeyPair::from_pkcs8(kind, der, &random).unwrap();
                    key.sign(&random, signed).unwrap().as_ref().to_vec()
                }
                _ => {
                    let key = RsaKeyPair::from_pkcs8(der).unwrap();
                    let mut signature = vec![0; key.public().modulus_len()];
                    key.sign(&RSA_PKCS1_SHA256, &random, signed, &mut signature)
                        .unwrap();
                    signature
                }
            });
            let key = ShopKeyConfig {
                secret: None,
                public_key: Some(folder.path().join(&public)),
            };
            let text = std::fs::read(folder.path().join(public)).unwrap();
            made.push((algorithm, ShopKeys::open("shop", &[key]).unwrap(), token, text));
        }
        for (algorithm, keys, own, public) in &made {
            assert_eq!(format!("{keys:?}"), format!("[{algorithm:?}]"));
            for (other, _, token, _) in &made {
                let person = keys.named(token, &room("concert"), NOW).map(|kept| kept.person);
                let wanted = match algorithm == other {
                    true => Ok(named(&room("concert"), "ada")),
                    false => Err(TokenRefused::WrongAlgorithm),
                };
                assert_eq!(person, wanted, "{algorithm} {other}");
            }
            let mut changed = own.clone();
            let last = if changed.pop() == Some('A') { 'Q' } else { 'A' };
            changed.push(last);
            assert_eq!(
                keys.named(&changed, &room("concert"), NOW),
                Err(TokenRefused::Forged)
            );
            // The public key, which everybody has, as a shared secret.
            let confused = keys.named(&hs256(public, GOOD), &room("concert"), NOW);
            assert_eq!(confused, Err(TokenRefused::WrongAlgorithm));
        }
    }

    #[test]
    fn settings_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.pem");
        std::fs::write(
            &file,
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        )
        .unwrap();
        let refused = |secret: Option<&str>, public_key: Option<PathBuf>| {
            let key = ShopKeyConfig {
                secret: secret.map(Secret::from),
                public_key,
            };
            ShopKeys::open("rooms.concert.shop_keys", &[key]).unwrap_err()
        };
        let error = refused(Some("hunter2"), None);
        assert!(
            error.starts_with("rooms.concert.shop_keys: the secret has 7 bytes"),
            "{error}"
        );
        assert!(!error.contains("hunter2"));
        assert!(refused(None, None).contains("give either"));
        assert!(refused(Some(SECRET), Some(file.clone())).contains("give either"));
        assert!(refused(None, Some(file)).contains("no public key of Ed25519"));
        assert!(refused(None, Some(folder.path().join("no.pem"))).contains("no.pem: "));
        assert!(ShopKeys::open("shop", &[]).unwrap().is_empty());
    }
}
