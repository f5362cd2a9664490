//! The client against a service that is unavailable, slow, or not Tidegate at all.

use std::time::Duration;

use futures_util::StreamExt;
use scripted::{Scripted, Turn};
use tidegate_client::{
    Client, ClientError, Destination, JoinRoom, Lease, LimitBy, PatchCapacity, TicketCookie, new_job,
};

use crate::scripted;

fn problem(status: &'static str, code: &str) -> Turn {
    let number: u16 = status[..3].parse().unwrap();
    let body = serde_json::json!({
        "type": format!("urn:tidegate:problem:{code}"), "title": "t", "status": number, "code": code, "detail": "d",
        "retryAfterSec": (number == 503).then_some(0),
    });
    Turn::Answer(status, body.to_string())
}

fn enqueued() -> Turn {
    Turn::Answer("200 OK", r#"{"accepted":1,"duplicates":0,"refused":0}"#.into())
}

/// Patient: a machine that stalls must not look like a slow or unavailable service.
fn client(service: &Scripted) -> Client {
    Client::builder(&service.url)
        .key("tg_k")
        .timeout(Duration::from_secs(60))
        .retry_for(Duration::from_secs(120))
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_service_that_recovers_gets_the_request_again() {
    let service = Scripted::start(vec![
        problem("503 Unavailable", "store_unavailable"),
        Turn::HangUp,
        enqueued(),
    ])
    .await;
    let jobs = [new_job("1", "T", &1).unwrap()];
    let done = client(&service)
        .enqueue_in(&Destination::group("A"), &jobs)
        .await
        .unwrap();
    assert_eq!(done.accepted, 1);
    let requests = service.requests();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert!(
            request.starts_with("POST /v1/groups/A/jobs HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains("authorization: Bearer tg_k\r\n"), "{request}");
        assert!(
            request.ends_with(r#"{"jobs":[{"id":"1","type":"T","payload":1}]}"#),
            "{request}"
        );
    }
}

#[tokio::test]
async fn a_call_that_may_have_been_done_is_not_retried() {
    let service = Scripted::start(vec![Turn::HangUp]).await;
    let error = client(&service).cancel_group("A", None).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Transport { sent: true, .. }),
        "{error}"
    );
    assert!(error.is_retryable());
    assert_eq!(service.requests().len(), 1);
    let error = client(&service).lease(&Lease::default()).await.unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(service.requests().len(), 2);
}

#[tokio::test]
async fn a_change_of_limits_is_retried_only_if_it_can_be_recognized() {
    for (request, times) in [(None, 1), (Some("row-7".to_owned()), 2)] {
        let service = Scripted::start(vec![Turn::HangUp, problem("409 Conflict", "conflict")]).await;
        let patch = PatchCapacity {
            inside: Some(LimitBy::Add(5)),
            request,
            ..PatchCapacity::default()
        };
        client(&service).resize_room("concert", &patch).await.unwrap_err();
        let requests = service.requests();
        assert_eq!(requests.len(), times, "{requests:?}");
        let body = serde_json::to_string(&patch).unwrap();
        assert!(requests.iter().all(|sent| sent.ends_with(&body)), "{requests:?}");
    }
}

#[tokio::test]
async fn a_join_is_retried_only_if_the_visitor_can_be_recognized() {
    let ticket =
        r#"{"room":"concert","state":"WAITING","roomStatus":"OPEN","waiting":1,"at":"2026-03-01T09:30:00Z"}"#;
    let head = "200 OK\r\nset-cookie: tidegate_ticket=new; Path=/; HttpOnly";
    let unknown = JoinRoom::default();
    let named = JoinRoom {
        token: Some("signed".into()),
        ..JoinRoom::default()
    };
    let cookie = TicketCookie::new("tidegate_ticket=old").unwrap();
    for (join, cookie, times) in [
        (&unknown, None, 1),
        (&unknown, Some(&cookie), 2),
        (&named, None, 2),
    ] {
        let service = Scripted::start(vec![Turn::HangUp, Turn::Answer(head, ticket.into())]).await;
        let joined = client(&service).join_room("concert", join, cookie).await;
        let requests = service.requests();
        assert_eq!(requests.len(), times, "{requests:?}");
        for request in requests {
            assert!(
                request.starts_with("POST /v1/rooms/concert/join HTTP/1.1\r\n"),
                "{request}"
            );
            assert_eq!(
                request.contains("cookie: tidegate_ticket=old\r\n"),
                cookie.is_some(),
                "{request}"
            );
            assert!(
                request.ends_with(&serde_json::to_string(join).unwrap()),
                "{request}"
            );
        }
        match times {
            1 => assert!(joined.unwrap_err().is_retryable()),
            _ => assert_eq!(joined.unwrap().cookie.unwrap().expose(), "tidegate_ticket=new"),
        }
    }
}

#[tokio::test]
async fn a_refusal_is_final_and_retries_end() {
    let service = Scripted::start(vec![problem("404 Not Found", "unknown_group")]).await;
    let error = client(&service).group("A").await.unwrap_err();
    assert_eq!(error.code(), Some("unknown_group"));
    assert!(!error.is_retryable());
    assert_eq!(service.requests().len(), 1);

    let service = Scripted::start(vec![problem("503 Unavailable", "store_unavailable")]).await;
    // Longer than a stall, and so short that few retries fit between pauses of a few seconds.
    let hasty = client(&service).with_retry_for(Duration::from_secs(15));
    let error = hasty.group("A").await.unwrap_err();
    assert_eq!(error.status(), Some(503));
    let times = service.requests().len();
    assert!((2..20).contains(&times), "{times}");
}

#[tokio::test]
async fn an_unreachable_service_is_reported_with_the_reason() {
    // Bound but not listening: no other process can take the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = socket.local_addr().unwrap();
    let client = Client::builder(format!("http://{gone}"))
        .retry_for(Duration::ZERO)
        .build()
        .unwrap();
    let error = client.cancel_group("A", None).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Transport { sent: false, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn what_is_no_tidegate_is_not_understood() {
    let service = Scripted::start(vec![Turn::Answer("200 OK", "<html>hello".into())]).await;
    let error = client(&service).stats().await.unwrap_err();
    assert!(error.to_string().contains("is not understood"), "{error}");
    assert!(!error.is_retryable());

    let service = Scripted::start(vec![Turn::Answer("400 Bad", "<html>hello".into())]).await;
    let error = client(&service).stats().await.unwrap_err();
    assert!(error.to_string().contains("(status 400): <html>hello"), "{error}");
}

#[tokio::test]
async fn a_silent_service_times_out() {
    let service = Scripted::start(vec![Turn::Silence]).await;
    let client = Client::builder(&service.url)
        .timeout(Duration::from_millis(200))
        .retry_for(Duration::ZERO)
        .build()
        .unwrap();
    let error = client.stats().await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn a_source_that_cannot_be_read_ends_the_stream_with_its_reason() {
    let service = Scripted::start(vec![Turn::Silence]).await;
    let pieces =
        futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"{}\n")), Err("the disk is gone")]);
    let error = client(&service)
        .enqueue_lines(&Destination::anywhere(), pieces)
        .await;
    let error = error.unwrap_err();
    assert!(
        matches!(&error, ClientError::Input(text) if text == "the disk is gone"),
        "{error}"
    );
}

fn batch(status: &str, success: u64) -> String {
    let batch = serde_json::json!({
        "group": "A", "id": "x", "status": status, "sealed": true, "paused": false, "cancelled": false,
        "counts": {"total": 2, "success": success, "failed": 0}, "errors": [],
        "createdAt": "2026-03-01T09:30:00Z",
        "estimate": {"earliestSeconds": 0, "latestSeconds": 0},
    });
    format!("event: progress\ndata: {batch}\n\n")
}

#[tokio::test]
async fn a_broken_event_stream_is_resumed() {
    let head = "200 OK\r\ncontent-type: text/event-stream";
    let service = Scripted::start(vec![
        Turn::Answer(head, batch("RUNNING", 0)),
        problem("503 Unavailable", "stopping"),
        Turn::Answer(head, batch("RUNNING", 0) + ": alive\n\n" + &batch("RUNNING", 1)),
        Turn::HangUp,
        Turn::Answer(head, batch("COMPLETED", 2) + &batch("COMPLETED", 2)),
    ])
    .await;
    let seen: Vec<u64> = client(&service)
        .follow_batch("A", "x")
        .map(|batch| batch.unwrap().counts.success)
        .collect()
        .await;
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(service.requests().len(), 5);
}

#[tokio::test]
async fn an_event_stream_of_an_unknown_batch_ends_with_the_problem() {
    let service = Scripted::start(vec![problem("404 Not Found", "unknown_batch")]).await;
    let seen: Vec<_> = client(&service).follow_batch("A", "x").collect().await;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].as_ref().unwrap_err().code(), Some("unknown_batch"));
}
