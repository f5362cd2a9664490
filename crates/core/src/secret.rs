//! Settings that must not be seen: they are read, used and never shown.

use std::fmt;
use std::ops::Deref;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is shown instead.
const HIDDEN: &str = "***";

/// A password, a signing key or the value of a header. It is a `str` to whoever needs one, but is neither
/// displayed, nor serialized, nor shown in errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Deref for Secret {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self::new(secret)
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text).map(Self)
    }
}

/// Takes strings only, and does not repeat a value of another type in its error as serde's own does.
struct Text;

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string in quotes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<String, E> {
        Err(E::custom("it must be a string in quotes, not a boolean"))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<String, E> {
        Err(E::custom("it must be a string in quotes, not a number"))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<String, E> {
        Err(E::custom("it must be a string in quotes, not a number"))
    }
}

/// The address of a server, shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(Secret);

impl ServerUrl {
    pub fn new(url: impl Into<String>) -> Self {
        Self(Secret::new(url))
    }

    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl From<&str> for ServerUrl {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for ServerUrl {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.expose();
        // A password may hold an @ of its own, so the address begins after the last one.
        let Some((before, address)) = url.rsplit_once('@') else {
            return f.write_str(url);
        };
        let (scheme, who) = before.split_once("://").unwrap_or(("", before));
        let user = who.split_once(':').map_or("", |(user, _)| user);
        write!(f, "{scheme}://{user}:{HIDDEN}@{address}")
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Secret::deserialize(from).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.len(), 7);
        for number in ["12345", "true", "1.5", "[1]", "{a = 1}"] {
            let error =
                toml::from_str::<std::collections::BTreeMap<String, Secret>>(&format!("x = {number}"))
                    .unwrap_err();
            assert!(
                error.message().contains("a string in quotes"),
                "{}",
                error.message()
            );
            assert!(!error.message().contains("12345"));
        }
    }

    #[test]
    fn addresses_are_shown_without_their_password() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://:secret@host/1", "redis://:***@host/1"),
            ("rediss://me:se@cr:et@host", "rediss://me:***@host"),
            ("redis://token@host", "redis://:***@host"),
            ("secret@host", "://:***@host"),
        ] {
            assert_eq!(ServerUrl::new(url).to_string(), shown);
            assert_eq!(format!("{:?}", ServerUrl::new(url)), shown);
        }
    }
}
