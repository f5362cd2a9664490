//! Rooms of the shop's event service: which rooms exist, with how many seats.
//!
//! A crowd requests a room at once, so lookups are single-flight: concurrent lookups of the same room share one call, and
//! its answer or failure is cached for a moment. The store keeps the room, so a room needs one call. Visitors can make up
//! names of rooms, so few calls run concurrently, and the caller's rate limit applies to each new call.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::config::ConfigError;
use tidegate_core::ids::RoomId;
use tidegate_core::room::config::RoomConfig;
use tidegate_core::time::{Millis, Timestamp};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::joins::TooMany;

/// Limit: concurrent calls. Further ones wait within their timeout.
const MAX_CALLS: usize = 16;
/// Limit: rooms with a running call or a cached answer. Lookups of further rooms fail.
const MAX_OPEN: usize = 10_000;
/// How long an answer is cached. By then the store has the room.
const ANSWERED_FOR: Duration = Duration::from_secs(10);
/// How long a failure is cached.
const FAILED_FOR: Duration = Duration::from_secs(2);

/// The service that knows rooms without settings of their own.
#[async_trait]
pub trait EventService: Send + Sync + fmt::Debug + 'static {
    /// Calls the service once. The caller limits the time and the number of calls.
    async fn fetch(&self, room: &RoomId) -> Result<Event, EventFailure>;
}

/// The event service's answer about a room. The template decides the absent values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Seats in all.
    pub seats: u64,
    /// People inside at once.
    pub inside: Option<u64>,
    /// Admissions in any second.
    pub per_second: Option<u64>,
    /// Nobody is admitted before.
    pub opens_at: Option<Timestamp>,
}

impl Event {
    /// The settings of the room.
    pub fn config(&self, template: &RoomConfig) -> RoomConfig {
        let mut config = template.clone();
        let capacity = &mut config.capacity;
        capacity.seats = Some(self.seats);
        capacity.inside = self.inside.unwrap_or(capacity.inside);
        capacity.per_second = self.per_second.unwrap_or(capacity.per_second);
        config.opens_at = self.opens_at.or(config.opens_at);
        config
    }

    /// Checks its own values. A template is valid without it.
    fn validate(&self) -> Result<(), ConfigError> {
        self.config(&RoomConfig::default()).validate()
    }
}

/// Why a room is unknown. Nobody can join it meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventFailure {
    #[error("the event service does not know the room")]
    UnknownRoom,
    #[error("the event service cannot be reached: {0}")]
    Unreachable(String),
    #[error("the event service did not answer within {} ms", .0.0)]
    Slow(Millis),
    /// The service answered with an error, which this names.
    #[error("the event service answered {0}")]
    Refused(String),
    #[error("the answer of the event service is not valid: {0}")]
    Invalid(String),
    #[error("too many unknown rooms are requested at once")]
    Busy,
    /// Limits one address; others may continue.
    #[error("too many unknown rooms are requested from your address within a minute")]
    TooMany(TooMany),
}

/// Looks rooms up, with a short-lived cache. Clones share it.
#[derive(Debug, Clone)]
pub struct EventLookups(Arc<Inner>);

struct Inner {
    service: Arc<dyn EventService>,
    timeout: Millis,
    calls: Semaphore,
    rooms: Mutex<HashMap<RoomId, Lookup>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLookups")
            .field("service", &self.service)
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

impl EventLookups {
    /// A lookup waits for a call at most `timeout`.
    pub fn new(service: Arc<dyn EventService>, timeout: Millis) -> Self {
        Self(Arc::new(Inner {
            service,
            timeout,
            calls: Semaphore::new(MAX_CALLS),
            rooms: Mutex::default(),
        }))
    }

