//! Records through the port: reads, refreshes, batches, streams and dead letters, on both stores, with a real upstream.

use std::time::Duration;

use futures_util::StreamExt;
use refresh::{upstream, upstream_with};
use serde_json::{Value, json};
use support::{Backend, Running, answer};
use tidegate_upstream::Answer;

use crate::support::{self, refresh};

on_both_stores! {
    a_missing_record_is_fetched_and_becomes_fresh
    a_stale_record_is_returned_and_refreshed
    a_record_that_does_not_exist_is_reported_and_not_fetched_again
    a_thousand_readers_of_one_record_cause_one_call
    a_user_requests_a_refresh
    a_batch_read_answers_each_record_in_order
    a_stream_follows_a_record_until_it_is_fresh
    dead_letters_are_listed_replayed_and_purged
    the_overview_shows_the_state_of_the_module
    snapshots_survive_a_restart
}

async fn a_missing_record_is_fetched_and_becomes_fresh(backend: Backend) {
    let upstream = upstream();
    let running = Running::refreshing(backend, &upstream, "").await;
    let first = running.record("anna").await;
    assert_eq!(first["freshness"], "UPDATING", "{first}");
    assert_eq!(first["updateQueued"], true, "{first}");
    assert_eq!(first["snapshot"], Value::Null);
    assert_eq!(first["lastCheckedAt"], Value::Null);
    let fresh = running.until_fresh("anna").await;
    assert_eq!(fresh["state"], "SUCCESS", "{fresh}");
    assert_eq!(fresh["updateQueued"], false, "{fresh}");
    assert!(
        fresh["lastCheckedAt"].is_string() && fresh["lastUpdatedAt"].is_string(),
        "{fresh}"
    );
    let fields: Vec<&String> = fresh["snapshot"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["character_level", "character_name", "revision"]);
    assert_eq!(upstream.report().keys["anna"], 1);

    // A client that has the snapshot already gets 304.
    let address = format!("{}/v1/records/character/anna", running.url);
    let response = running.http.get(&address).send().await.unwrap();
    let tag = response.headers()["etag"].clone();
    let again = running
        .http
        .get(&address)
        .header("if-none-match", &tag)
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), 304);
    assert_eq!(again.text().await.unwrap(), "");
    running.stop().await;
}

const SHORT: &str = "[refresh.tiers]\nhot_ms = 400\nwarm_ms = 400\ncold_ms = 400\nhot_fresh_ms = 400\nwarm_fresh_ms = 400\n\
                     cold_fresh_ms = 400\n";

async fn a_stale_record_is_returned_and_refreshed(backend: Backend) {
    let upstream = upstream();
    let running = Running::refreshing(backend, &upstream, SHORT).await;
    let first = running.until_fresh("anna").await;
    upstream.set(|settings| settings.revision = 7).unwrap();
    let path = "/v1/records/character/anna";
    let stale = running.until(path, |record| record["freshness"] == "STALE").await;
    assert_eq!(
        stale["snapshot"], first["snapshot"],
        "the stored snapshot is returned meanwhile"
    );
    let newer = running
        .until(path, |record| {
            record["snapshot"]["revision"] != first["snapshot"]["revision"]
        })
        .await;
    assert!(newer["version"].as_u64() > first["version"].as_u64(), "{newer}");
    running.stop().await;
}

async fn a_record_that_does_not_exist_is_reported_and_not_fetched_again(backend: Backend) {
    let upstream = upstream();
    let running = Running::refreshing(backend, &upstream, "").await;
    let path = "/v1/records/character/missing-1";
    let absent = running
        .until(path, |record| record["freshness"] == "NOT_FOUND")
        .await;
    assert_eq!(absent["why"]["code"], "ABSENT", "{absent}");
    assert!(absent["why"]["until"].is_string(), "{absent}");
    for _ in 0..5 {
        assert_eq!(running.ok(path).await["freshness"], "NOT_FOUND");
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(upstream.report().keys["missing-1"], 1);
    // A user's request is refused, too, with the time to wait.
    let response = running
        .http
        .post(format!("{}{path}/refresh", running.url))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 409);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(response.json::<Value>().await.unwrap()["code"], "refresh_held");
    running.stop().await;
}

