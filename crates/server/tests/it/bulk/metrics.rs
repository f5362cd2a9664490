//! Metrics through the port, as Prometheus scrapes them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_server::Service;
use tidegate_server::config::Config;

const DEADLINE: Duration = Duration::from_secs(60);

struct Running {
    service: Service,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl Running {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.server.listen.set_port(0);
        config.store.data = folder.path().join("data");
        // Fails if a provider is installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            service: Service::start(config).await.unwrap(),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            _folder: folder,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.service.url()));
        let response = request.json(body).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }

    async fn metrics(&self) -> String {
        let request = self.client.get(format!("{}/metrics", self.service.url()));
        let response = request.send().await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(
            kind.starts_with("application/openmetrics-text; version=1.0.0"),
            "{kind}"
        );
        response.text().await.unwrap()
    }

    /// Waits until a scrape has these lines. Gauges follow within seconds.
    async fn shows(&self, wanted: &[&str]) {
        let begun = Instant::now();
        loop {
            let text = self.metrics().await;
            let missing: Vec<&&str> = wanted
                .iter()
                .filter(|line| !text.lines().any(|scraped| scraped == **line))
                .collect();
            if missing.is_empty() {
                assert!(text.ends_with("# EOF\n"));
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "{missing:?} are not in\n{text}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_counted() {
    let running = Running::start().await;
    let jobs: Vec<Value> = (0..5)
        .map(|n| json!({"id": format!("job-{n}"), "type": "mail", "payload": {}}))
        .collect();
    running
        .post("/v1/groups/customer-a/jobs", &json!({ "jobs": jobs }))
        .await;
    let leased = running
        .post("/v1/leases", &json!({"max": 2, "waitMs": 5_000}))
        .await;
    let leases = leased["jobs"].as_array().unwrap();
    assert_eq!(leases.len(), 2);
    let settlement = json!({"lease": leases[0]["lease"], "outcome": "COMPLETED"});
    running
        .post("/v1/leases/settle", &json!({ "settlements": [settlement] }))
        .await;
    let nowhere = format!("{}/v1/nowhere/secret", running.service.url());
    running.client.get(nowhere).send().await.unwrap();
    running
        .shows(&[
            "tidegate_bulk_enqueued_jobs_total 5.0",
            "tidegate_bulk_leased_jobs_total 2.0",
            "tidegate_bulk_rate_limit_allowed_total{group=\"customer-a\"} 2.0",
            "tidegate_bulk_group_waiting_jobs{group=\"customer-a\"} 3.0",
            "tidegate_bulk_settled_jobs_total{outcome=\"completed\"} 1.0",
            "tidegate_bulk_jobs{state=\"running\"} 1.0",
            "tidegate_bulk_jobs{state=\"waiting\"} 3.0",
            "tidegate_store_available 1.0",
            "tidegate_http_requests_total{method=\"POST\",route=\"/v1/groups/{group}/jobs\",status=\"200\"} 1",
            "tidegate_http_requests_total{method=\"GET\",route=\"none\",status=\"404\"} 1",
        ])
        .await;
    assert!(
        !running.metrics().await.contains("secret"),
        "no label contains text of a client"
    );
    running.service.shutdown().await.unwrap();
}
