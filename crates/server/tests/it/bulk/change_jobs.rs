//! One job with its runs, listings, commands on one and on many, and the backlog of a queue, over both stores.

use serde_json::{Value, json};
use support::{Backend, Running, lease, settle};

use crate::support;

on_both_stores! {
    a_job_shows_its_runs_and_its_progress
    one_job_is_changed
    jobs_are_listed_and_changed_by_filter
    finished_jobs_are_deleted_by_age
    a_queue_shows_its_backlog
}

fn ids(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|job| job["id"].as_str().unwrap()).collect()
}

async fn a_job_shows_its_runs_and_its_progress(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("a", "spring", "MAIL", 1).await;
    let path = "/v1/groups/a/jobs/spring-0";
    let job = running.ok(path).await;
    assert!(job["createdAt"].is_string() && job["history"].is_null(), "{job}");
    let leased = lease(&running, 1).await;
    let name = leased[0]["lease"].as_str().unwrap();
    let report = json!({
        "leases": [name], "durationMs": 30_000, "progress": { name: { "percent": 40, "text": "page 4 of 10" } }
    });
    running.did("/v1/leases/extend", report).await;
    let job = running.ok(path).await;
    assert_eq!(job["progress"], json!({ "percent": 40, "text": "page 4 of 10" }));
    assert!(job["worker"].is_string() && job["startedAt"].is_string(), "{job}");
    let stranger = json!({ "leases": [name], "durationMs": 30_000, "progress": { "1.1": { "percent": 1 } } });
    let (status, refused) = running.post("/v1/leases/extend", stranger).await;
    assert_eq!(status, 422, "{refused}");
    let outcome = json!({ "outcome": "RETRY", "error": "Connection reset", "retryAfterMs": 3_600_000 });
    settle(&running, &leased, outcome).await;
    let job = running.ok(path).await;
    let run = &job["history"][0];
    assert_eq!(
        (&run["number"], &run["outcome"], &run["error"]),
        (&json!(1), &json!("RETRY"), &json!("Connection reset"))
    );
    assert!(job["progress"].is_null() && job["worker"].is_null(), "{job}");
    running.did(&format!("{path}/run-now"), json!({})).await;
    let leased = lease(&running, 1).await;
    settle(&running, &leased, json!({ "outcome": "COMPLETED" })).await;
    let job = running.ok(path).await;
    assert_eq!(job["history"][1]["outcome"], "COMPLETED");
    assert_eq!(job["startedAt"], job["history"][1]["startedAt"]);
    running.stop().await;
}

async fn one_job_is_changed(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("a", "spring", "MAIL", 3).await;
    let path = |job: u32, command: &str| format!("/v1/groups/a/jobs/spring-{job}/{command}");
    let later = json!({ "runAt": "2199-01-01T00:00:00Z", "why": "not today" });
    let job = running.did(&path(0, "reschedule"), later).await;
    assert_eq!(
        (&job["state"], &job["delayReason"]),
        (&json!("DELAYED"), &json!("SCHEDULED"))
    );
    let job = running
        .did(&path(1, "reprioritise"), json!({ "priority": "HIGH" }))
        .await;
    assert_eq!(job["priority"], "HIGH");
    let job = running
        .did(&path(2, "cancel"), json!({ "why": "sent twice" }))
        .await;
    assert_eq!(
        (&job["state"], &job["deathReason"]),
        (&json!("DEAD"), &json!("CANCELLED"))
    );
    let (status, refused) = running.post(&path(2, "run-now"), json!({})).await;
    assert_eq!((status, &refused["code"]), (409, &json!("wrong_state")));
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("DEAD") && detail.contains("replay or purge"),
        "{detail}"
    );
    let job = running.did(&path(0, "run-now"), json!({})).await;
    assert_eq!(job["state"], "WAITING");
    let leased = lease(&running, 1).await;
    assert_eq!(leased[0]["id"], "spring-1");
    let job = running.did(&path(1, "cancel"), json!({})).await;
    assert_eq!(
        (&job["state"], &job["cancelled"]),
        (&json!("RUNNING"), &json!(true))
    );
    settle(&running, &leased, json!({ "outcome": "RETRY", "error": "later" })).await;
    assert_eq!(
        running.ok("/v1/groups/a/jobs/spring-1").await["deathReason"],
        "CANCELLED"
    );
    let audit = running.ok("/v1/audit").await;
    let whats: Vec<&str> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    for what in ["job.cancel", "job.run_now", "job.reschedule", "job.reprioritise"] {
        assert!(whats.contains(&what), "{whats:?}");
    }
    running.stop().await;
}

