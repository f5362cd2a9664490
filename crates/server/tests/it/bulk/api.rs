//! Groups, dead jobs, limits, reasons and refusals, through a real port, over both stores.

use serde_json::{Value, json};
use support::{Backend, Running, lease, settle};

use crate::support;

on_both_stores! {
    groups_are_weighed_paused_resumed_and_cancelled
    dead_jobs_are_listed_replayed_and_purged
    a_cancelled_batch_shows_it_and_gives_its_jobs_back
    limits_change_at_run_time_and_stay
    the_reasons_of_a_wait_are_explained
    odd_names_work_everywhere
    invalid_requests_are_refused_with_the_reason
}

async fn groups_are_weighed_paused_resumed_and_cancelled(backend: Backend) {
    let running = Running::start(backend, "").await;
    for group in ["a", "b", "c"] {
        running.enqueue(group, "spring", "MAIL", 4).await;
    }
    let page = running.ok("/v1/groups?limit=2").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let next = page["next"].as_str().unwrap();
    let rest = running.ok(&format!("/v1/groups?cursor={next}")).await;
    assert_eq!(rest["items"][0]["id"], "c");
    assert!(rest["items"][0]["waitingSince"].is_string());
    let (status, group) = running
        .patch(
            "/v1/groups/a",
            json!({ "weight": 4, "limits": { "maxRunning": 1, "queues": { "mail": { "rate": "30/min" } } }, "why": "a large customer" }),
        )
        .await;
    assert_eq!(
        (status, &group["weight"], &group["basePriority"]),
        (200, &json!(4.0), &json!(-2_000_000))
    );
    assert_eq!(
        group["limits"],
        json!({ "maxRunning": 1, "queues": { "mail": { "rate": "30/min" } } })
    );
    let paused = running
        .did("/v1/groups/b/pause", json!({ "why": "they asked for it" }))
        .await;
    assert_eq!(paused["paused"], true);
    let leased = lease(&running, 10).await;
    let of = |group: &str| leased.iter().filter(|job| job["group"] == group).count();
    assert_eq!((of("a"), of("b"), of("c")), (1, 0, 4));
    running.did("/v1/groups/b/resume", json!({})).await;
    assert_eq!(lease(&running, 10).await.len(), 4);
    let cancelled = running.did("/v1/groups/a/cancel", json!({})).await;
    assert_eq!(cancelled, json!({ "cancelled": 3, "running": 1 }));
    let audit = running.ok("/v1/audit").await;
    let entries: Vec<(&str, &str)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["what"].as_str().unwrap(), entry["on"].as_str().unwrap()))
        .collect();
    assert_eq!(
        entries,
        [
            ("group.cancel", "a"),
            ("group.resume", "b"),
            ("group.pause", "b"),
            ("group.patch", "a")
        ]
    );
    assert_eq!(audit["items"][2]["why"], "they asked for it");
    running.stop().await;
}

async fn a_cancelled_batch_shows_it_and_gives_its_jobs_back(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("a", "spring", "MAIL", 3).await;
    let batch = "/v1/groups/a/batches/spring";
    running.did("/v1/groups/a/pause", json!({})).await;
    assert_eq!(running.ok(batch).await["status"], "PAUSED");
    running.did("/v1/groups/a/resume", json!({})).await;
    assert_eq!(running.ok(batch).await["status"], "CREATED");
    running.did("/v1/groups/a/batches/spring/pause", json!({})).await;
    assert_eq!(running.ok(batch).await["status"], "PAUSED");
    running.did("/v1/groups/a/batches/spring/cancel", json!({})).await;
    let decided = running.until(batch, |batch| batch["status"] == "CANCELLED").await;
    assert_eq!(
        decided["counts"],
        json!({ "total": 3, "success": 0, "failed": 3 })
    );
    let done = running.did("/v1/dead-jobs/replay", json!({ "group": "a" })).await;
    assert_eq!(done, json!({ "handled": 3, "skipped": 0 }));
    running.did("/v1/groups/a/batches/spring/resume", json!({})).await;
    let jobs = lease(&running, 10).await;
    assert_eq!(jobs.len(), 3);
    settle(&running, &jobs, json!({ "outcome": "COMPLETED" })).await;
    let job = running.ok("/v1/groups/a/jobs/spring-0").await;
    assert_eq!(
        (&job["attempts"], &job["runs"], &job["maxAttempts"], &job["batch"]),
        (&json!(1), &json!(1), &json!(4), &json!("spring"))
    );
    assert_eq!(running.ok(batch).await["status"], "CANCELLED");
    running.stop().await;
}

