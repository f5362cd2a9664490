//! While Redis is unavailable, the service answers reads and refuses writes; then it recovers by itself.

use serde_json::json;
use support::{Backend, Running, config};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use crate::support;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_an_outage_reads_continue_and_writes_are_refused_until_it_ends() {
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
    assert_eq!(stats["counts"]["waiting"], 5, "the last known state");
    // Health concerns the process, readiness the store.
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
    // The service refuses reads without a cached response, and all writes, at once and without calling the store.
    let detail = "the store cannot be reached; repeating the request later is safe";
    let (status, refused) = running.get("/v1/groups/other").await;
    assert_eq!((status, &refused["detail"]), (503, &json!(detail)));
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
    assert_eq!(refused["detail"], detail);

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
