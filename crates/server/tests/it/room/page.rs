//! The page of a room, and the cookies of its visitors.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::json;
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::people::{ROOM, Visitor, pause, with_pass};
use super::times::soon;
use super::visits::until_scraped;
use crate::support::{Backend, PATIENCE, Running, config};

on_both_stores! {
    a_sold_out_and_a_closed_room_show_it_to_the_visitor
}

/// Requests a page as a browser does; returns the status, the text and `Retry-After`.
async fn page(running: &Running, path: &str, headers: &[(&str, &str)]) -> (u16, String, Option<String>) {
    let mut request = running.http.get(format!("{}{path}", running.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "text/html; charset=utf-8",
        "{path}: {}",
        response.status()
    );
    assert!(response.headers().contains_key("content-security-policy"));
    let after = response.headers().get("retry-after");
    let after = after.map(|after| after.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    (status, response.text().await.unwrap(), after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_event_service_is_unavailable_a_page_says_so() {
    // It is unavailable for the one room, and knows no other.
    let unavailable = get(|| async { StatusCode::SERVICE_UNAVAILABLE });
    let shop = Router::new().route("/concert", unavailable);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, shop).await.unwrap() });
    let text = format!("[room.event_service]\nurl = \"{url}/{{room}}\"\ntimeout_ms = 30000");
    let running = Running::start(Backend::Embedded, &text).await;
    let (status, text, after) = page(&running, "/rooms/concert?lang=ko", &[]).await;
    assert_eq!(status, 503);
    assert!(after.is_some_and(|after| after.parse::<u64>().unwrap() > 0));
    assert!(text.contains("<html lang=\"ko\">") && text.contains("href=\"/rooms/concert?lang=ko\""));
    // Forms get the same page during the outage.
    let form = running.http.post(format!("{}/rooms/concert/join", running.url));
    let form = form.header("accept-language", "en").send().await.unwrap();
    assert_eq!(form.status(), 503);
    assert!(
        form.text()
            .await
            .unwrap()
            .contains("is unavailable at the moment")
    );
    let (status, text, _) = page(&running, "/rooms/nowhere", &[("accept-language", "ko")]).await;
    assert_eq!(status, 404);
    assert!(text.contains("대기실을 찾을 수 없습니다"), "{text}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_does_not_exist_has_a_page_that_says_so() {
    for settings in [ROOM, ""] {
        let running = Running::start(Backend::Embedded, settings).await;
        let long = format!("/rooms/{}", "x".repeat(2_000));
        for path in ["/rooms/nowhere", "/rooms/%20", long.as_str()] {
            let (status, text, _) = page(&running, path, &[]).await;
            assert_eq!(status, 404, "{path}");
            assert!(text.contains("Waiting room not found"), "{text}");
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_store_is_unavailable_a_page_says_so_and_tickets_are_kept() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[rooms.concert]\ncapacity = {{ inside = 0 }}\ngrace_ms = 600000\n[rooms.open]\nfail_open_until = \"{}\"",
        soon(3_600)
    );
    let mut settings = config(Backend::Redis, &folder, &text);
    settings.redis.urls = vec![redis.url().into()];
    let running = Running::with(settings, folder).await;
    let mut visitor = Visitor::of(&running, "concert");
    assert_eq!(visitor.post("join", json!({})).await.0, 200);
    let cookie = visitor.cookie().unwrap().to_owned();
    assert_eq!(
        page(&running, "/rooms/concert", &[("cookie", &cookie)]).await.0,
        200
    );
    until_scraped(&running, "tidegate_room_open{room=\"open\"}", |open| open == 1.0).await;
    redis.kill().unwrap();
    for known in [&[("cookie", cookie.as_str())][..], &[]] {
        let begun = tokio::time::Instant::now();
        loop {
            // For a few seconds an unknown visitor gets the page of the last reading.
            let (status, text, after) = page(&running, "/rooms/concert", known).await;
            if status == 503 {
                assert!(
                    text.contains("Places are kept") && text.contains("Check again"),
                    "{text}"
                );
                assert!(after.is_some());
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{status} {text}");
            pause(100).await;
        }
    }
    // A room that fails open admits everybody by its page.
    let (status, text, _) = page(&running, "/rooms/open", &[]).await;
    assert_eq!(status, 200);
    assert!(text.contains("Join the queue"), "{text}");
    let (status, text, _) = page(&running, "/rooms/open", &[("cookie", &cookie)]).await;
    assert_eq!(status, 200);
    assert!(text.contains("It is your turn"), "{text}");
    redis.restart().unwrap();
    let begun = tokio::time::Instant::now();
    loop {
        let (status, text, _) = page(&running, "/rooms/concert", &[("cookie", &cookie)]).await;
        if status == 200 {
            assert!(text.contains("Leave the queue"), "{text}");
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{status} {text}");
        pause(100).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_proxy_with_tls_cookies_are_for_tls_only() {
    let rooms = "[rooms.concert]\ncapacity = { inside = 0 }\n[server]\nhosts = [\"queue.example\"]\n";
    let trusting = format!("{rooms}[room.visitors]\nproxies = [\"127.0.0.1\"]");
    let by_proxy: &[_] = &[
        ("x-forwarded-for", "198.51.100.1"),
        ("x-forwarded-proto", "https"),
    ];
    let by_page: &[_] = &[("host", "queue.example"), ("origin", "https://queue.example")];
    for (settings, headers, secure) in [
        (trusting.as_str(), by_proxy, true),
        (&trusting, &by_proxy[..1], false),
        (&trusting, by_page, true),
        (rooms, by_page, true),
        (rooms, by_proxy, false),
    ] {
        let running = Running::start(Backend::Embedded, settings).await;
        let call = |method: reqwest::Method, path: &str, cookie: Option<&str>, headers: &[(&str, &str)]| {
            let mut request = running.http.request(method, format!("{}{path}", running.url));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            match cookie {
                Some(cookie) => request.header("cookie", cookie),
                None => request,
            }
        };
        let join = call(reqwest::Method::POST, "/v1/rooms/concert/join", None, headers);
        let joined = join.json(&json!({})).send().await.unwrap();
        assert_eq!(joined.status(), 200);
        let cookie = joined.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert_eq!(cookie.starts_with("__Host-tidegate_ticket="), secure, "{cookie}");
        assert_eq!(cookie.contains("; Secure"), secure, "{cookie}");
        let stored = cookie.split(';').next().unwrap();
        let again = call(
            reqwest::Method::GET,
            "/v1/rooms/concert/ticket",
            Some(stored),
            &[],
        );
        assert_eq!(
            again.send().await.unwrap().status(),
            200,
            "{cookie} identifies the visitor"
        );
        if !secure {
            // A stream does not send the origin of its page. Its ticket must stay the visitor's when a form of the page does.
            let form = call(
                reqwest::Method::GET,
                "/v1/rooms/concert/ticket",
                Some(stored),
                by_page,
            );
            assert_eq!(form.send().await.unwrap().status(), 200);
        }
        // If the proxy reports TLS, a cookie that another host could have set does not count.
        let plain = stored.replace("__Host-", "");
        let fixed = call(
            reqwest::Method::GET,
            "/v1/rooms/concert/ticket",
            Some(&plain),
            by_proxy,
        );
        let wanted = if settings == trusting { 404 } else { 200 };
        assert_eq!(fixed.send().await.unwrap().status(), wanted);
        running.stop().await;
    }
}

async fn a_sold_out_and_a_closed_room_show_it_to_the_visitor(backend: Backend) {
    let text = "[rooms.sold]\ncapacity = { seats = 1, inside = 1 }\n[rooms.shut]\ncapacity = { inside = 0 }";
    let running = Running::start(backend, text).await;
    let mut buyer = Visitor::of(&running, "sold");
    let mut stream = buyer.stream().await;
    let pass = stream.granted().await;
    let (mut waits, mut other) = (Visitor::of(&running, "sold"), Visitor::of(&running, "shut"));
    let (mut waiting, mut shut_out) = (waits.stream().await, other.stream().await);
    for stream in [&mut waiting, &mut shut_out] {
        assert_eq!(stream.next().await.unwrap().0, "queued");
    }
    assert_eq!(buyer.shop("redeem", with_pass(&pass)).await.0, 200);
    assert_eq!(buyer.shop("complete", with_pass(&pass)).await.0, 200);
    running
        .did("/v1/rooms/shut/close", json!({ "why": "over" }))
        .await;
    for (room, stream, visitor, reason, code, heading) in [
        (
            "sold",
            &mut waiting,
            &mut waits,
            "SOLD_OUT",
            "sold_out",
            "Sold out",
        ),
        (
            "shut",
            &mut shut_out,
            &mut other,
            "CLOSED",
            "room_closed",
            "This room is closed",
        ),
    ] {
        stream.until("closed", |closed| closed["reason"] == reason).await;
        assert!(stream.next().await.is_none(), "the stream ends");
        assert_eq!(visitor.get("ticket").await.1["roomStatus"], reason);
        let mut late = Visitor::of(&running, room);
        let (status, problem) = late.post("join", json!({})).await;
        assert_eq!((status, &problem["code"]), (410, &json!(code)), "{problem}");
        let mut events = late.stream().await;
        let (name, closed) = events.next().await.unwrap();
        assert_eq!((name.as_str(), &closed["reason"]), ("closed", &json!(reason)));
        assert!(events.next().await.is_none());
        let path = format!("/rooms/{room}");
        let (status, text, _) = page(&running, &path, &[]).await;
        assert_eq!(status, 200);
        assert!(
            text.contains(&format!("<h2 class=\"lead\">{heading}</h2>")),
            "{text}"
        );
        assert!(!text.contains("/join\""), "the page has no join form: {text}");
        // Without a script the page shows the same to visitors who wait.
        let cookie = visitor.cookie().unwrap().to_owned();
        let (_, text, _) = page(&running, &path, &[("cookie", &cookie)]).await;
        let class = reason.to_lowercase().replace('_', "-");
        assert!(text.contains(&format!("class=\"chip {class}\"")), "{text}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_who_never_reads_is_disconnected_and_the_others_continue() {
    // The URL of the shop is so long that a few events fill the system's buffers. The pause is long enough that a stall
    // disconnects no visitor who reads.
    let text = format!(
        "[server]\nbody_pause_ms = 10000\n[rooms.concert]\ncapacity = {{ inside = 5, per_second = 5 }}\nshop = \"https://shop.example/{}\"",
        "x".repeat(400_000)
    );
    let running = Running::start(Backend::Embedded, &text).await;
    let address = running.service.address();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut deaf = socket.connect(address).await.unwrap();
    deaf.write_all(b"GET /events/concert/tickets/waiting HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        .await
        .unwrap();
    running
        .until("/v1/rooms/concert", |room| room["granted"] == 1)
        .await;
    let mut hears = Visitor::of(&running, "concert");
    let mut stream = hears.stream().await;
    let mut pass = stream.granted().await;
    let streams = async || {
        let (_, text) = running.get("/metrics").await;
        let mut lines = text.as_str().unwrap().lines();
        let streams = lines.find_map(|line| line.strip_prefix("tidegate_room_streams{room=\"concert\"} "));
        streams.unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(streams().await, 2.0);
    let begun = tokio::time::Instant::now();
    // Each round issues another pass to everybody, until only the stream of the visitor who reads is left.
    while streams().await > 1.0 {
        pause(200).await;
        assert!(
            begun.elapsed() < 2 * PATIENCE,
            "the stream that nobody reads is still open"
        );
        running
            .did("/v1/rooms/concert/void", json!({ "why": "once more" }))
            .await;
        let ticket = stream
            .until("granted", |ticket| ticket["pass"]["token"] != pass.as_str())
            .await;
        pass = ticket["pass"]["token"].as_str().unwrap().to_owned();
    }
    let mut read = Vec::new();
    // The connection may be reset or closed.
    let _ = timeout(PATIENCE, deaf.read_to_end(&mut read))
        .await
        .expect("the connection ends");
    assert!(
        !read.ends_with(b"\r\n0\r\n\r\n"),
        "the service aborts the response"
    );
    assert_eq!(
        hears.shop("redeem", with_pass(&pass)).await.0,
        200,
        "other visitors are not affected"
    );
    running.stop().await;
}
