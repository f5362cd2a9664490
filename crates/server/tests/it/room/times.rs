//! Tokens, passes and exceptions that end before the visit does, or with it.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_store::{Clock, SystemClock};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use super::bad_input::signed;
use super::people::{ROOM, Visitor, a_moment, shows};
use super::visits::told;
use crate::support::{Backend, Running, config};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A line may be longer than the shop's token lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_named_keeps_the_place_when_the_token_has_expired() {
    let text = format!(
        r#"
[rooms.members]
signed_by = [{{ secret = "{SECRET}" }}]
capacity = {{ inside = 0, per_second = 1 }}
grace_ms = 600000
"#
    );
    let running = Running::start(Backend::Embedded, &text).await;
    // Long enough to join with it, also if the machine stalls.
    let end = SystemClock.now().0.div_ceil(1_000) + 15;
    let token = signed(SECRET, json!({ "sub": "ana", "aud": "members", "exp": end }));
    let mut ana = Visitor::of(&running, "members");
    let (status, place) = ana.post("join", json!({ "token": token })).await;
    assert_eq!((status, &place["position"]), (200, &json!(1)), "{place}");
    while SystemClock.now().0 <= end * 1_000 {
        a_moment(100).await;
    }
    let (status, problem) = Visitor::of(&running, "members")
        .post("join", json!({ "token": token }))
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "for others the token is over: {problem}"
    );
    let (status, place) = ana.get("ticket").await;
    assert_eq!((status, &place["position"]), (200, &json!(1)), "{place}");
    // A browser's stream comes back by the address that it began with.
    let mut stream = ana.stream_with(&format!("?token={token}")).await.ok().unwrap();
    assert_eq!(stream.next().await.unwrap().1["position"], 1);
    drop(stream);
    // Somebody else's old link in the same browser is not hers.
    let old = signed(SECRET, json!({ "sub": "bob", "aud": "members", "exp": 1_000 }));
    let (status, problem) = ana.stream_with(&format!("?token={old}")).await.err().unwrap();
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    // Another place needs another token.
    let (status, left) = ana.post("leave", json!({})).await;
    assert_eq!((status, &left["end"]), (200, &json!("LEFT")), "{left}");
    let (status, problem) = ana.post("join", json!({ "again": true })).await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    // What the browser keeps is no token, and cannot be changed into somebody else.
    let kept = ana.cookie().unwrap().to_owned();
    assert!(!kept.contains(&token), "{kept}");
    let (name, value) = kept.split_once('=').unwrap();
    let other = format!("{name}=B{}", &value[1..]);
    let other = if other == kept {
        format!("{name}=C{}", &value[1..])
    } else {
        other
    };
    let (status, problem) = Visitor::of(&running, "members")
        .with_cookie(&other)
        .get("ticket")
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    running.stop().await;
}

/// A visit is longer than the time in which its pass can be redeemed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_inside_is_known_by_the_pass_after_its_time() {
    // Long enough to be redeemed, also if the machine stalls.
    let running = Running::start(Backend::Embedded, &format!("{ROOM}pass_ms = 15000\n")).await;
    let mut visitor = Visitor::of(&running, "concert");
    let pass = visitor.stream().await.granted().await;
    let (status, visit) = visitor.shop("redeem", shows(&pass)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    a_moment(16_500).await;
    let (status, visit) = visitor.shop("check", shows(&pass)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    // One that was not redeemed is over by then.
    visitor.shop("complete", shows(&pass)).await;
    let mut late = Visitor::of(&running, "concert");
    let mut stream = late.stream().await;
    let pass = stream.granted().await;
    stream.until("closed", |closed| closed["end"] == "NO_SHOW").await;
    let (_, ended) = late.shop("check", shows(&pass)).await;
    assert_eq!(ended["end"], "NO_SHOW", "{ended}");
    let (status, problem) = late.shop("redeem", shows(&pass)).await;
    assert_eq!(
        (status, &problem["code"]),
        (410, &json!("pass_expired")),
        "{problem}"
    );
    running.stop().await;
}

/// Lets everybody in while the store is away, because the operator said so, and for as long as said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_may_fail_open_does_so_until_its_time() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
[rooms.open]
capacity = {{ inside = 0, per_second = 1 }}
pass_ms = 20000
fail_open_until = "{}"

[rooms.shut]
capacity = {{ inside = 0, per_second = 1 }}
"#,
        soon(600)
    );
    let mut settings = config(Backend::Redis, &folder, &text);
    settings.redis.urls = vec![redis.url().into()];
    let running = Running::with(settings, folder).await;
    let (_, place) = Visitor::of(&running, "open").post("join", json!({})).await;
    assert_eq!(place["state"], "WAITING", "while the store is there: {place}");
    told(&running, "tidegate_room_open{room=\"open\"}", |open| open == 1.0).await;

    redis.kill().unwrap();
    let (status, problem) = refused(&running, "shut").await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("store_unavailable")),
        "{problem}"
    );
    let mut visitor = Visitor::of(&running, "open");
    let (status, place) = visitor.post("join", json!({})).await;
    assert_eq!((status, &place["state"]), (200, &json!("GRANTED")), "{place}");
    let pass = place["pass"]["token"].as_str().unwrap().to_owned();
    let (status, visit) = visitor.shop("redeem", shows(&pass)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    let (status, done) = visitor.shop("complete", shows(&pass)).await;
    assert_eq!((status, &done["end"]), (200, &json!("COMPLETED")), "{done}");
    let name = visitor.stream_with("").await.ok().unwrap().next().await;
    assert_eq!(name.unwrap().0, "granted");
    let given = "tidegate_room_failed_open_passes_total{room=\"open\"}";
    told(&running, given, |passes| passes == 2.0).await;
    a_moment(21_500).await;
    let (status, problem) = visitor.shop("redeem", shows(&pass)).await;
    assert_eq!(
        (status, &problem["code"]),
        (410, &json!("pass_expired")),
        "it has a time like any other: {problem}"
    );
    running.stop().await;
}

