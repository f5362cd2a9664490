//! Fetches records over HTTP: one GET, and every response becomes an outcome.

mod body;
mod errors;
pub mod punctual;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, Response, Url};
use tidegate_core::budget::asks_for_time;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::fetch::{FetchOutcome, FetchParams, Fetcher, PermanentCode, TransientCode};
use crate::settings::{SettingsError, SourceSettings};
use crate::template::{TemplateError, UrlTemplate};
use body::{Encoding, Reader};
use punctual::{Punctual, Sent};

/// The client closes connections that were idle for this long, before the server does.
const IDLE: Duration = Duration::from_secs(15);
/// Limit: bytes read of a 4xx response.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Fetches the records of one source.
pub struct HttpFetcher {
    client: Client,
    template: UrlTemplate,
    headers: HeaderMap,
    settings: SourceSettings,
    reader: Arc<Reader>,
    /// Decompression and projection are CPU work: more of it in parallel would only take memory.
    places: Arc<Semaphore>,
}

impl HttpFetcher {
    /// Reads the secrets. The error names the setting that cannot be used, and why.
    pub fn new(settings: SourceSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        let template = settings.template()?;
        let headers = headers(&settings)?;
        let client = client(&settings)?;
        let reader = Reader::new(
            settings.projection()?,
            settings.projection_version,
            settings.max_response_bytes,
        );
        let places = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(Self {
            client,
            template,
            headers,
            settings,
            reader: Arc::new(reader),
            places: Arc::new(Semaphore::new(places)),
        })
    }

    pub fn settings(&self) -> &SourceSettings {
        &self.settings
    }

    fn address(&self, params: &FetchParams) -> Result<Url, FetchOutcome> {
        let bad_key = |error: String| FetchOutcome::permanent(PermanentCode::BadKey, error);
        self.settings
            .key
            .check(&params.key)
            .map_err(|error| bad_key(error.to_string()))?;
        self.template
            .fill(&params.key, &params.params)
            .map_err(|error| match error {
                TemplateError::Missing(_) => {
                    FetchOutcome::permanent(PermanentCode::MissingParam, error.to_string())
                }
                _ => bad_key(error.to_string()),
            })
    }

    async fn call(&self, url: Url, send_by: Option<Instant>) -> FetchOutcome {
        let request = self.client.get(url).headers(self.headers.clone());
        let response = match punctual::send(request, send_by).await {
            Sent::Answered(Ok(response)) => response,
            Sent::Answered(Err(error)) => return errors::broken(&error),
            Sent::Late => return FetchOutcome::NotSent,
            Sent::Unreachable(error) => return errors::unreachable(&*error),
        };
        let status = response.status();
        if status.is_success() {
            return self.record(response).await;
        }
        if status.is_redirection() {
            let message =
                format!("the provider answers {status}: the record is elsewhere; it is not followed");
            return FetchOutcome::permanent(PermanentCode::Redirect, message);
        }
        self.refusal(status, response).await
    }

    async fn record(&self, mut response: Response) -> FetchOutcome {
        let encoding = match Encoding::of(response.headers().get(CONTENT_ENCODING)) {
            Ok(encoding) => encoding,
            Err(message) => return FetchOutcome::permanent(PermanentCode::WrongType, message),
        };
        if is_page(response.headers()) {
            let message = "the provider answers with a page for people (text/html) instead of a record";
            return FetchOutcome::permanent(PermanentCode::WrongType, message);
        }
        let body = match body::read(&mut response, self.settings.max_response_bytes).await {
            Ok(body) => body,
            Err(outcome) => return outcome,
        };
        let Ok(place) = self.places.clone().acquire_owned().await else {
            return FetchOutcome::transient(TransientCode::Connection, "the source is being closed");
        };
        let reader = self.reader.clone();
        let read = tokio::task::spawn_blocking(move || {
            let outcome = reader.outcome(&body, encoding);
            drop(place);
            outcome
        });
        read.await.unwrap_or_else(|error| {
            let message = format!("reading the answer failed: {error}");
            FetchOutcome::permanent(PermanentCode::ParseError, message)
        })
    }

