//! One signed call to a configured URL.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, StatusCode, Url};
use tidegate_core::bulk::ThrottleScope;
use tidegate_core::secret::Secret;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_source::punctual::{self, Punctual, Sent};
use tokio::time::Instant;

use super::sign::{Signer, seconds};
use crate::telemetry;

/// The client closes a connection that was idle for this long, before the server does.
const IDLE: Duration = Duration::from_secs(15);
const CONNECT: Duration = Duration::from_secs(10);

/// Makes the client that all targets share, with one pool of connections.
pub(crate) fn client() -> Result<Client, String> {
    made(builder())
}

/// Makes a client for one target with a budget. It sends no call after the call's token has expired, and none without a
/// token.
pub(crate) fn punctual_client() -> Result<Client, String> {
    let punctual = Punctual { within: CONNECT };
    made(builder().connector_layer(punctual).retry(reqwest::retry::never()))
}

fn made(builder: ClientBuilder) -> Result<Client, String> {
    builder
        .build()
        .map_err(|error| format!("cannot make an HTTP client: {error}"))
}

/// The common settings. The client follows no redirects, so that it calls only configured URLs.
fn builder() -> ClientBuilder {
    // Fails if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .pool_idle_timeout(IDLE)
        .connect_timeout(CONNECT)
}

/// The limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within {
    pub(crate) timeout: Duration,
    /// The longest response, in bytes.
    pub(crate) max_answer: u64,
    /// The client sends the call by then, or not at all.
    pub(crate) send_by: Option<Instant>,
}

/// Why a call got no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// There was no connection in time, so the client sent nothing.
    #[error("the call could not be sent in time")]
    NotSent,
    /// People read it, so it contains no secret.
    #[error("{0}")]
    Failed(String),
}

/// A URL with its client, its signer and its headers.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    client: Client,
    url: Url,
    signer: Option<Signer>,
    headers: HeaderMap,
}

/// The response of a target.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Millis>,
    /// Whose calls were too many, if the response says so.
    pub(crate) scope: Option<ThrottleScope>,
    /// `None` if it was longer than allowed.
    pub(crate) body: Option<Bytes>,
}

impl Address {
    /// Checks the settings of `what`. The error names the setting and what is wrong with it.
    pub(crate) fn new(
        client: &Client,
        what: &str,
        url: &str,
        secret: Option<&str>,
        headers: &BTreeMap<String, Secret>,
    ) -> Result<Self, String> {
        let wanted = "it must be http:// or https:// with a host and without credentials";
        let url = Url::parse(url).map_err(|error| format!("{what}.url: {error}; {wanted}"))?;
        let fits = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none();
        if !fits {
            return Err(format!("{what}.url: {wanted}"));
        }
        let signer = secret.map(Signer::new).transpose();
        let signer = signer.map_err(|error| format!("{what}.secret {error}"))?;
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let odd = || format!("{what}.headers: {name:?} or its value is not a valid HTTP header");
            let key = HeaderName::try_from(name).map_err(|_| odd())?;
            let mut value = HeaderValue::try_from(value.expose()).map_err(|_| odd())?;
            value.set_sensitive(true);
            all.insert(key, value);
        }
        Ok(Self {
            client: client.clone(),
            url,
            signer,
            headers: all,
        })
    }

    /// The URL without its query, which may hold a secret.
    pub(crate) fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }

    /// Posts `body`.
    pub(crate) async fn post(
        &self,
        id: &str,
        now: Timestamp,
        body: Vec<u8>,
        extra: &[(&'static str, String)],
        within: Within,
    ) -> Result<Reply, CallError> {
        let Within {
            timeout,
            max_answer,
            send_by,
        } = within;
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let text = |value: String| {
            HeaderValue::try_from(value).map_err(|error| CallError::Failed(error.to_string()))
        };
        headers.insert("webhook-id", text(id.to_owned())?);
        headers.insert("webhook-timestamp", HeaderValue::from(seconds(now)));
        if let Some(signer) = &self.signer {
            headers.insert("webhook-signature", text(signer.signature(id, now, &body))?);
        }
        if let Some(parent) = telemetry::traceparent() {
            headers.insert("traceparent", text(parent)?);
        }
        for (name, value) in extra {
            headers.insert(*name, text(value.clone())?);
        }
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        let call = async {
            let broken = |error: reqwest::Error| CallError::Failed(describe(&error));
            let mut response = match punctual::send(request, send_by).await {
                Sent::Answered(answer) => answer.map_err(broken)?,
                Sent::Late => return Err(CallError::NotSent),
                Sent::Unreachable(error) => {
                    return Err(CallError::Failed(format!("no connection: {error}")));
                }
            };
            let (status, retry_after) = (
                response.status(),
                retry_after(
                    response.headers(),
                    SystemTime::UNIX_EPOCH + Duration::from_millis(now.0),
                ),
            );
            let scope = throttle_scope(response.headers());
            let mut body = BytesMut::new();
            while let Some(piece) = response.chunk().await.map_err(broken)? {
                if (body.len() + piece.len()) as u64 > max_answer {
                    return Ok(Reply {
                        status,
                        retry_after,
                        scope,
                        body: None,
                    });
                }
                body.extend_from_slice(&piece);
            }
            Ok(Reply {
                status,
                retry_after,
                scope,
                body: Some(body.freeze()),
            })
        };
        let ms = timeout.as_millis();
        let answer = tokio::time::timeout(timeout, call).await;
        answer.unwrap_or_else(|_| Err(CallError::Failed(format!("no response within {ms} ms"))))
    }
}

/// Describes the cause of an error without the URL, whose query may hold a secret.
pub(crate) fn describe(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let what = if error.is_connect() {
        "no connection"
    } else {
        "the call failed"
    };
    format!("{what}: {deepest}")
}

/// The header `tidegate-throttle-scope`: `group` or `queue`.
fn throttle_scope(headers: &HeaderMap) -> Option<ThrottleScope> {
    match headers.get("tidegate-throttle-scope")?.to_str().ok()? {
        scope if scope.eq_ignore_ascii_case("group") => Some(ThrottleScope::Group),
        scope if scope.eq_ignore_ascii_case("queue") => Some(ThrottleScope::Queue),
        _ => None,
    }
}

/// Parses `Retry-After`: seconds, or an HTTP date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Millis> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Millis(seconds.saturating_mul(1_000)));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let wait = at.duration_since(now).unwrap_or_default();
    Some(Millis(wait.as_millis() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 01 Mar 2026 09:30:00 GMT").unwrap();
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(read("7"), Some(Millis(7_000)));
        assert_eq!(read("Sun, 01 Mar 2026 09:30:05 GMT"), Some(Millis(5_000)));
        assert_eq!(read("Sun, 01 Mar 2026 09:29:00 GMT"), Some(Millis(0)));
        assert_eq!(read("soon"), None);
        assert_eq!(read("99999999999999999999"), None);
    }

    #[test]
    fn urls_are_checked_and_shown_without_their_query() {
        let client = client().unwrap();
        let address = |url| Address::new(&client, "targets.mailer", url, None, &BTreeMap::new());
        let shown = address("https://mail.example/send?token=secret").unwrap().shown();
        assert_eq!(shown, "https://mail.example/send");
        for odd in [
            "",
            "mail.example",
            "ftp://mail.example/",
            "http://user:secret@mail.example/",
            "file:///etc",
        ] {
            let error = address(odd).unwrap_err();
            assert!(error.starts_with("targets.mailer.url: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
