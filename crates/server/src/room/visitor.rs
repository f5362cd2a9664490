//! Who a visitor is: one browser, known by a cookie, or somebody whom the shop names in a token that it signed.
//!
//! Either way the store sees a hash only. It has the room in it, so that nobody can be followed from room to room.

use std::fmt;
use std::path::PathBuf;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::time::Timestamp;

use super::identity_cookie::IdentityCookie;
use super::jwt::{self, Parts, encoded};
use super::spki::{self, Kind};
use crate::config::Secret;

const COOKIE: &str = "tidegate_place";
/// A browser takes a cookie of this name from HTTPS only, for this host only.
const SECURE_COOKIE: &str = "__Host-tidegate_place";
/// How long a browser keeps its place in mind: a day.
const COOKIE_SECONDS: u64 = 86_400;
/// What is hashed begins with one of these, so that no browser can be somebody whom the shop names.
const BROWSER: &str = "tidegate browser";
const NAMED: &str = "tidegate named";
/// Of a hash, as a person: 144 bits, which makes 24 characters.
const PERSON_BYTES: usize = 18;
/// Limit: a shorter secret can be guessed from one token.
pub(crate) const MIN_SECRET_BYTES: usize = 32;
/// The shop's clock may be so many seconds ahead of ours.
const EARLY_SECONDS: f64 = 60.0;

/// What one browser is known by. It is not shown, and not kept.
///
/// Nothing is signed in it: whoever makes one up is a new visitor like any other, and nobody guesses another's.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Browser([u8; 32]);

impl fmt::Debug for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Browser(***)")
    }
}

impl Browser {
    /// One that has not been here.
    pub(crate) fn fresh() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The one that the request's cookie names; none if there is no cookie, or one that we never gave. With `tls`
    /// only a cookie counts that no page of another host could have set.
    pub(crate) fn of(headers: &HeaderMap, tls: bool) -> Option<Self> {
        let all = headers.get_all(header::COOKIE).iter();
        let pairs = all
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let mut found = None;
        for (name, value) in pairs {
            let known = || URL_SAFE_NO_PAD.decode(value).ok()?.try_into().ok().map(Self);
            match name {
                SECURE_COOKIE => {
                    if let Some(browser) = known() {
                        return Some(browser);
                    }
                }
                COOKIE if !tls && found.is_none() => found = known(),
                _ => {}
            }
        }
        found
    }

    /// The value of `Set-Cookie`. `secure`: the browser reached us by HTTPS.
    pub(crate) fn cookie(&self, secure: bool) -> HeaderValue {
        let (name, secure) = if secure {
            (SECURE_COOKIE, "; Secure")
        } else {
            (COOKIE, "")
        };
        let value = encoded(self.0);
        // Lax: a link to the waiting page from elsewhere finds the place again.
        let cookie =
            format!("{name}={value}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::try_from(cookie).expect("base64 and plain words")
    }

    /// Who it is in this room.
    pub(crate) fn person(&self, room: &RoomId) -> PersonId {
        hashed(BROWSER, room, &self.0)
    }
}

/// Who is meant by a name of the shop's in this room. A shop can work it out as well: see `examples/shop`.
pub(crate) fn named(room: &RoomId, sub: &str) -> PersonId {
    hashed(NAMED, room, sub.as_bytes())
}

fn hashed(word: &str, room: &RoomId, who: &[u8]) -> PersonId {
    let mut hash = Sha256::new();
    hash.update(word);
    // With its length, so that no room and name are written like another pair.
    hash.update((room.as_str().len() as u64).to_be_bytes());
    hash.update(room.as_str());
    hash.update(who);
    PersonId::new(encoded(&hash.finalize()[..PERSON_BYTES])).expect("24 characters are a name")
}

/// One key of the shop: `secret` or `public_key`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShopKeyConfig {
    /// Signs with HS256: at least 32 bytes, as `openssl rand -base64 32` makes them.
    pub secret: Option<Secret>,
    /// A PEM file (`BEGIN PUBLIC KEY`): Ed25519 for EdDSA, P-256 for ES256, RSA from 2048 bits for RS256.
    pub public_key: Option<PathBuf>,
}

/// Why a token of the shop is not taken. The texts are for whoever builds the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefused {
    #[error("the token is longer than 4096 bytes: put `sub`, `aud` and `exp` into it, and little else")]
    TooLong,
    #[error("this is not a signed token: send a JWT with the claims `sub`, `aud` and `exp`")]
    Malformed,
    #[error("the token is signed with another algorithm than the room's keys are for")]
    WrongAlgorithm,
    #[error("invalid signature: the token was signed with another key, or changed")]
    Forged,
    #[error("the token does not say when it ends: give it the claim `exp`")]
    NoEnd,
    #[error("the token has expired: the shop has to give another one")]
    Expired,
    #[error("the token is not valid yet: compare the clocks")]
    NotYetValid,
    #[error("the token is for another room: its claim `aud` must name this one")]
    ForeignRoom,
    #[error("the token does not say whom it is for: give it the claim `sub`")]
    NoSubject,
}

