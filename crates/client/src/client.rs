//! The client: the service's address, requests, and retries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as HttpError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_api::{Problem, Reason};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::bulk::submit_stream::SourceError;
use crate::connect::{self, Body, Http, Trust};
use crate::error::ClientError;

const TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_FOR: Duration = Duration::from_secs(15);
const JSON: &str = "application/json";
pub(crate) const NDJSON: &str = "application/x-ndjson";
pub(crate) const EVENTS: &str = "text/event-stream";

pub(crate) type Answered = Response<Incoming>;

/// A client of one service. Clones are cheap and share their connections.
///
/// The client retries a request until the service answers, or until the retry budget
/// ([`ClientBuilder::retry_for`]) is used up. It repeats a request that may have taken effect only if the
/// repetition changes nothing.
///
/// ```no_run
/// use std::time::Duration;
/// use tidegate_client::Client;
///
/// # async fn example() -> Result<(), tidegate_client::ClientError> {
/// let client = Client::builder("https://tidegate.example.org")
///     .key("tg_…")
///     .timeout(Duration::from_secs(10))
///     .retry_for(Duration::from_secs(60))
///     .build()?;
/// let stats = client.stats().await?;
/// println!("{} jobs wait", stats.counts.waiting);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
    retry_for: Duration,
}

struct Shared {
    http: Http,
    /// Without a slash at the end.
    base: String,
    key: Option<HeaderValue>,
    user_agent: HeaderValue,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the key.
        f.debug_struct("Client")
            .field("url", &self.shared.base)
            .finish_non_exhaustive()
    }
}

/// The settings of a [`Client`]; [`Client::builder`] creates it.
#[derive(Clone)]
pub struct ClientBuilder {
    url: String,
    key: Option<String>,
    user_agent: String,
    timeout: Duration,
    retry_for: Duration,
    roots: Option<Vec<u8>>,
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Sets the API key, which the client sends with every request. Default: none.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the longest duration of one attempt. Default: 30 seconds. A lease call adds its own wait; streams,
    /// replays and purges have no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the retry budget: how long the client repeats a request while the service is unavailable. Default:
    /// 15 seconds; zero disables retries.
    ///
    /// The client repeats a request that may have taken effect only if the repetition changes nothing.
    pub fn retry_for(mut self, budget: Duration) -> Self {
        self.retry_for = budget;
        self
    }

    /// Sets the `User-Agent` header. Default: `tidegate-client/` and the version.
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = name.into();
        self
    }

    /// Trusts only certificates that these roots (PEM) signed. Default: the roots of the operating system.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Checks the settings and returns the client. It connects with the first request.
    pub fn build(self) -> Result<Client, ClientError> {
        let (base, https) = base(&self.url)?;
        let trust = match (https, self.roots) {
            (false, _) => Trust::Nobody,
            (true, None) => Trust::Platform,
            (true, Some(pem)) => Trust::Roots(pem),
        };
        let key = self.key.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.trim())).map_err(|_| {
                ClientError::Setting("the key has characters that no key has; is it the right file?".into())
            })?;
            value.set_sensitive(true);
            Ok::<_, ClientError>(value)
        });
        let user_agent = HeaderValue::try_from(&self.user_agent).map_err(|_| {
            ClientError::Setting(format!(
                "user agent {:?} cannot be sent in a header",
                self.user_agent
            ))
        })?;
        Ok(Client {
            shared: Arc::new(Shared {
                http: connect::http(trust)?,
                base,
                key: key.transpose()?,
                user_agent,
            }),
            timeout: self.timeout,
            retry_for: self.retry_for,
        })
    }
}

/// Returns the base address without a slash at the end, and whether it uses TLS.
fn base(url: &str) -> Result<(String, bool), ClientError> {
    let wrong = |why: &str| {
        ClientError::Setting(format!(
            "{url:?} is not the address of a service: {why}; write it like http://127.0.0.1:7171"
        ))
    };
    let uri: Uri = url.parse().map_err(|_| wrong("it cannot be read"))?;
    let https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("it begins with neither http:// nor https://")),
    };
    let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
    if authority.as_str().contains('@') {
        return Err(ClientError::Setting(
            "the address of the service has credentials in it; give the key apart from it".into(),
        ));
    }
    if uri.query().is_some() {
        return Err(wrong("it has a question mark"));
    }
    let scheme = if https { "https" } else { "http" };
    let path = uri.path().trim_end_matches('/');
    Ok((format!("{scheme}://{authority}{path}"), https))
}

