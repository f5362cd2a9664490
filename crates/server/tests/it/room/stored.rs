//! Rooms that only the store or only the configuration has; and the draw, which does not depend on either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidegate_api::Time;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::RoomId;
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use tokio::sync::Barrier;

use super::bad_input::signed;
use super::people::{ROOM, Visitor, room_for};
use crate::support::{Backend, PATIENCE, Running, answer, config};

on_both_stores! {
    rooms_of_the_store_are_served_while_the_event_service_is_down
    a_room_that_is_over_is_removed
    a_seed_is_public_only_after_its_opening
}

/// An event service whose n-th answer has n hundred seats. It answers once `at_once` calls have arrived.
struct Events {
    url: String,
    calls: Arc<AtomicU64>,
    serving: tokio::task::JoinHandle<()>,
}

async fn seats(State((calls, all)): State<(Arc<AtomicU64>, Arc<Barrier>)>) -> String {
    let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
    all.wait().await;
    json!({ "seats": call * 100, "inside": 0 }).to_string()
}

impl Events {
    async fn start(at_once: usize) -> Self {
        let calls = Arc::new(AtomicU64::new(0));
        let state = (calls.clone(), Arc::new(Barrier::new(at_once)));
        let router = Router::new().route("/{room}", get(seats)).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            calls,
            serving: tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }),
        }
    }

    fn settings(&self) -> String {
        format!(
            "{ROOM}\n[room]\ntemplate = \"concert\"\n[room.event_service]\nurl = \"{}/{{room}}\"\ntimeout_ms = 20000\n",
            self.url
        )
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn stop(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }
}

