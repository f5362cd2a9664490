//! Bounds: bodies, heads, compressed bodies, slow clients.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::PATIENCE;
use super::world::{World, ok, problem};

#[tokio::test]
async fn requests_beyond_the_limits_are_refused() {
    let world = World::open("[limits]\nmax_payload_bytes = 1000\n[server]\nmax_body_bytes = 100000").await;
    let post = |body: Vec<u8>| {
        let request = world.request("POST", "/v1/groups/A/jobs");
        request.header("content-type", "application/json").body(body)
    };
    let jobs = |padding: usize| {
        format!(
            "{{\"jobs\": [{{\"id\": \"{padding}\", \"type\": \"MAIL\"}}]{}}}",
            " ".repeat(padding)
        )
        .into_bytes()
    };
    ok(post(jobs(90_000))).await;
    let detail = problem(post(jobs(100_001)), 413, "too_large").await;
    assert!(detail.contains("more than 100000 bytes"), "{detail}");
    problem(
        world
            .request("POST", "/v1/groups/A/pause")
            .header("content-type", "application/json")
            .body(vec![b' '; 100_001]),
        413,
        "too_large",
    )
    .await;

    ok(post(gzip(&jobs(1)).await).header("content-encoding", "gzip")).await;
    ok(post(zstd(&jobs(2)).await).header("content-encoding", "zstd")).await;
    let bomb = jobs(200_000_000);
    for (compressed, encoding) in [(gzip(&bomb).await, "gzip"), (zstd(&bomb).await, "zstd")] {
        assert!(compressed.len() < 1_000_000, "{encoding}");
        problem(
            post(compressed).header("content-encoding", encoding),
            413,
            "too_large",
        )
        .await;
    }
    problem(
        post(b"not compressed".to_vec()).header("content-encoding", "gzip"),
        400,
        "bad_request",
    )
    .await;

    ok(world
        .request("GET", "/v1/me")
        .header("x-long", "x".repeat(12_000)))
    .await;
    let long = world
        .request("GET", "/v1/me")
        .header("x-long", "x".repeat(100_000))
        .send()
        .await
        .unwrap();
    assert_eq!(long.status(), 431);
    world.end().await;
}

async fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::GzipEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

async fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::ZstdEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let world = World::open("[server]\nheader_timeout_ms = 300").await;
    let connect = || TcpStream::connect(world.service.address());
    for head in [
        "",
        "G",
        "GET /healthz HT",
        "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        "PRI * HTTP/2",
    ] {
        let mut stream = connect().await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The connection may be reset or closed.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{head:?}: {answer}"
        );
    }
    world.end().await;
    // The timeout of heads is long here, because a stall must not end the request early.
    let world = World::open("[server]\nbody_pause_ms = 300").await;
    let mut stream = TcpStream::connect(world.service.address()).await.unwrap();
    let head = "POST /v1/groups/A/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1024];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("paused for more than 300 ms"), "{answer}");
    ok(world.request("GET", "/v1/me")).await;
    world.end().await;
}

/// The system shows which timer runs on a connection: 02 is the keepalive timer.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn connections_have_a_keepalive_timer() {
    let world = World::open("").await;
    let address = world.service.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        .await
        .unwrap();
    assert!(
        stream.read(&mut [0; 1024]).await.unwrap() > 0,
        "the service responds"
    );
    let (ours, theirs) = (address.port(), stream.local_addr().unwrap().port());
    let begun = std::time::Instant::now();
    loop {
        let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let keepalive = all.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let port = |field: &str, port: u16| field.ends_with(&format!(":{port:04X}"));
            port(fields[1], ours) && port(fields[2], theirs) && fields[5].starts_with("02:")
        });
        if keepalive {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{ours} to {theirs} in {all}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    world.end().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    // Longer than a stall, which would look like a pause in the requests of this test.
    let world = World::open("[server]\nbody_pause_ms = 8000").await;
    let payload = "x".repeat(100_000);
    let address = "/v1/groups/A/batches/large";
    ok(world.request("PUT", address).json(&json!({}))).await;
    for part in [0..100, 100..200] {
        let jobs: Vec<_> = part
            .map(|job| json!({"id": job.to_string(), "type": "MAIL", "payload": payload}))
            .collect();
        let feed = world.request("POST", &format!("{address}/jobs"));
        ok(feed.json(&json!({"jobs": jobs}))).await;
    }

    // The results need two pages.
    let results = format!("{address}/results?limit=1000");
    let first = ok(world.request("GET", &results)).await;
    let items = first["items"].as_array().unwrap().len();
    assert!(
        (84..=150).contains(&items),
        "{items} of 100 kB make more than 8 MiB"
    );
    let rest = format!("{results}&cursor={}", first["next"].as_str().unwrap());
    let rest = ok(world.request("GET", &rest)).await;
    assert_eq!(items + rest["items"].as_array().unwrap().len(), 200);

    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(world.service.address()).await.unwrap();
    let head = format!("GET {results} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let _ = ended.expect("the connection ends");
    assert!(
        answer.len() < items * payload.len(),
        "received {} bytes",
        answer.len()
    );
    world.end().await;
}