async fn a_thousand_readers_of_one_record_cause_one_call(backend: Backend) {
    let upstream = upstream_with(|settings| settings.latency_min_ms = 300);
    let running = Running::refreshing(backend, &upstream, "").await;
    let reads = (0..1_000).map(|_| running.record("anna"));
    let answers: Vec<Value> = futures_util::stream::iter(reads)
        .buffer_unordered(1_000)
        .collect()
        .await;
    assert_eq!(answers.len(), 1_000);
    for answer in &answers {
        assert!(
            ["UPDATING", "FRESH"].contains(&answer["freshness"].as_str().unwrap()),
            "{answer}"
        );
    }
    running.until_fresh("anna").await;
    assert_eq!(upstream.report().calls, 1);
    running.stop().await;
}

/// Requests a refresh until the service publishes another one. Right after a refresh it does not.
async fn publish_refresh(running: &Running, path: &str) -> Value {
    let begun = tokio::time::Instant::now();
    loop {
        let requested = running.did(path, json!({})).await;
        if requested["outcome"] == "PUBLISHED" || begun.elapsed() > support::PATIENCE {
            return requested;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_user_requests_a_refresh(backend: Backend) {
    // The upstream holds the first call until the test has requested the second refresh.
    let upstream = upstream_with(|settings| settings.holding = true);
    let running = Running::refreshing(backend, &upstream, "").await;
    let path = "/v1/records/character/anna/refresh";
    let (status, first) = running.post(path, json!({})).await;
    assert_eq!((status, &first["outcome"]), (202, &json!("PUBLISHED")), "{first}");
    let (status, second) = running.post(path, json!({})).await;
    assert_eq!(
        (status, &second["outcome"]),
        (202, &json!("ALREADY_PROCESSING")),
        "{second}"
    );
    assert_eq!(first["version"], second["version"]);
    upstream.set(|settings| settings.holding = false).unwrap();
    let fresh = running.until_fresh("anna").await;
    assert_eq!(fresh["version"], first["version"]);
    // A request refreshes a fresh record, too.
    let third = publish_refresh(&running, path).await;
    assert_eq!(third["outcome"], "PUBLISHED", "{third}");
    running
        .until("/v1/records/character/anna", |record| {
            record["version"] == third["version"]
        })
        .await;
    assert_eq!(upstream.report().keys["anna"], 2);
    running.stop().await;
}

async fn a_batch_read_answers_each_record_in_order(backend: Backend) {
    let upstream = upstream();
    let running = Running::refreshing(backend, &upstream, "").await;
    running.until_fresh("anna").await;
    let body = json!({ "records": [
        { "source": "character", "key": "anna" },
        { "source": "nothing", "key": "anna" },
        { "source": "character", "key": "a b" },
        { "source": "character", "key": "bert" },
    ]});
    let read = running.did("/v1/records/read", body).await;
    let records = read["records"].as_array().unwrap();
    assert_eq!(records.len(), 4);
    assert_eq!(records[0]["record"]["freshness"], "FRESH", "{read}");
    assert!(records[0]["record"]["snapshot"]["character_name"].is_string());
    assert_eq!(records[1]["problem"]["code"], "unknown_source");
    assert_eq!(records[2]["problem"]["code"], "invalid");
    assert_eq!(records[3]["record"]["freshness"], "UPDATING");
    assert_eq!(records[3]["key"], "bert");
    let many: Vec<Value> = (0..1_001)
        .map(|n| json!({ "source": "character", "key": n.to_string() }))
        .collect();
    let (status, body) = running.post("/v1/records/read", json!({ "records": many })).await;
    assert_eq!(status, 422, "{body}");
    running.stop().await;
}

/// Reads a stream until it ends; returns the names and the data of its events.
async fn streamed(running: &Running, path: &str) -> Vec<(String, Value)> {
    let response = running
        .http
        .get(format!("{}{path}", running.url))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let text = tokio::time::timeout(support::PATIENCE, response.text())
        .await
        .unwrap()
        .unwrap();
    let events = text.split("\n\n").filter_map(|event| {
        let name = event.lines().find_map(|line| line.strip_prefix("event: "))?;
        let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    });
    events.collect()
}

async fn a_stream_follows_a_record_until_it_is_fresh(backend: Backend) {
    let upstream = upstream_with(|settings| settings.latency_min_ms = 200);
    let running = Running::refreshing(backend, &upstream, "").await;
    let events = streamed(&running, "/v1/records/character/anna/events").await;
    assert_eq!(events[0].0, "record");
    assert_eq!(events[0].1["freshness"], "UPDATING", "{events:?}");
    let (name, last) = events.last().unwrap();
    assert_eq!(
        (name.as_str(), &last["freshness"]),
        ("last", &json!("FRESH")),
        "{events:?}"
    );
    // A stream with a version follows the user's own refresh.
    let requested = publish_refresh(&running, "/v1/records/character/anna/refresh").await;
    let version = &requested["version"];
    let events = streamed(
        &running,
        &format!("/v1/records/character/anna/events?version={version}"),
    )
    .await;
    let (name, last) = events.last().unwrap();
    assert_eq!(name, "last");
    assert_eq!(last["version"], requested["version"], "{events:?}");
    assert_eq!(
        running
            .get("/v1/records/character/anna/events?version=soon")
            .await
            .0,
        422
    );
    running.stop().await;
}

async fn dead_letters_are_listed_replayed_and_purged(backend: Backend) {
    let upstream = upstream_with(|settings| {
        settings.answers.insert("anna".into(), Answer::Error400);
        settings.answers.insert("bert".into(), Answer::WrongType);
        settings.answers.insert("carl".into(), Answer::Html);
    });
    let running = Running::refreshing(backend, &upstream, "").await;
    for key in ["anna", "bert", "carl"] {
        running.record(key).await;
        let path = format!("/v1/records/character/{key}");
        let failed = running.until(&path, |record| record["state"] == "FAILED").await;
        assert_eq!(failed["why"]["code"], "FAILED", "{failed}");
    }
    let list = "/v1/refresh/dead-letters";
    let all = running
        .until(list, |page| {
            page["items"].as_array().is_some_and(|all| all.len() == 3)
        })
        .await;
    let dead_letters = all["items"].as_array().unwrap();
    let of = |key: &str| {
        dead_letters
            .iter()
            .find(|dead_letter| dead_letter["key"] == key)
            .unwrap()
    };
    let anna = of("anna");
    assert_eq!(anna["failureReason"], "API_4XX", "{anna}");
    assert_eq!(anna["originalEvent"]["key"], "anna");
    assert!(anna["failedAt"].is_string() && anna["workerId"].is_string() && anna["errorMessage"].is_string());
    let only = running.ok(&format!("{list}?reason=API_4XX")).await;
    assert_eq!(only["items"].as_array().unwrap().len(), 1);
    // Reading page by page returns the same.
    let mut paged = Vec::new();
    let mut next = String::new();
    loop {
        let page = running.ok(&format!("{list}?limit=1{next}")).await;
        paged.extend(page["items"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(&paged, dead_letters);
    let position = anna["position"].as_str().unwrap();
    assert_eq!(&running.ok(&format!("{list}/{position}")).await, anna);
    assert_eq!(running.get(&format!("{list}/1-999999")).await.0, 404);
    assert_eq!(running.get(&format!("{list}/here")).await.0, 422);
    assert_eq!(running.get(&format!("{list}?cursor=x")).await.0, 400);

    upstream.set(|settings| settings.answers.clear()).unwrap();
    // The record reports the failure before the event is settled, but a replay needs the settled event.
    running
        .until("/v1/refresh", |view| {
            view["counters"]["settled"]["high"].as_u64() >= Some(3)
        })
        .await;
    let chosen = json!({ "positions": [position], "why": "repaired" });
    let done = running.did(&format!("{list}/replay"), chosen.clone()).await;
    assert_eq!(done, json!({ "handled": 1, "skipped": 0 }));
    running.until_fresh("anna").await;
    let again = running.did(&format!("{list}/replay"), chosen).await;
    assert_eq!(again["errors"][0]["code"], "already_handled", "{again}");
    let done = running
        .did(&format!("{list}/purge"), json!({ "source": "character" }))
        .await;
    assert_eq!(done["handled"], 2, "{done}");
    assert_eq!(running.ok(list).await["items"], json!([]));
    let handled = running.ok(&format!("{list}?handled=true")).await;
    assert_eq!(handled["items"].as_array().unwrap().len(), 3);
    for nothing in [
        json!({}),
        json!({ "all": true, "source": "a" }),
        json!({ "positions": [], "all": true }),
    ] {
        assert_eq!(running.post(&format!("{list}/purge"), nothing).await.0, 422);
    }
    let audit = running.ok("/v1/audit").await;
    let entry = |what: &str| {
        let entries = audit["items"].as_array().unwrap().iter();
        entries.filter(|entry| entry["what"] == what).count()
    };
    assert_eq!(
        (entry("dead_letters.replay"), entry("dead_letters.purge")),
        (2, 1),
        "{audit}"
    );
    running.stop().await;
}

/// Each invalid response has its own failure reason, and delays no other record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_response_of_the_upstream_has_a_defined_outcome() {
    let odd = [
        (Answer::BrokenJson, "PARSE_ERROR", "ends too early"),
        (Answer::Empty, "PARSE_ERROR", "empty"),
        (Answer::WrongType, "PARSE_ERROR", "the answer is a list"),
        (Answer::Html, "PARSE_ERROR", "page"),
        (Answer::Huge, "TOO_LARGE", "5000000"),
        (Answer::GzipBomb, "TOO_LARGE", "5000000"),
        (Answer::Redirect, "REDIRECTED", "302"),
        (Answer::Error400, "API_4XX", "400"),
        (Answer::Error500, "API_5XX", "500"),
    ];
    let upstream = upstream_with(|settings| {
        let named = odd.iter().map(|(answer, ..)| (format!("{answer:?}"), *answer));
        settings.answers.extend(named);
    });
    let running = Running::refreshing(Backend::Embedded, &upstream, "").await;
    for (answer, ..) in odd {
        running.record(&format!("{answer:?}")).await;
    }
    running.until_fresh("anna").await;
    let all = running
        .until("/v1/refresh/dead-letters", |page| {
            page["items"].as_array().is_some_and(|all| all.len() == odd.len())
        })
        .await;
    let dead_letters = all["items"].as_array().unwrap();
    for (answer, reason, words) in odd {
        let dead_letter = dead_letters
            .iter()
            .find(|dead_letter| dead_letter["key"] == format!("{answer:?}"))
            .unwrap();
        assert_eq!(dead_letter["failureReason"], reason, "{answer:?}: {dead_letter}");
        let message = dead_letter["errorMessage"].as_str().unwrap();
        assert!(message.contains(words), "{answer:?}: {message}");
    }
    let failed = running.record("Html").await;
    assert_eq!(
        (&failed["snapshot"], &failed["why"]["code"]),
        (&Value::Null, &json!("FAILED")),
        "{failed}"
    );
    assert_eq!(upstream.report().violations(), 0);
    running.stop().await;
}

async fn the_overview_shows_the_state_of_the_module(backend: Backend) {
    let upstream = upstream();
    let running = Running::refreshing(backend, &upstream, "").await;
    running.until_fresh("anna").await;
    let view = running
        .until("/v1/refresh", |view| {
            view["budgets"][0]["seen"]["dayUsed"].as_u64() >= Some(1)
                && view["budgets"][0]["seen"]["callsPerSecond"].is_number()
                && view["freshness"]["character"]["fresh"] == 1
                && view["lag"]["measuredAt"].is_string()
                && view["storeAvailable"] == true
        })
        .await;
    assert_eq!(view["roles"], json!(["QUERY", "WORK", "PLAN"]));
    let budget = &view["budgets"][0];
    assert_eq!(budget["name"], "api");
    for limit in [
        "rate",
        "hardLimit",
        "burst",
        "lowBurst",
        "lowCap",
        "perDay",
        "dayReserve",
    ] {
        assert!(budget[limit].as_u64() > Some(0), "{limit}: {budget}");
    }
    assert_eq!(
        view["breakers"],
        json!({ "store": "CLOSED", "database": "CLOSED" })
    );
    assert_eq!(view["counters"]["updated"], 1, "{view}");
    assert_eq!(view["lag"]["lowPaused"], false);
    let sources = running.ok("/v1/sources").await;
    assert_eq!(sources["items"][0]["name"], "character");
    assert_eq!(sources["items"][0]["address"], upstream.url());
    running.stop().await;
}

async fn snapshots_survive_a_restart(backend: Backend) {
    let upstream = upstream();
    let running = Running::refreshing(backend, &upstream, "").await;
    let before = running.until_fresh("anna").await;
    let running = running.restart().await;
    let after = running.record("anna").await;
    assert_eq!(after["snapshot"], before["snapshot"]);
    assert_eq!(after["freshness"], "FRESH");
    assert_eq!(upstream.report().calls, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_sources_and_invalid_keys_are_refused() {
    let upstream = upstream();
    let running = Running::refreshing(Backend::Embedded, &upstream, "").await;
    let (status, body) = running.get("/v1/records/charakter/anna").await;
    assert_eq!((status, &body["code"]), (404, &json!("unknown_source")));
    assert!(
        body["detail"]
            .as_str()
            .unwrap()
            .contains("configured sources are character"),
        "{body}"
    );
    for odd in ["a%20b", "a%2Fb", "..%2F", "%00"] {
        let (status, body) = running.get(&format!("/v1/records/character/{odd}")).await;
        assert_eq!((status, &body["code"]), (422, &json!("invalid")), "{odd}: {body}");
    }
    let long = "x".repeat(129);
    let (status, _) = running.get(&format!("/v1/records/character/{long}")).await;
    assert_eq!(status, 422);
    assert_eq!(upstream.report().calls, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_sources_the_routes_of_records_answer_not_found() {
    let running = Running::start(Backend::Embedded, "").await;
    for path in [
        "/v1/records/character/anna",
        "/v1/refresh",
        "/v1/refresh/dead-letters",
    ] {
        let (status, body) = running.get(path).await;
        assert_eq!(
            (status, &body["code"]),
            (404, &json!("no_refresh")),
            "{path}: {body}"
        );
    }
    assert_eq!(running.ok("/v1/sources").await, json!({ "items": [] }));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_and_groups_of_keys_apply_to_records() {
    let upstream = upstream();
    let (reader, writer) = (
        tidegate_server::fresh_key().unwrap(),
        tidegate_server::fresh_key().unwrap(),
    );
    let scoped = tidegate_server::fresh_key().unwrap();
    let keys = format!(
        "[[keys]]\nname = \"reader\"\nhash = \"{}\"\nroles = [\"read\"]\n\
         [[keys]]\nname = \"writer\"\nhash = \"{}\"\nroles = [\"submit\"]\n\
         [[keys]]\nname = \"scoped\"\nhash = \"{}\"\nroles = [\"read\", \"submit\"]\ngroups = [\"shop\"]\n",
        reader.hash, writer.hash, scoped.hash
    );
    let running = Running::refreshing(Backend::Embedded, &upstream, &keys).await;
    let address = format!("{}/v1/records/character/anna", running.url);
    let get = |key: &str| answer(running.http.get(&address).bearer_auth(key));
    let refresh = |key: &str| answer(running.http.post(format!("{address}/refresh")).bearer_auth(key));
    assert_eq!(get(&reader.key).await.0, 200);
    assert_eq!(refresh(&reader.key).await.0, 403);
    assert_eq!(get(&writer.key).await.0, 403);
    assert_eq!(refresh(&writer.key).await.0, 202);
    assert_eq!(
        (get(&scoped.key).await.0, refresh(&scoped.key).await.0),
        (403, 403)
    );
    let purge = running
        .http
        .post(format!("{}/v1/refresh/dead-letters/purge", running.url));
    let purge = purge.bearer_auth(&reader.key).json(&json!({ "all": true }));
    assert_eq!(answer(purge).await.0, 403);
    running.stop().await;
}