/// The event service knows one room, and every answer is slow.
async fn slow_seats(State(calls): State<Arc<AtomicU64>>, Path(room): Path<String>) -> Response {
    calls.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    match room.as_str() {
        "gala" => r#"{"seats":100}"#.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// At most sixteen calls run concurrently, so made-up rooms could delay a real one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_rooms_from_one_address_do_not_block_a_real_one() {
    let calls = Arc::new(AtomicU64::new(0));
    let router = Router::new()
        .route("/{room}", get(slow_seats))
        .with_state(calls.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let text = format!(
        "[room.visitors]\nproxies = [\"127.0.0.1\"]\n\
         [room.event_service]\nurl = \"{url}/{{room}}\"\ntimeout_ms = 30000\n"
    );
    let running = Running::start(Backend::Embedded, &text).await;
    let get = |room: &str, from: &str| {
        let url = format!("{}/v1/rooms/{room}/challenge", running.url);
        answer(running.http.get(url).header("x-forwarded-for", from))
    };
    let flood: Vec<_> = (0..300)
        .map(|number| tokio::spawn(get(&format!("made-up-{number}"), "203.0.113.9")))
        .collect();
    let begun = tokio::time::Instant::now();
    while calls.load(Ordering::SeqCst) < 16 {
        assert!(begun.elapsed() < PATIENCE, "the flood does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (status, answered) = get("gala", "198.51.100.1").await;
    assert_eq!(status, 200, "{answered}");
    let mut refused = 0;
    for request in flood {
        let (status, problem) = request.await.unwrap();
        match status {
            404 => {}
            429 => refused += 1,
            other => panic!("{other} {problem}"),
        }
        if status == 429 {
            assert_eq!(problem["code"], "too_many_joins", "{problem}");
        }
    }
    // The limit is thirty at once and one every two seconds, besides the real room.
    assert!(refused > 200, "{refused} of 300 were refused");
    assert!(calls.load(Ordering::SeqCst) < 100);
    // A browser gets a page, and the flooder can still join the real room. A hundred requests exceed what the limit allows
    // again, however long the flood took.
    let pages = (0..100).map(|number| {
        let page = running
            .http
            .get(format!("{}/rooms/made-up-page-{number}", running.url));
        page.header("x-forwarded-for", "203.0.113.9").send()
    });
    let mut pages = join_all(pages).await.into_iter().map(Result::unwrap);
    let page = pages
        .find(|page| page.status() == 429)
        .expect("pages are refused, too");
    assert!(page.headers().contains_key("retry-after"));
    assert!(page.text().await.unwrap().contains("<!doctype html>"));
    assert_eq!(get("gala", "203.0.113.9").await.0, 200);
    running.stop().await;
}

fn names(rooms: &Value) -> Vec<&str> {
    let rooms = rooms["rooms"].as_array().unwrap().iter();
    rooms.map(|room| room["room"].as_str().unwrap()).collect()
}

async fn rooms_of_the_store_are_served_while_the_event_service_is_down(backend: Backend) {
    let events = Events::start(1).await;
    let running = Running::start(backend, &events.settings()).await;
    let mut first = Visitor::of(&running, "gala");
    assert_eq!(first.post("join", json!({})).await.0, 200);
    let mut visitor = Visitor::of(&running, "gala");
    let (_, ticket) = visitor.post("join", json!({})).await;
    assert_eq!(ticket["position"], 2, "{ticket}");
    let cookie = visitor.cookie().unwrap().to_owned();
    let set = json!({ "seats": { "set": 7 }, "why": "a broken row" });
    assert_eq!(running.patch("/v1/rooms/gala/capacity", set).await.0, 200);
    assert_eq!(events.calls(), 1);
    events.stop().await;
    let running = running.restart().await;
    let mut visitor = Visitor::of(&running, "gala").with_cookie(&cookie);
    let (status, ticket) = visitor.post("join", json!({})).await;
    assert_eq!((status, &ticket["position"]), (200, &json!(2)), "{ticket}");
    let room = running.ok("/v1/rooms/gala").await;
    assert_eq!(
        (&room["capacity"]["seats"], &room["configured"]["seats"]),
        (&json!(7), &json!(100)),
        "{room}"
    );
    let (status, problem) = Visitor::of(&running, "unheard").post("join", json!({})).await;
    assert_eq!(status, 503, "{problem}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_of_the_store_are_listed_after_a_restart_before_anybody_requests_them() {
    let events = Events::start(1).await;
    let running = Running::start(Backend::Embedded, &events.settings()).await;
    let (status, _) = Visitor::of(&running, "gala").post("join", json!({})).await;
    assert_eq!(status, 200);
    let running = running.restart().await;
    let rooms = running
        .until("/v1/rooms", |rooms| names(rooms).contains(&"gala"))
        .await;
    assert_eq!(names(&rooms), ["concert", "gala"]);
    assert_eq!(events.calls(), 1, "there is no further call");
    running.stop().await;
}

/// Both processes call the event service before either has an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_different_answers_keep_the_first() {
    let events = Events::start(2).await;
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = config(Backend::Redis, &one, &events.settings());
    let mut second = first.clone();
    second.store.data = other.path().join("data");
    let first = Running::with(first, one).await;
    let second = Running::with(second, other).await;
    let (mut here, mut there) = (Visitor::of(&first, "gala"), Visitor::of(&second, "gala"));
    let joined = tokio::join!(here.post("join", json!({})), there.post("join", json!({})));
    assert_eq!((joined.0.0, joined.1.0), (200, 200), "{joined:?}");
    assert_eq!(events.calls(), 2);
    let seats = first.ok("/v1/rooms/gala").await["capacity"]["seats"].clone();
    assert!([json!(100), json!(200)].contains(&seats), "{seats}");
    assert_eq!(second.ok("/v1/rooms/gala").await["capacity"]["seats"], seats);
    let by = json!({ "seats": { "add": 5 }, "why": "another row" });
    let (_, room) = second.patch("/v1/rooms/gala/capacity", by).await;
    let held = room["capacity"]["seats"].clone();
    // A restarted process does not call the event service.
    let second = second.restart().await;
    assert_eq!(second.ok("/v1/rooms/gala").await["capacity"]["seats"], held);
    assert_eq!(first.ok("/v1/rooms/gala").await["waiting"], 2);
    assert_eq!(events.calls(), 2);
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_that_redis_lost_are_created_again_without_a_restart_and_admit_nobody() {
    lost("*room:*").await;
}

/// One server of a Cluster lost its data, but the list of rooms is on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_is_only_on_the_list_is_created_again_and_admits_nobody() {
    lost("*room:{*").await;
}

/// Deletes the keys that match, and checks what becomes of the room.
async fn lost(keys: &str) {
    let redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(Backend::Redis, &folder, ROOM);
    settings.redis.urls = vec![redis.url().into()];
    let running = Running::with(settings, folder).await;
    assert_eq!(
        Visitor::of(&running, "concert").post("join", json!({})).await.0,
        200
    );
    // Only keys of rooms, because the other modules recover differently.
    let forget = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
    redis.command(&["EVAL", forget, "0", keys]).unwrap();
    let begun = tokio::time::Instant::now();
    let ticket = loop {
        let (status, ticket) = Visitor::of(&running, "concert").post("join", json!({})).await;
        if status == 200 {
            break ticket;
        }
        assert!(begun.elapsed() < PATIENCE, "{status} {ticket}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(ticket["number"], 0, "{ticket}");
    // The room is paused, because the number of sold seats is lost.
    assert_eq!(ticket["state"], "WAITING", "{ticket}");
    running
        .until("/v1/rooms/concert", |room| room["status"] == "PAUSED")
        .await;
    let metrics = running
        .http
        .get(format!("{}/metrics", running.url))
        .send()
        .await
        .unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(
        metrics.contains("tidegate_room_lost_rooms_total 1.0\n"),
        "{metrics}"
    );
    running.did("/v1/rooms/concert/resume", json!({})).await;
    running
        .until("/v1/rooms/concert", |room| room["status"] == "OPEN")
        .await;
    running.stop().await;
}

/// Redis executes the commands of a process only when it continues, and by then every heartbeat is too old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_visitors_keep_their_tickets_while_redis_is_frozen() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Presence and grace together are shorter than the freeze, and the freeze is shorter than the retries of a call, so that
    // none fails. After it there is time for a late heartbeat.
    let mut settings = config(Backend::Redis, &folder, &room_for(5_000, 1_000));
    settings.redis.urls = vec![redis.url().into()];
    let running = Running::with(settings, folder).await;
    let mut streams = Vec::new();
    for _ in 0..12 {
        streams.push(Visitor::of(&running, "concert").stream().await);
    }
    running
        .until("/v1/rooms/concert", |room| room["waiting"] == 11)
        .await;
    // After this the settling period is over, and absences count.
    tokio::time::sleep(Duration::from_millis(6_000)).await;
    redis.pause().unwrap();
    // Longer than an absent visitor keeps the ticket. The wait afterwards is as long, and no ticket may get lost in it.
    tokio::time::sleep(Duration::from_millis(7_000)).await;
    redis.resume().unwrap();
    tokio::time::sleep(Duration::from_millis(7_000)).await;
    let room = running.ok("/v1/rooms/concert").await;
    assert_eq!(
        (&room["waiting"], &room["counts"]["lost"]),
        (&json!(11), &json!(0)),
        "{room}"
    );
    drop(streams);
    running
        .until("/v1/rooms/concert", |room| room["counts"]["lost"] == 11)
        .await;
    running.stop().await;
}

async fn a_room_that_is_over_is_removed(backend: Backend) {
    let events = Events::start(1).await;
    let running = Running::start(backend, &events.settings()).await;
    let remove = |name: &'static str| {
        let url = format!("{}/v1/rooms/{name}", running.url);
        answer(running.http.delete(url).json(&json!({ "why": "it is over" })))
    };
    let mut visitor = Visitor::of(&running, "gala");
    let mut stream = visitor.stream().await;
    stream.next().await.unwrap();
    let refused = |(status, problem): (u16, Value), reason: &str| {
        assert_eq!(status, 409, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(reason), "{problem}");
    };
    refused(remove("gala").await, "neither closed nor sold out");
    running.did("/v1/rooms/gala/close", json!({})).await;
    refused(remove("gala").await, "1 people wait");
    assert_eq!(visitor.post("leave", json!({})).await.0, 200);
    refused(remove("concert").await, "is in the configuration");
    let (status, body) = remove("gala").await;
    assert_eq!(status, 204, "{body}");
    assert_eq!(names(&running.ok("/v1/rooms").await), ["concert"]);
    assert_eq!(remove("gala").await.0, 404);
    let audit = running.ok("/v1/audit").await.to_string();
    assert!(audit.contains("room.remove"), "{audit}");
    let running = running.restart().await;
    assert_eq!(names(&running.ok("/v1/rooms").await), ["concert"]);
    running.stop().await;
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn opens(settings: &mut tidegate_server::config::Config, at: Option<u64>) {
    let room = settings.rooms.get_mut(&RoomId::new("concert").unwrap()).unwrap();
    room.opens_at = at.map(Time);
}

/// A public seed would show visitors before the opening which cookie gets the best position.
async fn a_seed_is_public_only_after_its_opening(backend: Backend) {
    let folder = tempfile::tempdir().unwrap();
    let settings = config(backend, &folder, ROOM);
    let running = Running::with(settings.clone(), folder).await;
    let draw = running.ok("/v1/rooms/concert/draw").await;
    assert_eq!(
        (&draw["commitment"], &draw["seed"]),
        (&Value::Null, &Value::Null),
        "a room without an opening has no draw"
    );
    let past = running
        .ok("/v1/rooms/concert/draw?opensAt=2001-02-03T04:05:06Z")
        .await;
    assert_eq!(hex(Sha256::digest(bytes(&past["seed"]))), past["commitment"]);
    let Running { service, folder, .. } = running;
    service.shutdown().await.unwrap();
    let mut settings = settings;
    opens(&mut settings, Some(4_102_444_800_000));
    let running = Running::with(settings, folder).await;
    let coming = running
        .until("/v1/rooms/concert/draw", |draw| !draw["opensAt"].is_null())
        .await;
    assert_eq!(coming["seed"], Value::Null);
    assert_eq!(coming["commitment"].as_str().unwrap().len(), 64);
    assert_ne!(coming["commitment"], past["commitment"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visitors_can_verify_the_draw() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(Backend::Embedded, &folder, ROOM);
    let now = SystemClock.now().0;
    // Long enough that all join before the opening, even on a busy machine.
    opens(&mut settings, Some(now + 30_000));
    let room = settings.rooms.get_mut(&RoomId::new("concert").unwrap()).unwrap();
    (room.capacity.inside, room.presence_ms.0) = (0, 600_000);
    let running = Running::with(settings, folder).await;
    let before = running.ok("/v1/rooms/concert/draw").await;
    let mut visitors = Vec::new();
    for _ in 0..8 {
        let mut visitor = Visitor::of(&running, "concert");
        let (status, ticket) = visitor.post("join", json!({})).await;
        assert_eq!((status, &ticket["state"]), (200, &json!("EARLY")), "{ticket}");
        assert_eq!(ticket.get("number"), None, "{ticket}");
        visitors.push(visitor);
    }
    let draw = running
        .until("/v1/rooms/concert/draw", |draw| !draw["seed"].is_null())
        .await;
    assert_eq!(draw["commitment"], before["commitment"]);
    let seed = bytes(&draw["seed"]);
    assert_eq!(hex(Sha256::digest(&seed)), draw["commitment"]);
    running
        .until("/v1/rooms/concert", |room| room["waiting"] == 8)
        .await;
    let mut people = Vec::new();
    for visitor in &mut visitors {
        let (_, ticket) = visitor.get("ticket").await;
        let person = ticket["person"].as_str().unwrap().to_owned();
        let hash = Sha256::new().chain_update(&seed).chain_update(&person).finalize();
        // 13 digits of hex are 52 bits.
        let drawn = u64::from_str_radix(&hex(hash)[..13], 16).unwrap();
        people.push((ticket["number"].as_u64().unwrap(), drawn));
    }
    people.sort_unstable();
    assert!(people.is_sorted_by_key(|(_, drawn)| *drawn), "{people:?}");
    running.stop().await;
}

/// The new key signs from then on, as `docs/rooms.md` says. Earlier commitments, cookies and tickets stay valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_can_be_replaced_while_visitors_wait_for_a_draw() {
    let secret = "0123456789abcdef0123456789abcdef";
    let text = format!(
        r#"
[rooms.gala]
opens_at = "2100-01-01T00:00:00Z"
signed_by = [{{ secret = "{secret}" }}]
grace_ms = 600000
"#
    );
    let running = Running::start(Backend::Embedded, &text).await;
    let draw = running.ok("/v1/rooms/gala/draw").await;
    let claims = json!({ "sub": "ana", "aud": "gala", "exp": 4_000_000_000_u64 });
    let mut ana = Visitor::of(&running, "gala");
    let (status, ticket) = ana.post("join", json!({ "token": signed(secret, claims) })).await;
    assert_eq!((status, &ticket["state"]), (200, &json!("EARLY")), "{ticket}");
    let cookie = ana.cookie().unwrap().to_owned();
    let keys = running.ok("/.well-known/jwks.json").await;
    let made = std::process::Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out", "next.pem"])
        .current_dir(running.folder.path().join("data/room-keys"))
        .output();
    assert!(made.unwrap().status.success());
    let running = running.restart().await;
    let both = running.ok("/.well-known/jwks.json").await;
    assert_ne!(both["keys"][0], keys["keys"][0], "the new key signs");
    assert_eq!(both["keys"][1], keys["keys"][0]);
    assert_eq!(running.ok("/v1/rooms/gala/draw").await, draw);
    let mut ana = Visitor::of(&running, "gala").with_cookie(&cookie);
    let (status, ticket) = ana.get("ticket").await;
    assert_eq!((status, &ticket["state"]), (200, &json!("EARLY")), "{ticket}");
    running.stop().await;
}
