//! Asks the shop's Event Service how many seats a room has, when somebody comes to a room that is not configured.
//!
//! A crowd comes at once, so one call answers all who ask for the same room meanwhile; what it said, or that it failed, is
//! kept for a moment. What a room has is kept for good by the store, so a room is asked for once. Few calls run at once, because
//! names of rooms can be made up, and whoever begins one must be allowed to.

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
use tidegate_core::time::{Millis, Timestamp};
use tidegate_source::{TemplateError, UrlTemplate};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::joins::TooMany;
use crate::config::Secret;
use crate::push::told;

/// The name in the address that stands for the room.
const ROOM: &str = "room";
/// Limit: an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Limit: calls at once; more wait, and their time runs.
const MAX_CALLS: usize = 16;
/// Limit: rooms that are asked for or were answered just now. More are not asked for.
const MAX_OPEN: usize = 10_000;
/// How long an answer is the answer: by then the store has the room.
const ANSWERED_FOR: Duration = Duration::from_secs(10);
/// How long a failure is the answer.
const FAILED_FOR: Duration = Duration::from_secs(2);
const LONGEST: Millis = Millis(30_000);

/// Who knows the rooms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventServiceConfig {
    /// Requested by GET, with the room in place of `{room}`: `https://shop.example/events/{room}/seats`. Redirects are not
    /// followed.
    pub url: String,
    /// Longest time for one call, in milliseconds.
    #[serde(default = "default_timeout")]
    pub timeout_ms: Millis,
    /// Sent with every call.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
}

fn default_timeout() -> Millis {
    Millis(2_000)
}

/// What the Event Service says of a room. What is absent is as the configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) seats: u64,
    pub(crate) inside: Option<u64>,
    pub(crate) per_second: Option<u64>,
    pub(crate) opens_at: Option<Timestamp>,
}

/// Why nothing is known of a room. While it is so, nobody gets in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventFailure {
    #[error("there is no such room: the event service does not know it")]
    UnknownRoom,
    #[error("the event service cannot be reached: {0}")]
    Unreachable(String),
    #[error("the event service did not answer within {} ms", .0.0)]
    Slow(Millis),
    #[error("the event service answered {0}")]
    Status(u16),
    #[error("the event service's answer cannot be used: {0}")]
    Nonsense(String),
    #[error("too many rooms are asked for at once")]
    Busy,
    /// By one visitor; others may ask.
    #[error("too many rooms that nobody has heard of are asked for from there")]
    TooMany(TooMany),
}

/// Asks, and remembers for a moment.
#[derive(Debug, Clone)]
pub(crate) struct EventService(Arc<Inner>);

