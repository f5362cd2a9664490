//! Pull workers and their jobs, through a real port, over both stores.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Backend, Running, lease, settle};

use crate::support;

on_both_stores! {
    jobs_are_leased_extended_and_settled
    a_lease_waits_for_work
    late_settlements_are_refused
    enqueueing_is_idempotent_and_reports_refused_jobs
    a_stream_of_jobs_is_accepted_line_by_line
    progress_is_streamed
    nothing_is_lost_by_a_restart
}

async fn jobs_are_leased_extended_and_settled(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("shop", "spring", "MAIL", 5).await;
    let jobs = lease(&running, 3).await;
    assert_eq!(jobs.len(), 3);
    assert_eq!(jobs[0]["id"], "spring-0");
    assert_eq!(jobs[0]["payload"], json!({ "n": 0 }));
    assert_eq!(
        (&jobs[0]["attempt"], &jobs[0]["type"]),
        (&json!(1), &json!("MAIL"))
    );
    let names: Vec<&Value> = jobs.iter().map(|job| &job["lease"]).collect();
    let extended = running
        .did(
            "/v1/leases/extend",
            json!({ "leases": names, "durationMs": 120_000 }),
        )
        .await;
    let until = extended["extended"][0]["until"].as_str().unwrap();
    assert!(until > jobs[0]["deadline"].as_str().unwrap());
    let settled = settle(
        &running,
        &jobs,
        json!({ "outcome": "COMPLETED", "result": { "ok": 1 } }),
    )
    .await;
    assert_eq!(settled["settled"][2], json!({ "state": "COMPLETED" }));
    let rest = lease(&running, 10).await;
    assert_eq!(rest.len(), 2);
    let settled = settle(
        &running,
        &rest[..1],
        json!({ "outcome": "FAILED", "error": "no such mailbox" }),
    )
    .await;
    assert_eq!(
        settled["settled"][0],
        json!({ "state": "DEAD", "deathReason": "FAILED" })
    );
    let settled = settle(&running, &rest[1..], json!({ "outcome": "COMPLETED" })).await;
    assert_eq!(
        settled["settled"][0],
        json!({ "state": "COMPLETED", "batchComplete": true })
    );
    let batch = running
        .until("/v1/groups/shop/batches/spring", |batch| {
            batch["status"] == "COMPLETED"
        })
        .await;
    assert_eq!(batch["counts"], json!({ "total": 5, "success": 4, "failed": 1 }));
    assert_eq!(batch["errors"], json!(["no such mailbox"]));
    let results = running.ok("/v1/groups/shop/batches/spring/results?limit=2").await;
    assert_eq!(results["items"][1]["result"], json!({ "ok": 1 }));
    let next = results["next"].as_str().unwrap();
    let more = running
        .ok(&format!("/v1/groups/shop/batches/spring/results?cursor={next}"))
        .await;
    assert_eq!(more["items"].as_array().unwrap().len(), 3);
    assert!(more.get("next").is_none());
    running.stop().await;
}

async fn a_lease_waits_for_work(backend: Backend) {
    let running = Running::start(backend, "").await;
    let begun = Instant::now();
    let nothing = running.did("/v1/leases", json!({ "waitMs": 300 })).await;
    assert_eq!(
        (&nothing["jobs"], &nothing["stop"]),
        (&json!([]), &json!({ "reason": "EMPTY" }))
    );
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let begun = Instant::now();
    let (leased, ()) = tokio::join!(running.did("/v1/leases", json!({ "waitMs": 60_000 })), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        running.enqueue("shop", "spring", "MAIL", 1).await;
    });
    assert_eq!(leased["jobs"].as_array().unwrap().len(), 1);
    // The lease returned before its wait was over.
    assert!(begun.elapsed() < Duration::from_secs(55), "{:?}", begun.elapsed());
    running.stop().await;
}

async fn late_settlements_are_refused(backend: Backend) {
    let running = Running::start(backend, "[worker_pool]\njob_timeout_ms = 100\nlease_margin_ms = 100\n[backpressure]\ndefault_backoff_ms = 10\nmax_backoff_ms = 10").await;
    running.enqueue("shop", "spring", "MAIL", 1).await;
    let first = lease(&running, 1).await;
    running
        .until("/v1/groups/shop/jobs/spring-0", |job| job["attempts"] == 1)
        .await;
    let second = lease(&running, 1).await;
    assert_eq!(second[0]["attempt"], 2);
    let late = settle(&running, &first, json!({ "outcome": "COMPLETED" })).await;
    assert_eq!(late["settled"][0], json!({ "state": "STALE" }));
    let names: Vec<&Value> = first.iter().map(|job| &job["lease"]).collect();
    let extended = running
        .did(
            "/v1/leases/extend",
            json!({ "leases": names, "durationMs": 1_000 }),
        )
        .await;
    assert_eq!(extended["extended"], json!([{}]));
    running.stop().await;
}