async fn dead_jobs_are_listed_replayed_and_purged(backend: Backend) {
    let running = Running::start(backend, "").await;
    for group in ["a", "b"] {
        running.enqueue(group, "spring", "MAIL", 3).await;
    }
    let jobs = lease(&running, 10).await;
    settle(
        &running,
        &jobs,
        json!({ "outcome": "FAILED", "error": "no such mailbox" }),
    )
    .await;
    let dead = running.ok("/v1/dead-jobs").await;
    assert_eq!(dead["items"].as_array().unwrap().len(), 6);
    assert_eq!(dead["items"][0]["error"], "no such mailbox");
    assert_eq!(dead["items"][0]["deathReason"], "FAILED");
    let of_a = running
        .ok("/v1/dead-jobs?group=a&reason=FAILED&type=MAIL&limit=2")
        .await;
    assert_eq!(of_a["items"].as_array().unwrap().len(), 2);
    assert!(of_a["items"][0]["group"] == "a" && of_a["next"].is_string());
    assert!(
        running.ok("/v1/dead-jobs?reason=EXPIRED").await["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let (status, refused) = running.post("/v1/dead-jobs/purge", json!({})).await;
    assert_eq!(status, 422, "{refused}");
    assert!(
        refused["detail"]
            .as_str()
            .unwrap()
            .starts_with("nothing is selected"),
        "{refused}"
    );
    running.did("/v1/groups/a/jobs/spring-0/replay", json!({})).await;
    assert_eq!(running.ok("/v1/groups/a/jobs/spring-0").await["state"], "WAITING");
    let (status, refused) = running.post("/v1/groups/a/jobs/spring-0/replay", json!({})).await;
    assert_eq!((status, &refused["code"]), (409, &json!("not_dead")));
    let done = running
        .did(
            "/v1/dead-jobs/replay",
            json!({ "group": "a", "why": "mailboxes were made" }),
        )
        .await;
    assert_eq!(done, json!({ "handled": 2, "skipped": 0 }));
    let named = json!({ "jobs": [{ "group": "b", "id": "spring-0" }, { "group": "b", "id": "nobody" }] });
    let done = running.did("/v1/dead-jobs/purge", named).await;
    assert_eq!((&done["handled"], &done["skipped"]), (&json!(1), &json!(1)));
    assert_eq!(done["errors"][0]["code"], "unknown_job");
    let done = running.did("/v1/dead-jobs/purge", json!({ "all": true })).await;
    assert_eq!(done["handled"], 2);
    assert!(
        running.ok("/v1/dead-jobs").await["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(running.get("/v1/groups/b/jobs/spring-1").await.0, 404);
    running.stop().await;
}

async fn limits_change_at_run_time_and_stay(backend: Backend) {
    let running = Running::start(backend, "[backpressure]\nglobal_rps = 1000").await;
    let (status, limits) = running
        .patch(
            "/v1/limits",
            json!({ "rate": 7, "queues": { "default": { "rate": "300/min", "perGroup": { "maxRunning": 3 } } }, "why": "the provider asked" }),
        )
        .await;
    assert_eq!(status, 200, "{limits}");
    assert_eq!(
        (&limits["rate"], &limits["configuredRate"]),
        (&json!("7/s"), &json!("1000/s"))
    );
    let change = &limits["changes"][0];
    assert_eq!(
        (&change["setting"], &change["from"], &change["to"]),
        (&json!("RATE"), &json!("1000/s"), &json!("7/s"))
    );
    assert_eq!(
        (&change["by"], &change["why"]),
        (&json!("anybody"), &json!("the provider asked"))
    );
    for odd in [
        json!(0),
        json!("-1/h"),
        json!(2e9),
        json!("often"),
        json!("5/week"),
    ] {
        let (status, refused) = running.patch("/v1/limits", json!({ "rate": odd })).await;
        assert_eq!(status, 422, "{refused}");
    }
    let (status, refused) = running
        .patch("/v1/limits", json!({ "queues": { "typo": { "rate": 5 } } }))
        .await;
    assert_eq!(status, 422, "{refused}");
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("there is no queue \"typo\"; there are default"),
        "{detail}"
    );
    let running = running.restart().await;
    let limits = running.ok("/v1/limits").await;
    assert_eq!(
        (&limits["rate"], &limits["queues"]),
        (
            &json!("7/s"),
            &json!([{ "queue": "default", "rate": "300/min", "perGroup": { "maxRunning": 3 } }])
        )
    );
    let (_, limits) = running
        .patch(
            "/v1/limits",
            json!({
                "rate": null,
                "queues": { "default": { "rate": null, "perGroup": { "maxRunning": null } } },
            }),
        )
        .await;
    assert_eq!(
        (&limits["rate"], &limits["queues"]),
        (&json!("1000/s"), &json!([]))
    );
    running.stop().await;
}

async fn the_reasons_of_a_wait_are_explained(backend: Backend) {
    let running = Running::start(
        backend,
        "[backpressure]\nglobal_rps = 0.0002\nrate_limit_window_sec = 10000",
    )
    .await;
    running.enqueue("shop", "spring", "MAIL", 5).await;
    let why = running.ok("/v1/groups/shop/jobs/spring-3/why").await;
    assert_eq!(why["state"], "WAITING");
    assert_eq!(why["reasons"][0], json!({ "what": "BEHIND", "jobs": 3 }));
    assert!(
        why["text"]
            .as_str()
            .unwrap()
            .starts_with("Behind 3 jobs of its group"),
        "{why}"
    );
    let what = |why: &Value| -> Vec<String> {
        let reasons = why["reasons"].as_array().unwrap();
        reasons
            .iter()
            .map(|reason| reason["what"].as_str().unwrap().to_owned())
            .collect()
    };
    running.did("/v1/groups/shop/pause", json!({})).await;
    let why = running.ok("/v1/groups/shop/why").await;
    assert!(what(&why).contains(&"GROUP_PAUSED".to_owned()), "{why}");
    assert_eq!(why["starts"]["unknown"], "PAUSED");
    running.did("/v1/groups/shop/resume", json!({})).await;
    let leased = lease(&running, 10).await;
    let why = running.ok("/v1/groups/shop/why").await;
    assert!(what(&why).contains(&"WINDOW_SPENT".to_owned()), "{why}");
    assert!(why["starts"]["earliestSeconds"].is_u64(), "{why}");
    assert_eq!(
        running
            .ok(&format!(
                "/v1/groups/shop/jobs/{}/why",
                leased[0]["id"].as_str().unwrap()
            ))
            .await["text"],
        "The job is running."
    );
    assert_eq!(running.get("/v1/groups/shop/jobs/nobody/why").await.0, 404);
    running.stop().await;
}

async fn odd_names_work_everywhere(backend: Backend) {
    let running = Running::start(backend, "").await;
    let encoded = "a%2Fb%3Fc%25d%20%7B%7D%F0%9F%8C%8A..";
    let decoded = "a/b?c%d {}🌊..";
    running.enqueue(encoded, encoded, "MAIL", 1).await;
    let group = running.ok(&format!("/v1/groups/{encoded}")).await;
    assert_eq!(group["id"], decoded);
    assert_eq!(group["batches"], json!([decoded]));
    let jobs = lease(&running, 1).await;
    assert_eq!(jobs[0]["group"], decoded);
    let (status, refused) = running.get(&format!("/v1/groups/{}", "x".repeat(300))).await;
    assert_eq!((status, &refused["code"]), (422, &json!("invalid")));
    assert_eq!(
        refused["detail"],
        "group id has 300 bytes; at most 256 are allowed"
    );
    running.stop().await;
}

async fn invalid_requests_are_refused_with_the_reason(backend: Backend) {
    let running = Running::start(backend, "").await;
    for (path, body, status, words) in [
        (
            "/v1/leases",
            json!({ "max": 0 }),
            422,
            "max = 0: it must be from 1 to 1000",
        ),
        ("/v1/leases", json!({ "waitMs": 70_000 }), 422, "waitMs = 70000"),
        (
            "/v1/leases",
            json!({ "queues": "x" }),
            422,
            "unknown field `queues`",
        ),
        (
            "/v1/leases/settle",
            json!({ "settlements": [{ "lease": "x", "outcome": "COMPLETED" }] }),
            422,
            "lease \"x\" at index 0",
        ),
        (
            "/v1/leases/settle",
            json!({ "settlements": [{ "lease": "1.1", "outcome": "COMPLETED", "error": "?" }] }),
            422,
            "settlement 0: `result` goes with COMPLETED",
        ),
        (
            "/v1/leases/extend",
            json!({ "leases": [], "durationMs": 0 }),
            422,
            "durationMs = 0",
        ),
        (
            "/v1/groups/nobody/pause",
            json!({}),
            404,
            "group \"nobody\" is unknown",
        ),
        ("/v1/nowhere", json!({}), 404, "POST /v1/nowhere does not exist"),
        ("/v1/stats", json!({}), 405, "does not support POST"),
    ] {
        let (got, refused) = running.post(path, body).await;
        assert_eq!(got, status, "{path}: {refused}");
        assert!(
            refused["detail"].as_str().unwrap().contains(words),
            "{path}: {refused}"
        );
        assert!(
            refused["requestId"].is_string()
                && refused["type"]
                    .as_str()
                    .unwrap()
                    .starts_with("urn:tidegate:problem:")
        );
    }
    for (path, status) in [
        ("/v1/groups?limit=0", 422),
        ("/v1/groups?limit=x", 422),
        ("/v1/groups?cursor=zz", 400),
        ("/v1/groups?unknown=1", 422),
        ("/v1/dead-jobs?reason=BORED", 422),
    ] {
        let (got, refused) = running.get(path).await;
        assert_eq!(got, status, "{path}: {refused}");
    }
    let text = running
        .http
        .post(format!("{}/v1/leases", running.url))
        .body("{}")
        .header("content-type", "text/plain");
    assert_eq!(support::answer(text).await.0, 415);
    let broken = running
        .http
        .post(format!("{}/v1/leases", running.url))
        .body("{")
        .header("content-type", "application/json");
    let (status, refused) = support::answer(broken).await;
    assert_eq!((status, &refused["code"]), (400, &json!("bad_request")));
    running.stop().await;
}
