//! Encodes events and dead letters as bytes in the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_core::ids::{CorrelationId, EventId, RecordId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::dead_letter::DeadLetter;
use tidegate_core::refresh::event::{Reason, RefreshEvent, SchemaVersion};
use tidegate_core::time::Timestamp;
use tidegate_log::{Record, Topic};

/// The topic for events of a priority.
pub(crate) fn topic(priority: Priority) -> Topic {
    match priority {
        Priority::High => Topic::High,
        Priority::Low => Topic::Low,
    }
}

/// All events of one record share one key and so stay in order. The length prefix separates two records whose
/// source and key concatenate to the same text.
pub(crate) fn log_key(record: &RecordId) -> Bytes {
    Bytes::from(format!(
        "{}:{}/{}",
        record.source.as_str().len(),
        record.source,
        record.key
    ))
}

#[derive(Debug, Clone)]
pub(crate) struct EventParams {
    pub(crate) record: RecordId,
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) priority: Priority,
    pub(crate) reason: Reason,
    pub(crate) requested_at: Timestamp,
    pub(crate) correlation: Option<CorrelationId>,
    pub(crate) version: Version,
}

pub(crate) fn event(params: EventParams) -> RefreshEvent {
    let id = random_id();
    let correlation_id = params
        .correlation
        .unwrap_or_else(|| CorrelationId::new(&id).expect("an id of 36 characters is short and not empty"));
    RefreshEvent {
        schema_version: SchemaVersion::CURRENT,
        event_id: EventId::new(&id).expect("an id of 36 characters is short and not empty"),
        source: params.record.source,
        key: params.record.key,
        params: params.params,
        priority: params.priority,
        reason: params.reason,
        requested_at: params.requested_at,
        correlation_id,
        version: params.version,
    }
}

pub(crate) fn encode(event: &RefreshEvent) -> Bytes {
    Bytes::from(serde_json::to_vec(event).expect("an event has only text and numbers"))
}

pub(crate) fn decode(bytes: &[u8]) -> Result<RefreshEvent, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

pub(crate) fn record(event: &RefreshEvent) -> Record {
    Record {
        topic: topic(event.priority),
        key: log_key(&event.record()),
        value: encode(event),
    }
}

pub(crate) fn dead_record(key: Bytes, dead_letter: &DeadLetter) -> Record {
    Record {
        topic: Topic::Dead,
        key,
        value: Bytes::from(serde_json::to_vec(dead_letter).expect("a dead letter has only text and numbers")),
    }
}

pub(crate) fn decode_dead(bytes: &[u8]) -> Result<DeadLetter, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// A random UUID (version 4).
pub(crate) fn random_id() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use tidegate_core::ids::{RecordKey, SourceId};

    use super::*;

    fn id(source: &str, key: &str) -> RecordId {
        RecordId {
            source: SourceId::new(source).unwrap(),
            key: RecordKey::new(key).unwrap(),
        }
    }

    #[test]
    fn records_have_keys_of_their_own() {
        assert_ne!(log_key(&id("a/b", "c")), log_key(&id("a", "b/c")));
    }

    #[test]
    fn events_come_back_as_they_went() {
        let event = event(EventParams {
            record: id("characters", "7"),
            params: BTreeMap::from([("id".to_owned(), "a1b2".to_owned())]),
            priority: Priority::High,
            reason: Reason::Stale,
            requested_at: Timestamp(1_790_000_000_123),
            correlation: None,
            version: Version(7),
        });
        assert_eq!(decode(&encode(&event)).unwrap(), event);
        assert_eq!(event.event_id.as_str().len(), 36);
        assert_eq!(event.event_id.as_str().as_bytes()[14], b'4');
    }
}