async fn enqueueing_is_idempotent_and_reports_refused_jobs(backend: Backend) {
    let running = Running::start(
        backend,
        "[limits]\nmax_payload_bytes = 100\nmax_enqueue_batch = 10",
    )
    .await;
    let jobs = json!({ "jobs": [
        { "id": "a", "type": "MAIL" },
        { "id": "a", "type": "MAIL" },
        { "id": "b", "type": "MAIL", "payload": "x".repeat(200) },
        { "id": "c", "type": "MAIL", "expiresAt": "2020-01-01T00:00:00Z" },
        { "id": "", "type": "MAIL" },
        { "id": "d", "type": "MAIL", "group": "other" },
    ]});
    let done = running.did("/v1/groups/shop/jobs", jobs).await;
    assert_eq!(
        (&done["accepted"], &done["duplicates"], &done["refused"]),
        (&json!(1), &json!(1), &json!(4))
    );
    let mut errors: Vec<(u64, &str)> = done["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (error["index"].as_u64().unwrap(), error["code"].as_str().unwrap()))
        .collect();
    errors.sort();
    assert_eq!(
        errors,
        [
            (2, "payload_too_large"),
            (3, "already_expired"),
            (4, "invalid"),
            (5, "invalid")
        ]
    );
    // A refused job prevents the seal, because the client may still send a corrected one.
    let odd = json!({ "jobs": [{ "id": "b", "type": "MAIL", "payload": "x".repeat(200) }, { "id": "e", "type": "MAIL" }] });
    let done = running
        .did("/v1/groups/shop/batches/spring/jobs?seal=true", odd)
        .await;
    assert_eq!(
        (&done["accepted"], done.get("sealed")),
        (&json!(1), None),
        "{done}"
    );
    assert_eq!(
        running.ok("/v1/groups/shop/batches/spring").await["sealed"],
        false
    );
    let rest = json!({ "jobs": [{ "id": "b", "type": "MAIL" }] });
    let done = running
        .did("/v1/groups/shop/batches/spring/jobs?seal=true", rest)
        .await;
    assert_eq!(done["sealed"], true, "{done}");
    let done = running
        .did(
            "/v1/groups/shop/batches/none/jobs?seal=true",
            json!({ "jobs": [] }),
        )
        .await;
    assert_eq!(done.get("sealed"), None, "{done}");
    let many: Vec<Value> = (0..11)
        .map(|n| json!({ "id": n.to_string(), "type": "MAIL" }))
        .collect();
    let (status, refused) = running
        .post("/v1/groups/shop/jobs", json!({ "jobs": many }))
        .await;
    assert_eq!((status, &refused["code"]), (413, &json!("too_large")));
    assert!(
        refused["detail"]
            .as_str()
            .unwrap()
            .contains("11 jobs in one call; at most 10"),
        "{refused}"
    );
    running.stop().await;
}

async fn a_stream_of_jobs_is_accepted_line_by_line(backend: Backend) {
    let running = Running::start(backend, "").await;
    let mut lines = String::new();
    for n in 0..2_500 {
        let group = n % 3;
        lines += &format!(
            "{{\"group\": \"g{group}\", \"batch\": \"bulk\", \"id\": \"{n}\", \"type\": \"MAIL\"}}\n"
        );
    }
    lines += "not a job\n\n";
    lines += "{\"id\": \"nowhere\", \"type\": \"MAIL\"}";
    let request = running
        .http
        .post(format!("{}/v1/jobs", running.url))
        .header("content-type", "application/x-ndjson")
        .body(lines);
    let (status, done) = support::answer(request).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(
        (&done["accepted"], &done["refused"]),
        (&json!(2_500), &json!(2)),
        "{done}"
    );
    assert_eq!(done["errors"][0]["index"], 2_500);
    assert_eq!(running.ok("/v1/groups/g1").await["counts"]["waiting"], 833);
    running.stop().await;
}

async fn progress_is_streamed(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("shop", "spring", "MAIL", 2).await;
    let mut stream = running
        .http
        .get(format!("{}/v1/groups/shop/batches/spring/events", running.url))
        .send()
        .await
        .unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let parsed = |text: &str| -> Vec<Value> {
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        // The last event may be incomplete.
        events
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect()
    };
    let (mut text, mut done) = (String::new(), 0);
    while let Some(piece) = stream.chunk().await.unwrap() {
        text += std::str::from_utf8(&piece).unwrap();
        // Complete the next job as soon as the stream has reported the previous one.
        let last = parsed(&text)
            .last()
            .map(|batch| batch["counts"]["success"].clone());
        if last == Some(done.into()) && done < 2 {
            let jobs = lease(&running, 1).await;
            settle(&running, &jobs, json!({ "outcome": "COMPLETED" })).await;
            done += 1;
        }
    }
    let seen = parsed(&text);
    assert!(seen.len() >= 3, "{text}");
    assert_eq!(seen.last().unwrap()["status"], "COMPLETED");
    assert!(seen.iter().any(|batch| batch["counts"]["success"] == 1), "{text}");
    running.stop().await;
}

async fn nothing_is_lost_by_a_restart(backend: Backend) {
    let mut running = Running::start(backend, "").await;
    running.enqueue("shop", "spring", "MAIL", 30).await;
    for _ in 0..3 {
        let jobs = lease(&running, 10).await;
        settle(&running, &jobs[..5], json!({ "outcome": "COMPLETED" })).await;
        settle(&running, &jobs[5..], json!({ "outcome": "RELEASED" })).await;
        running = running.restart().await;
    }
    let group = running.ok("/v1/groups/shop").await;
    assert_eq!(
        (&group["counts"]["waiting"], &group["counts"]["completed"]),
        (&json!(15), &json!(15))
    );
    running.stop().await;
}
