//! Push targets and completion callbacks, through real ports.

use std::time::Duration;

use base64::Engine as _;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use support::{Backend, Received, Receiver, Running, Script};

use crate::support;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Settings with short backoffs, so that retries are quick, and long timeouts, so that a stalled machine fails no call.
fn settings(receiver: &Receiver, more: &str) -> String {
    let url = &receiver.url;
    format!(
        "{more}
        [backpressure]
        default_backoff_ms = 20
        [congestion]
        base_backoff_ms = 20
        [targets.mailer]
        url = \"{url}\"
        types = [\"MAIL\"]
        secret = \"{SECRET}\"
        concurrency = 3
        timeout_ms = 60000
        headers = {{ authorization = \"Bearer of-the-target\" }}
        [callbacks.shop]
        url = \"{url}\"
        secret = \"{SECRET}\"
        timeout_ms = 30000
        "
    )
}

/// Verifies the signature as a receiver does, by the specification and without the code under test.
fn assert_signed(call: &Received) {
    let key = base64::engine::general_purpose::STANDARD
        .decode(SECRET.strip_prefix("whsec_").unwrap())
        .unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    let (id, at) = (call.header("webhook-id"), call.header("webhook-timestamp"));
    mac.update(format!("{id}.{at}.").as_bytes());
    mac.update(&call.body);
    let wanted = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(call.header("webhook-signature"), format!("v1,{wanted}"));
}

on_both_stores! {
    jobs_are_sent_signed_and_their_responses_become_results
    the_response_decides_the_outcome_of_a_job
    a_target_that_is_gone_is_disabled_and_loses_nothing
    concurrent_calls_stay_within_the_targets_concurrency
    a_type_may_have_a_longer_timeout_than_others
    throttling_lowers_the_rate_and_time_raises_it
    a_callback_is_retried_until_it_is_delivered
}

async fn jobs_are_sent_signed_and_their_responses_become_results(backend: Backend) {
    let receiver = Receiver::start().await;
    receiver.then(Script::status(200).body("{\"sent\": true}"));
    let running = Running::start(backend, &settings(&receiver, "")).await;
    running.enqueue("shop", "spring", "MAIL", 1).await;
    let batch = running
        .until("/v1/groups/shop/batches/spring", |batch| {
            batch["status"] == "COMPLETED"
        })
        .await;
    assert_eq!(batch["counts"], json!({ "total": 1, "success": 1, "failed": 0 }));
    let job = running.ok("/v1/groups/shop/jobs/spring-0").await;
    assert_eq!(
        (&job["state"], &job["result"]),
        (&json!("COMPLETED"), &json!({ "sent": true }))
    );
    let call = &receiver.received()[0];
    assert_signed(call);
    assert_eq!(call.header("tidegate-attempt"), "1");
    assert_eq!(call.header("authorization"), "Bearer of-the-target");
    assert!(call.header("tidegate-deadline").ends_with('Z'));
    let message = call.json();
    assert_eq!(message["payload"], json!({ "n": 0 }));
    assert_eq!(
        (&message["group"], &message["type"]),
        (&json!("shop"), &json!("MAIL"))
    );
    running.stop().await;
}

async fn the_response_decides_the_outcome_of_a_job(backend: Backend) {
    let receiver = Receiver::start().await;
    let more = "[worker_pool]\nmax_retry_count = 2";
    // Long enough that only the one call times out, even on a stalled machine.
    let settings = settings(&receiver, more).replacen("timeout_ms = 60000", "timeout_ms = 10000", 1);
    let running = Running::start(backend, &settings).await;

    // A 4xx is final.
    receiver.then(Script::status(422).body("no such mailbox"));
    running.enqueue("shop", "wrong", "MAIL", 1).await;
    let job = running
        .until("/v1/groups/shop/jobs/wrong-0", |job| job["state"] == "DEAD")
        .await;
    assert_eq!(job["deathReason"], "FAILED");
    assert_eq!(job["error"], "answered 422 Unprocessable Entity: no such mailbox");

    // A 5xx and a timeout are retried with the same message id.
    let before = receiver.received().len();
    receiver
        .then(Script::status(500))
        .then(Script::status(200).after(Duration::from_secs(600)));
    running.enqueue("shop", "later", "MAIL", 1).await;
    let job = running
        .until("/v1/groups/shop/jobs/later-0", |job| job["state"] == "COMPLETED")
        .await;
    assert_eq!((&job["attempts"], &job["runs"]), (&json!(3), &json!(3)), "{job}");
    let calls = &receiver.received()[before..];
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[0].header("webhook-id"), calls[2].header("webhook-id"));
    assert_eq!(calls[2].header("tidegate-attempt"), "3");

    // A redirect is retried, too, and retries end.
    for _ in 0..3 {
        receiver.then(Script::status(302).header("location", "http://127.0.0.1:1/"));
    }
    running.enqueue("shop", "never", "MAIL", 1).await;
    let job = running
        .until("/v1/groups/shop/jobs/never-0", |job| job["state"] == "DEAD")
        .await;
    assert_eq!(job["deathReason"], "ATTEMPTS_USED_UP");
    assert!(
        job["error"]
            .as_str()
            .unwrap()
            .contains("redirects are not followed"),
        "{job}"
    );

    // Throttling uses no attempt, and the service respects Retry-After.
    let before = receiver.received().len();
    for _ in 0..4 {
        receiver.then(Script::status(429).header("retry-after", "0"));
    }
    receiver.then(Script::status(503).header("retry-after", "1"));
    let begun = std::time::Instant::now();
    running.enqueue("shop", "slow", "MAIL", 1).await;
    let job = running
        .until("/v1/groups/shop/jobs/slow-0", |job| job["state"] == "COMPLETED")
        .await;
    assert_eq!(
        (&job["attempts"], &job["throttles"]),
        (&json!(1), &json!(5)),
        "{job}"
    );
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(receiver.received().len() - before, 6);

    // The response is longer than a result may be.
    receiver.then(Script::status(200).body(&"x".repeat(300 * 1024)));
    running.enqueue("shop", "long", "MAIL", 1).await;
    let job = running
        .until("/v1/groups/shop/jobs/long-0", |job| job["state"] == "DEAD")
        .await;
    assert!(job["error"].as_str().unwrap().contains("262144 bytes"), "{job}");

    let targets = running.ok("/v1/targets").await;
    let calls = &targets["items"][0]["calls"];
    assert_eq!(
        (&calls["completed"], &calls["throttled"]),
        (&json!(2), &json!(5)),
        "{targets}"
    );
    running.stop().await;
}

async fn a_target_that_is_gone_is_disabled_and_loses_nothing(backend: Backend) {
    let receiver = Receiver::start().await;
    let settings = settings(&receiver, "").replace("concurrency = 3", "concurrency = 1");
    receiver.then(Script::status(410));
    let running = Running::start(backend, &settings).await;
    running.enqueue("shop", "spring", "MAIL", 5).await;
    let targets = running
        .until("/v1/targets", |targets| {
            targets["items"][0]["state"] == "DISABLED"
        })
        .await;
    assert!(
        targets["items"][0]["reason"]
            .as_str()
            .unwrap()
            .starts_with("answered 410 Gone"),
        "{targets}"
    );
    let why = running.ok("/v1/groups/shop/jobs/spring-0/why").await;
    assert_eq!(
        why["reasons"].as_array().unwrap().last().unwrap()["what"],
        "TARGET_DISABLED",
        "{why}"
    );
    assert_eq!(why["starts"]["unknown"], "NO_WORKER");
    assert_eq!(receiver.received().len(), 1);
    running
        .did("/v1/targets/mailer/enable", json!({ "why": "it is back" }))
        .await;
    let batch = running
        .until("/v1/groups/shop/batches/spring", |batch| {
            batch["status"] == "COMPLETED"
        })
        .await;
    assert_eq!(batch["counts"]["success"], 5);
    assert_eq!(running.ok("/v1/groups/shop/jobs/spring-0").await["attempts"], 1);
    running.stop().await;
}

async fn a_type_may_have_a_longer_timeout_than_others(backend: Backend) {
    let receiver = Receiver::start().await;
    receiver.then(Script::status(200).after(Duration::from_millis(1_200)));
    let more = "[worker_pool]\njob_timeout_ms = 300\n[job_types.MAIL]\ntimeout_ms = 30000";
    let settings = settings(&receiver, more).replacen("timeout_ms = 60000\n", "\n", 1);
    let running = Running::start(backend, &settings).await;
    running.enqueue("shop", "spring", "MAIL", 1).await;
    let job = running
        .until("/v1/groups/shop/jobs/spring-0", |job| job["state"] == "COMPLETED")
        .await;
    assert_eq!(job["attempts"], 1, "{job}");
    running.stop().await;
}

async fn concurrent_calls_stay_within_the_targets_concurrency(backend: Backend) {
    let receiver = Receiver::start().await;
    for _ in 0..12 {
        receiver.then(Script::status(200).at_once(3).after(Duration::from_millis(300)));
    }
    let running = Running::start(backend, &settings(&receiver, "")).await;
    running.enqueue("shop", "spring", "MAIL", 12).await;
    running
        .until("/v1/groups/shop/batches/spring", |batch| {
            batch["status"] == "COMPLETED"
        })
        .await;
    assert_eq!(receiver.most_at_once(), 3);
    running.stop().await;
}

async fn throttling_lowers_the_rate_and_time_raises_it(backend: Backend) {
    let receiver = Receiver::start().await;
    let settings = settings(&receiver, "").replace("concurrency = 3", "concurrency = 3\nrate = 100.0");
    for _ in 0..3 {
        receiver.then(Script::status(429).header("retry-after", "0"));
    }
    let running = Running::start(backend, &settings).await;
    running.enqueue("shop", "spring", "MAIL", 3).await;
    let rate = |targets: &serde_json::Value| targets["items"][0]["rps"].as_f64().unwrap();
    let targets = running
        .until("/v1/targets", |targets| rate(targets) < 100.0)
        .await;
    assert_eq!(targets["items"][0]["configuredRps"], 100.0);
    // The rate grows while it is what keeps jobs waiting.
    running.enqueue("shop", "summer", "MAIL", 3_000).await;
    running
        .until("/v1/targets", |targets| rate(targets) == 100.0)
        .await;
    running.stop().await;
}

async fn a_callback_is_retried_until_it_is_delivered(backend: Backend) {
    let receiver = Receiver::start().await;
    let running = Running::start(backend, &settings(&receiver, "")).await;
    let (status, refused) = running
        .put("/v1/groups/shop/batches/odd", json!({ "callback": "nobody" }))
        .await;
    assert_eq!((status, &refused["code"]), (422, &json!("invalid")), "{refused}");
    let (status, _) = running
        .put("/v1/groups/shop/batches/spring", json!({ "callback": "shop" }))
        .await;
    assert_eq!(status, 201);
    receiver
        .then(Script::status(200))
        .then(Script::status(500))
        .then(Script::status(204));
    running.enqueue("shop", "spring", "MAIL", 1).await;
    let calls = receiver.until_received(3).await;
    let callbacks: Vec<_> = calls
        .iter()
        .filter(|call| call.json()["type"] == "batch.completed")
        .collect();
    assert_eq!(callbacks.len(), 2, "one failed, one delivered");
    for call in &callbacks {
        assert_signed(call);
        let data = &call.json()["data"];
        assert_eq!(
            (&data["group"], &data["batch"]),
            (&json!("shop"), &json!("spring"))
        );
        assert_eq!(data["counts"], json!({ "total": 1, "success": 1, "failed": 0 }));
    }
    assert_eq!(
        callbacks[0].header("webhook-id"),
        callbacks[1].header("webhook-id")
    );
    running.stop().await;
}
