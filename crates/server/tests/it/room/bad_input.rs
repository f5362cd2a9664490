//! What is wrong, forged or too much: a clear answer, and nobody else is harmed.

use serde_json::json;

use super::people::{ROOM, Visitor, shows};
use crate::support::{Backend, Running, answer};

on_both_stores! {
    unknown_rooms_and_forged_things_are_refused
    limits_that_cannot_be_are_refused
}

async fn unknown_rooms_and_forged_things_are_refused(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let mut nobody = Visitor::of(&running, "nowhere");
    let (status, problem) = nobody.stream_with("").await.err().unwrap();
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_room")));
    assert_eq!(nobody.post("join", json!({})).await.0, 404);
    assert_eq!(
        nobody.cookie(),
        None,
        "nothing is remembered of a room that there is not"
    );
    // A cookie that nobody gave is no cookie: a new one is given, and the place is a new one.
    let mut forger = Visitor::of(&running, "concert").with_cookie("tidegate_place=forged");
    let (status, _) = forger.post("join", json!({})).await;
    assert_eq!(status, 200);
    assert_ne!(forger.cookie(), Some("tidegate_place=forged"));
    for (pass, kind) in [
        ("", "bad_pass"),
        ("x.y.z", "bad_pass"),
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.", "bad_pass"),
    ] {
        let (status, problem) = forger.shop("redeem", shows(pass)).await;
        assert_eq!(
            (status, &problem["code"]),
            (403, &json!(kind)),
            "{pass:?}: {problem}"
        );
    }
    let (status, problem) = forger.post("join", json!({ "token": "a.b.c" })).await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    let (status, _) = forger.post("join", json!({ "agian": true })).await;
    assert_eq!(status, 422, "a field that there is not");
    let long = format!("tidegate_place={}", "x".repeat(10_000));
    let mut huge = Visitor::of(&running, "concert").with_cookie(&long);
    assert_eq!(huge.get("ticket").await.1["code"], "no_ticket");
    running.stop().await;
}

