//! A pass: the signed proof that a person was admitted. It is a JWT with an Ed25519 signature, bound to a room and a
//! person, which a shop can verify by itself.
//!
//! A pass contains only what the store has of the ticket, so the same ticket and key always give the same text. Only the
//! store knows whether it was redeemed or voided.

use std::fmt;
use std::path::Path;

use ring::signature::{ED25519, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::ticket::{Index, Wave};
use tidegate_core::time::Timestamp;

use super::keys::{Key, Keys, PassKeysConfig, load};
use crate::room::jwt::{self, Parts, encoded};

const ALGORITHM: &str = "EdDSA";
/// How far a shop's clock may be behind ours, in seconds: visitors present a pass at once.
const EARLY_SECONDS: u64 = 30;

/// The claims of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    pub person: PersonId,
    /// The room's incarnation, which distinguishes it from a lost room of the same name.
    pub incarnation: u64,
    pub wave: Wave,
    pub index: Index,
    /// When the person was admitted.
    pub at: Timestamp,
    /// Until when the pass can be redeemed. The pass rounds it up to a second: an offline check rejects nobody whom this
    /// service would accept, and here the store decides.
    pub until: Timestamp,
}

/// Why a pass is rejected. The texts are for the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassRefused {
    #[error("not a pass; send the token unchanged, as the visitor presented it")]
    Malformed,
    #[error("the algorithm of the pass is not EdDSA")]
    WrongAlgorithm,
    #[error(
        "this service does not have the key of the pass; another service issued it, or the key was removed"
    )]
    UnknownKey,
    #[error("invalid signature: the pass was forged or changed")]
    BadSignature,
    #[error("the pass was issued by another service")]
    ForeignIssuer,
    #[error("the pass is for another room")]
    ForeignRoom,
    #[error("the pass has expired; the visitor has to queue again")]
    Expired,
    #[error("the pass is not valid yet; compare the clocks")]
    NotYetValid,
}

/// The claims as JSON; the order of the fields is the order in the text.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    iss: String,
    aud: String,
    sub: String,
    /// `<incarnation in hex>.<wave>.<index>`: unique among the passes of one service.
    jti: String,
    iat: u64,
    nbf: u64,
    exp: u64,
    wave: u64,
    index: u64,
}

/// Signs passes, and verifies those that it signed.
pub struct Signer {
    issuer: String,
    keys: Keys,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.all.iter().map(|key| &key.id);
        f.debug_list().entries(ids).finish()
    }
}

impl Signer {
    /// Loads the keys, and creates one if there is none. Reads files; an error names the unusable one.
    pub fn open(config: &PassKeysConfig, data: &Path) -> Result<Self, String> {
        if config.issuer.is_empty() {
            return Err("issuer = \"\": it must be a name, like \"tidegate\"".into());
        }
        Ok(Self {
            issuer: config.issuer.clone(),
            keys: load(config, data)?,
        })
    }

    fn active(&self) -> &Key {
        self.keys.active()
    }

    /// The pass for these claims; the same text every time.
    pub fn sign(&self, room: &RoomId, claims: &Claims) -> String {
        let (wave, index) = (claims.wave.0, claims.index.0);
        let iat = claims.at.0 / 1_000;
        let written = Written {
            iss: self.issuer.clone(),
            aud: room.to_string(),
            sub: claims.person.to_string(),
            jti: format!("{:x}.{wave}.{index}", claims.incarnation),
            iat,
            nbf: iat.saturating_sub(EARLY_SECONDS),
            exp: claims.until.0.div_ceil(1_000),
            wave,
            index,
        };
        let header = format!(
            r#"{{"alg":"{ALGORITHM}","typ":"JWT","kid":"{}"}}"#,
            self.active().id
        );
        let claims = serde_json::to_vec(&written).expect("texts and numbers have a form in JSON");
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.active().pair.sign(signed.as_bytes());
        format!("{signed}.{}", encoded(signature))
    }

    /// Whose pass it is, expired or not. For people inside, whose visit may outlast the pass. And for redeeming, where
    /// the store knows the time.
    pub fn identify(&self, token: &str, room: &RoomId) -> Result<Claims, PassRefused> {
        self.read(token, room).map(|(claims, _)| claims)
    }