struct Inner {
    client: Client,
    url: UrlTemplate,
    headers: HeaderMap,
    timeout: Millis,
    calls: Semaphore,
    rooms: Mutex<HashMap<RoomId, Open>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventService")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

type Answer = Result<Event, EventFailure>;

enum Open {
    Requested(watch::Receiver<Option<Answer>>),
    Answered(Answer, Instant),
}

impl Open {
    /// Says nothing any more: the answer was long ago, or the call ended without an answer.
    fn is_over(&self, now: Instant) -> bool {
        match self {
            Self::Requested(answer) => answer.has_changed().is_err() && answer.borrow().is_none(),
            Self::Answered(_, until) => *until <= now,
        }
    }
}

impl EventService {
    /// With the client of the pushes, which follows no redirects. Which setting of `what` cannot be used, and why.
    pub(crate) fn new(client: &Client, what: &str, config: &EventServiceConfig) -> Result<Self, String> {
        let url = UrlTemplate::parse(&config.url).map_err(|error| match error {
            TemplateError::Constant => format!("{what}.url: it must have {{{ROOM}}} in it, for the room"),
            error => format!("{what}.url: {error}"),
        })?;
        if url.fill("", &params("1")).is_err() || url.names().len() != 1 {
            return Err(format!("{what}.url: {{{ROOM}}} is the only name that is known"));
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
            let odd = || format!("{what}.headers: {name:?} or its value cannot be sent");
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

    /// What is known of a room, asking if it has to, and if `may` lets it. Whoever gives up waiting does not take the answer
    /// from others.
    pub(crate) async fn ask(&self, room: &RoomId, may: impl FnOnce() -> Result<(), TooMany>) -> Answer {
        let mut answer = match self.begin(room, may) {
            Ok(answer) => answer,
            Err(known) => return known,
        };
        match answer.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or(Err(EventFailure::Busy)),
            // Not reached unless the runtime stops.
            Err(_) => Err(EventFailure::Unreachable("the call ended".into())),
        }
    }

    /// The call that answers, or the answer.
    fn begin(
        &self,
        room: &RoomId,
        may: impl FnOnce() -> Result<(), TooMany>,
    ) -> Result<watch::Receiver<Option<Answer>>, Answer> {
        let now = Instant::now();
        let mut rooms = self.0.rooms();
        match rooms.get(room) {
            Some(open) if open.is_over(now) => {}
            Some(Open::Requested(answer)) => return Ok(answer.clone()),
            Some(Open::Answered(answer, _)) => return Err(answer.clone()),
            None => {}
        }
        if rooms.len() >= MAX_OPEN {
            rooms.retain(|_, open| !open.is_over(now));
        }
        if rooms.len() >= MAX_OPEN {
            return Err(Err(EventFailure::Busy));
        }
        if let Err(too_many) = may() {
            return Err(Err(EventFailure::TooMany(too_many)));
        }
        let (tell, answer) = watch::channel(None);
        rooms.insert(room.clone(), Open::Requested(answer.clone()));
        drop(rooms);
        let (inner, room) = (self.0.clone(), room.clone());
        // On its own: it goes on if those who wait for it go away.
        tokio::spawn(async move {
            let answer = inner.call(&room).await;
            inner.note(&room, &answer);
            tell.send_replace(Some(answer));
        });
        Ok(answer)
    }
}

impl Inner {
    fn rooms(&self) -> MutexGuard<'_, HashMap<RoomId, Open>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, room: &RoomId, answer: &Answer) {
        if let Err(failure) = answer
            && *failure != EventFailure::UnknownRoom
        {
            tracing::warn!(%room, error = %failure, "the event service does not say what a room has");
        }
        let kept = match answer {
            Ok(_) => ANSWERED_FOR,
            Err(_) => FAILED_FOR,
        };
        let answered = Open::Answered(answer.clone(), Instant::now() + kept);
        self.rooms().insert(room.clone(), answered);
    }