/// One request.
#[derive(Debug)]
pub(crate) struct Call {
    method: Method,
    address: Address,
    body: Bytes,
    media: &'static str,
    /// Whether a repetition changes nothing.
    idempotent: bool,
    patience: Patience,
    /// The identity of a visitor of a room.
    cookie: Option<HeaderValue>,
}

#[derive(Debug, Clone, Copy)]
enum Patience {
    /// The client's timeout plus this.
    Plus(Duration),
    Endless,
}

impl Call {
    pub(crate) fn new(method: Method, address: Address) -> Self {
        Self {
            idempotent: method != Method::POST,
            method,
            address,
            body: Bytes::new(),
            media: JSON,
            patience: Patience::Plus(Duration::ZERO),
            cookie: None,
        }
    }

    pub(crate) fn get(address: Address) -> Self {
        Self::new(Method::GET, address)
    }

    pub(crate) fn post(address: Address) -> Self {
        Self::new(Method::POST, address)
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body);
        let body = body.map_err(|error| ClientError::Input(format!("cannot be written as JSON: {error}")))?;
        self.body = body.into();
        Ok(self)
    }

    pub(crate) fn lines(mut self, body: Bytes) -> Self {
        self.body = body;
        self.media = NDJSON;
        self
    }

    pub(crate) fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Marks a request that changes more when it runs twice.
    pub(crate) fn once(mut self) -> Self {
        self.idempotent = false;
        self
    }

    /// Adds the time for which the service may delay its answer.
    pub(crate) fn waits(mut self, wait: Duration) -> Self {
        self.patience = Patience::Plus(wait);
        self
    }

    pub(crate) fn cookie(mut self, cookie: &HeaderValue) -> Self {
        self.cookie = Some(cookie.clone());
        self
    }

    pub(crate) fn endless(mut self) -> Self {
        self.patience = Patience::Endless;
        self
    }
}

impl Client {
    /// Creates a client without a key and with the default settings.
    pub fn new(url: impl Into<String>) -> Result<Self, ClientError> {
        Self::builder(url).build()
    }