async fn jobs_are_listed_and_changed_by_filter(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("a", "spring", "MAIL", 4).await;
    running.enqueue("b", "spring", "REPORT", 2).await;
    let page = running.ok("/v1/jobs?group=a&limit=3").await;
    assert_eq!(ids(&page), ["spring-0", "spring-1", "spring-2"]);
    let next = page["next"].as_str().unwrap();
    let page = running.ok(&format!("/v1/jobs?group=a&cursor={next}")).await;
    assert_eq!((ids(&page), page["next"].is_null()), (vec!["spring-3"], true));
    assert_eq!(ids(&running.ok("/v1/jobs?type=REPORT").await).len(), 2);
    assert_eq!(ids(&running.ok("/v1/jobs?state=WAITING").await).len(), 6);
    assert_eq!(
        ids(&running.ok("/v1/jobs?createdBefore=2020-01-01T00:00:00Z").await).len(),
        0
    );
    assert_eq!(running.get("/v1/jobs?batch=spring").await.0, 422);

    let select = json!({ "select": { "group": "a" }, "runAt": "2199-01-01T00:00:00Z" });
    let done = running.did("/v1/jobs/reschedule", select).await;
    assert_eq!(done, json!({ "handled": 4, "skipped": 0 }));
    let done = running
        .did("/v1/jobs/run-now", json!({ "all": true, "why": "a wrong date" }))
        .await;
    assert_eq!(
        done,
        json!({ "handled": 4, "skipped": 0 }),
        "the others were not delayed"
    );
    let select = json!({ "select": { "type": "REPORT" }, "priority": "LOW" });
    assert_eq!(running.did("/v1/jobs/reprioritise", select).await["handled"], 2);
    assert_eq!(
        running.ok("/v1/jobs?group=b").await["items"][0]["priority"],
        "LOW"
    );
    let named = json!({ "jobs": [{ "group": "a", "id": "spring-0" }, { "group": "b", "id": "nobody" }] });
    let done = running.did("/v1/jobs/cancel", named).await;
    assert_eq!((&done["handled"], &done["skipped"]), (&json!(1), &json!(1)));
    assert_eq!(done["errors"][0]["code"], "unknown_job");
    assert_eq!(done["errors"][0]["item"], json!({ "group": "b", "id": "nobody" }));
    let done = running
        .did("/v1/jobs/cancel", json!({ "group": "a", "batch": "spring" }))
        .await;
    assert_eq!(done, json!({ "handled": 3, "skipped": 0 }));
    let (status, refused) = running.post("/v1/jobs/cancel", json!({})).await;
    assert_eq!(status, 422, "{refused}");
    running.stop().await;
}

async fn finished_jobs_are_deleted_by_age(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("a", "spring", "MAIL", 3).await;
    let leased = lease(&running, 2).await;
    settle(&running, &leased, json!({ "outcome": "COMPLETED" })).await;
    let kept = running
        .did("/v1/jobs/drop-finished", json!({ "olderThanSec": 3_600 }))
        .await;
    assert_eq!((&kept["jobs"], &kept["more"]), (&json!(0), &json!(false)));
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let dropped = running
        .did("/v1/jobs/drop-finished", json!({ "olderThanSec": 0 }))
        .await;
    assert_eq!(dropped["jobs"], 2);
    assert_eq!(ids(&running.ok("/v1/jobs").await), ["spring-2"]);
    running.stop().await;
}

async fn a_queue_shows_its_backlog(backend: Backend) {
    let running = Running::start(backend, "").await;
    running.enqueue("a", "spring", "MAIL", 5).await;
    let later = json!({ "runAt": "2199-01-01T00:00:00Z" });
    running.did("/v1/groups/a/jobs/spring-4/reschedule", later).await;
    lease(&running, 1).await;
    let stats = running
        .until("/v1/stats", |stats| stats["queues"][0]["running"] == 1)
        .await;
    let queue = &stats["queues"][0];
    assert_eq!(
        (&queue["waiting"], &queue["delayed"], &queue["running"]),
        (&json!(3), &json!(1), &json!(1)),
        "{stats}"
    );
    assert!(queue["oldestWaitingSince"].is_string(), "{stats}");
    running.stop().await;
}
