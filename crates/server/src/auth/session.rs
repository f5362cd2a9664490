//! Sessions of browsers: a cookie, and a token against cross-site request forgery.
//!
//! They live in memory, by the hash of the cookie's value. A restart ends them, and a memory dump reveals no cookie.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidegate_core::time::{Millis, Timestamp};

use super::{Caller, random_text};

const COOKIE: &str = "tidegate_session";
/// Browsers accept a cookie of this name over HTTPS only, and for this host only.
const SECURE_COOKIE: &str = "__Host-tidegate_session";
/// Limit: concurrent sessions. Beyond it the oldest one ends.
const MAX_SESSIONS: usize = 10_000;

type Key = [u8; 32];

#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Open>);

#[derive(Default)]
struct Open {
    by_cookie: HashMap<Key, Session>,
    /// All sessions last equally long, so the oldest is the next to end.
    oldest_first: VecDeque<Key>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open")
            .field("sessions", &self.by_cookie.len())
            .finish()
    }
}

#[derive(Clone)]
pub(super) struct Session {
    pub(super) caller: Caller,
    pub(super) csrf: String,
    ends: Timestamp,
}

impl Session {
    /// Whether this token allows a change.
    pub(super) fn allows(&self, token: Option<&[u8]>) -> bool {
        token.is_some_and(|token| token.ct_eq(self.csrf.as_bytes()).into())
    }
}

/// A new session: the cookie for the browser, and the token for changes.
pub(super) struct Begun {
    pub(super) cookie: String,
    pub(super) csrf: String,
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(
        &self,
        caller: Caller,
        now: Timestamp,
        lasts: Millis,
    ) -> Result<Begun, getrandom::Error> {
        let (cookie, csrf) = (random_text()?, random_text()?);
        let session = Session {
            caller,
            csrf: csrf.clone(),
            ends: now + lasts,
        };
        let mut open = self.open();
        while let Some(oldest) = open.oldest_first.front().copied() {
            let ended = open
                .by_cookie
                .get(&oldest)
                .is_none_or(|session| session.ends <= now);
            if !ended && open.oldest_first.len() < MAX_SESSIONS {
                break;
            }
            open.oldest_first.pop_front();
            open.by_cookie.remove(&oldest);
        }
        let key = hashed(&cookie);
        open.by_cookie.insert(key, session);
        open.oldest_first.push_back(key);
        Ok(Begun { cookie, csrf })
    }

    pub(super) fn of(&self, headers: &HeaderMap, tls: bool, now: Timestamp) -> Option<Session> {
        let key = hashed(cookie_of(headers, tls)?);
        let open = self.open();
        open.by_cookie
            .get(&key)
            .filter(|session| session.ends > now)
            .cloned()
    }

    pub(super) fn end(&self, headers: &HeaderMap, tls: bool) {
        if let Some(cookie) = cookie_of(headers, tls) {
            // `begin` removes its key from `oldest_first` when it reaches the front.
            self.open().by_cookie.remove(&hashed(cookie));
        }
    }
}

fn hashed(cookie: &str) -> Key {
    Sha256::digest(cookie).into()
}

fn cookie_of(headers: &HeaderMap, tls: bool) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter();
    let pairs = all
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    let mut found = None;
    for (name, value) in pairs.filter_map(|pair| pair.trim().split_once('=')) {
        match name {
            SECURE_COOKIE => return Some(value),
            // With TLS, only a cookie that no page of another host could have set.
            COOKIE if !tls => found = Some(value),
            _ => {}
        }
    }
    found
}

/// The `Set-Cookie` header that sets the cookie, or removes it.
pub(super) fn set_cookie(value: Option<&str>, lasts: Millis, secure: bool) -> String {
    let (name, secure) = if secure {
        (SECURE_COOKIE, "; Secure")
    } else {
        (COOKIE, "")
    };
    let (value, seconds) = value.map_or(("", 0), |value| (value, (lasts.0 / 1000).max(1)));
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// The browser's session, if the request has one.
#[derive(Clone, Default)]
pub(crate) struct MaybeSession(Option<String>);

impl std::fmt::Debug for MaybeSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MaybeSession").field(&self.0.is_some()).finish()
    }
}

impl MaybeSession {
    pub(super) fn new(session: &Session) -> Self {
        Self(Some(session.csrf.clone()))
    }

    pub(crate) fn csrf(&self) -> Option<String> {
        self.0.clone()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for MaybeSession {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts
            .extensions
            .get::<MaybeSession>()
            .cloned()
            .unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = Millis(3_600_000);

    fn with(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        headers
    }

    #[test]
    fn a_session_lasts_its_time() {
        let sessions = Sessions::default();
        let begun = sessions.begin(Caller::anybody(), Timestamp(0), HOUR).unwrap();
        let headers = with(&format!("a=b; tidegate_session={}", begun.cookie));
        let session = sessions.of(&headers, false, Timestamp(3_599_999)).unwrap();
        assert!(session.allows(Some(begun.csrf.as_bytes())));
        assert!(!session.allows(Some(b"")) && !session.allows(None));
        assert!(sessions.of(&headers, false, Timestamp(3_600_000)).is_none());
        assert!(
            sessions.of(&headers, true, Timestamp(0)).is_none(),
            "not with TLS"
        );
        let secure = with(&format!("{SECURE_COOKIE}={}", begun.cookie));
        assert!(sessions.of(&secure, true, Timestamp(0)).is_some());
        assert!(
            sessions
                .of(&with("tidegate_session=guess"), false, Timestamp(0))
                .is_none()
        );
        sessions.end(&headers, false);
        assert!(sessions.of(&headers, false, Timestamp(0)).is_none());
    }

    #[test]
    fn the_oldest_session_ends_beyond_the_limit() {
        let sessions = Sessions::default();
        let first = sessions.begin(Caller::anybody(), Timestamp(0), HOUR).unwrap();
        let first = with(&format!("tidegate_session={}", first.cookie));
        for _ in 1..MAX_SESSIONS {
            sessions.begin(Caller::anybody(), Timestamp(1), HOUR).unwrap();
        }
        assert!(sessions.of(&first, false, Timestamp(1)).is_some());
        sessions.begin(Caller::anybody(), Timestamp(1), HOUR).unwrap();
        assert!(sessions.of(&first, false, Timestamp(1)).is_none());
        assert_eq!(sessions.open().by_cookie.len(), MAX_SESSIONS);
        sessions
            .begin(Caller::anybody(), Timestamp(2) + HOUR, HOUR)
            .unwrap();
        assert_eq!(sessions.open().by_cookie.len(), 1, "ended sessions are removed");
    }
}