    /// Whose pass it is, if it is valid now.
    pub fn verify(&self, token: &str, room: &RoomId, now: Timestamp) -> Result<Claims, PassRefused> {
        let (claims, from) = self.read(token, room)?;
        if now < from {
            return Err(PassRefused::NotYetValid);
        }
        if now >= claims.until {
            return Err(PassRefused::Expired);
        }
        Ok(claims)
    }

    /// The claims, and from when they are valid.
    fn read(&self, token: &str, room: &RoomId) -> Result<(Claims, Timestamp), PassRefused> {
        if token.len() > jwt::MAX_BYTES {
            return Err(PassRefused::Malformed);
        }
        let parts = Parts::of(token).ok_or(PassRefused::Malformed)?;
        if parts.header.alg != ALGORITHM {
            return Err(PassRefused::WrongAlgorithm);
        }
        let kid = parts.header.kid.as_deref();
        let key = self.keys.all.iter().find(|key| Some(key.id.as_str()) == kid);
        let key = key.ok_or(PassRefused::UnknownKey)?;
        UnparsedPublicKey::new(&ED25519, key.pair.public_key().as_ref())
            .verify(parts.signed, &parts.signature)
            .map_err(|_| PassRefused::BadSignature)?;
        let written: Written = serde_json::from_slice(&parts.claims).map_err(|_| PassRefused::Malformed)?;
        if written.iss != self.issuer {
            return Err(PassRefused::ForeignIssuer);
        }
        if written.aud != room.as_str() {
            return Err(PassRefused::ForeignRoom);
        }
        let from = Timestamp(written.nbf.saturating_mul(1_000));
        Ok((claims(written).ok_or(PassRefused::Malformed)?, from))
    }

    /// The public keys as a JWK Set, for shops that verify passes by themselves.
    pub fn jwks(&self) -> Value {
        let jwk = |key: &Key| {
            json!({
                "kty": "OKP", "crv": "Ed25519", "x": key.x, "kid": key.id, "use": "sig", "alg": ALGORITHM,
            })
        };
        json!({ "keys": self.keys.all.iter().map(jwk).collect::<Vec<_>>() })
    }

    /// Secrets that only processes with the same keys have, different for every purpose. The first one signs, all of them
    /// verify, so a key can be rotated while visitors wait.
    pub fn secrets_for(&self, purpose: &str) -> Vec<[u8; 32]> {
        self.keys.all.iter().map(|key| secret(key, purpose)).collect()
    }

    /// The secret behind the draws of a room. It comes from the oldest key, so it does not change when another key signs.
    /// What was published of a draw before the opening must stay true after it.
    pub fn draw_secret(&self, room: &RoomId) -> [u8; 32] {
        secret(self.keys.oldest(), &format!("draw {room}"))
    }
}

fn secret(key: &Key, purpose: &str) -> [u8; 32] {
    // No token contains a zero byte, so none has this signature, and the signature itself stays secret.
    let signature = key.pair.sign(format!("tidegate secret\0{purpose}").as_bytes());
    Sha256::digest(signature).into()
}

