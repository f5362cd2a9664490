//! The service is stopped, killed and restarted under load: every accepted job completes, and counts once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use served::{Served, free_port, until};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use crate::support::served;

/// Restarts, and jobs sent in one call.
const ROUNDS: usize = 4;
const PER_CALL: u64 = 50;
/// Jobs accepted before each restart, at least.
const PER_ROUND: usize = 150;

#[derive(Default)]
struct Load {
    end: AtomicBool,
    sent: AtomicU64,
    accepted: Mutex<HashSet<String>>,
    runs: AtomicU64,
}

impl Load {
    fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }
}

/// Submits jobs while the load lasts, and retries calls that were refused or not answered.
async fn submit(load: Arc<Load>, url: String, group: &'static str) {
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .unwrap();
    while !load.ended() {
        let first = load.sent.fetch_add(PER_CALL, Ordering::Relaxed);
        let ids: Vec<String> = (first..first + PER_CALL)
            .map(|n| format!("{group}-{n}"))
            .collect();
        let jobs: Vec<Value> = ids
            .iter()
            .map(|id| json!({ "id": id, "type": "MAIL", "payload": { "id": id } }))
            .collect();
        let body = json!({ "jobs": jobs });
        loop {
            let sent = http
                .post(format!("{url}/v1/groups/{group}/batches/load/jobs"))
                .json(&body)
                .send()
                .await;
            if let Ok(answer) = sent
                && answer.status() == 200
                && let Ok(answer) = answer.json::<Value>().await
            {
                assert_eq!(answer["refused"], 0, "{answer}");
                load.accepted.lock().unwrap().extend(ids);
                break;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Leases and settles until it is stopped. It does not retry a settlement that was not answered.
async fn work(load: Arc<Load>, url: String, stop: Arc<AtomicBool>) {
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .unwrap();
    while !stop.load(Ordering::Relaxed) {
        let sent = http
            .post(format!("{url}/v1/leases"))
            .json(&json!({ "max": 100, "waitMs": 500 }))
            .send()
            .await;
        let Ok(answer) = sent else {
            tokio::time::sleep(Duration::from_millis(30)).await;
            continue;
        };
        if answer.status() != 200 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            continue;
        }
        let leased: Value = answer.json().await.unwrap_or_default();
        let answers: Vec<Value> = leased["jobs"]
            .as_array()
            .map(|jobs| {
                jobs.iter()
                    .map(|job| json!({ "lease": job["lease"], "outcome": "COMPLETED" }))
                    .collect()
            })
            .unwrap_or_default();
        load.runs.fetch_add(answers.len() as u64, Ordering::Relaxed);
        if !answers.is_empty() {
            let _ = http
                .post(format!("{url}/v1/leases/settle"))
                .json(&json!({ "settlements": answers }))
                .send()
                .await;
        }
    }
}

async fn nothing_is_lost(settings: &str) {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let settings = format!(
        "{settings}\n[worker_pool]\njob_timeout_ms = 1000\nlease_margin_ms = 500\nmax_retry_count = 50\n[backpressure]\ndefault_backoff_ms = 50\nmax_backoff_ms = 50"
    );
    let mut service = Served::start(folder.path(), port, &settings).await;
    let (load, stop) = (Arc::new(Load::default()), Arc::new(AtomicBool::new(false)));
    let url = service.url.clone();
    let submitters: Vec<_> = ["a", "b"]
        .map(|group| tokio::spawn(submit(load.clone(), url.clone(), group)))
        .into_iter()
        .collect();
    let workers: Vec<_> = (0..2)
        .map(|_| tokio::spawn(work(load.clone(), url.clone(), stop.clone())))
        .collect();
    for round in 0..ROUNDS {
        tokio::time::sleep(Duration::from_millis(700)).await;
        // However slow the machine is, every restart hits a load.
        until("more jobs", || {
            let accepted = load.accepted.lock().unwrap().len();
            std::future::ready(accepted > PER_ROUND * (round + 1))
        })
        .await;
        // Every other time without a graceful stop.
        if round % 2 == 0 {
            service.stop().await;
        } else {
            service.kill().await;
        }
        service = Served::start(folder.path(), port, &settings).await;
    }
    load.end.store(true, Ordering::Relaxed);
    for submitter in submitters {
        submitter.await.unwrap();
    }
    let accepted = load.accepted.lock().unwrap().clone();
    for group in ["a", "b"] {
        let seal = format!("{url}/v1/groups/{group}/batches/load/seal");
        assert_eq!(service.http.post(seal).send().await.unwrap().status(), 200);
        let path = format!("/v1/groups/{group}/batches/load");
        until("the end of the batch", || async {
            service.get(&path).await["status"] == "COMPLETED"
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    let mut counted = 0;
    for group in ["a", "b"] {
        let counts = service.get(&format!("/v1/groups/{group}/batches/load")).await["counts"].clone();
        assert_eq!(counts["failed"], 0, "{counts}");
        assert_eq!(counts["success"], counts["total"], "{counts}");
        counted += counts["success"].as_u64().unwrap();
    }
    // The service may accept a job whose answer the client never sees. It must not lose one that it has answered.
    assert!(
        counted >= accepted.len() as u64,
        "{counted} of {}",
        accepted.len()
    );
    println!(
        "{} jobs accepted, {counted} done, {} runs, {ROUNDS} restarts",
        accepted.len(),
        load.runs.load(Ordering::Relaxed)
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_the_embedded_store() {
    nothing_is_lost("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_redis() {
    let redis = RedisServer::start(RedisOptions::durable()).unwrap();
    nothing_is_lost(&format!("[redis]\nurls = [\"{}\"]", redis.url())).await;
}
