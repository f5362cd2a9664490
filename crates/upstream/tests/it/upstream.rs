//! The provider through its port: what it answers, and that it counts exactly.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_upstream::{Answer, Report, Upstream, UpstreamSettings};

fn small() -> UpstreamSettings {
    UpstreamSettings {
        payload_bytes: 4_000,
        bodies: 1,
        ..UpstreamSettings::default()
    }
}

fn client() -> reqwest::Client {
    // Fails if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap()
}

async fn call(
    client: &reqwest::Client,
    upstream: &Upstream,
    key: &str,
) -> reqwest::Result<reqwest::Response> {
    client
        .get(format!("{}/character/{key}", upstream.url()))
        .send()
        .await
}

/// As many calls as given, at once, over few connections.
async fn flood(upstream: &Upstream, calls: usize) -> Duration {
    let (client, begun) = (client(), Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..20 {
        let (client, url) = (client.clone(), upstream.url());
        let share = calls / 20 + usize::from(worker < calls % 20);
        tasks.spawn(async move {
            for n in 0..share {
                let url = format!("{url}/character/basic?ocid=k{}", n % 7);
                client.get(url).send().await.unwrap().bytes().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_calls_within_a_second_are_fine_and_one_more_is_a_violation() {
    for attempt in 1.. {
        let upstream = Upstream::start(small()).unwrap();
        let took = flood(&upstream, 500).await;
        let report = upstream.report();
        assert_eq!(report.calls, 500);
        assert_eq!((report.over_second, report.violations()), (0, 0));
        assert_eq!(report.statuses, BTreeMap::from([("200".to_owned(), 500)]));

        let began = Instant::now();
        let status = call(&client(), &upstream, "one-more").await.unwrap().status();
        // A machine too slow for 501 calls within a second has to try again.
        if took + began.elapsed() >= Duration::from_secs(1) {
            assert!(attempt < 50, "500 calls took {took:?}");
            continue;
        }
        let report = upstream.stop();
        assert_eq!((report.calls, report.max_in_second), (501, 501));
        assert_eq!((report.over_second, report.violations()), (1, 1));
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(report.keys["one-more"], 1);
        assert_eq!(report.keys.values().sum::<u64>(), 501);
        return;
    }
}

#[tokio::test]
async fn the_days_quota_is_enforced_and_returns_with_the_next_day() {
    let upstream = Upstream::start(UpstreamSettings {
        per_day: 2,
        ..small()
    })
    .unwrap();
    let client = client();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(call(&client, &upstream, "a").await.unwrap());
    }
    let statuses: Vec<u16> = seen.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(seen[2].headers()["retry-after"], "1");
    upstream.set(|settings| settings.clock_offset_s = 86_400).unwrap();
    let response = call(&client, &upstream, "a").await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let report = upstream.report();
    assert_eq!((report.over_day, report.over_second), (1, 0));
    assert_eq!(report.days.values().copied().collect::<Vec<_>>(), [3, 1]);
}

#[tokio::test]
async fn answers_differ_in_order_and_clock_and_are_the_same_record() {
    let upstream = Upstream::start(UpstreamSettings::default()).unwrap();
    let client = client();
    let mut texts = Vec::new();
    for _ in 0..4 {
        let response = call(&client, &upstream, "바다 1").await.unwrap();
        texts.push(response.text().await.unwrap());
    }
    assert!(texts[1..].iter().all(|text| *text != texts[0]));
    assert!((290_000..310_000).contains(&texts[0].len()), "{}", texts[0].len());
    let read = |text: &String| {
        let mut value: Value = serde_json::from_str(text).unwrap();
        let fields = value.as_object_mut().unwrap();
        fields.remove("date");
        fields.remove("request_cost_us");
        value
    };
    let records: Vec<Value> = texts.iter().map(read).collect();
    assert!(records[1..].iter().all(|record| *record == records[0]));
    assert_eq!(records[0]["ocid"], "바다 1");
    upstream.set(|settings| settings.revision = 1).unwrap();
    let changed = call(&client, &upstream, "바다 1")
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_ne!(read(&changed), records[0]);
    assert_eq!(read(&changed)["revision"], 1);
}

#[tokio::test]
async fn records_change_by_themselves_if_configured() {
    let upstream = Upstream::start(UpstreamSettings {
        change_every_ms: 20,
        ..small()
    })
    .unwrap();
    let client = client();
    let revision = async || {
        let text = call(&client, &upstream, "a").await.unwrap().text().await.unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["revision"]
            .as_u64()
            .unwrap()
    };
    let first = revision().await;
    let until = Instant::now() + Duration::from_secs(60);
    while revision().await < first + 2 {
        assert!(Instant::now() < until);
    }
}

#[tokio::test]
async fn a_caller_without_the_key_is_refused_and_counted() {
    let api_key = Some("open-sesame".to_owned());
    let upstream = Upstream::start(UpstreamSettings { api_key, ..small() }).unwrap();
    let client = client();
    assert_eq!(
        call(&client, &upstream, "a").await.unwrap().status(),
        StatusCode::FORBIDDEN
    );
    let request = client.get(format!("{}/character/a", upstream.url()));
    let response = request
        .header("x-nxopen-api-key", "open-sesame")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(upstream.report().calls, 2);
}

#[tokio::test]
async fn every_kind_of_failure_looks_as_it_should() {
    let upstream = Upstream::start(small()).unwrap();
    let client = client();
    let answer = async |answer: Answer| {
        upstream.set(|settings| settings.answer = answer).unwrap();
        call(&client, &upstream, "a").await
    };
    let status = async |kind| answer(kind).await.unwrap().status().as_u16();
    assert_eq!(status(Answer::Error500).await, 500);
    assert_eq!(status(Answer::Error503).await, 503);
    assert_eq!(status(Answer::Error400).await, 400);
    assert_eq!(status(Answer::Throttled).await, 429);
    assert_eq!(status(Answer::Redirect).await, 302);
    assert!(answer(Answer::Reset).await.is_err());
    assert!(answer(Answer::CutBody).await.unwrap().bytes().await.is_err());
    assert!(
        answer(Answer::Empty)
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap()
            .is_empty()
    );
    let huge = answer(Answer::Huge).await.unwrap();
    assert_eq!(huge.content_length(), Some(50_000_035));
    let read = async |kind| answer(kind).await.unwrap().text().await.unwrap();
    assert!(serde_json::from_str::<Value>(&read(Answer::BrokenJson).await).is_err());
    assert!(
        serde_json::from_str::<Value>(&read(Answer::WrongType).await)
            .unwrap()
            .is_array()
    );
    assert!(read(Answer::Html).await.starts_with("<!DOCTYPE html>"));
    assert!(!read(Answer::MissingFields).await.contains("character_name"));
    assert_eq!(
        call(&client, &upstream, "missing-7").await.unwrap().status(),
        StatusCode::NOT_FOUND
    );
    let hangs = async {
        while !upstream.report().statuses.contains_key("hang") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Long enough for an answer that comes all the same.
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::select! {
        answered = answer(Answer::Hang) => panic!("{answered:?}"),
        () = hangs => {}
    }
    let report = upstream.report();
    assert_eq!(
        (
            report.statuses["hang"],
            report.statuses["reset"],
            report.statuses["404"]
        ),
        (1, 1, 1)
    );
}

#[tokio::test]
async fn errors_by_chance_come_about_as_often_as_set() {
    let settings = UpstreamSettings {
        rate_500: 0.3,
        per_second: 100_000,
        ..small()
    };
    let upstream = Upstream::start(settings).unwrap();
    let client = client();
    for _ in 0..400 {
        call(&client, &upstream, "a")
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
    }
    let failed = upstream.report().statuses["500"];
    assert!((60..180).contains(&failed), "{failed} of 400");
}

#[tokio::test]
async fn other_processes_read_and_set_it_over_http() {
    let upstream = Upstream::start(small()).unwrap();
    let (client, url) = (client(), upstream.url());
    let set = async |patch: Value| {
        let request = client.post(format!("{url}/set")).json(&patch);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (status, _) = set(json!({"per_second": 3, "answers": {"b": "html"}})).await;
    assert_eq!(status, 204);
    let (status, error) = set(json!({"per_secnd": 3})).await;
    assert_eq!(status, 400);
    assert!(error.contains("per_secnd"), "{error}");
    for _ in 0..5 {
        call(&client, &upstream, "b").await.unwrap();
    }
    let report = async |query: &str| -> Report {
        let response = client.get(format!("{url}/report{query}")).send().await.unwrap();
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    };
    let seen = report("").await;
    assert_eq!((seen.calls, seen.max_per_key, seen.distinct_keys), (5, 5, 1));
    assert!(seen.keys.is_empty());
    assert_eq!(report("?keys=true").await.keys["b"], 5);
    client.post(format!("{url}/reset")).send().await.unwrap();
    assert_eq!(report("").await.calls, 0);
}

#[tokio::test]
async fn open_calls_are_counted_and_end() {
    let upstream = Upstream::start(UpstreamSettings {
        latency_min_ms: 3_000,
        ..small()
    })
    .unwrap();
    let client = client();
    let calls = (0..10).map(|n| {
        let (client, url) = (client.clone(), upstream.url());
        tokio::spawn(async move {
            client
                .get(format!("{url}/character/{n}"))
                .send()
                .await
                .unwrap()
                .bytes()
                .await
        })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let until = Instant::now() + Duration::from_secs(60);
    while upstream.report().concurrent > 0 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(upstream.report().concurrent_max, 10);
}

#[tokio::test]
async fn held_calls_are_sent_and_arrive_when_they_are_let_in() {
    let upstream = Upstream::start(UpstreamSettings {
        holding: true,
        ..small()
    })
    .unwrap();
    let client = client();
    let calls: Vec<_> = (0..5)
        .map(|n| {
            let request = client.get(format!("{}/character/{n}", upstream.url()));
            tokio::spawn(async move { request.send().await.unwrap().status() })
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(60);
    while upstream.report().sent < 5 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(upstream.report().calls, 0);
    upstream.set(|settings| settings.holding = false).unwrap();
    for call in calls {
        assert_eq!(call.await.unwrap(), StatusCode::OK);
    }
    let report = upstream.report();
    assert_eq!((report.sent, report.calls), (5, 5));
    assert_eq!(report.busiest.most(), report.max_in_second);
}

#[tokio::test]
async fn its_clock_may_be_far_off() {
    let settings = UpstreamSettings {
        clock_offset_s: -10 * 365 * 86_400,
        ..small()
    };
    let upstream = Upstream::start(settings).unwrap();
    let response = call(&client(), &upstream, "a").await.unwrap();
    let date = response.headers()["date"].to_str().unwrap().to_owned();
    assert!(date.contains(" 201"), "{date}");
}

#[tokio::test]
async fn a_stopped_upstream_frees_its_port() {
    let upstream = Upstream::start(small()).unwrap();
    let listen = upstream.address();
    call(&client(), &upstream, "a").await.unwrap();
    upstream.stop();
    let again = Upstream::start(UpstreamSettings { listen, ..small() }).unwrap();
    assert_eq!(
        call(&client(), &again, "a").await.unwrap().status(),
        StatusCode::OK
    );
}
