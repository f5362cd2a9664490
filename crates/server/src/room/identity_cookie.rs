//! Somebody whom the shop named, known again without the shop's token.
//!
//! A token is short-lived and says who comes; a line may be longer than that. So the browser is given a cookie that says
//! who has come, sealed by this service. Until the token's end it does what the token does; afterwards it only finds the
//! place that there is, and takes no other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::time::Timestamp;

use super::jwt::encoded;

/// Of a seal, in the cookie.
const SEAL_BYTES: usize = 16;

/// Who came, and until when the shop's token held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentityCookie {
    pub(crate) person: PersonId,
    pub(crate) until: Timestamp,
}

/// Seals and opens what browsers keep. Every process with the same keys of passes has the same.
///
/// One for each key: the first one closes, and all of them open, so that nobody is forgotten while a key is replaced.
pub(crate) struct CookieSigner(Vec<Hmac<Sha256>>);

impl std::fmt::Debug for CookieSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieSigner(***)")
    }
}

impl CookieSigner {
    /// `Signer::secrets_for("named")`: there is at least one.
    pub(crate) fn new(secrets: &[[u8; 32]]) -> Self {
        let mac = |secret: &[u8; 32]| Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
        Self(secrets.iter().map(mac).collect())
    }

    /// `<person>.<until>.<seal>`, for this room.
    pub(crate) fn close(&self, room: &RoomId, kept: &IdentityCookie) -> String {
        let told = format!("{}.{:x}", kept.person, kept.until.0);
        let seal = over(&self.0[0], room, &told).finalize().into_bytes();
        format!("{told}.{}", encoded(&seal[..SEAL_BYTES]))
    }

    /// None if it was not sealed here, for this room.
    pub(crate) fn open(&self, room: &RoomId, text: &str) -> Option<IdentityCookie> {
        let (told, seal) = text.rsplit_once('.')?;
        let seal = URL_SAFE_NO_PAD.decode(seal).ok()?;
        (seal.len() == SEAL_BYTES).then_some(())?;
        // In constant time.
        let ours = |mac: &Hmac<Sha256>| over(mac, room, told).verify_truncated_left(&seal).is_ok();
        self.0.iter().any(ours).then_some(())?;
        let (person, until) = told.rsplit_once('.')?;
        Some(IdentityCookie {
            person: PersonId::new(person).ok()?,
            until: Timestamp(u64::from_str_radix(until, 16).ok()?),
        })
    }
}

/// The room is under the seal: a browser may send what it was given for one room under the name of another's cookie, and
/// the shop of that one never named anybody.
fn over(mac: &Hmac<Sha256>, room: &RoomId, told: &str) -> Hmac<Sha256> {
    // With its length, so that no room and text are written like another pair.
    let length = (room.as_str().len() as u64).to_be_bytes();
    let mac = mac.clone().chain_update(length);
    mac.chain_update(room.as_str()).chain_update(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    fn kept() -> IdentityCookie {
        IdentityCookie {
            person: PersonId::new("AbC-_dEf0123456789abcdef").unwrap(),
            until: Timestamp(1_772_357_401_000),
        }
    }

    #[test]
    fn what_was_sealed_here_is_opened() {
        let seal = CookieSigner::new(&[[7; 32]]);
        let text = seal.close(&room("hall"), &kept());
        assert_eq!(seal.open(&room("hall"), &text), Some(kept()));
        assert!(!text.contains([';', ' ', ',', '"']), "fits a cookie: {text}");
    }

    #[test]
    fn nobody_becomes_somebody_else_or_stays_for_longer() {
        let seal = CookieSigner::new(&[[7; 32]]);
        let text = seal.close(&room("hall"), &kept());
        let other = CookieSigner::new(&[[8; 32]]);
        assert_eq!(other.open(&room("hall"), &text), None, "another service");
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
            assert_eq!(seal.open(&room("hall"), &changed), None, "{changed}");
        }
    }

    #[test]
    fn whoever_was_named_for_one_room_was_named_for_no_other() {
        let seal = CookieSigner::new(&[[7; 32]]);
        let text = seal.close(&room("hall"), &kept());
        for other in ["hal", "hall2", "members"] {
            assert_eq!(seal.open(&room(other), &text), None, "{other}");
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
            before.close(&room("hall"), &kept()),
            old.close(&room("hall"), &kept())
        );
        assert_eq!(
            after.close(&room("hall"), &kept()),
            new.close(&room("hall"), &kept())
        );
        for seal in [&before, &after] {
            for made in [&old, &new] {
                let text = made.close(&room("hall"), &kept());
                assert_eq!(seal.open(&room("hall"), &text), Some(kept()));
            }
        }
    }
}
