//! Browsers: hosts, origins, sessions, logins, TLS.

use std::time::Duration;

use serde_json::json;

use super::PATIENCE;
use super::world::{World, is_problem, ok, problem};

#[tokio::test]
async fn an_unknown_host_name_is_refused() {
    let world = World::open("[server]\nhosts = [\"queue.example.com\"]").await;
    let port = world.service.address().port();
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "10.0.0.1",
    ] {
        let detail = problem(
            world.request("GET", "/v1/me").header("host", host),
            421,
            "bad_host",
        )
        .await;
        assert!(
            detail.contains(host) && detail.contains("server.hosts"),
            "{detail}"
        );
        problem(world.request("GET", "/").header("host", host), 421, "bad_host").await;
        ok(world.request("GET", "/healthz").header("host", host)).await;
    }
    for host in [
        "queue.example.com",
        "QUEUE.example.com:8443",
        &format!("localhost:{port}"),
        "[::1]",
    ] {
        ok(world.request("GET", "/v1/me").header("host", host)).await;
    }
    world.end().await;
}

#[tokio::test]
async fn the_page_of_another_site_changes_nothing() {
    let world = World::open("").await;
    let job = json!({"jobs": [{"id": "1", "type": "MAIL"}]});
    let post = || world.request("POST", "/v1/groups/A/jobs").json(&job);
    for origin in [
        "http://evil.example",
        "null",
        "https://127.0.0.1",
        "http://127.0.0.1:1",
    ] {
        problem(post().header("origin", origin), 403, "bad_origin").await;
    }
    problem(post().header("sec-fetch-site", "cross-site"), 403, "bad_origin").await;
    let read = || world.request("GET", "/v1/groups");
    problem(read().header("sec-fetch-site", "cross-site"), 403, "bad_origin").await;
    ok(read().header("sec-fetch-site", "same-origin")).await;
    // A link on another site may open the dashboard.
    ok(world.request("GET", "/").header("sec-fetch-site", "cross-site")).await;
    ok(post().header("origin", world.service.url())).await;
    // The response to a preflight has no headers that would allow the request.
    let preflight = world
        .request("OPTIONS", "/v1/groups")
        .header("origin", "http://evil.example");
    let response = preflight.send().await.unwrap();
    assert!(
        !response
            .headers()
            .keys()
            .any(|name| name.as_str().starts_with("access-control"))
    );
    world.end().await;
}

/// An image, a frame or a script of another site would take a ticket per reader.
#[tokio::test]
async fn the_page_of_another_site_takes_no_ticket() {
    let world = World::open("[rooms.concert]\ncapacity = { inside = 0 }").await;
    let stream = || world.request("GET", "/events/concert/tickets/waiting");
    for kind in ["image", "iframe", "empty"] {
        let request = stream()
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-dest", kind);
        problem(request, 403, "bad_origin").await;
    }
    let room = ok(world.request("GET", "/v1/rooms/concert")).await;
    assert_eq!(room["counts"]["joined"], 0, "{room}");
    // A link of another site may open the page of the room, which takes a ticket only on request.
    let page = world.request("GET", "/rooms/concert");
    ok(page.header("sec-fetch-site", "cross-site")).await;
    let own = stream().header("sec-fetch-site", "same-origin").send().await;
    assert_eq!(own.unwrap().status(), 200);
    world.end().await;
}

#[tokio::test]
async fn a_session_needs_its_token_for_changes() {
    let world = World::with_keys("").await;
    let key = json!({"key": world.keys["ops"]});
    let response = world.request("POST", "/login").json(&key).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["cache-control"], "no-store");
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    let me: serde_json::Value = response.json().await.unwrap();
    let (value, rest) = cookie.split_once("; ").unwrap();
    assert!(
        value.starts_with("tidegate_session=") && value.len() == 17 + 43,
        "{value}"
    );
    assert_eq!(rest, "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
    let csrf = me["csrf"].as_str().unwrap();

    let browser = |method, path| {
        world
            .request(method, path)
            .header("cookie", format!("theme=dark; {value}"))
    };
    let me = ok(browser("GET", "/v1/me")).await;
    assert_eq!((&me["name"], &me["csrf"]), (&json!("ops"), &json!(csrf)));
    let pause = || browser("POST", "/v1/groups/A/pause");
    assert_eq!(world.submit("ops", "A").await, 200);
    problem(pause(), 403, "bad_csrf").await;
    problem(pause().header("x-csrf-token", "guess"), 403, "bad_csrf").await;
    problem(
        pause()
            .header("x-csrf-token", csrf)
            .header("origin", "http://evil.example"),
        403,
        "bad_origin",
    )
    .await;
    ok(pause().header("x-csrf-token", csrf)).await;
    // A request with a key needs no token, and the key decides its caller.
    let both = pause().bearer_auth(&world.keys["reader"]);
    problem(both, 403, "forbidden").await;

    problem(browser("POST", "/logout"), 403, "bad_csrf").await;
    let out = browser("POST", "/logout")
        .header("x-csrf-token", csrf)
        .send()
        .await
        .unwrap();
    assert_eq!(out.status(), 204);
    assert!(
        out.headers()["set-cookie"]
            .to_str()
            .unwrap()
            .starts_with("tidegate_session=; Path=/; Max-Age=0")
    );
    problem(browser("GET", "/v1/me"), 401, "unauthorized").await;
    assert_eq!(
        browser("POST", "/logout").send().await.unwrap().status(),
        204,
        "a logout without a session succeeds"
    );
    world.end().await;
}

