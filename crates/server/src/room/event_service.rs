//! Calls the shop's event service over HTTP, for the seats of a room that is not configured.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use tidegate_api::Time;
use tidegate_core::ids::RoomId;
use tidegate_core::secret::Secret;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::room::{Event, EventFailure, EventLookups, EventService};
use tidegate_source::{TemplateError, UrlTemplate};

use crate::bulk::push::describe;

/// The placeholder of the room in the URL.
const ROOM: &str = "room";
/// Limit: the size of an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const LONGEST: Millis = Millis(30_000);

/// The service that knows rooms without a section of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventServiceConfig {
    /// The URL for GET requests, with `{room}` for the room: `https://shop.example/events/{room}/seats`. The service follows no
    /// redirects.
    pub url: String,
    /// Longest time for one call, in milliseconds.
    #[serde(default = "default_timeout")]
    pub timeout_ms: Millis,
    /// Headers of every call.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
}

fn default_timeout() -> Millis {
    Millis(2_000)
}

/// The client of the event service.
struct HttpEventService {
    client: Client,
    url: UrlTemplate,
    headers: HeaderMap,
}

impl fmt::Debug for HttpEventService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEventService")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Opens the event service of the settings `what`. `client` must not follow redirects.
pub(crate) fn open(client: &Client, what: &str, config: &EventServiceConfig) -> Result<EventLookups, String> {
    let service = HttpEventService::new(client, what, config)?;
    Ok(EventLookups::new(Arc::new(service), config.timeout_ms))
}

