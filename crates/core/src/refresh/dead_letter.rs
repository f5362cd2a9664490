//! `DeadLetter`: an event that failed permanently, with what an operator needs to diagnose and replay it.
//!
//! | field | meaning |
//! |---|---|
//! | `originalEvent` | the event; absent if it could not be parsed |
//! | `rawEvent` | the bytes of an event that could not be parsed, in hexadecimal |
//! | `failureReason` | see [`FailureReason`] |
//! | `errorMessage` | the last error |
//! | `stackTrace` | the errors of earlier attempts, the last one first |
//! | `retryCount` | attempts after the first |
//! | `failedAt` | ISO-8601, UTC |
//! | `workerId` | the worker that gave up |
//!
//! A replay is a separate request with its own version.

use bytes::Bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::event::RefreshEvent;
use super::iso8601;
use crate::ids::Owner;
use crate::time::Timestamp;

/// Why an event is dead. An unavailable database or store is never a reason: the worker waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureReason {
    /// The upstream failed (5xx) after every retry. `NEXON_API_5XX` parses as this, too.
    #[serde(rename = "API_5XX", alias = "NEXON_API_5XX")]
    Api5xx,
    /// The upstream rejected the call (4xx, not 429). `NEXON_API_4XX` parses as this, too.
    #[serde(rename = "API_4XX", alias = "NEXON_API_4XX")]
    Api4xx,
    /// The event, or the upstream's response, is malformed.
    ParseError,
    /// The upstream's response is larger than allowed.
    TooLarge,
    /// No response in time, or no connection, after every retry.
    Timeout,
    /// The upstream redirected the call.
    Redirected,
    /// The event names a source that is not configured.
    UnknownSource,
}

/// What is kept of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Original {
    Event(Box<RefreshEvent>),
    /// Bytes that could not be parsed as an event.
    Raw(Bytes),
}

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub original: Original,
    pub failure_reason: FailureReason,
    pub error_message: String,
    /// The last one first.
    pub causes: Vec<String>,
    pub retry_count: u32,
    pub failed_at: Timestamp,
    pub worker_id: Owner,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    original_event: Option<Box<RefreshEvent>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw_event: Option<String>,
    failure_reason: FailureReason,
    error_message: String,
    #[serde(default)]
    stack_trace: Vec<String>,
    retry_count: u32,
    #[serde(with = "iso8601")]
    failed_at: Timestamp,
    worker_id: Owner,
}

impl Serialize for DeadLetter {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (original_event, raw_event) = match &self.original {
            Original::Event(event) => (Some(event.clone()), None),
            Original::Raw(bytes) => (None, Some(hex(bytes))),
        };
        let wire = Wire {
            original_event,
            raw_event,
            failure_reason: self.failure_reason,
            error_message: self.error_message.clone(),
            stack_trace: self.causes.clone(),
            retry_count: self.retry_count,
            failed_at: self.failed_at,
            worker_id: self.worker_id.clone(),
        };
        wire.serialize(to)
    }
}

impl<'de> Deserialize<'de> for DeadLetter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(from)?;
        let original = match (wire.original_event, wire.raw_event) {
            (Some(event), None) => Original::Event(event),
            (None, Some(text)) => {
                Original::Raw(unhex(&text).ok_or_else(|| D::Error::custom("rawEvent is not hexadecimal"))?)
            }
            _ => {
                return Err(D::Error::custom(
                    "one of originalEvent and rawEvent must be there",
                ));
            }
        };
        Ok(Self {
            original,
            failure_reason: wire.failure_reason,
            error_message: wire.error_message,
            causes: wire.stack_trace,
            retry_count: wire.retry_count,
            failed_at: wire.failed_at,
            worker_id: wire.worker_id,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Bytes> {
    let digit = |at: u8| char::from(at).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::super::event::an_event;
    use super::*;

    fn dead_letter(original: Original) -> DeadLetter {
        DeadLetter {
            original,
            failure_reason: FailureReason::Api5xx,
            error_message: "503 Service Unavailable".into(),
            causes: vec!["TIMEOUT: no whole answer within 2000 ms".into()],
            retry_count: 3,
            failed_at: Timestamp(1_794_821_400_250),
            worker_id: Owner::new("w-1").unwrap(),
        }
    }

    #[test]
    fn the_fields_on_the_wire() {
        let dead_letter = dead_letter(Original::Event(Box::new(an_event())));
        let wire = serde_json::to_value(&dead_letter).unwrap();
        assert_eq!(wire["originalEvent"]["eventId"], "6f1c");
        assert_eq!(wire["failureReason"], "API_5XX");
        assert_eq!(wire["stackTrace"][0], "TIMEOUT: no whole answer within 2000 ms");
        assert_eq!(wire["failedAt"], "2026-11-16T09:30:00.250Z");
        assert_eq!(
            (&wire["retryCount"], &wire["workerId"]),
            (&3.into(), &"w-1".into())
        );
        assert_eq!(serde_json::from_value::<DeadLetter>(wire).unwrap(), dead_letter);
    }

    #[test]
    fn bytes_that_are_no_event_come_back_as_they_were() {
        let bytes: Vec<u8> = (0..=255).collect();
        let dead_letter = dead_letter(Original::Raw(bytes.into()));
        let text = serde_json::to_string(&dead_letter).unwrap();
        assert_eq!(serde_json::from_str::<DeadLetter>(&text).unwrap(), dead_letter);
        for (from, to) in [("0001", "00x1"), ("0001", "001"), ("rawEvent", "other")] {
            assert!(serde_json::from_str::<DeadLetter>(&text.replacen(from, to, 1)).is_err());
        }
        let original = text.replace("API_5XX", "NEXON_API_4XX");
        let read: DeadLetter = serde_json::from_str(&original).unwrap();
        assert_eq!(read.failure_reason, FailureReason::Api4xx);
    }
}