#[tokio::test]
async fn a_session_expires() {
    let world = World::with_keys("[server]\nsession_ms = 1500").await;
    let key = json!({"key": world.keys["ops"]});
    let response = world.request("POST", "/login").json(&key).send().await.unwrap();
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let me = || world.request("GET", "/v1/me").header("cookie", &cookie);
    let ended = async {
        while me().send().await.unwrap().status() == 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    problem(me(), 401, "unauthorized").await;
    world.end().await;
}

#[tokio::test]
async fn a_login_works_without_a_script() {
    let world = World::with_keys("").await;
    let page = world.request("GET", "/login").send().await.unwrap();
    assert!(
        page.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'none'")
    );
    assert!(
        page.text()
            .await
            .unwrap()
            .contains("<form method=\"post\" action=\"/login\">")
    );
    let plain = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let post = |body: String| {
        let form = "application/x-www-form-urlencoded";
        plain
            .post(world.url("/login"))
            .header("content-type", form)
            .body(body)
    };
    let done = post(format!("key={}", world.keys["reader"]))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (done.status().as_u16(), &done.headers()["location"]),
        (303, &"/".parse().unwrap())
    );
    assert!(done.headers().contains_key("set-cookie"));
    for wrong in ["key=tg_%3Cscript%3E", "", "key=a&more=b", "key=%ff\u{1}"] {
        let refused = post(wrong.into()).send().await.unwrap();
        assert!(refused.status().is_client_error() && !refused.headers().contains_key("set-cookie"));
        let page = refused.text().await.unwrap();
        assert!(
            page.contains("role=\"alert\"") && !page.contains("<script>"),
            "{page}"
        );
    }
    let json = |body: &'static str| {
        world
            .request("POST", "/login")
            .header("content-type", "application/json")
            .body(body)
    };
    problem(json("{\"key\": 5}"), 400, "bad_request").await;
    problem(json("tg_"), 400, "bad_request").await;
    problem(
        world.request("POST", "/login").body("key"),
        415,
        "unsupported_media_type",
    )
    .await;
    problem(
        world
            .request("POST", "/login")
            .json(&json!({"key": "x".repeat(5_000)})),
        413,
        "too_large",
    )
    .await;
    world.end().await;
}

#[tokio::test]
async fn too_many_wrong_keys_are_refused_for_a_minute() {
    let world = World::with_keys("").await;
    let login = |key: &str| world.request("POST", "/login").json(&json!({"key": key}));
    let mut refused = 0;
    // A new minute may begin once within the loop.
    let limited = loop {
        let response = login("tg_wrong").send().await.unwrap();
        if response.status() == 429 {
            break response;
        }
        assert_eq!(response.status(), 401);
        refused += 1;
        assert!(refused <= 20, "the service has a limit");
    };
    assert!(refused >= 10);
    assert!(limited.headers().contains_key("retry-after"));
    is_problem(limited, 429, "too_many").await;
    let entries = world.audit();
    assert_eq!(entries.len(), refused);
    assert_eq!(entries[0]["what"], "login.refused");
    assert_eq!(entries[0]["on"], "127.0.0.1");
    // A key in a header is not a login.
    ok(world.by("reader", "GET", "/v1/me")).await;
    world.end().await;
}

#[tokio::test]
async fn with_a_certificate_the_service_serves_https() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = format!("[server.tls]\ncert = {cert:?}\nkey = {key:?}");
    let mut world = World::with_keys(&tls).await;
    assert!(world.service.url().starts_with("https://"));
    let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    world.client = reqwest::Client::builder()
        .tls_certs_only([trusted])
        .build()
        .unwrap();

    let origin = world.service.url();
    let login = world.request("POST", "/login").header("origin", &origin);
    let response = login
        .json(&json!({"key": world.keys["ops"]}))
        .send()
        .await
        .unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("__Host-tidegate_session="), "{cookie}");
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    ok(world.request("GET", "/v1/me").header("cookie", cookie)).await;
    let weak = cookie.trim_start_matches("__Host-");
    problem(
        world.request("GET", "/v1/me").header("cookie", weak),
        401,
        "unauthorized",
    )
    .await;
    let plain = origin.replace("https", "http");
    problem(
        world
            .by("ops", "POST", "/v1/groups/A/pause")
            .header("origin", &plain),
        403,
        "bad_origin",
    )
    .await;
    let detail = problem(
        world.by("ops", "GET", "/v1/me").header("host", "evil.example"),
        421,
        "bad_host",
    )
    .await;
    assert!(detail.contains("evil.example"), "{detail}");
    assert!(
        reqwest::get(&format!("{plain}/healthz")).await.is_err(),
        "the port serves no plain HTTP"
    );
    world.end().await;
}