    async fn call(&self, room: &RoomId) -> Answer {
        // A name that would climb in the path is nobody's room.
        let url = self.url.fill("", &params(room.as_str()));
        let url = url.map_err(|_| EventFailure::UnknownRoom)?;
        let call = async {
            let _place = self.calls.acquire().await;
            let request = self.client.get(url).headers(self.headers.clone());
            let failed = |error: reqwest::Error| EventFailure::Unreachable(told(&error));
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
                    return Err(EventFailure::Nonsense(format!("it has more than {most} bytes")));
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

/// Fields that are not known are left alone: the service may have more to say.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    seats: u64,
    inside: Option<u64>,
    per_second: Option<u64>,
    opens_at: Option<Time>,
}

fn read(body: &[u8]) -> Answer {
    let nonsense = |problem: String| EventFailure::Nonsense(problem);
    let written: Written = serde_json::from_slice(body).map_err(|error| nonsense(error.to_string()))?;
    let usual = Capacity::default();
    let capacity = Capacity {
        seats: Some(written.seats),
        inside: written.inside.unwrap_or(usual.inside),
        per_second: written.per_second.unwrap_or(usual.per_second),
    };
    capacity.validate().map_err(|error| nonsense(error.to_string()))?;
    Ok(Event {
        seats: written.seats,
        inside: written.inside,
        per_second: written.per_second,
        opens_at: written.opens_at.map(|at| Timestamp(at.0)),
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
    use crate::push::client;

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

    /// A real service at a free port.
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

    fn freely() -> Result<(), TooMany> {
        Ok(())
    }

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    #[tokio::test]
    async fn a_crowd_makes_one_call() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        let asks = (0..1_000).map(|_| {
            let service = service.clone();
            tokio::spawn(async move { service.ask(&room("concert"), freely).await })
        });
        let asks: Vec<_> = asks.collect();
        // Whoever began the call goes away.
        asks[0].abort();
        let event = Event {
            seats: 500,
            inside: Some(50),
            per_second: Some(5),
            opens_at: Some(Timestamp(1_772_357_400_000)),
        };
        for ask in asks.into_iter().skip(1) {
            assert_eq!(ask.await.unwrap(), Ok(event.clone()));
        }
        assert_eq!(service.ask(&room("concert"), freely).await, Ok(event));
        assert_eq!(shop.calls(), 1);
    }

    #[tokio::test]
    async fn only_whoever_begins_a_call_must_be_allowed_to() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        let wait = Millis(2_000);
        let never = || Err(TooMany { wait });
        let refused = Err(EventFailure::TooMany(TooMany { wait }));
        assert_eq!(service.ask(&room("concert"), never).await, refused);
        let refused = service.ask(&room("concert"), never).await;
        assert!(refused.is_err() && shop.calls() == 0, "nothing is kept of it");
        // Others who come meanwhile, or just after, wait for the same call.
        let concert = room("concert");
        let (first, second) = tokio::join!(service.ask(&concert, freely), service.ask(&concert, never));
        assert!(first.is_ok() && second == first, "{second:?}");
        assert!(service.ask(&room("concert"), never).await.is_ok());
        assert_eq!(shop.calls(), 1);
    }

    #[tokio::test]
    async fn a_room_is_one_part_of_the_address() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        assert_eq!(service.ask(&room("a/b ä?#"), freely).await.unwrap().seats, 1);
        assert_eq!(service.ask(&room("private"), freely).await.unwrap().seats, 7);
        assert_eq!(shop.calls(), 2);
        for climbing in [".", ".."] {
            assert_eq!(
                service.ask(&room(climbing), freely).await,
                Err(EventFailure::UnknownRoom)
            );
        }
        assert_eq!(shop.calls(), 2, "not even asked for");
    }

    #[tokio::test]
    async fn a_failure_is_the_answer_for_a_moment() {
        let (shop, url) = shop().await;
        let service = service(&url, 30_000);
        let failed: Answer = Err(EventFailure::Status(503));
        assert_eq!(service.ask(&room("broken"), freely).await, failed);
        // The moment ends when the test says so, not in the middle of it because the machine stalls.
        let end = |at: Instant| match service.0.rooms().get_mut(&room("broken")) {
            Some(Open::Answered(_, until)) => std::mem::replace(until, at),
            _ => panic!("the failure is not kept"),
        };
        let until = end(Instant::now() + Duration::from_secs(600));
        assert!(until <= Instant::now() + FAILED_FOR, "it would be kept for long");
        for _ in 0..10 {
            assert_eq!(service.ask(&room("broken"), freely).await, failed);
        }
        assert_eq!(shop.calls(), 1);
        shop.repaired.store(1, Ordering::SeqCst);
        end(Instant::now());
        assert_eq!(service.ask(&room("broken"), freely).await.unwrap().seats, 3);
        assert_eq!(shop.calls(), 2);
    }

    #[tokio::test]
    async fn failures_are_told_apart() {
        let (shop, url) = shop().await;
        let hasty = service(&url, 300);
        assert_eq!(
            hasty.ask(&room("slow"), freely).await,
            Err(EventFailure::Slow(Millis(300)))
        );
        let service = service(&url, 20_000);
        assert_eq!(
            service.ask(&room("unheard"), freely).await,
            Err(EventFailure::UnknownRoom)
        );
        let calls = shop.calls();
        assert_eq!(
            service.ask(&room("moved"), freely).await,
            Err(EventFailure::Status(302))
        );
        assert_eq!(shop.calls(), calls + 1, "redirects are not followed");
        for name in ["huge", "odd", "negative", "endless", "many", "when"] {
            let answer = service.ask(&room(name), freely).await;
            assert!(
                matches!(answer, Err(EventFailure::Nonsense(_))),
                "{name}: {answer:?}"
            );
        }
        // Bound, and nobody listens: as long as it is here the port is nobody else's.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}/{{room}}?key=secret", closed.local_addr().unwrap());
        let answer = self::service(&url, 30_000)
            .ask(&room("concert"), freely)
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
                let failed = Open::Answered(Err(EventFailure::UnknownRoom), until);
                rooms.insert(room(&number.to_string()), failed);
            }
        }
        assert_eq!(
            service.ask(&room("concert"), freely).await,
            Err(EventFailure::Busy)
        );
        assert_eq!(shop.calls(), 0);
        for open in service.0.rooms().values_mut() {
            *open = Open::Answered(Err(EventFailure::UnknownRoom), Instant::now());
        }
        assert!(service.ask(&room("concert"), freely).await.is_ok());
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
            (refused("https://shop.example/", 1, "a"), "must have {room} in it"),
            (
                refused("https://shop.example/{key}", 1, "a"),
                "{room} is the only name",
            ),
            (
                refused("https://shop.example/{room}/{key}", 1, "a"),
                "{room} is the only name",
            ),
            (
                refused("https://shop.example/{room}/{other}", 1, "a"),
                "{room} is the only name",
            ),
            (
                refused("https://{room}.example/", 1, "a"),
                "path and the query only",
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
