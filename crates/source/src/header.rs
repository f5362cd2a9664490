//! Values of request headers, which may be secrets: read and sent, but never shown.

use std::fmt;
use std::path::PathBuf;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_core::secret::Secret;

/// Where the value of a header comes from: `"text"`, `{ env = "NAME" }` or `{ file = "path" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderSetting {
    /// The value itself. Treated as a secret, because it may be one.
    Value(Secret),
    /// An environment variable that holds it.
    Env(String),
    /// A file that holds it; surrounding white space is trimmed.
    File(PathBuf),
}

impl HeaderSetting {
    /// The value, or the reason why there is none; the reason names the place, not its content.
    pub fn read(&self) -> Result<Secret, String> {
        match self {
            Self::Value(secret) => Ok(secret.clone()),
            Self::Env(name) => match std::env::var(name) {
                Ok(value) if !value.is_empty() => Ok(Secret::new(value)),
                Ok(_) => Err(format!(
                    "the environment variable {name} is empty; set it to the value"
                )),
                Err(std::env::VarError::NotPresent) => Err(format!(
                    "the environment variable {name} is not set; set it to the value"
                )),
                Err(std::env::VarError::NotUnicode(_)) => {
                    Err(format!("the environment variable {name} is not text in UTF-8"))
                }
            },
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(value) if !value.trim().is_empty() => Ok(Secret::new(value.trim())),
                Ok(_) => Err(format!(
                    "the file {} is empty; write the value into it",
                    path.display()
                )),
                Err(error) => Err(format!("the file {} cannot be read: {error}", path.display())),
            },
        }
    }
}

impl From<&str> for HeaderSetting {
    fn from(value: &str) -> Self {
        Self::Value(Secret::new(value))
    }
}

impl Serialize for HeaderSetting {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(secret) => secret.serialize(to),
            Self::Env(name) => to.collect_map([("env", name.as_str())]),
            Self::File(path) => to.collect_map([("file", path)]),
        }
    }
}

impl<'de> Deserialize<'de> for HeaderSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Shape)
    }
}

/// Accepts the three shapes. Unlike serde's own errors, its errors repeat no value.
struct Shape;

const WANTED: &str = r#"a string in quotes, { env = "NAME" } or { file = "path" }"#;

impl<'de> Visitor<'de> for Shape {
    type Value = HeaderSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<HeaderSetting, E> {
        Ok(text.into())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<HeaderSetting, E> {
        Err(E::custom(format_args!(
            "a header must be {WANTED}, not a boolean"
        )))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<HeaderSetting, E> {
        Err(E::custom(format_args!("a header must be {WANTED}, not a number")))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<HeaderSetting, E> {
        self.visit_i64(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<HeaderSetting, E> {
        self.visit_i64(0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderSetting, A::Error> {
        let wrong = || A::Error::custom(format_args!("a header must be {WANTED}"));
        let Some(place) = map.next_key::<String>()? else {
            return Err(wrong());
        };
        let setting = match place.as_str() {
            "env" => HeaderSetting::Env(map.next_value().map_err(|_| wrong())?),
            "file" => HeaderSetting::File(map.next_value().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        match map.next_key::<String>()? {
            None => Ok(setting),
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(text: &str) -> Result<HeaderSetting, String> {
        let read = toml::from_str::<BTreeMap<String, HeaderSetting>>(&format!("x = {text}"));
        read.map(|mut all| all.remove("x").unwrap())
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_header_is_a_text_or_says_where_it_is() {
        assert_eq!(read(r#""k""#), Ok(HeaderSetting::Value(Secret::new("k"))));
        assert_eq!(
            read(r#"{ env = "API_KEY" }"#),
            Ok(HeaderSetting::Env("API_KEY".into()))
        );
        assert_eq!(
            read(r#"{ file = "key.txt" }"#),
            Ok(HeaderSetting::File("key.txt".into()))
        );
    }

    #[test]
    fn what_is_wrong_is_reported_without_the_value() {
        for odd in [
            "12345",
            "true",
            "1.5",
            r#"["12345"]"#,
            r#"{ evn = "12345" }"#,
            r#"{ env = 12345 }"#,
            "{}",
        ] {
            let error = read(odd).unwrap_err();
            assert!(error.contains("a string in quotes"), "{odd}: {error}");
            assert!(!error.contains("12345"), "{odd}: {error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let setting = HeaderSetting::from("hunter2");
        assert!(!format!("{setting:?}").contains("hunter2"));
        assert_eq!(serde_json::to_string(&setting).unwrap(), "\"***\"");
    }

    #[test]
    fn a_place_without_a_value_is_named() {
        let error = HeaderSetting::Env("TIDEGATE_SOURCE_NO_SUCH".into())
            .read()
            .unwrap_err();
        assert!(error.contains("TIDEGATE_SOURCE_NO_SUCH"), "{error}");
        let error = HeaderSetting::File("no/such/file".into()).read().unwrap_err();
        assert!(error.contains("no/such/file"), "{error}");
    }
}
