//! Fetches the seats of a room from the shop's event service, when a visitor requests a room that is not configured.
//!
//! A crowd requests a room at once, so calls are single-flight: concurrent requests for the same room share one call, and its
//! answer or failure is cached for a moment. The store keeps the room, so a room needs one call. Visitors can make up names of
//! rooms, so few calls run concurrently, and the caller's rate limit applies to each new call.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use tidegate_api::Time;
use tidegate_core::ids::RoomId;
use tidegate_core::room::config::Capacity;
use tidegate_core::secret::Secret;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::room::TooMany;
use tidegate_source::{TemplateError, UrlTemplate};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::bulk::push::describe;

/// The placeholder of the room in the URL.
const ROOM: &str = "room";
/// Limit: the size of an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Limit: concurrent calls. Further ones wait within their timeout.
const MAX_CALLS: usize = 16;
/// Limit: rooms with a running call or a cached answer. Requests for further rooms fail.
const MAX_OPEN: usize = 10_000;
/// How long an answer is cached. By then the store has the room.
const ANSWERED_FOR: Duration = Duration::from_secs(10);
/// How long a failure is cached.
const FAILED_FOR: Duration = Duration::from_secs(2);
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

/// The event service's answer about a room. The configuration decides the absent values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) seats: u64,
    pub(crate) inside: Option<u64>,
    pub(crate) per_second: Option<u64>,
    pub(crate) opens_at: Option<Timestamp>,
}

/// Why a room is unknown. Nobody can join it meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventFailure {
    #[error("the event service does not know the room")]
    UnknownRoom,
    #[error("the event service cannot be reached: {0}")]
    Unreachable(String),
    #[error("the event service did not answer within {} ms", .0.0)]
    Slow(Millis),
    #[error("the event service answered {0}")]
    Status(u16),
    #[error("the answer of the event service is not valid: {0}")]
    Invalid(String),
    #[error("too many unknown rooms are requested at once")]
    Busy,
    /// Limits one address; others may continue.
    #[error("too many unknown rooms are requested from your address within a minute")]
    TooMany(TooMany),
}

/// The client of the event service, with its short-lived cache.
#[derive(Debug, Clone)]
pub(crate) struct EventService(Arc<Inner>);

struct Inner {
    client: Client,
    url: UrlTemplate,
    headers: HeaderMap,
    timeout: Millis,
    calls: Semaphore,
    rooms: Mutex<HashMap<RoomId, Lookup>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventService")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

type Answer = Result<Event, EventFailure>;

/// A running call, or a cached answer with its end.
enum Lookup {
    Requested(watch::Receiver<Option<Answer>>),
    Answered(Answer, Instant),
}

impl Lookup {
    /// Whether the cached answer has expired, or the call ended without an answer.
    fn is_over(&self, now: Instant) -> bool {
        match self {
            Self::Requested(answer) => answer.has_changed().is_err() && answer.borrow().is_none(),
            Self::Answered(_, until) => *until <= now,
        }
    }
}

impl EventService {
    /// Checks the settings of `what`; the error names the setting and what is wrong with it. `client` must not follow
    /// redirects.
    pub(crate) fn new(client: &Client, what: &str, config: &EventServiceConfig) -> Result<Self, String> {
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
        Ok(Self(Arc::new(Inner {
            client: client.clone(),
            url,
            headers,
            timeout: config.timeout_ms,
            calls: Semaphore::new(MAX_CALLS),
            rooms: Mutex::default(),
        })))
    }

    /// Returns the answer about a room, and makes a call if it has to and `allow` permits it. A caller that stops waiting
    /// does not cancel the call for others.
    pub(crate) async fn fetch(&self, room: &RoomId, allow: impl FnOnce() -> Result<(), TooMany>) -> Answer {
        let mut answer = match self.begin(room, allow) {
            Ok(answer) => answer,
            Err(known) => return known,
        };
        match answer.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or(Err(EventFailure::Busy)),
            // Reached only when the runtime stops.
            Err(_) => Err(EventFailure::Unreachable("the call was cancelled".into())),
        }
    }

    /// Joins the running call for a room or starts one; `Err` holds a cached answer.
    fn begin(
        &self,
        room: &RoomId,
        allow: impl FnOnce() -> Result<(), TooMany>,
    ) -> Result<watch::Receiver<Option<Answer>>, Answer> {
        let now = Instant::now();
        let mut rooms = self.0.rooms();
        match rooms.get(room) {
            Some(lookup) if lookup.is_over(now) => {}
            Some(Lookup::Requested(answer)) => return Ok(answer.clone()),
            Some(Lookup::Answered(answer, _)) => return Err(answer.clone()),
            None => {}
        }
        if rooms.len() >= MAX_OPEN {
            rooms.retain(|_, lookup| !lookup.is_over(now));
        }
        if rooms.len() >= MAX_OPEN {
            return Err(Err(EventFailure::Busy));
        }
        if let Err(too_many) = allow() {
            return Err(Err(EventFailure::TooMany(too_many)));
        }
        let (sender, answer) = watch::channel(None);
        rooms.insert(room.clone(), Lookup::Requested(answer.clone()));
        drop(rooms);
        let (inner, room) = (self.0.clone(), room.clone());
        // In a task of its own, so that the call continues when a waiting caller disconnects.
        tokio::spawn(async move {
            let answer = inner.call(&room).await;
            inner.cache(&room, &answer);
            sender.send_replace(Some(answer));
        });
        Ok(answer)
    }
}

