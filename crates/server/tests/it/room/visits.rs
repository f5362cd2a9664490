//! Regular visits: tickets, positions, passes, and the commands of operators.

use serde_json::json;

use super::people::{ROOM, Visitor, pause, room_for, with_pass};
use crate::support::{Backend, PATIENCE, Running, answer};

on_both_stores! {
    a_visitor_waits_is_admitted_and_buys
    the_same_browser_has_the_same_ticket_and_the_newest_stream_wins
    polling_keeps_a_ticket_as_a_stream_does
    operators_pause_close_and_change_the_limits
    a_repeated_change_is_applied_once
    a_visit_that_has_ended_can_be_neither_completed_nor_extended
    passes_are_revoked_and_issued_again
    tickets_survive_a_restart
    visits_are_counted
}

async fn a_visitor_waits_is_admitted_and_buys(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let (mut first, mut second, mut third) = (
        Visitor::of(&running, "concert"),
        Visitor::of(&running, "concert"),
        Visitor::of(&running, "concert"),
    );
    let mut first_stream = first.stream().await;
    let pass = first_stream.granted().await;
    let mut second_stream = second.stream().await;
    let (name, ticket) = second_stream.next().await.unwrap();
    assert_eq!((name.as_str(), &ticket["position"]), ("queued", &json!(1)));
    assert_eq!(
        (&ticket["ahead"], &ticket["behind"], &ticket["waiting"]),
        (&json!(0), &json!(0), &json!(1))
    );
    let mut third_stream = third.stream().await;
    let (_, ticket) = third_stream.next().await.unwrap();
    assert_eq!(
        (&ticket["position"], &ticket["roomStatus"]),
        (&json!(2), &json!("OPEN"))
    );

    let (status, visit) = first.shop("check", with_pass(&pass)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("GRANTED")), "{visit}");
    let named = json!({ "pass": pass, "session": "basket-7" });
    let (status, visit) = first.shop("redeem", named.clone()).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    assert_eq!(
        first.shop("redeem", named).await.0,
        200,
        "the same session may repeat the call"
    );
    let (status, problem) = first.shop("redeem", with_pass(&pass)).await;
    assert_eq!((status, &problem["code"]), (409, &json!("pass_used")));
    let (status, longer) = first
        .shop("extend", json!({ "pass": pass, "durationMs": 3_600_000 }))
        .await;
    assert_eq!(status, 200);
    assert!(longer["until"].as_str() > visit["until"].as_str(), "{longer}");
    for _ in 0..2 {
        let (status, done) = first.shop("complete", with_pass(&pass)).await;
        assert_eq!((status, &done["end"]), (200, &json!("COMPLETED")), "{done}");
    }
    let (status, problem) = first.shop("extend", with_pass(&pass)).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("visit_ended")),
        "{problem}"
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("(completed)") && detail.contains("seat stays taken"),
        "{detail}"
    );
    let (status, done) = first.shop("release", with_pass(&pass)).await;
    assert_eq!((status, &done["end"]), (200, &json!("COMPLETED")), "{done}");
    first_stream
        .until("closed", |closed| closed["end"] == "COMPLETED")
        .await;
    assert!(first_stream.next().await.is_none(), "the stream ends");

    second_stream.granted().await;
    third_stream
        .until("position", |ticket| ticket["position"] == 1)
        .await;
    let room = running.ok("/v1/rooms/concert").await;
    assert_eq!(
        (&room["granted"], &room["waiting"], &room["counts"]["completed"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let (status, again) = first.post("join", json!({ "again": true })).await;
    assert_eq!(
        (status, &again["end"]),
        (200, &json!("COMPLETED")),
        "one purchase per visitor"
    );
    running.stop().await;
}

async fn the_same_browser_has_the_same_ticket_and_the_newest_stream_wins(backend: Backend) {
    // The grace period is longer than a stall, so that a short break stays one on a slow machine.
    let running = Running::start(backend, &room_for(1_500, 10_000)).await;
    let mut inside = Visitor::of(&running, "concert");
    inside.stream().await.granted().await;
    let mut visitor = Visitor::of(&running, "concert");
    let mut old = visitor.stream().await;
    old.next().await.unwrap();
    let mut other = Visitor::of(&running, "concert");
    let mut behind = other.stream().await;
    assert_eq!(behind.next().await.unwrap().1["position"], 2);
    let mut new = visitor.stream().await;
    assert_eq!(new.next().await.unwrap().1["position"], 1, "the ticket is kept");
    old.until("superseded", |_| true).await;
    assert!(old.next().await.is_none());
    drop(old);
    // Longer than presence and grace: the end of the older stream has not affected the ticket.
    pause(12_000).await;
    let (status, ticket) = visitor.get("ticket").await;
    assert_eq!((status, &ticket["position"]), (200, &json!(1)), "{ticket}");
    // After a short break the position is the same.
    drop(new);
    pause(500).await;
    assert_eq!(visitor.stream().await.next().await.unwrap().1["position"], 1);
    // A break longer than the grace period loses the ticket, while the other visitor stays.
    running
        .until("/v1/rooms/concert", |room| room["counts"]["lost"] == 1)
        .await;
    let (_, ticket) = visitor.get("ticket").await;
    assert_eq!(
        (&ticket["state"], &ticket["end"]),
        (&json!("ENDED"), &json!("LOST"))
    );
    behind.until("position", |ticket| ticket["position"] == 1).await;
    let mut closed = visitor.stream().await;
    assert_eq!(
        closed.next().await.unwrap().0,
        "closed",
        "a new ticket needs a request"
    );
    let mut again = visitor.stream_with("?again=1").await.unwrap_or_else(|_| panic!());
    assert_eq!(again.next().await.unwrap().1["position"], 2);
    running.stop().await;
}

async fn polling_keeps_a_ticket_as_a_stream_does(backend: Backend) {
    let running = Running::start(backend, &room_for(1_500, 10_000)).await;
    let mut inside = Visitor::of(&running, "concert");
    let mut stream = inside.stream().await;
    stream.granted().await;
    let mut polls = Visitor::of(&running, "concert");
    assert_eq!(polls.get("ticket").await.1["code"], "no_ticket");
    let (status, ticket) = polls.post("join", json!({})).await;
    assert_eq!((status, &ticket["position"]), (200, &json!(1)), "{ticket}");
    // Altogether longer than presence and grace.
    for _ in 0..13 {
        pause(1_000).await;
        assert_eq!(polls.get("ticket").await.1["position"], 1);
    }
    let (status, left) = inside.post("leave", json!({})).await;
    assert_eq!((status, &left["end"]), (200, &json!("LEFT")));
    // The visitor keeps polling, because the room skips absent visitors.
    let begun = std::time::Instant::now();
    let ticket = loop {
        let (_, ticket) = polls.get("ticket").await;
        if ticket["state"] == "GRANTED" {
            break ticket;
        }
        assert!(begun.elapsed() < crate::support::PATIENCE, "{ticket}");
        pause(50).await;
    };
    let go_to = ticket["pass"]["goTo"].as_str().unwrap();
    assert!(
        go_to.starts_with("https://shop.example/enter?from=queue&pass=ey"),
        "{go_to}"
    );
    assert_eq!(
        polls.get("ticket").await.1["pass"],
        ticket["pass"],
        "the same pass again"
    );
    running.stop().await;
}

async fn operators_pause_close_and_change_the_limits(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let mut inside = Visitor::of(&running, "concert");
    let mut first = inside.stream().await;
    first.granted().await;
    let mut visitor = Visitor::of(&running, "concert");
    let mut stream = visitor.stream().await;
    stream.next().await.unwrap();
    let room = running
        .did("/v1/rooms/concert/pause", json!({ "why": "the till broke" }))
        .await;
    assert_eq!(room["status"], "PAUSED");
    stream.until("paused", |ticket| ticket["position"] == 1).await;
    let change = json!({ "inside": { "add": 1 }, "why": "another till" });
    let (status, room) = running.patch("/v1/rooms/concert/capacity", change).await;
    assert_eq!((status, &room["capacity"]["inside"]), (200, &json!(2)), "{room}");
    assert_eq!(room["changes"][0]["why"], "another till");
    running.did("/v1/rooms/concert/resume", json!({})).await;
    stream.granted().await;
    let (_, room) = running
        .patch(
            "/v1/rooms/concert/capacity",
            json!({ "inside": { "set": 0 }, "seats": { "set": 2 } }),
        )
        .await;
    assert_eq!(
        (&room["granted"], &room["capacity"]["inside"]),
        (&json!(2), &json!(0)),
        "nobody has to leave"
    );
    let mut late = Visitor::of(&running, "concert");
    let mut waits = late.stream().await;
    waits.next().await.unwrap();
    running
        .did("/v1/rooms/concert/close", json!({ "why": "over" }))
        .await;
    waits.until("closed", |closed| closed["reason"] == "CLOSED").await;
    let (status, problem) = Visitor::of(&running, "concert").post("join", json!({})).await;
    assert_eq!((status, &problem["code"]), (410, &json!("room_closed")));
    let audit = running.ok("/v1/audit").await;
    let entries = audit.to_string();
    for command in [
        "room.pause",
        "room.resume",
        "room.resize",
        "room.close",
        "the till broke",
    ] {
        assert!(entries.contains(command), "{command} is not in {entries}");
    }
    let history = running.ok("/v1/rooms/concert/history").await;
    assert!(!history["samples"].as_array().unwrap().is_empty());
    running.stop().await;
}

/// A client that got no response repeats its request.
async fn a_repeated_change_is_applied_once(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let by = |many: i64, request: Option<&str>| {
        let mut change = json!({ "seats": { "add": many }, "why": "another row" });
        if let Some(request) = request {
            change["request"] = json!(request);
        }
        running.patch("/v1/rooms/concert/capacity", change)
    };
    for (many, request, seats) in [
        (5, Some("row-7"), 55),
        (5, Some("row-7"), 55),
        (5, Some("row-8"), 60),
        (5, Some("row-7"), 60),
        // A different change with a reused name is applied.
        (3, Some("row-7"), 63),
        (5, None, 68),
        (5, None, 73),
    ] {
        let (status, room) = by(many, request).await;
        let held = &room["capacity"]["seats"];
        assert_eq!((status, held), (200, &json!(seats)), "{many} {request:?}: {room}");
    }
    for odd in [String::new(), "x".repeat(201)] {
        let (status, problem) = by(1, Some(&odd)).await;
        assert_eq!(status, 422, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("request has"),
            "{problem}"
        );
    }
    running.stop().await;
}

/// Another visitor may have the seat.
async fn a_visit_that_has_ended_can_be_neither_completed_nor_extended(backend: Backend) {
    let running = Running::start(backend, &format!("{ROOM}inside_ms = 2000\n")).await;
    let mut visitor = Visitor::of(&running, "concert");
    let pass = visitor.stream().await.granted().await;
    assert_eq!(visitor.shop("redeem", with_pass(&pass)).await.0, 200);
    running
        .until("/v1/rooms/concert", |room| room["counts"]["expired"] == 1)
        .await;
    for what in ["complete", "extend", "complete"] {
        let (status, problem) = visitor.shop(what, with_pass(&pass)).await;
        assert_eq!(
            (status, &problem["code"]),
            (409, &json!("visit_ended")),
            "{what}: {problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("(expired)") && detail.contains("slot and its seat are given back"),
            "{what}: {detail}"
        );
    }
    for what in ["release", "check"] {
        let (status, visit) = visitor.shop(what, with_pass(&pass)).await;
        assert_eq!(
            (status, &visit["end"]),
            (200, &json!("EXPIRED")),
            "{what}: {visit}"
        );
    }
    let room = running.ok("/v1/rooms/concert").await;
    assert_eq!(
        (&room["counts"]["completed"], &room["counts"]["leftInside"]),
        (&json!(0), &json!(0)),
        "{room}"
    );
    running.stop().await;
}

async fn passes_are_revoked_and_issued_again(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let mut visitor = Visitor::of(&running, "concert");
    let mut stream = visitor.stream().await;
    let old = stream.granted().await;
    running
        .did("/v1/rooms/concert/void", json!({ "why": "a leak" }))
        .await;
    let new = stream.granted().await;
    assert_ne!(old, new);
    refused_as_void(&visitor, &old).await;
    assert_eq!(visitor.shop("redeem", with_pass(&new)).await.0, 200);
    // The revoked pass does not work for the visitor who is inside, either.
    refused_as_void(&visitor, &old).await;
    let (status, visit) = visitor.shop("check", with_pass(&new)).await;
    assert_eq!((status, &visit["state"]), (200, &json!("INSIDE")), "{visit}");
    assert_eq!(visitor.shop("extend", with_pass(&new)).await.0, 200);
    let (status, done) = visitor.shop("complete", with_pass(&new)).await;
    assert_eq!((status, &done["end"]), (200, &json!("COMPLETED")), "{done}");
    let keys = answer(running.http.get(format!("{}/.well-known/jwks.json", running.url)))
        .await
        .1;
    assert_eq!(
        (&keys["keys"][0]["crv"], &keys["keys"][0]["alg"]),
        (&json!("Ed25519"), &json!("EdDSA"))
    );
    running.stop().await;
}

/// Every route of shops refuses the pass.
async fn refused_as_void(shop: &Visitor, pass: &str) {
    for what in ["redeem", "check", "extend", "complete", "release"] {
        let (status, problem) = shop.shop(what, with_pass(pass)).await;
        assert_eq!(
            (status, &problem["code"]),
            (410, &json!("pass_void")),
            "{what}: {problem}"
        );
    }
}

async fn tickets_survive_a_restart(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let (mut first, mut second) = (Visitor::of(&running, "concert"), Visitor::of(&running, "concert"));
    let mut stream = first.stream().await;
    let pass = stream.granted().await;
    let mut waits = second.stream().await;
    waits.next().await.unwrap();
    let cookie = second.cookie().unwrap().to_owned();
    let running = running.restart().await;
    let mut second = Visitor::of(&running, "concert").with_cookie(&cookie);
    assert_eq!(second.stream().await.next().await.unwrap().1["position"], 1);
    let shop = Visitor::of(&running, "concert");
    assert_eq!(
        shop.shop("redeem", with_pass(&pass)).await.0,
        200,
        "the pass is still valid"
    );
    running.stop().await;
}

/// Scrapes `/metrics` until the series with this name and labels is as wanted.
pub(crate) async fn until_scraped(running: &Running, series: &str, wanted: impl Fn(f64) -> bool) {
    let begun = tokio::time::Instant::now();
    loop {
        let request = running.http.get(format!("{}/metrics", running.url));
        let text = request.send().await.unwrap().text().await.unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        if value.is_some_and(|value| wanted(value.trim().parse().unwrap())) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{series} is {value:?} in\n{text}");
        pause(50).await;
    }
}

async fn visits_are_counted(backend: Backend) {
    let limited = format!("[room]\nmax_streams = 70\n{ROOM}max_waiting = 90\n");
    let running = Running::start(backend, &limited).await;
    let (mut first, mut second, mut third) = (
        Visitor::of(&running, "concert"),
        Visitor::of(&running, "concert"),
        Visitor::of(&running, "concert"),
    );
    let mut first_stream = first.stream().await;
    let pass = first_stream.granted().await;
    let (mut second_stream, mut third_stream) = (second.stream().await, third.stream().await);
    let (_, ticket) = third_stream.next().await.unwrap();
    assert_eq!(ticket["position"], 2);
    for (series, value) in [
        ("tidegate_room_people{room=\"concert\",state=\"granted\"}", 1.0),
        ("tidegate_room_people{room=\"concert\",state=\"waiting\"}", 2.0),
        ("tidegate_room_max_inside_people{room=\"concert\"}", 1.0),
        ("tidegate_room_free_slots{room=\"concert\"}", 0.0),
        ("tidegate_room_max_waiting_people{room=\"concert\"}", 90.0),
        ("tidegate_room_streams{room=\"concert\"}", 3.0),
        ("tidegate_room_max_streams", 70.0),
        (
            "tidegate_room_queued_calls{room=\"concert\",operation=\"join\"}",
            0.0,
        ),
    ] {
        until_scraped(&running, series, |scraped| scraped == value).await;
    }
    assert_eq!(first.shop("redeem", with_pass(&pass)).await.0, 200);
    assert_eq!(first.shop("complete", with_pass(&pass)).await.0, 200);
    second_stream.granted().await;
    third_stream
        .until("position", |ticket| ticket["position"] == 1)
        .await;
    for (series, least) in [
        ("tidegate_room_admissions_total{room=\"concert\"}", 2.0),
        ("tidegate_room_promoted_people_total{room=\"concert\"}", 2.0),
        (
            "tidegate_room_ended_tickets_total{room=\"concert\",outcome=\"completed\"}",
            1.0,
        ),
        (
            "tidegate_room_promotion_duration_seconds_count{room=\"concert\"}",
            2.0,
        ),
        (
            "tidegate_room_promotion_duration_seconds_bucket{le=\"+Inf\",room=\"concert\"}",
            2.0,
        ),
        (
            "tidegate_room_broadcast_duration_seconds_count{room=\"concert\"}",
            1.0,
        ),
    ] {
        until_scraped(&running, series, |scraped| scraped >= least).await;
    }
    running.stop().await;
}
