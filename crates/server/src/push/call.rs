//! One signed call to an address of the configuration.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, StatusCode, Url};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_source::punctual::{self, Punctual, Sent};
use tokio::time::Instant;

use super::sign::{Signer, seconds};
use crate::config::Secret;
use crate::telemetry;

/// Connections that nobody used for this long are closed before the other side does it.
const IDLE: Duration = Duration::from_secs(15);
const CONNECT: Duration = Duration::from_secs(10);

/// Shared by all targets: one pool of connections.
pub(crate) fn client() -> Result<Client, String> {
    made(builder())
}

/// For one target whose calls are taken from a budget: none is sent after its token is void, or without one.
pub(crate) fn punctual_client() -> Result<Client, String> {
    let punctual = Punctual { within: CONNECT };
    made(builder().connector_layer(punctual).retry(reqwest::retry::never()))
}

fn made(builder: ClientBuilder) -> Result<Client, String> {
    builder
        .build()
        .map_err(|error| format!("no HTTP client can be made: {error}"))
}

/// Redirects are not followed: only configured addresses are called.
fn builder() -> ClientBuilder {
    // Fails if there is one already, and that is as good.
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
    /// Longest answer, in bytes.
    pub(crate) max_answer: u64,
    /// It is sent by then, or not at all.
    pub(crate) send_by: Option<Instant>,
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing was sent: there was no connection in time.
    #[error("it could not be sent in time")]
    NotSent,
    /// Shown to people; names no secret.
    #[error("{0}")]
    Failed(String),
}

/// Where to call, and with what.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    client: Client,
    url: Url,
    signer: Option<Signer>,
    headers: HeaderMap,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Millis>,
    /// None if it was longer than allowed.
    pub(crate) body: Option<Bytes>,
}

impl Address {
    /// Which setting of `what` cannot be used, and why.
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
            let odd = || format!("{what}.headers: {name:?} or its value cannot be sent");
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

    /// Without query: it may hold a secret.
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
            let broken = |error: reqwest::Error| CallError::Failed(told(&error));
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
            let mut body = BytesMut::new();
            while let Some(piece) = response.chunk().await.map_err(broken)? {
                if (body.len() + piece.len()) as u64 > max_answer {
                    return Ok(Reply {
                        status,
                        retry_after,
                        body: None,
                    });
                }
                body.extend_from_slice(&piece);
            }
            Ok(Reply {
                status,
                retry_after,
                body: Some(body.freeze()),
            })
        };
        let ms = timeout.as_millis();
        let answer = tokio::time::timeout(timeout, call).await;
        answer.unwrap_or_else(|_| Err(CallError::Failed(format!("no answer within {ms} ms"))))
    }
}

/// The cause, without the address: its query may hold a secret.
pub(crate) fn told(error: &reqwest::Error) -> String {
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

/// Seconds, or a date as HTTP writes it.
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
    fn addresses_are_checked_and_shown_without_their_query() {
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
