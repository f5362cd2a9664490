//! Which identity counts when a request presents several.
//!
//! | keys of the shop | the request presents | the visitor |
//! |---|---|---|
//! | yes | a valid token | is the person of the token |
//! | yes | an invalid token | is refused, whatever else the request presents |
//! | yes | an expired token, with the identity cookie of the same person | is that person |
//! | yes | an expired token, without a cookie or with that of another person | is refused |
//! | yes | an identity cookie | is the person of the cookie |
//! | yes | neither | is refused, or a browser if the room admits anonymous visitors |
//! | no | a token | is refused, because the shop and the room disagree |
//! | no | anything else | is a browser |
//!
//! A browser is the one that its cookie names, or a new one.

use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::time::Timestamp;

use super::{Browser, CookieSigner, ShopKeys, TokenRefused};

/// The rules of one room.
#[derive(Debug, Clone, Copy)]
pub struct Identifier<'a> {
    /// The room.
    pub room: &'a RoomId,
    /// Verify the shop's tokens. Without any key, visitors are browsers.
    pub shop_keys: &'a ShopKeys,
    /// With keys of the shop: whether a browser without a token may join as well.
    pub anonymous: bool,
    /// Signs and verifies identity cookies.
    pub cookies: &'a CookieSigner,
}

/// What a request presents.
#[derive(Debug, Clone, Default)]
pub struct Presented<'a> {
    /// The shop's token, not verified yet.
    pub token: Option<&'a str>,
    /// Identity cookies of this room, not verified yet. The first valid one counts.
    pub identity_cookies: Vec<&'a str>,
    /// The browser that a cookie names.
    pub browser: Option<Browser>,
}

/// An identified visitor of one room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The person in this room.
    pub person: PersonId,
    /// The identity is new, so it has no ticket.
    pub fresh: bool,
    /// The shop's token has expired: the visitor can only find an existing ticket.
    pub late: bool,
    /// What the visitor has to present with the next request.
    pub remember: Option<Remember>,
}

/// What identifies the visitor from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remember {
    /// The text of an identity cookie.
    Person(String),
    /// A new browser.
    Browser(Browser),
}

/// Why a request identifies nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityRefused {
    /// The shop's token is invalid, or has expired.
    Token(TokenRefused),
    /// The room needs a token of the shop, and the request has none.
    TokenNeeded,
    /// The request has a token, but the room has no keys of the shop.
    TokenNotExpected,
    /// The operating system provides no randomness for a new identity.
    NoRandomness,
}

impl Identity {
    fn known(person: PersonId) -> Self {
        Self {
            person,
            fresh: false,
            late: false,
            remember: None,
        }
    }

    fn remembering(self, remember: Remember) -> Self {
        Self {
            remember: Some(remember),
            ..self
        }
    }
}

