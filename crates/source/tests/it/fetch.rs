//! The fetcher against a real upstream on the loopback: every kind of response has its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::time::Millis;
use tidegate_source::{
    FetchOutcome, FetchParams, Fetcher, HeaderSetting, HttpFetcher, PermanentCode, Projected, SourceSettings,
    TransientCode, hash,
};
use tidegate_upstream::{Answer, CORE_FIELDS, Upstream, UpstreamSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECRET: &str = "hunter2-is-the-api-key";

fn upstream() -> Upstream {
    let settings = UpstreamSettings {
        payload_bytes: 30_000,
        bodies: 1,
        api_key: Some(SECRET.to_owned()),
        ..UpstreamSettings::default()
    };
    Upstream::start(settings).unwrap()
}

/// Generous timeouts: a stalled machine makes no response late.
fn settings(upstream: &Upstream) -> SourceSettings {
    let url = format!("{}/character/basic?token={SECRET}&ocid={{key}}", upstream.url());
    SourceSettings {
        timeout_ms: Millis(90_000),
        connect_timeout_ms: Millis(90_000),
        headers: BTreeMap::from([("x-nxopen-api-key".to_owned(), HeaderSetting::from(SECRET))]),
        required: vec![
            "character_name".to_owned(),
            "item_equipment[].item_name".to_owned(),
        ],
        activity_field: Some("last_login".to_owned()),
        error_code_field: Some("error.name".to_owned()),
        ..SourceSettings::new("character", &url, "nexon", CORE_FIELDS)
    }
}

fn fetcher(upstream: &Upstream) -> HttpFetcher {
    HttpFetcher::new(settings(upstream)).unwrap()
}

fn record(key: &str) -> FetchParams {
    FetchParams {
        key: key.to_owned(),
        ..FetchParams::default()
    }
}

async fn fetched(fetcher: &HttpFetcher, key: &str) -> Projected {
    match fetcher.fetch(record(key)).await {
        FetchOutcome::Fetched(projected) => projected,
        other => panic!("{other:?}"),
    }
}

async fn outcome_of(answer: Answer) -> FetchOutcome {
    let upstream = upstream();
    upstream.set(|settings| settings.answer = answer).unwrap();
    let outcome = fetcher(&upstream).fetch(record("a")).await;
    assert_eq!(upstream.report().calls, 1, "one attempt is one call");
    assert!(!format!("{outcome:?}").contains(SECRET), "{outcome:?}");
    outcome
}

async fn permanent(answer: Answer) -> (PermanentCode, String) {
    match outcome_of(answer).await {
        FetchOutcome::Permanent { code, message } => (code, message),
        other => panic!("{answer:?}: {other:?}"),
    }
}

async fn transient(answer: Answer) -> TransientCode {
    match outcome_of(answer).await {
        FetchOutcome::Transient { code, .. } => code,
        other => panic!("{answer:?}: {other:?}"),
    }
}

#[tokio::test]
async fn the_same_record_has_the_same_hash_whatever_its_order_and_clock() {
    let upstream = upstream();
    let fetcher = fetcher(&upstream);
    let first = fetched(&fetcher, "가나다").await;
    for _ in 0..5 {
        assert_eq!(fetched(&fetcher, "가나다").await, first);
    }
    assert_eq!(first.hash, hash(1, &first.canonical));
    assert!(first.activity.is_some());
    let text = std::str::from_utf8(&first.canonical).unwrap();
    assert!(text.contains("가나다") && !text.contains("\"date\""), "{text}");

    assert_ne!(fetched(&fetcher, "나다라").await.hash, first.hash);
    upstream.set(|settings| settings.revision = 1).unwrap();
    assert_ne!(fetched(&fetcher, "가나다").await.hash, first.hash);
    let report = upstream.report();
    assert_eq!((report.calls, report.violations()), (8, 0));
}

#[tokio::test]
async fn a_clock_far_off_changes_nothing() {
    let upstream = upstream();
    let fetcher = fetcher(&upstream);
    let before = fetched(&fetcher, "a").await;
    upstream
        .set(|settings| settings.clock_offset_s = -10 * 365 * 86_400)
        .unwrap();
    assert_eq!(fetched(&fetcher, "a").await, before);
    upstream
        .set(|settings| {
            settings.answer = Answer::Throttled;
            settings.retry_after_s = Some(7);
            settings.retry_after_as_date = true;
        })
        .unwrap();
    let retry_after = Some(Millis(7_000));
    assert_eq!(
        fetcher.fetch(record("a")).await,
        FetchOutcome::Throttled { retry_after }
    );
}

#[tokio::test]
async fn gzip_or_not_is_the_same() {
    let upstream = upstream();
    let packed = fetched(&fetcher(&upstream), "a").await;
    upstream
        .set(|settings| settings.answer = Answer::SlowBody)
        .unwrap();
    assert_eq!(fetched(&fetcher(&upstream), "a").await, packed);
}

#[tokio::test]
async fn bad_answers_are_permanent_and_named() {
    for (answer, code, words) in [
        (Answer::BrokenJson, PermanentCode::ParseError, "ends too early"),
        (Answer::Empty, PermanentCode::ParseError, "empty"),
        (
            Answer::WrongType,
            PermanentCode::WrongType,
            "the answer is a list",
        ),
        (
            Answer::WrongShape,
            PermanentCode::WrongType,
            "item_equipment is a text where a list is expected",
        ),
        (Answer::Html, PermanentCode::WrongType, "page"),
        (
            Answer::MissingFields,
            PermanentCode::MissingField,
            "character_name",
        ),
        (Answer::Redirect, PermanentCode::Redirect, "302"),
        (Answer::Huge, PermanentCode::TooLarge, "5000000"),
        (Answer::HugeChunked, PermanentCode::TooLarge, "5000000"),
        (Answer::GzipBomb, PermanentCode::TooLarge, "5000000"),
        (Answer::Error400, PermanentCode::Api4xx, "OPENAPI00004"),
    ] {
        let (found, message) = permanent(answer).await;
        assert_eq!(found, code, "{answer:?}: {message}");
        assert!(message.contains(words), "{answer:?}: {message}");
    }
}

#[tokio::test]
async fn failures_that_may_pass_are_transient() {
    assert_eq!(transient(Answer::Error500).await, TransientCode::Api5xx);
    assert_eq!(transient(Answer::Reset).await, TransientCode::Connection);
    assert_eq!(transient(Answer::CutBody).await, TransientCode::Connection);
}

#[tokio::test]
async fn a_provider_that_asks_for_time_is_heard() {
    for answer in [Answer::Throttled, Answer::Error503] {
        let retry_after = Some(Millis(1_000));
        assert_eq!(outcome_of(answer).await, FetchOutcome::Throttled { retry_after });
    }
    let upstream = upstream();
    upstream
        .set(|settings| (settings.answer, settings.retry_after_s) = (Answer::Throttled, None))
        .unwrap();
    let fetcher = fetcher(&upstream);
    assert_eq!(
        fetcher.fetch(record("a")).await,
        FetchOutcome::Throttled { retry_after: None }
    );
    upstream
        .set(|settings| settings.answer = Answer::Error503)
        .unwrap();
    assert_eq!(fetcher.fetch(record("a")).await.code(), "API_5XX");
}

#[tokio::test]
async fn absent_is_by_status_or_by_code() {
    let upstream = upstream();
    let fetcher = fetcher(&upstream);
    let FetchOutcome::Absent { code, .. } = fetcher.fetch(record("missing-1")).await else {
        panic!("404 is absent");
    };
    assert_eq!(code, "OPENAPI00003");
    upstream
        .set(|settings| settings.answer = Answer::Error400)
        .unwrap();
    assert_eq!(fetcher.fetch(record("a")).await.code(), "API_4XX");
    let by_code = HttpFetcher::new(SourceSettings {
        absent_codes: vec!["OPENAPI00004".to_owned()],
        ..settings(&upstream)
    });
    assert_eq!(by_code.unwrap().fetch(record("a")).await.code(), "ABSENT");
}

#[tokio::test]
async fn silence_and_slow_bodies_end_with_the_timeout() {
    let upstream = upstream();
    for answer in [Answer::Hang, Answer::SlowBody] {
        upstream.set(|settings| settings.answer = answer).unwrap();
        let quick = HttpFetcher::new(SourceSettings {
            timeout_ms: Millis(400),
            connect_timeout_ms: Millis(400),
            ..settings(&upstream)
        });
        let begun = Instant::now();
        assert_eq!(quick.unwrap().fetch(record("a")).await.code(), "TIMEOUT");
        assert!(begun.elapsed() >= Duration::from_millis(400));

        let (mut params, begun) = (record("a"), Instant::now());
        params.deadline = Some(tokio::time::Instant::now() + Duration::from_millis(300));
        assert_eq!(fetcher(&upstream).fetch(params).await.code(), "TIMEOUT");
        // The source's own timeout is much longer.
        assert!(begun.elapsed() < Duration::from_secs(80));
    }
}

#[tokio::test]
async fn nobody_listening_is_transient_and_names_no_address() {
    let upstream = upstream();
    let fetcher = fetcher(&upstream);
    let port = upstream.address().port().to_string();
    upstream.stop();
    let outcome = fetcher.fetch(record("some-key")).await;
    assert_eq!(outcome.code(), "CONNECTION");
    let shown = format!("{outcome:?}");
    for hidden in [SECRET, "some-key", &port, "token"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[tokio::test]
async fn malformed_keys_and_missing_values_cost_no_call() {
    let upstream = upstream();
    let fetcher = fetcher(&upstream);
    for key in ["", "..", "a/b", "a b", "a\n", &"x".repeat(129)] {
        assert_eq!(fetcher.fetch(record(key)).await.code(), "BAD_KEY", "{key:?}");
    }
    let mut resolved = settings(&upstream);
    resolved.url = format!("{}/character/basic?ocid={{ocid}}", upstream.url());
    let resolved = HttpFetcher::new(resolved).unwrap();
    assert_eq!(resolved.fetch(record("a")).await.code(), "MISSING_PARAM");
    assert_eq!(upstream.report().calls, 0);
    let mut params = record("a");
    params.params.insert("ocid".to_owned(), "b&c=d".to_owned());
    assert_eq!(resolved.fetch(params).await.code(), "FETCHED");
    assert_eq!(upstream.report().keys, BTreeMap::from([("b&c=d".to_owned(), 1)]));
}

#[tokio::test]
async fn a_wrong_api_key_is_refused_and_not_shown() {
    let upstream = upstream();
    let mut wrong = settings(&upstream);
    wrong
        .headers
        .insert("x-nxopen-api-key".to_owned(), HeaderSetting::from("hunter3"));
    let fetcher = HttpFetcher::new(wrong).unwrap();
    let outcome = fetcher.fetch(record("a")).await;
    assert_eq!(outcome.code(), "API_4XX");
    let shown = format!("{outcome:?} {fetcher:?} {:?}", fetcher.settings());
    assert!(!shown.contains("hunter"), "{shown}");
}

#[tokio::test]
async fn secrets_come_from_files_and_what_is_missing_is_named() {
    let upstream = upstream();
    let folder = std::env::temp_dir().join(format!("tidegate-source-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("key");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let mut from_file = settings(&upstream);
    from_file
        .headers
        .insert("x-nxopen-api-key".to_owned(), HeaderSetting::File(file));
    let fetcher = HttpFetcher::new(from_file.clone());
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(fetcher.unwrap().fetch(record("a")).await.code(), "FETCHED");
    let error = HttpFetcher::new(from_file).unwrap_err().to_string();
    assert!(
        error.starts_with("sources.character.headers.x-nxopen-api-key: the file "),
        "{error}"
    );
    let mut odd = settings(&upstream);
    odd.headers
        .insert("x-key".to_owned(), HeaderSetting::from("hunter2\nx"));
    let error = HttpFetcher::new(odd).unwrap_err().to_string();
    assert!(error.contains("x-key") && !error.contains("hunter2"), "{error}");
}

/// Accepts nothing until it is released, like a provider that stalls: connections wait in its kernel or ours.
struct Stalled {
    listener: tokio::net::TcpListener,
    /// These fill its queue, so that further ones have to wait.
    queued: Vec<tokio::net::TcpStream>,
}

impl Stalled {
    async fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        let connect = || {
            tokio::time::timeout(
                Duration::from_millis(500),
                tokio::net::TcpStream::connect(address),
            )
        };
        while let Ok(connected) = connect().await {
            queued.push(connected.unwrap());
            assert!(queued.len() < 100, "its queue has no end");
        }
        Self { listener, queued }
    }

    /// Responds to every request from here on; returns how many there were, and on how many connections.
    fn go_on(self) -> Arc<(AtomicU64, AtomicU64)> {
        let counted = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let counts = counted.clone();
        drop(self.queued);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = self.listener.accept().await.unwrap();
                let counts = counts.clone();
                tokio::spawn(async move {
                    let mut requests = 0;
                    let mut buffer = vec![0; 10_000];
                    while let Ok(1..) = stream.read(&mut buffer).await {
                        if requests == 0 {
                            counts.1.fetch_add(1, Ordering::SeqCst);
                        }
                        requests += 1;
                        counts.0.fetch_add(1, Ordering::SeqCst);
                        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"name\":1}";
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        counted
    }
}

#[tokio::test]
async fn a_call_whose_connection_comes_too_late_is_not_sent_and_the_next_one_uses_it() {
    let stalled = Stalled::new().await;
    let url = format!("http://{}/{{key}}", stalled.listener.local_addr().unwrap());
    let mut settings = SourceSettings::new("late", &url, "nexon", &["name"]);
    settings.connect_timeout_ms = Millis(110_000);
    settings.timeout_ms = Millis(120_000);
    let fetcher = HttpFetcher::new(settings).unwrap();
    let late = FetchParams {
        send_by: Some(tokio::time::Instant::now() + Duration::from_millis(50)),
        ..record("a")
    };
    let mut first = Box::pin(fetcher.fetch(late));
    // Past its deadline, without a connection yet.
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut first).await;
    assert!(waited.is_err(), "{waited:?}");
    let counted = stalled.go_on();
    assert_eq!(first.await, FetchOutcome::NotSent);
    assert_eq!(counted.0.load(Ordering::SeqCst), 0, "nothing was sent");
    let next = FetchParams {
        send_by: Some(tokio::time::Instant::now() + Duration::from_secs(90)),
        ..record("b")
    };
    let answer = fetcher.fetch(next).await;
    assert!(matches!(answer, FetchOutcome::Fetched(_)), "{answer:?}");
    assert_eq!(counted.0.load(Ordering::SeqCst), 1);
    assert_eq!(counted.1.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_a_failure_and_no_late_call() {
    let stalled = Stalled::new().await;
    let url = format!("http://{}/{{key}}", stalled.listener.local_addr().unwrap());
    let mut settings = SourceSettings::new("late", &url, "nexon", &["name"]);
    settings.connect_timeout_ms = Millis(300);
    let fetcher = HttpFetcher::new(settings).unwrap();
    let late = FetchParams {
        send_by: Some(tokio::time::Instant::now() + Duration::from_millis(50)),
        ..record("a")
    };
    let answer = fetcher.fetch(late).await;
    let FetchOutcome::Transient { code, .. } = &answer else {
        panic!("{answer:?}")
    };
    assert_eq!(*code, TransientCode::Timeout);
}