impl Inner {
    fn rooms(&self) -> MutexGuard<'_, HashMap<RoomId, Lookup>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self, room: &RoomId, answer: &Answer) {
        if let Err(failure) = answer
            && *failure != EventFailure::UnknownRoom
        {
            tracing::warn!(%room, error = %failure, "failed to fetch a room from the event service");
        }
        let cached_for = match answer {
            Ok(_) => ANSWERED_FOR,
            Err(_) => FAILED_FOR,
        };
        let answered = Lookup::Answered(answer.clone(), Instant::now() + cached_for);
        self.rooms().insert(room.clone(), answered);
    }

    async fn call(&self, room: &RoomId) -> Answer {
        // A name that would change the path, like `..`, cannot be a room.
        let url = self.url.fill("", &params(room.as_str()));
        let url = url.map_err(|_| EventFailure::UnknownRoom)?;
        let call = async {
            let _permit = self.calls.acquire().await;
            let request = self.client.get(url).headers(self.headers.clone());
            let failed = |error: reqwest::Error| EventFailure::Unreachable(describe(&error));
            let mut response = request.send().await.map_err(failed)?;
            match response.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Err(EventFailure::UnknownRoom),
                status => return Err(EventFailure::Status(status.as_u16())),
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
        };
        let answer = timeout(self.timeout.into(), call).await;
        answer.unwrap_or(Err(EventFailure::Slow(self.timeout)))
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

fn read(body: &[u8]) -> Answer {
    let invalid = |problem: String| EventFailure::Invalid(problem);
    let body: Body = serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
    let default = Capacity::default();
    let capacity = Capacity {
        seats: Some(body.seats),
        inside: body.inside.unwrap_or(default.inside),
        per_second: body.per_second.unwrap_or(default.per_second),
    };
    capacity.validate().map_err(|error| invalid(error.to_string()))?;
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
        repaired: Arc<AtomicU32>,
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
                tokio::time::sleep(Duration::from_millis(50)).await;
                let more =
                    r#"{"seats":500,"inside":50,"perSecond":5,"opensAt":"2026-03-01T09:30:00Z","name":"x"}"#;
                more.into_response()
            }
            "a/b ä?#" => r#"{"seats":1}"#.into_response(),
            "private" => match headers.get("x-key").map(|key| key.as_bytes()) {
                Some(b"hunter2") => r#"{"seats":7}"#.into_response(),
                _ => status(401),
            },
            "slow" => {
                tokio::time::sleep(Duration::from_secs(30)).await;
                status(200)
            }
            "broken" if shop.repaired.load(Ordering::SeqCst) == 0 => status(503),
            "broken" => r#"{"seats":3}"#.into_response(),
            "moved" => (StatusCode::FOUND, [(header::LOCATION, "/events/concert")]).into_response(),
            "huge" => format!("{}{{\"seats\":1}}", " ".repeat(MAX_ANSWER_BYTES)).into_response(),
            "odd" => "<html>".into_response(),
            "negative" => r#"{"seats":-1}"#.into_response(),
            "endless" => r#"{"seats":1e300}"#.into_response(),
            "many" => r#"{"seats":1000000001}"#.into_response(),
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

    fn service(url: &str, timeout: u64) -> EventService {
        let config = EventServiceConfig {
            url: url.to_owned(),
            timeout_ms: Millis(timeout),
            headers: BTreeMap::from([("x-key".to_owned(), "hunter2".into())]),
        };
        EventService::new(&client().unwrap(), "event_service", &config).unwrap()
    }

    fn allowed() -> Result<(), TooMany> {
        Ok(())
    }

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_call() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        let requests = (0..1_000).map(|_| {
            let service = service.clone();
            tokio::spawn(async move { service.fetch(&room("concert"), allowed).await })
        });
        let requests: Vec<_> = requests.collect();
        // The caller that started the call disconnects.
        requests[0].abort();
        let event = Event {
            seats: 500,
            inside: Some(50),
            per_second: Some(5),
            opens_at: Some(Timestamp(1_772_357_400_000)),
        };
        for request in requests.into_iter().skip(1) {
            assert_eq!(request.await.unwrap(), Ok(event.clone()));
        }
        assert_eq!(service.fetch(&room("concert"), allowed).await, Ok(event));
        assert_eq!(shop.calls(), 1);
    }

    #[tokio::test]
    async fn only_the_caller_that_starts_a_call_is_rate_limited() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        let wait = Millis(2_000);
        let never = || Err(TooMany { wait });
        let refused = Err(EventFailure::TooMany(TooMany { wait }));
        assert_eq!(service.fetch(&room("concert"), never).await, refused);
        let refused = service.fetch(&room("concert"), never).await;
        assert!(refused.is_err() && shop.calls() == 0, "the refusal is not cached");
        // Callers that come meanwhile, or just after, share the same call.
        let concert = room("concert");
        let (first, second) = tokio::join!(service.fetch(&concert, allowed), service.fetch(&concert, never));
        assert!(first.is_ok() && second == first, "{second:?}");
        assert!(service.fetch(&room("concert"), never).await.is_ok());
        assert_eq!(shop.calls(), 1);
    }

    #[tokio::test]
    async fn a_room_is_one_segment_of_the_path() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        assert_eq!(service.fetch(&room("a/b ä?#"), allowed).await.unwrap().seats, 1);
        assert_eq!(service.fetch(&room("private"), allowed).await.unwrap().seats, 7);
        assert_eq!(shop.calls(), 2);
        for climbing in [".", ".."] {
            assert_eq!(
                service.fetch(&room(climbing), allowed).await,
                Err(EventFailure::UnknownRoom)
            );
        }
        assert_eq!(shop.calls(), 2, "the service makes no call");
    }

    #[tokio::test]
    async fn a_failure_is_cached_for_a_moment() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        let failed: Answer = Err(EventFailure::Status(503));
        assert_eq!(service.fetch(&room("broken"), allowed).await, failed);
        // The test sets the end, so that the entry does not expire early on a stalled machine.
        let end = |at: Instant| match service.0.rooms().get_mut(&room("broken")) {
            Some(Lookup::Answered(_, until)) => std::mem::replace(until, at),
            _ => panic!("the failure is not cached"),
        };
        let until = end(Instant::now() + Duration::from_secs(600));
        assert!(
            until <= Instant::now() + FAILED_FOR,
            "it would be cached for long"
        );
        for _ in 0..10 {
            assert_eq!(service.fetch(&room("broken"), allowed).await, failed);
        }
        assert_eq!(shop.calls(), 1);
        shop.repaired.store(1, Ordering::SeqCst);
        end(Instant::now());
        assert_eq!(service.fetch(&room("broken"), allowed).await.unwrap().seats, 3);
        assert_eq!(shop.calls(), 2);
    }

    #[tokio::test]
    async fn failures_are_distinguished() {
        let (shop, url) = shop().await;
        let impatient = service(&url, 300);
        assert_eq!(
            impatient.fetch(&room("slow"), allowed).await,
            Err(EventFailure::Slow(Millis(300)))
        );
        let service = service(&url, 20_000);
        assert_eq!(
            service.fetch(&room("unheard"), allowed).await,
            Err(EventFailure::UnknownRoom)
        );
        let calls = shop.calls();
        assert_eq!(
            service.fetch(&room("moved"), allowed).await,
            Err(EventFailure::Status(302))
        );
        assert_eq!(shop.calls(), calls + 1, "redirects are not followed");
        for name in ["huge", "odd", "negative", "endless", "many", "when"] {
            let answer = service.fetch(&room(name), allowed).await;
            assert!(
                matches!(answer, Err(EventFailure::Invalid(_))),
                "{name}: {answer:?}"
            );
        }
        // The socket is bound but does not listen, so that no other process gets the port.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}/{{room}}?key=secret", closed.local_addr().unwrap());
        let answer = self::service(&url, 30_000)
            .fetch(&room("concert"), allowed)
            .await
            .unwrap_err();
        assert!(matches!(answer, EventFailure::Unreachable(_)), "{answer:?}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }

    #[tokio::test]
    async fn made_up_rooms_do_not_fill_the_memory() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        {
            let until = Instant::now() + Duration::from_secs(60);
            let mut rooms = service.0.rooms();
            for number in 0..MAX_OPEN {
                let failed = Lookup::Answered(Err(EventFailure::UnknownRoom), until);
                rooms.insert(room(&number.to_string()), failed);
            }
        }
        assert_eq!(
            service.fetch(&room("concert"), allowed).await,
            Err(EventFailure::Busy)
        );
        assert_eq!(shop.calls(), 0);
        for lookup in service.0.rooms().values_mut() {
            *lookup = Lookup::Answered(Err(EventFailure::UnknownRoom), Instant::now());
        }
        assert!(service.fetch(&room("concert"), allowed).await.is_ok());
        assert_eq!(service.0.rooms().len(), 1);
    }

    #[test]
    fn settings_are_checked() {
        let refused = |url: &str, timeout: u64, header: &str| {
            let config = EventServiceConfig {
                url: url.to_owned(),
                timeout_ms: Millis(timeout),
                headers: BTreeMap::from([(header.to_owned(), "hunter2".into())]),
            };
            EventService::new(&client().unwrap(), "event_service", &config).unwrap_err()
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
