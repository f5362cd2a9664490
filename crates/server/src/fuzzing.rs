//! The entry point for fuzzing the request parsers: `fuzz/` and the tests below call it.
//!
//! For any bytes, no parser panics or allocates more than its input, and what a parser accepts survives a round trip.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_api as api;

use crate::bulk::convert;
use crate::extract::{cursor, cursor_text};
use crate::ndjson::Lines;

/// Parses `data` as every kind of request.
pub fn requests(data: &[u8]) {
    round_trip::<api::NewJob>(data);
    round_trip::<api::EnqueueJobs>(data);
    round_trip::<api::Lease>(data);
    round_trip::<api::Extend>(data);
    round_trip::<api::Settle>(data);
    round_trip::<api::OpenBatch>(data);
    round_trip::<api::PatchGroup>(data);
    round_trip::<api::PatchLimits>(data);
    round_trip::<api::DeadSelection>(data);
    round_trip::<api::Reason>(data);
    let _json_or_base64 = convert::raw(&Bytes::copy_from_slice(data));
    if let Ok(text) = std::str::from_utf8(data) {
        if let Some(lease) = convert::lease(text) {
            assert_eq!(convert::lease(&convert::lease_text(lease)), Some(lease));
        }
        if let Ok(Some(parsed)) = cursor(Some(text)) {
            assert_eq!(cursor(Some(&cursor_text(parsed))).ok().flatten(), Some(parsed));
        }
        if let Ok(time) = text.parse::<api::Time>() {
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
    lines(data);
}

/// A value that a parser accepts serializes to a text that parses to the same value.
fn round_trip<T: DeserializeOwned + Serialize>(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(data) else {
        return;
    };
    let Ok(text) = serde_json::to_vec(&value) else {
        panic!(
            "{} was parsed and cannot be serialized",
            std::any::type_name::<T>()
        )
    };
    let once_more = serde_json::from_slice::<T>(&text)
        .ok()
        .and_then(|value| serde_json::to_vec(&value).ok());
    assert_eq!(once_more.as_deref(), Some(&text[..]));
}

/// The lines are the same however the body is cut into chunks.
fn lines(data: &[u8]) {
    let piece = usize::from(data.first().copied().unwrap_or(0) % 16) + 1;
    let pieces: Vec<Result<Bytes, std::io::Error>> = data
        .chunks(piece)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let mut lines = Lines::new(body, u64::MAX, u64::MAX, Duration::from_secs(60));
    let blank = |line: &&[u8]| !line.iter().all(u8::is_ascii_whitespace);
    let mut wanted = data.split(|&byte| byte == b'\n').filter(blank);
    // The body is complete, so the reader never waits; it needs a runtime only for the clock.
    let read = async {
        while let Ok(Some(line)) = lines.next().await {
            assert_eq!(Some(&line[..]), wanted.next());
        }
        assert_eq!(wanted.next(), None);
    };
    match tokio::runtime::Handle::try_current() {
        Ok(_) => assert!(read.now_or_never().is_some(), "the reader waited"),
        Err(_) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            runtime.expect("a runtime of one thread").block_on(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Valid requests. Mutations of them reach deeper into the parsers than noise does.
    const SEEDS: &[&str] = &[
        r#"{"group":"g","batch":"a","id":"1","type":"T","priority":"HIGH","payload":{"a":[1,2,{"b":null}]},"runAt":"2026-03-01T09:30:00Z"}"#,
        r#"{"jobs":[{"id":"1","type":"T"},{"id":"2","type":"T","payload":"\ud83c\udf0a"}]}"#,
        r#"{"queue":"default","max":10,"waitMs":100,"worker":"w"}"#,
        r#"{"leases":["1.2","ff.ff"],"durationMs":1000}"#,
        r#"{"settlements":[{"lease":"1.2","outcome":"COMPLETED","result":{"x":1e400}},{"lease":"1.3","outcome":"RETRY","error":"e","retryAfterMs":5}]}"#,
        r#"{"globalRps":null,"queues":{"a":1.5,"b":null},"why":"w"}"#,
        r#"{"jobs":[{"group":"g","id":"1"}],"why":"w"}"#,
        "{\"id\":\"1\",\"type\":\"T\"}\n\n{\"id\":\"2\",\"type\":\"T\"}\r\n",
        "c1f",
        "1f.2e",
        "2026-03-01T09:30:00.25+01:00",
    ];

    #[test]
    fn valid_requests_are_parsed() {
        for seed in SEEDS {
            requests(seed.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            requests(&data);
        }

        #[test]
        fn mutated_requests_are_survived(
            seed in 0..SEEDS.len(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
        ) {
            let mut data = SEEDS[seed].as_bytes().to_vec();
            for (at, byte, how) in changes {
                let at = at.index(data.len().max(1));
                match how {
                    0 if at < data.len() => data[at] = byte,
                    1 if at < data.len() => { data.remove(at); }
                    _ => data.insert(at.min(data.len()), byte),
                }
            }
            requests(&data);
        }
    }
}