/// The keys that a shop signs its visitors' tokens with; several while one replaces another.
pub(crate) struct ShopKeys(Vec<ShopKey>);

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
    /// Reads the files; the error says which setting of `what` cannot be used, and tells no secret.
    pub(crate) fn open(what: &str, keys: &[ShopKeyConfig]) -> Result<Self, String> {
        let open = |key: &ShopKeyConfig| match (&key.secret, &key.public_key) {
            (Some(secret), None) if secret.len() >= MIN_SECRET_BYTES => Ok(ShopKey::Shared(secret.clone())),
            (Some(secret), None) => Err(format!(
                "{what}: the secret has {} bytes, and can be guessed; it needs {MIN_SECRET_BYTES}, as \
                 `openssl rand -base64 32` makes them",
                secret.len()
            )),
            (None, Some(file)) => {
                let told = |error: &dyn fmt::Display| format!("{what}: {}: {error}", file.display());
                let der = SubjectPublicKeyInfoDer::from_pem_file(file).map_err(|error| told(&error))?;
                let (kind, key) = spki::read(&der).ok_or_else(|| {
                    told(&"no public key of Ed25519, of P-256 or of RSA with 2048 to 8192 bits")
                })?;
                Ok(ShopKey::Public(kind, key.to_vec()))
            }
            _ => Err(format!("{what}: give either a secret or a public_key")),
        };
        keys.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are any: otherwise the room knows browsers only.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whom this token names, and until when it holds. That may be over: what a token is worth then depends on what else
    /// the visitor brings.
    pub(crate) fn named(
        &self,
        token: &str,
        room: &RoomId,
        now: Timestamp,
    ) -> Result<IdentityCookie, TokenRefused> {
        if token.len() > jwt::MAX_BYTES {
            return Err(TokenRefused::TooLong);
        }
        let parts = Parts::of(token).ok_or(TokenRefused::Malformed)?;
        // Keys are asked whether they are for the token's algorithm; the token does not choose what is done with a key.
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
mod tests {
    use std::process::Command;

    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    };
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const NOW: Timestamp = Timestamp(1_772_357_400_000);
    const GOOD: &str = r#"{"sub":"ada","aud":"concert","exp":1772357401}"#;

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    fn with(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        headers
    }

    #[test]
    fn a_browser_keeps_who_it_is() {
        let browser = Browser::fresh().unwrap();
        assert_ne!(browser, Browser::fresh().unwrap());
        let plain = browser.cookie(false).to_str().unwrap().to_owned();
        let secure = browser.cookie(true).to_str().unwrap().to_owned();
        assert!(plain.starts_with("tidegate_place=") && !plain.contains("Secure"));
        assert!(plain.ends_with("; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax"));
        assert!(secure.starts_with("__Host-tidegate_place="));
        assert!(secure.ends_with("; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax; Secure"));
        let (plain, secure) = (
            plain.split(';').next().unwrap(),
            secure.split(';').next().unwrap(),
        );
        assert_eq!(
            Browser::of(&with(&format!("a=b; {plain}")), false),
            Some(browser.clone())
        );
        assert_eq!(Browser::of(&with(plain), true), None, "not with TLS");
        let both = format!(
            "{}; {secure}",
            Browser::fresh().unwrap().cookie(false).to_str().unwrap()
        );
        assert_eq!(Browser::of(&with(&both), false), Some(browser.clone()));
        assert_eq!(Browser::of(&with(secure), true), Some(browser.clone()));
        assert!(!format!("{browser:?}").contains(&encoded(browser.0)));
    }

    #[test]
    fn a_cookie_that_we_never_gave_is_no_cookie() {
        let good = encoded([7; 32]);
        for odd in [
            "",
            "guess",
            &good[..42],
            &format!("{good}A"),
            &format!("{good}="),
            &"A".repeat(5_000),
        ] {
            assert_eq!(
                Browser::of(&with(&format!("tidegate_place={odd}")), false),
                None,
                "{odd}"
            );
        }
        let behind = format!("tidegate_place=odd; tidegate_place={good}");
        assert!(Browser::of(&with(&behind), false).is_some());
        assert_eq!(Browser::of(&HeaderMap::new(), false), None);
    }

    #[test]
    fn a_person_is_one_in_one_room_only() {
        let browser = Browser([7; 32]);
        let here = browser.person(&room("concert"));
        assert_eq!(here, browser.person(&room("concert")));
        assert_eq!(here.as_str().len(), 24);
        assert!(!here.as_str().contains(&encoded(browser.0)[..8]));
        assert_ne!(here, browser.person(&room("theatre")));
        assert_ne!(named(&room("a"), "bc"), named(&room("ab"), "c"));
        // A browser whose cookie is made of somebody's name is not that person.
        let name = std::str::from_utf8(&browser.0).unwrap();
        assert_ne!(here, named(&room("concert"), name));
        // What `examples/shop` says.
        assert_eq!(
            named(&room("concert"), "ada").as_str(),
            "WOcpodrTR6mtPk9xMN3BIlFK"
        );
    }

    fn token(algorithm: &str, claims: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#);
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        format!("{signed}.{}", encoded(sign(signed.as_bytes())))
    }

    fn hs256(secret: &[u8], claims: &str) -> String {
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

    /// Keys as shops have them: made by OpenSSL.
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