    async fn refusal(&self, status: StatusCode, mut response: Response) -> FetchOutcome {
        let retry_after = errors::retry_after(response.headers());
        if asks_for_time(status.as_u16(), retry_after) {
            return FetchOutcome::Throttled { retry_after };
        }
        let message = format!("the provider answers {status}");
        let later = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY);
        if status.is_server_error() || later {
            return FetchOutcome::transient(TransientCode::Api5xx, message);
        }
        let code = self.provider_code(&mut response).await;
        let message = match &code {
            Some(code) => format!("{message} with the code {code}"),
            None => message,
        };
        let is_absent = |code: &String| self.settings.absent_codes.contains(code);
        if self.settings.absent_statuses.contains(&status.as_u16()) || code.as_ref().is_some_and(is_absent) {
            let code = code.unwrap_or_else(|| status.as_str().to_owned());
            return FetchOutcome::Absent { code, message };
        }
        FetchOutcome::permanent(PermanentCode::Api4xx, message)
    }

    async fn provider_code(&self, response: &mut Response) -> Option<String> {
        let path = self.settings.error_code_field.as_ref()?;
        let encoding = Encoding::of(response.headers().get(CONTENT_ENCODING)).ok()?;
        let body = body::read(response, MAX_ERROR_BYTES).await.ok()?;
        let text = body::unpacked(&body, encoding, MAX_ERROR_BYTES).ok()?;
        errors::provider_code(&text, path)
    }
}

#[async_trait::async_trait]
impl Fetcher for HttpFetcher {
    async fn fetch(&self, params: FetchParams) -> FetchOutcome {
        let url = match self.address(&params) {
            Ok(url) => url,
            Err(outcome) => return outcome,
        };
        let timeout = Duration::from(self.settings.timeout_ms);
        let left = params
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let within = left.map_or(timeout, |left| left.min(timeout));
        let answered = tokio::time::timeout(within, self.call(url, params.send_by)).await;
        answered.unwrap_or_else(|_| {
            let message = format!("no whole answer within {} ms", within.as_millis());
            FetchOutcome::transient(TransientCode::Timeout, message)
        })
    }
}

/// Leaves out headers and path.
impl fmt::Debug for HttpFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpFetcher({}, {:?})", self.settings.id, self.template)
    }
}

fn client(settings: &SourceSettings) -> Result<Client, SettingsError> {
    // Fails if one is installed already, which is just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        // No budget would cover the call of a redirect, and it might go to a host that nobody named.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        // This module decompresses bodies itself, to bound both sizes.
        .no_gzip()
        .no_deflate()
        .no_brotli()
        .no_zstd()
        // No budget would cover an automatic retry either.
        .retry(reqwest::retry::never())
        .pool_idle_timeout(IDLE)
        .connect_timeout(settings.connect_timeout_ms.into())
        .connector_layer(Punctual {
            within: settings.connect_timeout_ms.into(),
        })
        .build();
    client.map_err(|error| {
        settings.wrong(
            "url",
            format!("failed to create an HTTP client: {}", errors::deepest(&error)),
        )
    })
}

fn headers(settings: &SourceSettings) -> Result<HeaderMap, SettingsError> {
    let mut all = HeaderMap::new();
    all.insert(ACCEPT, HeaderValue::from_static("application/json"));
    all.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    for (name, setting) in &settings.headers {
        let wrong = |problem: String| settings.wrong(&format!("headers.{name}"), problem);
        let key = HeaderName::try_from(name).map_err(|_| wrong("it is not a header name".to_owned()))?;
        let secret = setting.read().map_err(wrong)?;
        let mut value = HeaderValue::try_from(secret.expose())
            .map_err(|_| wrong("its value cannot be sent; it may hold no control characters".to_owned()))?;
        value.set_sensitive(true);
        all.insert(key, value);
    }
    Ok(all)
}

fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}
