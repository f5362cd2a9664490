//! Tokens, passes and the time for failing open end before a visit does, or with it.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use super::bad_input::signed;
use super::people::{ROOM, Visitor, pause, with_pass};
use super::visits::until_scraped;
use crate::support::{Backend, Running, config};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A visitor may wait longer than the shop's token is valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_keeps_the_ticket_after_the_token_has_expired() {
    let text = format!(
        r#"
[rooms.members]
signed_by = [{{ secret = "{SECRET}" }}]
capacity = {{ inside = 0, per_second = 1 }}
grace_ms = 600000
"#
    );
    let running = Running::start(Backend::Embedded, &text).await;
    // Long enough to join with it on a stalled machine.
    let end = SystemClock.now().0.div_ceil(1_000) + 15;
    let token = signed(SECRET, json!({ "sub": "ana", "aud": "members", "exp": end }));
    let mut ana = Visitor::of(&running, "members");
    let (status, ticket) = ana.post("join", json!({ "token": token })).await;
    assert_eq!((status, &ticket["position"]), (200, &json!(1)), "{ticket}");
    while SystemClock.now().0 <= end * 1_000 {
        pause(100).await;
    }
    let (status, problem) = Visitor::of(&running, "members")
        .post("join", json!({ "token": token }))
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "the token has expired for other browsers: {problem}"
    );
    let (status, ticket) = ana.get("ticket").await;
    assert_eq!((status, &ticket["position"]), (200, &json!(1)), "{ticket}");
    // A browser reconnects its stream with the URL that it began with.
    let mut stream = ana.stream_with(&format!("?token={token}")).await.ok().unwrap();
    assert_eq!(stream.next().await.unwrap().1["position"], 1);
    drop(stream);
    // An expired link of another person in the same browser is refused.
    let old = signed(SECRET, json!({ "sub": "bob", "aud": "members", "exp": 1_000 }));
    let (status, problem) = ana.stream_with(&format!("?token={old}")).await.err().unwrap();
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    // Another ticket needs another token.
    let (status, left) = ana.post("leave", json!({})).await;
    assert_eq!((status, &left["end"]), (200, &json!("LEFT")), "{left}");
    let (status, problem) = ana.post("join", json!({ "again": true })).await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    // The identity cookie does not contain the token, and a changed cookie is not valid.
    let stored = ana.cookie().unwrap().to_owned();
    assert!(!stored.contains(&token), "{stored}");
    let (name, value) = stored.split_once('=').unwrap();
    let other = format!("{name}=B{}", &value[1..]);
    let other = if other == stored {
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

/// A visit may last longer than its pass can be redeemed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_pass_still_identifies_a_visitor_who_is_inside() {
    // Long enough to redeem the pass on a stalled machine.
    let running = Running::start(Backend::Embedded, &format!("{ROOM}pass_ms = 15000\n")).await;
    let mut visitor = Visitor::of(&running, "concert");
    let pass = visitor.stream().await.granted().await;
    let (status, visit) = visitor.shop("redeem", with_pass(&pass)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    pause(16_500).await;
    let (status, visit) = visitor.shop("check", with_pass(&pass)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    // A pass that was not redeemed in time ends the ticket.
    visitor.shop("complete", with_pass(&pass)).await;
    let mut late = Visitor::of(&running, "concert");
    let mut stream = late.stream().await;
    let pass = stream.granted().await;
    stream.until("closed", |closed| closed["end"] == "NO_SHOW").await;
    let (_, ended) = late.shop("check", with_pass(&pass)).await;
    assert_eq!(ended["end"], "NO_SHOW", "{ended}");
    let (status, problem) = late.shop("redeem", with_pass(&pass)).await;
    assert_eq!(
        (status, &problem["code"]),
        (410, &json!("pass_expired")),
        "{problem}"
    );
    running.stop().await;
}

/// The room admits everybody while the store is unavailable, because its settings allow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_may_fail_open_does_so_until_the_configured_time() {
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
    let (_, ticket) = Visitor::of(&running, "open").post("join", json!({})).await;
    assert_eq!(
        ticket["state"], "WAITING",
        "while the store is available: {ticket}"
    );
    until_scraped(&running, "tidegate_room_open{room=\"open\"}", |open| open == 1.0).await;

    redis.kill().unwrap();
    let (status, problem) = refused(&running, "shut").await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("store_unavailable")),
        "{problem}"
    );
    let mut visitor = Visitor::of(&running, "open");
    let (status, ticket) = visitor.post("join", json!({})).await;
    assert_eq!((status, &ticket["state"]), (200, &json!("GRANTED")), "{ticket}");
    let pass = ticket["pass"]["token"].as_str().unwrap().to_owned();
    let (status, visit) = visitor.shop("redeem", with_pass(&pass)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    let (status, done) = visitor.shop("complete", with_pass(&pass)).await;
    assert_eq!((status, &done["end"]), (200, &json!("COMPLETED")), "{done}");
    let name = visitor.stream_with("").await.ok().unwrap().next().await;
    assert_eq!(name.unwrap().0, "granted");
    let given = "tidegate_room_failed_open_passes_total{room=\"open\"}";
    until_scraped(&running, given, |passes| passes == 2.0).await;
    pause(21_500).await;
    let (status, problem) = visitor.shop("redeem", with_pass(&pass)).await;
    assert_eq!(
        (status, &problem["code"]),
        (410, &json!("pass_expired")),
        "the pass expires like any other: {problem}"
    );
    running.stop().await;
}

/// A time this many seconds from now.
pub(crate) fn soon(seconds: u64) -> String {
    tidegate_api::Time(SystemClock.now().0 + seconds * 1_000).to_string()
}

/// Nobody could buy before the outage, so a pass would open a sale that has not begun or is over.
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
        until_scraped(&running, &series, |value| value == open).await;
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
        until_scraped(&running, &given, |passes| passes == 0.0).await;
    }
    let (status, ticket) = Visitor::of(&running, "open").post("join", json!({})).await;
    assert_eq!((status, &ticket["state"]), (200, &json!("GRANTED")), "{ticket}");
    running.stop().await;
}

/// Operators would forget a room that fails open forever.
#[tokio::test]
async fn failing_open_for_too_long_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[rooms.open]\nfail_open_until = \"2100-01-01T00:00:00Z\"";
    let settings = config(Backend::Embedded, &folder, text);
    let refused = tidegate_server::Service::start(settings).await.err().unwrap();
    let refused = refused.to_string();
    assert!(
        refused.contains(
            "rooms.open.fail_open_until = 2100-01-01T00:00:00.000Z: it must be at most 7 days ahead"
        ),
        "{refused}"
    );
}

/// Joins until the room refuses: the first call after the outage may still succeed.
async fn refused(running: &Running, room: &str) -> (u16, Value) {
    let found = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let (status, body) = Visitor::of(running, room).post("join", json!({})).await;
            if status != 200 {
                return (status, body);
            }
            pause(100).await;
        }
    });
    found.await.expect("the service detects the outage")
}
