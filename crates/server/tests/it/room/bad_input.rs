//! Invalid, forged and excessive requests get a clear problem, and affect nobody else.

use serde_json::json;

use super::people::{ROOM, Visitor, with_pass};
use crate::support::{Backend, Running, answer};

on_both_stores! {
    unknown_rooms_and_forged_credentials_are_refused
    invalid_limits_are_refused
}

async fn unknown_rooms_and_forged_credentials_are_refused(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let mut nobody = Visitor::of(&running, "nowhere");
    let (status, problem) = nobody.stream_with("").await.err().unwrap();
    assert_eq!((status, &problem["code"]), (404, &json!("unknown_room")));
    assert_eq!(nobody.post("join", json!({})).await.0, 404);
    assert_eq!(nobody.cookie(), None, "an unknown room sets no cookie");
    // An invalid cookie counts as none: the service sets a new one, and the ticket is a new one.
    let mut forger = Visitor::of(&running, "concert").with_cookie("tidegate_ticket=forged");
    let (status, _) = forger.post("join", json!({})).await;
    assert_eq!(status, 200);
    assert_ne!(forger.cookie(), Some("tidegate_ticket=forged"));
    for (pass, kind) in [
        ("", "bad_pass"),
        ("x.y.z", "bad_pass"),
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.", "bad_pass"),
    ] {
        let (status, problem) = forger.shop("redeem", with_pass(pass)).await;
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
    assert_eq!(status, 422, "an unknown field");
    let long = format!("tidegate_ticket={}", "x".repeat(10_000));
    let mut huge = Visitor::of(&running, "concert").with_cookie(&long);
    assert_eq!(huge.get("ticket").await.1["code"], "no_ticket");
    running.stop().await;
}

async fn invalid_limits_are_refused(backend: Backend) {
    let running = Running::start(backend, ROOM).await;
    let path = "/v1/rooms/concert/capacity";
    for (change, part) in [
        (json!({}), "the body changes nothing"),
        (json!({ "inside": { "set": -1 } }), "inside = -1"),
        (json!({ "inside": { "set": null } }), "only seats can be null"),
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
async fn a_flood_from_one_address_takes_few_tickets() {
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
    assert!((30..90).contains(&taken), "{taken} joined");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_the_shop_identifies_a_visitor() {
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
        let (status, ticket) = device.post("join", json!({ "token": token })).await;
        assert_eq!(
            (status, &ticket["position"], &ticket["waiting"]),
            (200, &json!(1), &json!(1)),
            "{ticket}"
        );
    }
    assert_eq!(
        laptop.get("ticket").await.1["position"],
        1,
        "the cookie keeps the identity"
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

/// A browser could send the identity cookie of one room to another room, whose shop never signed the identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_identity_cookie_of_one_room_is_not_valid_for_another() {
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
    let token = |room: &str, secret: &str| {
        let claims = json!({ "sub": "eve", "aud": room, "exp": 4_000_000_000_u64 });
        json!({ "token": signed(secret, claims) })
    };
    let mut eve = Visitor::of(&running, "concert");
    assert_eq!(eve.post("join", token("concert", concert)).await.0, 200);
    let (_, foreign) = eve.cookie().unwrap().split_once('=').unwrap();
    let mut member = Visitor::of(&running, "members");
    assert_eq!(member.post("join", token("members", members)).await.0, 200);
    let (name, own) = member.cookie().unwrap().split_once('=').unwrap();
    let with = |value: &str| Visitor::of(&running, "members").with_cookie(&format!("{name}={value}"));
    assert_eq!(
        with(own).stream_with("").await.err(),
        None,
        "the cookie of this room"
    );
    let (status, problem) = with(foreign).stream_with("").await.err().unwrap();
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("bad_token")),
        "{problem}"
    );
    assert_eq!(with(foreign).post("join", json!({})).await.0, 401);
    let room = running.ok("/v1/rooms/members").await;
    assert_eq!(room["counts"]["joined"], 1, "{room}");
    running.stop().await;
}

/// Signs a token as a shop does.
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
async fn a_page_has_two_languages_and_takes_no_ticket_by_itself() {
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