impl HttpEventService {
    /// Checks the settings of `what`; the error names the setting and what is wrong with it.
    fn new(client: &Client, what: &str, config: &EventServiceConfig) -> Result<Self, String> {
        let url = UrlTemplate::parse(&config.url).map_err(|error| match error {
            TemplateError::Constant => format!("{what}.url: it must contain {{{ROOM}}} for the room"),
            error => format!("{what}.url: {error}"),
        })?;
        if url.fill("", &params("1")).is_err() || url.names().len() != 1 {
            return Err(format!("{what}.url: {{{ROOM}}} must be the only placeholder"));
        }
        if !(Millis(1)..=LONGEST).contains(&config.timeout_ms) {
            return Err(format!(
                "{what}.timeout_ms = {}: it must be from 1 to {}",
                config.timeout_ms.0, LONGEST.0
            ));
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        for (name, value) in &config.headers {
            let odd = || format!("{what}.headers: {name:?} or its value is not a valid HTTP header");
            let key = HeaderName::try_from(name).map_err(|_| odd())?;
            let mut value = HeaderValue::try_from(value.expose()).map_err(|_| odd())?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(Self {
            client: client.clone(),
            url,
            headers,
        })
    }
}

#[async_trait]
impl EventService for HttpEventService {
    async fn fetch(&self, room: &RoomId) -> Result<Event, EventFailure> {
        // A name that would change the path, like `..`, cannot be a room.
        let url = self.url.fill("", &params(room.as_str()));
        let url = url.map_err(|_| EventFailure::UnknownRoom)?;
        let request = self.client.get(url).headers(self.headers.clone());
        let failed = |error: reqwest::Error| EventFailure::Unreachable(describe(&error));
        let mut response = request.send().await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(EventFailure::UnknownRoom),
            status => return Err(EventFailure::Refused(status.as_u16().to_string())),
        }
        let mut body = BytesMut::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if body.len() + piece.len() > MAX_ANSWER_BYTES {
                let most = MAX_ANSWER_BYTES;
                return Err(EventFailure::Invalid(format!("it has more than {most} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        read(&body)
    }
}

fn params(room: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(ROOM.to_owned(), room.to_owned())])
}

/// The answer as JSON. Unknown fields are ignored, because the event service may have more of them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    seats: u64,
    inside: Option<u64>,
    per_second: Option<u64>,
    opens_at: Option<Time>,
}

fn read(body: &[u8]) -> Result<Event, EventFailure> {
    let body: Result<Body, _> = serde_json::from_slice(body);
    let body = body.map_err(|error| EventFailure::Invalid(error.to_string()))?;
    Ok(Event {
        seats: body.seats,
        inside: body.inside,
        per_second: body.per_second,
        opens_at: body.opens_at.map(|at| Timestamp(at.0)),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use axum::extract::{Path, State};
    use axum::http::header;
    use axum::response::{IntoResponse, Response};
    use axum::routing::get;

    use super::*;
    use crate::bulk::push::client;

    #[derive(Clone, Default)]
    struct Shop {
        calls: Arc<AtomicU32>,
    }

    impl Shop {
        fn calls(&self) -> u32 {
            self.calls.load(Ordering::SeqCst)
        }
    }

    async fn seats(State(shop): State<Shop>, Path(room): Path<String>, headers: HeaderMap) -> Response {
        shop.calls.fetch_add(1, Ordering::SeqCst);
        let status = |code: u16| StatusCode::from_u16(code).unwrap().into_response();
        match room.as_str() {
            "concert" => {
                let more =
                    r#"{"seats":500,"inside":50,"perSecond":5,"opensAt":"2026-03-01T09:30:00Z","name":"x"}"#;
                more.into_response()
            }
            "a/b ä?#" => r#"{"seats":1}"#.into_response(),
            "private" => match headers.get("x-key").map(|key| key.as_bytes()) {
                Some(b"hunter2") => r#"{"seats":7}"#.into_response(),
                _ => status(401),
            },
            "broken" => status(503),
            "moved" => (StatusCode::FOUND, [(header::LOCATION, "/events/concert")]).into_response(),
            "huge" => format!("{}{{\"seats\":1}}", " ".repeat(MAX_ANSWER_BYTES)).into_response(),
            "odd" => "<html>".into_response(),
            "negative" => r#"{"seats":-1}"#.into_response(),
            "endless" => r#"{"seats":1e300}"#.into_response(),
            "when" => r#"{"seats":1,"opensAt":"soon"}"#.into_response(),
            _ => status(404),
        }
    }

    /// Starts a real HTTP service on a free port.
    async fn shop() -> (Shop, String) {
        let shop = Shop::default();
        let router = Router::new()
            .route("/events/{room}", get(seats))
            .with_state(shop.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events/{{room}}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (shop, url)
    }

    fn service(url: &str) -> HttpEventService {
        let config = EventServiceConfig {
            url: url.to_owned(),
            timeout_ms: default_timeout(),
            headers: BTreeMap::from([("x-key".to_owned(), "hunter2".into())]),
        };
        HttpEventService::new(&client().unwrap(), "event_service", &config).unwrap()
    }

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    #[tokio::test]
    async fn an_answer_names_seats_and_may_name_more() {
        let (_, url) = shop().await;
        let event = Event {
            seats: 500,
            inside: Some(50),
            per_second: Some(5),
            opens_at: Some(Timestamp(1_772_357_400_000)),
        };
        assert_eq!(service(&url).fetch(&room("concert")).await, Ok(event));
        let event = Event {
            seats: 1,
            inside: None,
            per_second: None,
            opens_at: None,
        };
        assert_eq!(service(&url).fetch(&room("a/b ä?#")).await, Ok(event));
    }

    #[tokio::test]
    async fn a_room_is_one_segment_of_the_path() {
        let (shop, url) = shop().await;
        let service = service(&url);
        assert_eq!(service.fetch(&room("a/b ä?#")).await.unwrap().seats, 1);
        assert_eq!(service.fetch(&room("private")).await.unwrap().seats, 7);
        assert_eq!(shop.calls(), 2);
        for climbing in [".", ".."] {
            let unknown = service.fetch(&room(climbing)).await;
            assert_eq!(unknown, Err(EventFailure::UnknownRoom));
        }
        assert_eq!(shop.calls(), 2, "the service makes no call");
    }

    #[tokio::test]
    async fn failures_are_distinguished() {
        let (shop, url) = shop().await;
        let unknown = service(&url).fetch(&room("unheard")).await;
        assert_eq!(unknown, Err(EventFailure::UnknownRoom));
        let calls = shop.calls();
        for (name, status) in [("moved", "302"), ("broken", "503")] {
            let refused = service(&url).fetch(&room(name)).await;
            assert_eq!(refused, Err(EventFailure::Refused(status.into())));
        }
        assert_eq!(shop.calls(), calls + 2, "redirects are not followed");
        for name in ["huge", "odd", "negative", "endless", "when"] {
            let answer = service(&url).fetch(&room(name)).await;
            assert!(
                matches!(answer, Err(EventFailure::Invalid(_))),
                "{name}: {answer:?}"
            );
        }
        // The socket is bound but does not listen, so that no other process gets the port.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}/{{room}}?key=secret", closed.local_addr().unwrap());
        let answer = service(&url).fetch(&room("concert")).await.unwrap_err();
        assert!(matches!(answer, EventFailure::Unreachable(_)), "{answer:?}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }

    #[test]
    fn settings_are_checked() {
        let refused = |url: &str, timeout: u64, header: &str| {
            let config = EventServiceConfig {
                url: url.to_owned(),
                timeout_ms: Millis(timeout),
                headers: BTreeMap::from([(header.to_owned(), "hunter2".into())]),
            };
            HttpEventService::new(&client().unwrap(), "event_service", &config).unwrap_err()
        };
        let good = "https://shop.example/events/{room}?key=secret";
        for (error, problem) in [
            (refused("https://shop.example/", 1, "a"), "must contain {room}"),
            (
                refused("https://shop.example/{key}", 1, "a"),
                "{room} must be the only placeholder",
            ),
            (
                refused("https://shop.example/{room}/{key}", 1, "a"),
                "{room} must be the only placeholder",
            ),
            (
                refused("https://shop.example/{room}/{other}", 1, "a"),
                "{room} must be the only placeholder",
            ),
            (
                refused("https://{room}.example/", 1, "a"),
                "only in the path and the query",
            ),
            (
                refused("https://a:secret@shop.example/{room}", 1, "a"),
                "without user",
            ),
            (refused("shop/{room}", 1, "a"), "event_service.url: "),
            (
                refused(good, 0, "a"),
                "timeout_ms = 0: it must be from 1 to 30000",
            ),
            (refused(good, 1, "a b"), "headers: \"a b\" or its value"),
        ] {
            assert!(error.contains(problem), "{error}");
            assert!(!error.contains("secret") && !error.contains("hunter2"), "{error}");
        }
        let config: EventServiceConfig = toml::from_str("url = \"https://shop.example/{room}\"").unwrap();
        assert_eq!(config.timeout_ms, Millis(2_000));
    }
}