    /// Starts the settings of a client for the service at this address, like `http://127.0.0.1:7171`.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            url: url.into(),
            key: None,
            user_agent: concat!("tidegate-client/", env!("CARGO_PKG_VERSION")).into(),
            timeout: TIMEOUT,
            retry_for: RETRY_FOR,
            roots: None,
        }
    }

    /// Returns the base address of the service.
    pub fn url(&self) -> &str {
        &self.shared.base
    }

    /// Returns the client with another retry budget.
    pub fn with_retry_for(mut self, budget: Duration) -> Self {
        self.retry_for = budget;
        self
    }

    pub(crate) fn retry_budget(&self) -> Duration {
        self.retry_for
    }

    /// Repeats a request until it succeeds, fails for good, or uses up the retry budget.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        Ok(self.call_with_headers(call).await?.1)
    }

    /// The same, with the headers of the response.
    pub(crate) async fn call_with_headers<T: DeserializeOwned>(
        &self,
        call: Call,
    ) -> Result<(HeaderMap, T), ClientError> {
        let (head, body) = self.fetch_response(&call).await?.into_parts();
        let value = serde_json::from_slice(&body).map_err(|error| {
            let reason = format!("{} {}: {error}", call.method, call.address.as_str());
            ClientError::answer(self.url(), http::StatusCode::OK, reason)
        })?;
        Ok((head.headers, value))
    }

    pub(crate) async fn fetch(&self, call: &Call) -> Result<Bytes, ClientError> {
        Ok(self.fetch_response(call).await?.into_body())
    }

    async fn fetch_response(&self, call: &Call) -> Result<Response<Bytes>, ClientError> {
        let begun = Instant::now();
        let mut backoff = Backoff::default();
        loop {
            let error = match self.once(call).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if !error.allows_again(call.idempotent) {
                return Err(error);
            }
            let pause = backoff.pause(error.retry_after());
            if begun.elapsed() + pause > self.retry_for {
                return Err(error);
            }
            tracing::debug!(%error, "trying again in {} ms", pause.as_millis());
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&self, call: &Call) -> Result<Response<Bytes>, ClientError> {
        let whole = async {
            let body = Full::new(call.body.clone()).map_err(|never| match never {});
            // An empty body means no arguments. Empty NDJSON still needs its media type, to differ from JSON.
            let media = (!call.body.is_empty() || call.media != JSON).then_some(call.media);
            let answer = self
                .send_as(
                    call.cookie.as_ref(),
                    call.method.clone(),
                    &call.address,
                    media,
                    JSON,
                    body.boxed_unsync(),
                )
                .await?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await;
            let body = body.map_err(|error| ClientError::transport(self.url(), &error, true))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        match call.patience {
            Patience::Endless => whole.await,
            Patience::Plus(wait) => {
                let after = self.timeout + wait;
                let late = |_| ClientError::Timeout {
                    url: self.shared.base.clone(),
                    after,
                };
                tokio::time::timeout(after, whole).await.map_err(late)?
            }
        }
    }

    /// Sends one request, and turns every status but success into an error. The caller reads the body.
    pub(crate) async fn send(
        &self,
        method: Method,
        address: &Address,
        media: Option<&'static str>,
        accept: &'static str,
        body: Body,
    ) -> Result<Answered, ClientError> {
        self.send_as(None, method, address, media, accept, body).await
    }

    /// Sends one request with the cookie of a visitor.
    pub(crate) async fn send_as(
        &self,
        cookie: Option<&HeaderValue>,
        method: Method,
        address: &Address,
        media: Option<&'static str>,
        accept: &'static str,
        body: Body,
    ) -> Result<Answered, ClientError> {
        let shared = &*self.shared;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{}", shared.base, address.as_str()))
            .header(ACCEPT, accept)
            .header(USER_AGENT, &shared.user_agent);
        if let Some(media) = media {
            request = request.header(CONTENT_TYPE, media);
        }
        if let Some(key) = &shared.key {
            request = request.header(AUTHORIZATION, key);
        }
        if let Some(cookie) = cookie {
            request = request.header(COOKIE, cookie);
        }
        let request = request.body(body).map_err(|error| {
            ClientError::Input(format!("{} cannot be asked for: {error}", address.as_str()))
        })?;
        let answer = shared.http.request(request).await;
        let answer = answer.map_err(|error| self.broken(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.refused(answer).await)
    }

    fn broken(&self, error: &HttpError) -> ClientError {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(SourceError(text)) = error.downcast_ref() {
                return ClientError::Input(text.clone());
            }
            cause = error.source();
        }
        ClientError::transport(self.url(), error, !error.is_connect())
    }

    async fn refused(&self, answer: Answered) -> ClientError {
        let status = answer.status();
        let body = match answer.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return ClientError::transport(self.url(), &error, true),
        };
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => {
                let text = String::from_utf8_lossy(&body);
                let text: String = text.trim().chars().take(200).collect();
                ClientError::answer(self.url(), status, text)
            }
        }
    }
}

/// The reason for a command, as the body of a request.
pub(crate) fn reason(why: Option<&str>) -> Reason {
    Reason {
        why: why.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_says_what_would_be_right() {
        for url in [
            "",
            "127.0.0.1:7171",
            "localhost",
            "ftp://localhost",
            "http://",
            "http://a b/",
        ] {
            let error = Client::new(url).unwrap_err().to_string();
            assert!(
                error.contains("write it like http://127.0.0.1:7171"),
                "{url:?}: {error}"
            );
        }
        let error = Client::new("http://key@localhost").unwrap_err().to_string();
        assert!(!error.contains("key@"), "{error}");
        for (url, base) in [
            ("http://localhost:7171/", "http://localhost:7171"),
            ("https://example.org/tide/", "https://example.org/tide"),
            ("http://[::1]:7171", "http://[::1]:7171"),
        ] {
            assert_eq!(super::base(url).unwrap().0, base);
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let builder = Client::builder("http://localhost:1").key("tg_secret");
        assert!(!format!("{builder:?}").contains("secret"));
        let client = builder.build().unwrap();
        assert!(!format!("{client:?}").contains("secret"));
        let error = Client::builder("http://localhost:1").key("two\nlines").build();
        assert!(error.unwrap_err().to_string().contains("the key has characters"));
    }

    #[test]
    fn a_file_without_certificate_is_refused() {
        let error = Client::builder("https://localhost:1")
            .root_certificate("hello")
            .build();
        let error = error.unwrap_err().to_string();
        assert!(error.contains("it must be PEM"), "{error}");
    }
}