fn claims(written: Written) -> Option<Claims> {
    let incarnation = written
        .jti
        .strip_suffix(&format!(".{}.{}", written.wave, written.index))?;
    Some(Claims {
        person: PersonId::new(&written.sub).ok()?,
        incarnation: u64::from_str_radix(incarnation, 16).ok()?,
        wave: Wave(written.wave),
        index: Index(written.index),
        at: Timestamp(written.iat.saturating_mul(1_000)),
        until: Timestamp(written.exp.saturating_mul(1_000)),
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use hmac::{Hmac, KeyInit, Mac};

    use super::*;

    const AT: u64 = 1_772_357_400_000;

    fn signer() -> (Signer, tempfile::TempDir) {
        let data = tempfile::tempdir().unwrap();
        let signer = Signer::open(&PassKeysConfig::default(), data.path()).unwrap();
        (signer, data)
    }

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    fn granted() -> Claims {
        Claims {
            person: PersonId::new("somebody").unwrap(),
            incarnation: 0xbeef,
            wave: Wave(3),
            index: Index(42),
            at: Timestamp(AT),
            until: Timestamp(AT + 300_000),
        }
    }

    /// A token with this header and these claims, signed by the service's own key.
    fn signed(signer: &Signer, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature = encoded(signer.active().pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    #[test]
    fn a_pass_says_who_was_let_in_where_and_until_when() {
        let (signer, _data) = signer();
        let pass = signer.sign(&room("concert"), &granted());
        assert_eq!(pass, signer.sign(&room("concert"), &granted()), "the same text");
        let read = signer.verify(&pass, &room("concert"), Timestamp(AT));
        assert_eq!(read, Ok(granted()));
        let claims = pass.split('.').nth(1).unwrap();
        let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        assert_eq!(
            claims,
            r#"{"iss":"tidegate","aud":"concert","sub":"somebody","jti":"beef.3.42","iat":1772357400,"nbf":1772357370,"exp":1772357700,"wave":3,"index":42}"#
        );
    }

    #[test]
    fn it_holds_from_half_a_minute_before_until_its_last_second_is_over() {
        let (signer, _data) = signer();
        let verify = |until: u64, now: u64| {
            let until = Timestamp(until);
            let pass = signer.sign(&room("concert"), &Claims { until, ..granted() });
            signer.verify(&pass, &room("concert"), Timestamp(now)).map(|_| ())
        };
        assert_eq!(verify(AT + 1_000, AT - 30_001), Err(PassRefused::NotYetValid));
        assert_eq!(verify(AT + 1_000, AT - 30_000), Ok(()));
        assert_eq!(verify(AT + 1_000, AT + 999), Ok(()));
        assert_eq!(verify(AT + 1_000, AT + 1_000), Err(PassRefused::Expired));
        assert_eq!(verify(AT + 1, AT + 999), Ok(()), "rounded up");
        assert_eq!(verify(u64::MAX, AT), Ok(()));
        let pass = signer.sign(&room("concert"), &granted());
        assert!(signer.identify(&pass, &room("concert")).is_ok());
    }

    #[test]
    fn whatever_is_not_ours_is_refused() {
        let (signer, _data) = signer();
        let (other, _other_data) = self::signer();
        let refused = |token: &str| {
            signer
                .verify(token, &room("concert"), Timestamp(AT))
                .map(|_| ())
                .unwrap_err()
        };
        let pass = signer.sign(&room("concert"), &granted());
        let kid = &signer.active().id;
        let claims = pass.split('.').nth(1).unwrap();
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        let header = format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#);
        assert_eq!(
            signer.verify(&signed(&signer, &header, &text), &room("concert"), Timestamp(AT)),
            Ok(granted())
        );

        assert_eq!(refused(""), PassRefused::Malformed);
        assert_eq!(refused("a.b.c"), PassRefused::Malformed);
        assert_eq!(
            refused(&format!("{pass}{}", "A".repeat(5_000))),
            PassRefused::Malformed
        );
        assert_eq!(refused(&signed(&signer, &header, "{}")), PassRefused::Malformed);
        let odd = text.replace("beef.3.42", "beef.3.43");
        assert_eq!(refused(&signed(&signer, &header, &odd)), PassRefused::Malformed);
        assert_eq!(
            refused(&other.sign(&room("concert"), &granted())),
            PassRefused::UnknownKey
        );
        assert_eq!(
            refused(&signed(&signer, r#"{"alg":"EdDSA"}"#, &text)),
            PassRefused::UnknownKey
        );
        assert_eq!(
            refused(&signed(&other, &header, &text)),
            PassRefused::BadSignature
        );
        let unsigned = &pass[..pass.rfind('.').unwrap() + 1];
        assert_eq!(refused(unsigned), PassRefused::BadSignature);
        let longer = pass.replace(claims, &encoded(text.replace("\"index\":42", "\"index\":1")));
        assert_eq!(refused(&longer), PassRefused::BadSignature);
        let foreign = signer.sign(&room("theatre"), &granted());
        assert_eq!(refused(&foreign), PassRefused::ForeignRoom);
        let issued = text.replace("tidegate", "somebody");
        assert_eq!(
            refused(&signed(&signer, &header, &issued)),
            PassRefused::ForeignIssuer
        );
    }

    #[test]
    fn the_token_does_not_choose_its_algorithm() {
        let (signer, _data) = signer();
        let claims = signer.sign(&room("concert"), &granted());
        let claims = claims.split('.').nth(1).unwrap();
        let kid = &signer.active().id;
        let x = URL_SAFE_NO_PAD.decode(&signer.active().x).unwrap();
        for algorithm in ["none", "None", "", "HS256", "ES256", "RS256", "eddsa"] {
            let header = encoded(format!(r#"{{"alg":"{algorithm}","kid":"{kid}"}}"#));
            let signed = format!("{header}.{claims}");
            // The public key as a shared secret: a verifier that follows the header would accept it.
            let mut mac = Hmac::<Sha256>::new_from_slice(&x).unwrap();
            mac.update(signed.as_bytes());
            for signature in [String::new(), encoded(mac.finalize().into_bytes())] {
                let refused = signer.identify(&format!("{signed}.{signature}"), &room("concert"));
                assert_eq!(refused, Err(PassRefused::WrongAlgorithm), "{algorithm}");
            }
        }
    }

    #[test]
    fn a_key_that_was_replaced_still_verifies() {
        let data = tempfile::tempdir().unwrap();
        let mut config = PassKeysConfig::default();
        let old = Signer::open(&config, data.path()).unwrap();
        let pass = old.sign(&room("concert"), &granted());
        let folder = data.path().join("room-keys");
        let fresh = tempfile::tempdir().unwrap();
        let new = Signer::open(&config, fresh.path()).unwrap();
        std::fs::copy(fresh.path().join("room-keys/key.pem"), folder.join("new.pem")).unwrap();
        config.active = Some(new.active().id.clone());
        let both = Signer::open(&config, data.path()).unwrap();
        assert!(both.identify(&pass, &room("concert")).is_ok());
        let resigned = both.sign(&room("concert"), &granted());
        assert_eq!(resigned, new.sign(&room("concert"), &granted()));
        assert_eq!(
            old.identify(&resigned, &room("concert")),
            Err(PassRefused::UnknownKey)
        );
        let jwks = both.jwks();
        assert_eq!(jwks["keys"].as_array().unwrap().len(), 2);
        assert_eq!(jwks["keys"][0]["kid"], *new.active().id);
        assert_eq!(jwks["keys"][1]["x"], *old.active().x);
        assert!(jwks["keys"][0].get("d").is_none(), "no private part");
    }

    #[test]
    fn secrets_differ_by_purpose_and_key() {
        let (signer, _data) = signer();
        let (other, _other_data) = self::signer();
        assert_eq!(signer.secrets_for("proof"), signer.secrets_for("proof"));
        assert_ne!(signer.secrets_for("proof"), signer.secrets_for("named"));
        assert_ne!(signer.secrets_for("proof"), other.secrets_for("proof"));
        assert_ne!(
            signer.draw_secret(&room("concert")),
            signer.draw_secret(&room("theatre"))
        );
        assert_ne!(
            signer.draw_secret(&room("concert")),
            other.draw_secret(&room("concert"))
        );
    }

    /// The steps of a rotation, as in `keys`: everywhere, then active, then without the old key.
    #[test]
    fn a_key_that_is_replaced_takes_no_secret_along_before_it_is_gone() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("room-keys");
        let mut config = PassKeysConfig::default();
        let old = Signer::open(&config, data.path()).unwrap();
        let fresh = tempfile::tempdir().unwrap();
        let new = Signer::open(&config, fresh.path()).unwrap();
        std::fs::copy(fresh.path().join("room-keys/key.pem"), folder.join("new.pem")).unwrap();
        let mut published = Vec::new();
        for active in [&old, &new] {
            config.active = Some(active.active().id.clone());
            let both = Signer::open(&config, data.path()).unwrap();
            let secrets = both.secrets_for("named");
            assert_eq!(
                secrets[0],
                active.secrets_for("named")[0],
                "signed with the active one"
            );
            assert!(
                secrets.contains(&old.secrets_for("named")[0]),
                "the old one verifies"
            );
            published.push(both.draw_secret(&room("concert")));
        }
        assert_eq!(
            published,
            [old.draw_secret(&room("concert")); 2],
            "what was published holds"
        );
        std::fs::remove_file(folder.join("key.pem")).unwrap();
        let after = Signer::open(&config, data.path()).unwrap();
        assert_eq!(
            after.draw_secret(&room("concert")),
            new.draw_secret(&room("concert"))
        );
        assert_eq!(after.secrets_for("named"), new.secrets_for("named"));
    }
}