    /// Returns the answer about a room, and makes a call if it has to and `allow` permits it. A caller that stops waiting
    /// does not cancel the call for others.
    pub async fn fetch(
        &self,
        room: &RoomId,
        allow: impl FnOnce() -> Result<(), TooMany>,
    ) -> Result<Event, EventFailure> {
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
        let call = async {
            let _permit = self.calls.acquire().await;
            self.service.fetch(room).await
        };
        let answer = timeout(self.timeout.into(), call).await;
        let event = answer.unwrap_or(Err(EventFailure::Slow(self.timeout)))?;
        let valid = event.validate();
        valid.map_err(|error| EventFailure::Invalid(error.to_string()))?;
        Ok(event)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use tidegate_core::room::config::Capacity;

    use super::*;

    /// Knows the room `concert`, and fails in other ways for others.
    #[derive(Debug, Default)]
    pub(in crate::room) struct Shop {
        calls: AtomicU32,
        running: AtomicU32,
        most_running: AtomicU32,
        repaired: AtomicBool,
    }

    impl Shop {
        pub(in crate::room) fn calls(&self) -> u32 {
            self.calls.load(Ordering::SeqCst)
        }
    }

    pub(in crate::room) fn event(seats: u64) -> Event {
        Event {
            seats,
            inside: Some(50),
            per_second: None,
            opens_at: Some(Timestamp(1_772_357_400_000)),
        }
    }

    #[async_trait]
    impl EventService for Shop {
        async fn fetch(&self, room: &RoomId) -> Result<Event, EventFailure> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_running.fetch_max(running, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            match room.as_str() {
                "concert" => Ok(event(500)),
                "slow" => std::future::pending().await,
                "broken" if !self.repaired.load(Ordering::SeqCst) => Err(EventFailure::Refused("503".into())),
                "broken" => Ok(event(3)),
                "many" => Ok(event(1_000_000_001)),
                "never" => Ok(Event {
                    opens_at: Some(Timestamp(u64::MAX)),
                    ..event(1)
                }),
                _ => Err(EventFailure::UnknownRoom),
            }
        }
    }

    pub(in crate::room) fn shop(timeout: u64) -> (Arc<Shop>, EventLookups) {
        let shop = Arc::new(Shop::default());
        (shop.clone(), EventLookups::new(shop, Millis(timeout)))
    }

    fn allowed() -> Result<(), TooMany> {
        Ok(())
    }

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    #[test]
    fn the_event_decides_what_it_names_and_the_template_the_rest() {
        let template = RoomConfig {
            capacity: Capacity {
                seats: None,
                inside: 7,
                per_second: 3,
            },
            opens_at: Some(Timestamp(5)),
            max_waiting: 11,
            ..RoomConfig::default()
        };
        let config = event(500).config(&template);
        let capacity = Capacity {
            seats: Some(500),
            inside: 50,
            per_second: 3,
        };
        assert_eq!(config.capacity, capacity);
        assert_eq!(config.opens_at, event(500).opens_at);
        assert_eq!(config.max_waiting, 11);
        let bare = Event {
            seats: 0,
            inside: None,
            per_second: None,
            opens_at: None,
        };
        let capacity = Capacity {
            seats: Some(0),
            ..template.capacity
        };
        assert_eq!(bare.config(&template), RoomConfig { capacity, ..template });
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_lookups_share_one_call() {
        let (shop, lookups) = shop(30_000);
        let requests = (0..1_000).map(|_| {
            let lookups = lookups.clone();
            tokio::spawn(async move { lookups.fetch(&room("concert"), allowed).await })
        });
        let requests: Vec<_> = requests.collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        // The caller that started the call disconnects.
        requests[0].abort();
        for request in requests.into_iter().skip(1) {
            assert_eq!(request.await.unwrap(), Ok(event(500)));
        }
        assert_eq!(lookups.fetch(&room("concert"), allowed).await, Ok(event(500)));
        assert_eq!(shop.calls(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_caller_that_starts_a_call_is_rate_limited() {
        let (shop, lookups) = shop(30_000);
        let wait = Millis(2_000);
        let never = || Err(TooMany { wait });
        let refused = Err(EventFailure::TooMany(TooMany { wait }));
        assert_eq!(lookups.fetch(&room("concert"), never).await, refused);
        let refused = lookups.fetch(&room("concert"), never).await;
        assert!(refused.is_err() && shop.calls() == 0, "the refusal is not cached");
        // Callers that come meanwhile, or just after, share the same call.
        let concert = room("concert");
        let (first, second) = tokio::join!(lookups.fetch(&concert, allowed), lookups.fetch(&concert, never));
        assert!(first.is_ok() && second == first, "{second:?}");
        assert!(lookups.fetch(&room("concert"), never).await.is_ok());
        assert_eq!(shop.calls(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_and_a_failure_are_cached_for_a_moment() {
        let (shop, lookups) = shop(30_000);
        let failed: Answer = Err(EventFailure::Refused("503".into()));
        for _ in 0..10 {
            assert_eq!(lookups.fetch(&room("broken"), allowed).await, failed);
        }
        assert_eq!(shop.calls(), 1);
        shop.repaired.store(true, Ordering::SeqCst);
        assert_eq!(lookups.fetch(&room("broken"), allowed).await, failed);
        tokio::time::sleep(FAILED_FOR).await;
        for _ in 0..10 {
            assert_eq!(lookups.fetch(&room("broken"), allowed).await, Ok(event(3)));
        }
        assert_eq!(shop.calls(), 2);
        tokio::time::sleep(ANSWERED_FOR).await;
        assert_eq!(lookups.fetch(&room("broken"), allowed).await, Ok(event(3)));
        assert_eq!(shop.calls(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_slow_or_cannot_be_used_is_a_failure() {
        let (_, lookups) = shop(300);
        let slow = lookups.fetch(&room("slow"), allowed).await;
        assert_eq!(slow, Err(EventFailure::Slow(Millis(300))));
        let unknown = lookups.fetch(&room("theatre"), allowed).await;
        assert_eq!(unknown, Err(EventFailure::UnknownRoom));
        for name in ["many", "never"] {
            let answer = lookups.fetch(&room(name), allowed).await;
            assert!(
                matches!(answer, Err(EventFailure::Invalid(_))),
                "{name}: {answer:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_calls_run_at_once_and_the_rest_wait_within_their_timeout() {
        let (shop, lookups) = shop(120);
        // Every call takes 50 ms, so the third sixteen end at 150 ms.
        let requests = (0..48).map(|number| {
            let lookups = lookups.clone();
            tokio::spawn(async move { lookups.fetch(&room(&number.to_string()), allowed).await })
        });
        let (mut unknown, mut slow) = (0, 0);
        for request in requests.collect::<Vec<_>>() {
            match request.await.unwrap() {
                Err(EventFailure::UnknownRoom) => unknown += 1,
                Err(EventFailure::Slow(_)) => slow += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((unknown, slow), (32, 16));
        assert_eq!(shop.most_running.load(Ordering::SeqCst), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_rooms_do_not_fill_the_memory() {
        let (shop, lookups) = shop(30_000);
        {
            let until = Instant::now() + Duration::from_secs(60);
            let mut rooms = lookups.0.rooms();
            for number in 0..MAX_OPEN {
                let failed = Lookup::Answered(Err(EventFailure::UnknownRoom), until);
                rooms.insert(room(&number.to_string()), failed);
            }
        }
        let busy = lookups.fetch(&room("concert"), allowed).await;
        assert_eq!(busy, Err(EventFailure::Busy));
        assert_eq!(shop.calls(), 0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(lookups.fetch(&room("concert"), allowed).await.is_ok());
        assert_eq!(lookups.0.rooms().len(), 1);
    }
}