impl Identifier<'_> {
    /// The visitor; none if the request presents nothing that identifies one.
    pub fn identify(
        &self,
        presented: Presented<'_>,
        now: Timestamp,
    ) -> Result<Option<Identity>, IdentityRefused> {
        if !self.shop_keys.is_empty() {
            if let Some(named) = self.named(&presented, now)? {
                return Ok(Some(named));
            }
            if !self.anonymous {
                return Err(IdentityRefused::TokenNeeded);
            }
        } else if presented.token.is_some() {
            return Err(IdentityRefused::TokenNotExpected);
        }
        let browser = presented.browser;
        Ok(browser.map(|browser| Identity::known(browser.person(self.room))))
    }

    /// The visitor, who becomes a new browser if the request presents nothing that identifies one.
    pub fn identify_or_create(
        &self,
        presented: Presented<'_>,
        now: Timestamp,
    ) -> Result<Identity, IdentityRefused> {
        if let Some(known) = self.identify(presented, now)? {
            return Ok(known);
        }
        let browser = Browser::fresh().map_err(|_| IdentityRefused::NoRandomness)?;
        let person = browser.person(self.room);
        Ok(Identity {
            fresh: true,
            ..Identity::known(person).remembering(Remember::Browser(browser))
        })
    }

    /// The person whom the shop names in this token, or named in an earlier one.
    fn named(&self, presented: &Presented<'_>, now: Timestamp) -> Result<Option<Identity>, IdentityRefused> {
        let mut cookies = presented.identity_cookies.iter();
        let stored = cookies.find_map(|cookie| self.cookies.verify(self.room, cookie));
        let given = presented
            .token
            .map(|token| self.shop_keys.named(token, self.room, now));
        let given = given.transpose().map_err(IdentityRefused::Token)?;
        let expired = IdentityRefused::Token(TokenRefused::Expired);
        match (given, stored) {
            (Some(named), _) if named.until > now => {
                let signed = self.cookies.sign(self.room, &named);
                Ok(Some(
                    Identity::known(named.person).remembering(Remember::Person(signed)),
                ))
            }
            // An expired link of another person must not change the identity of a shared browser.
            (Some(named), Some(stored)) if named.person != stored.person => Err(expired),
            (Some(_), None) => Err(expired),
            // A broken stream reconnects with the token that it began with, even if that has expired.
            (_, Some(stored)) => Ok(Some(Identity {
                late: stored.until <= now,
                ..Identity::known(stored.person)
            })),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::tests::{SECRET, hs256};
    use super::super::{IdentityCookie, ShopKeyConfig, named};
    use super::*;

    const NOW: Timestamp = Timestamp(1_772_357_400_000);
    const VALID: u64 = NOW.0 / 1_000 + 60;
    const EXPIRED: u64 = NOW.0 / 1_000 - 60;

    struct World {
        room: RoomId,
        shop_keys: ShopKeys,
        cookies: CookieSigner,
        anonymous: bool,
    }

    fn world(keys: &[&str], anonymous: bool) -> World {
        let key = |secret: &&str| ShopKeyConfig {
            secret: Some((*secret).into()),
            public_key: None,
        };
        let keys: Vec<ShopKeyConfig> = keys.iter().map(key).collect();
        World {
            room: RoomId::new("concert").unwrap(),
            shop_keys: ShopKeys::open("shop", &keys).unwrap(),
            cookies: CookieSigner::new(&[[1; 32]]),
            anonymous,
        }
    }

    impl World {
        fn identifier(&self) -> Identifier<'_> {
            Identifier {
                room: &self.room,
                shop_keys: &self.shop_keys,
                anonymous: self.anonymous,
                cookies: &self.cookies,
            }
        }

        fn person(&self, name: &str) -> PersonId {
            named(&self.room, name)
        }

        fn cookie(&self, name: &str, until: u64) -> String {
            let cookie = IdentityCookie {
                person: self.person(name),
                until: Timestamp(until * 1_000),
            };
            self.cookies.sign(&self.room, &cookie)
        }

        fn identify(
            &self,
            token: Option<&str>,
            identity_cookies: &[&str],
            browser: Option<&Browser>,
        ) -> Result<Option<Identity>, IdentityRefused> {
            let presented = Presented {
                token,
                identity_cookies: identity_cookies.to_vec(),
                browser: browser.cloned(),
            };
            self.identifier().identify(presented, NOW)
        }
    }

    fn token(name: &str, until: u64) -> String {
        let claims = format!(r#"{{"sub":"{name}","aud":"concert","exp":{until}}}"#);
        hs256(SECRET.as_bytes(), &claims)
    }

    fn late(identity: Identity) -> (PersonId, bool) {
        (identity.person, identity.late)
    }

    #[test]
    fn a_valid_token_counts_more_than_any_cookie_and_is_remembered() {
        let world = world(&[SECRET], true);
        let (ada, browser) = (token("ada", VALID), Browser::fresh().unwrap());
        let cookie = world.cookie("bob", VALID);
        let found = world
            .identify(Some(&ada), &[&cookie], Some(&browser))
            .unwrap()
            .unwrap();
        assert_eq!(found.person, world.person("ada"));
        assert!(!found.fresh && !found.late);
        let Some(Remember::Person(signed)) = found.remember else {
            panic!("{found:?}");
        };
        let again = world.identify(None, &[&signed], Some(&browser)).unwrap().unwrap();
        assert_eq!(late(again), (world.person("ada"), false));
    }

    #[test]
    fn an_expired_token_continues_an_identity_and_begins_none() {
        let world = world(&[SECRET], true);
        let ada = token("ada", EXPIRED);
        let expired = Err(IdentityRefused::Token(TokenRefused::Expired));
        let browser = Browser::fresh().unwrap();
        assert_eq!(world.identify(Some(&ada), &[], Some(&browser)), expired);
        let bob = world.cookie("bob", VALID);
        assert_eq!(
            world.identify(Some(&ada), &[&bob], None),
            expired,
            "a shared browser"
        );
        // The shop may have issued a later token meanwhile: then the cookie knows.
        for (until, is_late) in [(VALID, false), (NOW.0 / 1_000, true), (EXPIRED, true)] {
            let cookie = world.cookie("ada", until);
            for token in [Some(ada.as_str()), None] {
                let found = world
                    .identify(token, &[&cookie], Some(&browser))
                    .unwrap()
                    .unwrap();
                assert_eq!(found.remember, None);
                assert_eq!(late(found), (world.person("ada"), is_late), "{until} {token:?}");
            }
        }
    }

    #[test]
    fn an_invalid_token_is_refused_although_a_cookie_is_valid() {
        let world = world(&[SECRET], true);
        let (cookie, browser) = (world.cookie("ada", VALID), Browser::fresh().unwrap());
        let forged = hs256(b"another secret of the same size!", "{}");
        let found = world.identify(Some(&forged), &[&cookie], Some(&browser));
        assert_eq!(found, Err(IdentityRefused::Token(TokenRefused::Forged)));
    }

    #[test]
    fn the_first_valid_identity_cookie_counts() {
        let world = world(&[SECRET], false);
        let (ada, bob) = (world.cookie("ada", VALID), world.cookie("bob", VALID));
        let found = world
            .identify(None, &["guess", &ada, &bob], None)
            .unwrap()
            .unwrap();
        assert_eq!(found.person, world.person("ada"));
    }

    #[test]
    fn a_room_with_keys_of_the_shop_takes_browsers_only_if_it_says_so() {
        let browser = Browser::fresh().unwrap();
        let found = |anonymous: bool| world(&[SECRET], anonymous).identify(None, &["guess"], Some(&browser));
        assert_eq!(found(false), Err(IdentityRefused::TokenNeeded));
        let room = RoomId::new("concert").unwrap();
        assert_eq!(found(true), Ok(Some(Identity::known(browser.person(&room)))));
    }

    #[test]
    fn a_room_without_keys_of_the_shop_knows_browsers_only() {
        let world = world(&[], false);
        let (ada, cookie) = (token("ada", VALID), world.cookie("ada", VALID));
        let browser = Browser::fresh().unwrap();
        let refused = world.identify(Some(&ada), &[], Some(&browser));
        assert_eq!(refused, Err(IdentityRefused::TokenNotExpected));
        // The room had keys once.
        assert_eq!(world.identify(None, &[&cookie], None), Ok(None));
        let found = world.identify(None, &[&cookie], Some(&browser));
        assert_eq!(found, Ok(Some(Identity::known(browser.person(&world.room)))));
    }

    #[test]
    fn an_unknown_visitor_becomes_a_new_browser_where_browsers_may_join() {
        let open = world(&[], false);
        let create = |world: &World| world.identifier().identify_or_create(Presented::default(), NOW);
        let (first, second) = (create(&open).unwrap(), create(&open).unwrap());
        assert_ne!(first.person, second.person);
        assert!(first.fresh && !first.late);
        let Some(Remember::Browser(browser)) = first.remember else {
            panic!("{first:?}");
        };
        let again = open.identify(None, &[], Some(&browser)).unwrap().unwrap();
        assert_eq!(again, Identity::known(first.person));
        assert_eq!(
            create(&world(&[SECRET], false)),
            Err(IdentityRefused::TokenNeeded)
        );
        assert!(create(&world(&[SECRET], true)).unwrap().fresh);
    }
}
