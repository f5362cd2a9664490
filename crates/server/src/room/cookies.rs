//! The cookies of visitors: one identifies the browser, and one per room holds the identity that the shop signed.

use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};
use tidegate_core::ids::RoomId;
use tidegate_engine::room::identity::Browser;

const COOKIE: &str = "tidegate_ticket";
/// Browsers accept a cookie of this name over HTTPS only, and for this host only.
const SECURE_COOKIE: &str = "__Host-tidegate_ticket";
/// How long a browser keeps a cookie: a day.
const MAX_AGE_SECONDS: u64 = 86_400;

/// All cookies of a request.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let values = headers.get_all(header::COOKIE).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
}

/// The value of one cookie.
fn value<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    cookies(headers).find_map(|(name, value)| (name == wanted).then_some(value))
}

/// The `Set-Cookie` header of a cookie. `SameSite=Lax`, so that a link from another site to the waiting page finds the ticket.
fn set_cookie(name: &str, value: &str, secure: bool) -> Option<HeaderValue> {
    let secure = if secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; Max-Age={MAX_AGE_SECONDS}; HttpOnly; SameSite=Lax{secure}");
    HeaderValue::try_from(cookie).ok()
}

/// The browser that the request's cookie identifies; `None` without a valid cookie. With `tls` only a cookie counts that no page
/// of another host could have set.
pub(crate) fn browser(headers: &HeaderMap, tls: bool) -> Option<Browser> {
    let mut found = None;
    for (name, value) in cookies(headers) {
        match name {
            SECURE_COOKIE => {
                if let Some(browser) = Browser::parse(value) {
                    return Some(browser);
                }
            }
            COOKIE if !tls && found.is_none() => found = Browser::parse(value),
            _ => {}
        }
    }
    found
}

/// The header that sets a browser's cookie. `secure` means that the browser used HTTPS.
pub(crate) fn set_browser(browser: &Browser, secure: bool) -> Option<HeaderValue> {
    let name = if secure { SECURE_COOKIE } else { COOKIE };
    set_cookie(name, &browser.text(), secure)
}

/// The name of the identity cookie of one room.
fn named(room: &RoomId, secure: bool) -> String {
    let hash = Sha256::digest(room.as_str());
    let short: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix = if secure { "__Host-" } else { "" };
    format!("{prefix}tidegate_named_{short}")
}

/// The identity cookies of one room, the most trusted first. With `tls` only the one counts that no page of another host could
/// have set.
pub(crate) fn named_values<'a>(headers: &'a HeaderMap, room: &RoomId, tls: bool) -> Vec<&'a str> {
    let names = [true, false]
        .into_iter()
        .filter(|secure| *secure || !tls)
        .map(|secure| named(room, secure));
    names.filter_map(|name| value(headers, &name)).collect()
}

/// The header that sets the identity cookie of a room.
pub(crate) fn set_named(room: &RoomId, signed: &str, secure: bool) -> Option<HeaderValue> {
    set_cookie(&named(room, secure), signed, secure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_with(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        headers
    }

    fn set_cookie_text(browser: &Browser, secure: bool) -> String {
        set_browser(browser, secure).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn a_browser_is_identified_by_its_cookie() {
        let known = Browser::fresh().unwrap();
        assert_ne!(known, Browser::fresh().unwrap());
        let (plain, secure) = (set_cookie_text(&known, false), set_cookie_text(&known, true));
        assert!(plain.starts_with("tidegate_ticket=") && !plain.contains("Secure"));
        assert!(plain.ends_with("; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax"));
        assert!(secure.starts_with("__Host-tidegate_ticket="));
        assert!(secure.ends_with("; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax; Secure"));
        let (plain, secure) = (
            plain.split(';').next().unwrap(),
            secure.split(';').next().unwrap(),
        );
        let both = format!("a=b; {plain}");
        assert_eq!(browser(&headers_with(&both), false), Some(known.clone()));
        assert_eq!(browser(&headers_with(plain), true), None, "not with TLS");
        let other = set_cookie_text(&Browser::fresh().unwrap(), false);
        let both = format!("{other}; {secure}");
        assert_eq!(browser(&headers_with(&both), false), Some(known.clone()));
        assert_eq!(browser(&headers_with(secure), true), Some(known));
    }

    #[test]
    fn the_secure_identity_cookie_comes_first_and_is_the_only_one_over_tls() {
        let (concert, theatre) = (RoomId::new("concert").unwrap(), RoomId::new("theatre").unwrap());
        let pair = |room: &RoomId, secure, value: &str| format!("{}={value}", named(room, secure));
        let both = [
            pair(&concert, false, "plain"),
            pair(&theatre, true, "other"),
            pair(&concert, true, "secure"),
        ];
        let headers = headers_with(&both.join("; "));
        assert_eq!(named_values(&headers, &concert, false), ["secure", "plain"]);
        assert_eq!(named_values(&headers, &concert, true), ["secure"]);
        let headers = headers_with(&both[0]);
        assert_eq!(named_values(&headers, &concert, false), ["plain"]);
        assert!(named_values(&headers, &concert, true).is_empty());
    }

    #[test]
    fn an_invalid_cookie_counts_as_none() {
        let good = Browser::fresh().unwrap().text();
        assert_eq!(browser(&headers_with("tidegate_ticket=guess"), false), None);
        let behind = format!("tidegate_ticket=odd; tidegate_ticket={good}");
        assert!(browser(&headers_with(&behind), false).is_some());
        assert_eq!(browser(&HeaderMap::new(), false), None);
    }
}
