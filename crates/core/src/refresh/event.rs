//! `RefreshEvent`: the request to refresh one record, as it travels through the log.
//!
//! Schema 1.1, JSON on the wire:
//!
//! | field | meaning |
//! |---|---|
//! | `schemaVersion` | `"1.1"`; any `1.x` is accepted, another major version is rejected |
//! | `eventId` | unique |
//! | `source`, `key` | which record; a key may be text or a whole number |
//! | `params` | values for the placeholders of the source's URL, besides the key; absent if there are none |
//! | `priority` | `HIGH`, `LOW` |
//! | `reason` | `CACHE_MISS`, `STALE`, `PREFETCH`, `USER_REQUEST`, `RETRY`, `REPLAY` |
//! | `requestedAt` | ISO-8601, UTC |
//! | `correlationId` | ties together everything that one request caused |
//! | `version` | from the coalescer, below 2^53 |
//!
//! Unknown fields are ignored, so that a later 1.x can add some.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Version, iso8601};
use crate::ids::{CorrelationId, EventId, RecordId, RecordKey, SourceId};
use crate::priority::Priority;
use crate::time::Timestamp;

/// Why a refresh was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    CacheMiss,
    Stale,
    Prefetch,
    UserRequest,
    /// A record that failed or was parked is due again.
    Retry,
    /// A replay of a dead letter.
    Replay,
}

/// The schema that an event follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    pub major: u32,
    pub minor: u32,
}

impl SchemaVersion {
    pub const CURRENT: SchemaVersion = SchemaVersion { major: 1, minor: 1 };
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Serialize for SchemaVersion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let numbers = text.split_once('.').and_then(|(major, minor)| {
            Some(Self {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            })
        });
        let current = Self::CURRENT;
        match numbers {
            Some(version) if version.major == current.major => Ok(version),
            _ => Err(D::Error::custom(format!(
                "schemaVersion {text:?} is not understood: this program reads {}.x",
                current.major
            ))),
        }
    }
}

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefreshEvent {
    pub schema_version: SchemaVersion,
    pub event_id: EventId,
    pub source: SourceId,
    #[serde(deserialize_with = "text_or_number")]
    pub key: RecordKey,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    pub priority: Priority,
    pub reason: Reason,
    #[serde(with = "iso8601")]
    pub requested_at: Timestamp,
    pub correlation_id: CorrelationId,
    #[serde(deserialize_with = "exact_version")]
    pub version: Version,
}

impl RefreshEvent {
    pub fn record(&self) -> RecordId {
        RecordId {
            source: self.source.clone(),
            key: self.key.clone(),
        }
    }
}

fn text_or_number<'de, D: Deserializer<'de>>(from: D) -> Result<RecordKey, D::Error> {
    struct Key;
    impl Visitor<'_> for Key {
        type Value = RecordKey;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a record key: text or a whole number")
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<RecordKey, E> {
            RecordKey::new(text).map_err(E::custom)
        }
        fn visit_u64<E: Error>(self, number: u64) -> Result<RecordKey, E> {
            self.visit_str(&number.to_string())
        }
        fn visit_i64<E: Error>(self, number: i64) -> Result<RecordKey, E> {
            self.visit_str(&number.to_string())
        }
    }
    from.deserialize_any(Key)
}

fn exact_version<'de, D: Deserializer<'de>>(from: D) -> Result<Version, D::Error> {
    let version = Version::deserialize(from)?;
    match version <= Version::MAX {
        true => Ok(version),
        false => Err(D::Error::custom(format!(
            "version {version} is above {}",
            Version::MAX
        ))),
    }
}

#[cfg(test)]
pub(super) fn an_event() -> RefreshEvent {
    RefreshEvent {
        schema_version: SchemaVersion::CURRENT,
        event_id: EventId::new("6f1c").unwrap(),
        source: SourceId::new("characters").unwrap(),
        key: RecordKey::new("12345").unwrap(),
        params: BTreeMap::from([("id".into(), "a1b2".into())]),
        priority: Priority::High,
        reason: Reason::CacheMiss,
        requested_at: Timestamp(1_794_821_400_250),
        correlation_id: CorrelationId::new("req-9").unwrap(),
        version: Version(1_837_897_113_856_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: &str = r#"{"schemaVersion":"1.1","eventId":"6f1c","source":"characters","key":"12345","params":{"id":"a1b2"},"priority":"HIGH","reason":"CACHE_MISS","requestedAt":"2026-11-16T09:30:00.250Z","correlationId":"req-9","version":1837897113856000}"#;

    #[test]
    fn the_fields_on_the_wire() {
        assert_eq!(serde_json::to_string(&an_event()).unwrap(), WIRE);
        let read: RefreshEvent = serde_json::from_str(WIRE).unwrap();
        assert_eq!(read, an_event());
        assert_eq!(read.record().to_string(), "characters/12345");
    }

    #[test]
    fn a_number_is_a_key_and_unknown_fields_are_ignored() {
        let old = WIRE.replace(r#""key":"12345""#, r#""key":12345,"later":[1]"#);
        let old = old.replace("\"1.1\"", "\"1.7\"");
        let read: RefreshEvent = serde_json::from_str(&old).unwrap();
        assert_eq!(read.key.as_str(), "12345");
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_the_reason() {
        for (from, to, message) in [
            (
                "\"1.1\"",
                "\"2.0\"",
                "schemaVersion \"2.0\" is not understood: this program reads 1.x",
            ),
            ("\"1.1\"", "\"one\"", "schemaVersion \"one\""),
            ("HIGH", "URGENT", "unknown variant `URGENT`"),
            ("09:30", "9:30", "is not a time like"),
            (
                "1837897113856000",
                "9007199254740992",
                "version 9007199254740992 is above",
            ),
            ("\"12345\"", "\"\"", "record key is empty"),
            ("\"12345\"", "{}", "a record key: text or a whole number"),
        ] {
            let error = serde_json::from_str::<RefreshEvent>(&WIRE.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
