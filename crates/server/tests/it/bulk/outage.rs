//! A service whose Redis is taken away answers reads, refuses writes, and recovers by itself.

use crate::support;

use serde_json::json;
use support::{Backend, Running, config};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_go_on_writes_are_refused_and_all_is_well_again() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(Backend::Redis, &folder, "");
    settings.redis.urls = vec![redis.url().into()];
    let running = Running::with(settings, folder).await;
    running.enqueue("shop", "spring", "MAIL", 5).await;
    let before = running.ok("/v1/groups/shop").await;
    let stats = running.ok("/v1/stats").await;
    assert_eq!(stats["counts"]["waiting"], 5);

    redis.kill().unwrap();
    let stats = running
        .until("/v1/stats", |stats| stats["store"]["available"] == false)
        .await;
    assert_eq!(stats["counts"]["waiting"], 5, "as it was last seen");
    // Health is about the process, readiness about the store.
    assert_eq!(running.get("/healthz").await.0, 200);
    assert_eq!(running.get("/readyz").await.0, 503);
    let response = running
        .http
        .get(format!("{}/v1/groups/shop", running.url))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["tidegate-stale"], "true");
    assert_eq!(response.json::<serde_json::Value>().await.unwrap(), before);
    // What was never read cannot be told, and nothing is written; both are said at once, without asking the store.
    let at_once = "the store cannot be reached; repeating the request later is safe";
    let (status, refused) = running.get("/v1/groups/other").await;
    assert_eq!((status, &refused["detail"]), (503, &json!(at_once)));
    let response = running
        .http
        .post(format!("{}/v1/groups/shop/jobs", running.url))
        .json(&json!({ "jobs": [{ "id": "later", "type": "MAIL" }] }))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let refused: serde_json::Value = response.json().await.unwrap();
    assert_eq!(refused["code"], "store_unavailable", "{refused}");
    assert_eq!(refused["detail"], at_once);

    redis.restart().unwrap();
    running.until("/readyz", |body| body == "ok\n").await;
    running
        .did(
            "/v1/groups/shop/jobs",
            json!({ "jobs": [{ "id": "later", "type": "MAIL" }] }),
        )
        .await;
    let group = running.ok("/v1/groups/shop").await;
    assert_eq!(group["counts"]["waiting"], 6);
    running.stop().await;
}
