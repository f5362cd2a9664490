//! Describes failures without secrets, keys or URLs.

use std::io::ErrorKind;
use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use tidegate_core::time::Millis;

use crate::fetch::{FetchOutcome, TransientCode};

/// Limit: codes of providers are short words.
const MAX_CODE_BYTES: usize = 64;

/// A call without a response, or without all of it.
pub(super) fn broken(error: &reqwest::Error) -> FetchOutcome {
    let cause = deepest(error);
    if error.is_timeout() {
        let message = if error.is_connect() {
            "no connection in time"
        } else {
            "no answer in time"
        };
        return FetchOutcome::transient(TransientCode::Timeout, message);
    }
    let what = if error.is_connect() {
        "no connection"
    } else {
        "the call broke off"
    };
    FetchOutcome::transient(TransientCode::Connection, format!("{what}: {cause}"))
}

/// A connection that failed after the call had stopped waiting for it.
pub(super) fn unreachable(error: &(dyn std::error::Error + 'static)) -> FetchOutcome {
    let is_timeout = |error: &(dyn std::error::Error + 'static)| {
        let io = error.downcast_ref::<std::io::Error>();
        error.is::<tokio::time::error::Elapsed>() || io.is_some_and(|io| io.kind() == ErrorKind::TimedOut)
    };
    let mut deepest = error;
    let mut timed_out = is_timeout(deepest);
    while let Some(source) = deepest.source() {
        deepest = source;
        timed_out |= is_timeout(deepest);
    }
    if timed_out {
        return FetchOutcome::transient(TransientCode::Timeout, "no connection in time");
    }
    FetchOutcome::transient(TransientCode::Connection, format!("no connection: {deepest}"))
}

/// The innermost cause: reqwest's own messages repeat the URL with its query.
pub(super) fn deepest(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    match deepest.downcast_ref::<reqwest::Error>() {
        Some(_) => "no further cause is known".to_owned(),
        None => deepest.to_string(),
    }
}

/// Seconds, or an HTTP date. A date counts from the provider's own Date header, because its clock may be far off ours.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Millis> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Millis(seconds.saturating_mul(1_000)));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let now = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let wait: Duration = at.duration_since(now).unwrap_or_default();
    Some(Millis(wait.as_millis() as u64))
}

/// The word at a dotted path of a JSON object, if it looks like a code and nothing else.
pub(super) fn provider_code(body: &[u8], path: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let found = path.split('.').try_fold(&value, |at, name| at.get(name))?;
    let code = match found {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (code.len() <= MAX_CODE_BYTES && code.bytes().all(fits)).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_of_the_providers_clock() {
        let read = |after: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, after.parse().unwrap());
            if let Some(date) = date {
                headers.insert(DATE, date.parse().unwrap());
            }
            retry_after(&headers)
        };
        assert_eq!(read("7", None), Some(Millis(7_000)));
        assert_eq!(read("99999999999999999999", None), None);
        assert_eq!(read("soon", None), None);
        let (now, later, earlier) = (
            "Tue, 01 Mar 2016 09:30:00 GMT",
            "Tue, 01 Mar 2016 09:30:05 GMT",
            "Tue, 01 Mar 2016 09:29:00 GMT",
        );
        assert_eq!(read(later, Some(now)), Some(Millis(5_000)));
        assert_eq!(read(earlier, Some(now)), Some(Millis(0)));
        assert_eq!(read(later, None), None);
    }

    #[test]
    fn codes_are_short_words() {
        let code = |body: &str| provider_code(body.as_bytes(), "error.name");
        assert_eq!(
            code(r#"{"error":{"name":"OPENAPI00003"}}"#).as_deref(),
            Some("OPENAPI00003")
        );
        assert_eq!(code(r#"{"error":{"name":42}}"#).as_deref(), Some("42"));
        assert_eq!(code(r#"{"error":{"name":"your key hunter2"}}"#), None);
        assert_eq!(code(r#"{"error":"x"}"#), None);
        assert_eq!(code("<html>"), None);
    }
}
