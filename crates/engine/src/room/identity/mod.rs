//! Who a visitor is: a browser with a cookie, or a person whom the shop names in a signed token.
//!
//! A request may present both: `identify` decides which one counts. Either way the store sees only a hash. It contains
//! the room, so nobody can follow a person from room to room.

mod cookie;
mod identify;
mod public_key;
mod token;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tidegate_core::ids::{PersonId, RoomId};

pub use self::cookie::{CookieSigner, IdentityCookie};
pub use self::identify::{Identifier, Identity, IdentityRefused, Presented, Remember};
pub use self::token::{MIN_SECRET_BYTES, ShopKeyConfig, ShopKeys, TokenRefused};
use super::jwt::encoded;

/// Prefixes of the hashed text: no browser can be a person whom the shop names.
const BROWSER: &str = "tidegate browser";
const NAMED: &str = "tidegate named";
/// Bytes of the hash in a person's id: 144 bits, which make 24 characters.
const PERSON_BYTES: usize = 18;

/// The secret that identifies one browser. It is neither shown nor stored.
///
/// It needs no signature: a made-up one is a new visitor, and nobody can guess another's.
#[derive(Clone, PartialEq, Eq)]
pub struct Browser([u8; 32]);

impl fmt::Debug for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Browser(***)")
    }
}

impl Browser {
    /// A new browser.
    pub fn fresh() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Parses a cookie; `None` if its form is wrong.
    pub fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// The cookie, as [`parse`](Self::parse) reads it.
    pub fn text(&self) -> String {
        encoded(self.0)
    }

    /// The person in this room.
    pub fn person(&self, room: &RoomId) -> PersonId {
        hashed(BROWSER, room, &self.0)
    }
}

/// The person with this name of the shop's in this room. A shop can compute it, too: see `examples/shop`.
pub fn named(room: &RoomId, sub: &str) -> PersonId {
    hashed(NAMED, room, sub.as_bytes())
}

fn hashed(word: &str, room: &RoomId, who: &[u8]) -> PersonId {
    let mut hash = Sha256::new();
    hash.update(word);
    // The length keeps two different pairs of room and name from having the same bytes.
    hash.update((room.as_str().len() as u64).to_be_bytes());
    hash.update(room.as_str());
    hash.update(who);
    PersonId::new(encoded(&hash.finalize()[..PERSON_BYTES])).expect("24 characters are a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    #[test]
    fn a_text_that_nobody_wrote_names_no_browser() {
        let good = encoded([7; 32]);
        assert_eq!(Browser::parse(&good), Some(Browser([7; 32])));
        assert_eq!(Browser([7; 32]).text(), good);
        for odd in [
            "",
            "guess",
            &good[..42],
            &format!("{good}A"),
            &format!("{good}="),
            &"A".repeat(5_000),
        ] {
            assert_eq!(Browser::parse(odd), None, "{odd}");
        }
        assert!(!format!("{:?}", Browser([7; 32])).contains(&good));
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
        // A browser whose cookie contains a person's name is not that person.
        let name = std::str::from_utf8(&browser.0).unwrap();
        assert_ne!(here, named(&room("concert"), name));
        // As in `examples/shop`.
        assert_eq!(
            named(&room("concert"), "ada").as_str(),
            "WOcpodrTR6mtPk9xMN3BIlFK"
        );
    }
}