async fn limits_that_cannot_be_are_refused(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let path = "/v1/rooms/concert/capacity";
    for (change, part) in [
        (json!({}), "nothing is to change"),
        (json!({ "inside": { "set": -1 } }), "inside = -1"),
        (json!({ "inside": { "set": null } }), "null is for seats only"),
        (
            json!({ "seats": { "set": 9_000_000_000_000_i64 } }),
            "seats = 9000000000000",
        ),
        (
            json!({ "perSecond": { "add": 1_000_000 } }),
            "per_second = 1000100",
        ),
        (json!({ "seats": { "reset": false } }), "reset"),
        (json!({ "inside": 5 }), "{\"set\": 100}"),
        (json!({ "inside": { "set": 5, "add": 1 } }), "in one way"),
    ] {
        let (status, problem) = running.patch(path, change.clone()).await;
        assert_eq!(status, 422, "{change}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(part), "{change}: {detail}");
    }
    let (status, _) = answer(
        running
            .http
            .post(format!("{}/v1/rooms/nowhere/pause", running.url)),
    )
    .await;
    assert_eq!(status, 404);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_address_takes_few_places() {
    let running = Running::start(Backend::Embedded, ROOM).await;
    let mut taken = 0;
    for _ in 0..100 {
        let (status, problem) = Visitor::of(&running, "concert").post("join", json!({})).await;
        match status {
            200 => taken += 1,
            429 => assert_eq!(problem["code"], "too_many_joins"),
            other => panic!("{other} {problem}"),
        }
    }
    assert!((30..90).contains(&taken), "{taken} were let in");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shop_says_who_visitors_are() {
    let text = r#"
[rooms.members]
signed_by = [{ secret = "0123456789abcdef0123456789abcdef" }]
capacity = { inside = 0, per_second = 1 }
"#;
    let running = Running::start(Backend::Embedded, text).await;
    let (status, problem) = Visitor::of(&running, "members").post("join", json!({})).await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    let token = signed(
        "0123456789abcdef0123456789abcdef",
        json!({ "sub": "ana", "aud": "members", "exp": 4_000_000_000_u64 }),
    );
    let (mut phone, mut laptop) = (Visitor::of(&running, "members"), Visitor::of(&running, "members"));
    for device in [&mut phone, &mut laptop] {
        let (status, place) = device.post("join", json!({ "token": token })).await;
        assert_eq!(
            (status, &place["position"], &place["waiting"]),
            (200, &json!(1), &json!(1)),
            "{place}"
        );
    }
    assert_eq!(
        laptop.get("ticket").await.1["position"],
        1,
        "the token is remembered"
    );
    for (claims, secret) in [
        (
            json!({ "sub": "eve", "aud": "members", "exp": 4_000_000_000_u64 }),
            "another secret that is long enough",
        ),
        (
            json!({ "sub": "eve", "aud": "concert", "exp": 4_000_000_000_u64 }),
            "0123456789abcdef0123456789abcdef",
        ),
        (
            json!({ "sub": "eve", "aud": "members", "exp": 1_000 }),
            "0123456789abcdef0123456789abcdef",
        ),
        (
            json!({ "aud": "members", "exp": 4_000_000_000_u64 }),
            "0123456789abcdef0123456789abcdef",
        ),
    ] {
        let token = signed(secret, claims.clone());
        let (status, problem) = Visitor::of(&running, "members")
            .post("join", json!({ "token": token }))
            .await;
        assert_eq!(
            (status, &problem["code"]),
            (401, &json!("bad_token")),
            "{claims}: {problem}"
        );
    }
    running.stop().await;
}

/// What a browser keeps for one room it may send to another, whose shop never named it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_named_for_one_room_comes_to_no_other_by_it() {
    let (concert, members) = (
        "0123456789abcdef0123456789abcdef",
        "fedcba9876543210fedcba9876543210",
    );
    let text = format!(
        r#"
[rooms.concert]
signed_by = [{{ secret = "{concert}" }}]
[rooms.members]
signed_by = [{{ secret = "{members}" }}]
"#
    );
    let running = Running::start(Backend::Embedded, &text).await;
    let coming = |room: &str, secret: &str| {
        let claims = json!({ "sub": "eve", "aud": room, "exp": 4_000_000_000_u64 });
        json!({ "token": signed(secret, claims) })
    };
    let mut eve = Visitor::of(&running, "concert");
    assert_eq!(eve.post("join", coming("concert", concert)).await.0, 200);
    let (_, kept) = eve.cookie().unwrap().split_once('=').unwrap();
    let mut member = Visitor::of(&running, "members");
    assert_eq!(member.post("join", coming("members", members)).await.0, 200);
    let (name, own) = member.cookie().unwrap().split_once('=').unwrap();
    let with = |value: &str| Visitor::of(&running, "members").with_cookie(&format!("{name}={value}"));
    assert_eq!(with(own).stream_with("").await.err(), None, "the room's own");
    let (status, problem) = with(kept).stream_with("").await.err().unwrap();
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    assert_eq!(with(kept).post("join", json!({})).await.0, 401);
    let room = running.ok("/v1/rooms/members").await;
    assert_eq!(room["counts"]["joined"], 1, "{room}");
    running.stop().await;
}

/// A token as a shop signs it.
pub(crate) fn signed(secret: &str, claims: serde_json::Value) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use hmac::{Hmac, KeyInit, Mac};
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!(
        "{}.{}",
        part(&json!({ "alg": "HS256", "typ": "JWT" })),
        part(&claims)
    );
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
    format!("{text}.{signature}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_shown_in_two_languages_and_takes_no_place_by_itself() {
    let running = Running::start(Backend::Embedded, ROOM).await;
    let page = |lang: &'static str| {
        let request = running.http.get(format!("{}/rooms/concert", running.url));
        async move {
            let response = request.header("accept-language", lang).send().await.unwrap();
            assert_eq!(response.status(), 200);
            assert!(response.headers().contains_key("content-security-policy"));
            response.text().await.unwrap()
        }
    };
    assert!(page("en").await.contains("lang=\"en\""));
    assert!(page("ko-KR,ko;q=0.9").await.contains("lang=\"ko\""));
    let missing = running
        .http
        .get(format!("{}/rooms/nowhere", running.url))
        .send()
        .await
        .unwrap();
    assert_eq!(missing.status(), 404);
    assert_eq!(running.ok("/v1/rooms/concert").await["counts"]["joined"], 0);
    running.stop().await;
}
