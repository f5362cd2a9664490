//! The identity cookie: recognizes a visitor whom the shop named, without the shop's token.
//!
//! A token is short-lived, and a wait may last longer. So this service gives the browser a signed cookie that says who
//! came. Until the token expires, the cookie has the same effect. Afterwards it only finds the existing ticket, and
//! takes no other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::time::Timestamp;

use crate::room::jwt::encoded;

/// Bytes of the signature in the cookie.
const SIGNATURE_BYTES: usize = 16;

/// Who came, and until when the shop's token was valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityCookie {
    pub person: PersonId,
    pub until: Timestamp,
}

/// Signs and verifies identity cookies. Every process with the same pass keys has the same signer.
///
/// There is one MAC per key. The first one signs and all of them verify, so nobody is forgotten during a key rotation.
pub struct CookieSigner(Vec<Hmac<Sha256>>);

impl std::fmt::Debug for CookieSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieSigner(***)")
    }
}

impl CookieSigner {
    /// `Signer::secrets_for("named")`: there is at least one.
    pub fn new(secrets: &[[u8; 32]]) -> Self {
        let mac = |secret: &[u8; 32]| Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
        Self(secrets.iter().map(mac).collect())
    }

    /// Returns `<person>.<until>.<signature>`, for this room.
    pub fn sign(&self, room: &RoomId, cookie: &IdentityCookie) -> String {
        let signed = format!("{}.{:x}", cookie.person, cookie.until.0);
        let signature = over(&self.0[0], room, &signed).finalize().into_bytes();
        format!("{signed}.{}", encoded(&signature[..SIGNATURE_BYTES]))
    }

    /// Returns `None` unless this service signed it for this room.
    pub fn verify(&self, room: &RoomId, text: &str) -> Option<IdentityCookie> {
        let (signed, signature) = text.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        (signature.len() == SIGNATURE_BYTES).then_some(())?;
        // In constant time.
        let ours = |mac: &Hmac<Sha256>| over(mac, room, signed).verify_truncated_left(&signature).is_ok();
        self.0.iter().any(ours).then_some(())?;
        let (person, until) = signed.rsplit_once('.')?;
        Some(IdentityCookie {
            person: PersonId::new(person).ok()?,
            until: Timestamp(u64::from_str_radix(until, 16).ok()?),
        })
    }
}

/// The signature covers the room. Otherwise a browser could send one room's cookie under the name of another room's,
/// whose shop never named anybody.
fn over(mac: &Hmac<Sha256>, room: &RoomId, signed: &str) -> Hmac<Sha256> {
    // The length keeps two different pairs of room and text from having the same bytes.
    let length = (room.as_str().len() as u64).to_be_bytes();
    let mac = mac.clone().chain_update(length);
    mac.chain_update(room.as_str()).chain_update(signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    fn cookie() -> IdentityCookie {
        IdentityCookie {
            person: PersonId::new("AbC-_dEf0123456789abcdef").unwrap(),
            until: Timestamp(1_772_357_401_000),
        }
    }

    #[test]
    fn a_cookie_signed_here_is_valid() {
        let signer = CookieSigner::new(&[[7; 32]]);
        let text = signer.sign(&room("hall"), &cookie());
        assert_eq!(signer.verify(&room("hall"), &text), Some(cookie()));
        assert!(!text.contains([';', ' ', ',', '"']), "fits a cookie: {text}");
    }

    #[test]
    fn nobody_becomes_somebody_else_or_stays_for_longer() {
        let signer = CookieSigner::new(&[[7; 32]]);
        let text = signer.sign(&room("hall"), &cookie());
        let other = CookieSigner::new(&[[8; 32]]);
        assert_eq!(other.verify(&room("hall"), &text), None, "another service");
        for changed in [
            text.replace("AbC", "aBC"),
            text.replace(".19ca8", ".29ca8"),
            text[..text.len() - 1].to_owned(),
            text.rsplit_once('.').unwrap().0.to_owned(),
            format!("{}.", text.rsplit_once('.').unwrap().0),
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
        ] {
            assert_ne!(changed, text);
            assert_eq!(signer.verify(&room("hall"), &changed), None, "{changed}");
        }
    }

    #[test]
    fn whoever_was_named_for_one_room_was_named_for_no_other() {
        let signer = CookieSigner::new(&[[7; 32]]);
        let text = signer.sign(&room("hall"), &cookie());
        for other in ["hal", "hall2", "members"] {
            assert_eq!(signer.verify(&room(other), &text), None, "{other}");
        }
    }

    #[test]
    fn whoever_was_named_is_known_while_the_key_is_replaced() {
        let (old, new) = (CookieSigner::new(&[[7; 32]]), CookieSigner::new(&[[8; 32]]));
        let (before, after) = (
            CookieSigner::new(&[[7; 32], [8; 32]]),
            CookieSigner::new(&[[8; 32], [7; 32]]),
        );
        assert_eq!(
            before.sign(&room("hall"), &cookie()),
            old.sign(&room("hall"), &cookie())
        );
        assert_eq!(
            after.sign(&room("hall"), &cookie()),
            new.sign(&room("hall"), &cookie())
        );
        for signer in [&before, &after] {
            for made in [&old, &new] {
                let text = made.sign(&room("hall"), &cookie());
                assert_eq!(signer.verify(&room("hall"), &text), Some(cookie()));
            }
        }
    }
}