/// So many seconds from now.
pub(crate) fn soon(seconds: u64) -> String {
    tidegate_api::Time(SystemClock.now().0 + seconds * 1_000).to_string()
}

/// Nobody could buy there before the store went away: a signed pass would open a sale that has not begun, or is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_was_not_open_does_not_fail_open() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let room = |name: &str, more: &str| {
        let until = soon(600);
        format!("[rooms.{name}]\nfail_open_until = \"{until}\"\n{more}\n")
    };
    let text = [
        room("open", ""),
        room("early", "opens_at = \"2100-01-01T00:00:00Z\""),
        room("sold", "capacity = { seats = 0 }"),
        room("paused", ""),
        room("closed", ""),
    ];
    let mut settings = config(Backend::Redis, &folder, &text.concat());
    settings.redis.urls = vec![redis.url().into()];
    let running = Running::with(settings, folder).await;
    running
        .did("/v1/rooms/paused/pause", json!({ "why": "a fire alarm" }))
        .await;
    running
        .did("/v1/rooms/closed/close", json!({ "why": "it is over" }))
        .await;
    for (room, open) in [
        ("open", 1.0),
        ("early", 1.0),
        ("sold", 1.0),
        ("paused", 0.0),
        ("closed", 0.0),
    ] {
        let series = format!("tidegate_room_open{{room=\"{room}\"}}");
        told(&running, &series, |told| told == open).await;
    }
    redis.kill().unwrap();
    for room in ["early", "sold", "paused", "closed"] {
        let (status, problem) = refused(&running, room).await;
        assert_eq!(
            (status, &problem["code"]),
            (503, &json!("store_unavailable")),
            "{room}: {problem}"
        );
        let given = format!("tidegate_room_failed_open_passes_total{{room=\"{room}\"}}");
        told(&running, &given, |passes| passes == 0.0).await;
    }
    let (status, place) = Visitor::of(&running, "open").post("join", json!({})).await;
    assert_eq!((status, &place["state"]), (200, &json!("GRANTED")), "{place}");
    running.stop().await;
}

/// An exception without an end would be forgotten.
#[tokio::test]
async fn an_exception_that_would_not_end_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[rooms.open]\nfail_open_until = \"2100-01-01T00:00:00Z\"";
    let settings = config(Backend::Embedded, &folder, text);
    let refused = tidegate_server::Service::start(settings).await.err().unwrap();
    let refused = refused.to_string();
    assert!(
        refused.contains(
            "rooms.open.fail_open_until = 2100-01-01T00:00:00.000Z: an exception ends at most 7 days"
        ),
        "{refused}"
    );
}

/// The first calls after a server has gone may be on their way to it still.
async fn refused(running: &Running, room: &str) -> (u16, Value) {
    let found = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let (status, body) = Visitor::of(running, room).post("join", json!({})).await;
            if status != 200 {
                return (status, body);
            }
            a_moment(100).await;
        }
    });
    found.await.expect("a store that is away is noticed")
}
