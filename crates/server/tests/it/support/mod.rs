//! Shared by the end-to-end tests: a service on a free port over either store, a client, and a receiver that plays the target.

pub(crate) mod refresh;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_server::Service;
use tidegate_server::config::Config;
use tidegate_testkit::servers::RedisServer;

/// The longest wait for an expected condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The store of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Embedded,
    Redis,
}

pub(crate) struct Running {
    pub service: Service,
    pub url: String,
    pub http: reqwest::Client,
    pub config: Config,
    pub folder: TempDir,
}

/// A configuration over the store, with the settings of `text`.
pub(crate) fn config(backend: Backend, folder: &TempDir, text: &str) -> Config {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let mut config: Config = toml::from_str(text).unwrap();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.store.data = folder.path().join("data");
    if backend == Backend::Redis {
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        config.store.kind = tidegate_server::config::StoreKind::Redis;
        config.redis.urls = vec![RedisServer::shared().url().into()];
        config.redis.key_prefix = format!("service-{}-{store}:", std::process::id());
    }
    config
}

impl Running {
    pub(crate) async fn start(backend: Backend, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = config(backend, &folder, text);
        Self::with(config, folder).await
    }

    pub(crate) async fn with(config: Config, folder: TempDir) -> Self {
        let service = Service::start(config.clone()).await.unwrap();
        Self {
            url: service.url(),
            service,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            config,
            folder,
        }
    }

    /// Stops the service, and starts it again on the same store.
    pub(crate) async fn restart(self) -> Self {
        let Self {
            service,
            config,
            folder,
            ..
        } = self;
        service.shutdown().await.unwrap();
        Self::with(config, folder).await
    }

    pub(crate) async fn stop(self) {
        self.service.shutdown().await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.http.get(format!("{}{path}", self.url))).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        answer(self.http.post(format!("{}{path}", self.url)).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        answer(self.http.put(format!("{}{path}", self.url)).json(&body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> (u16, Value) {
        answer(self.http.patch(format!("{}{path}", self.url)).json(&body)).await
    }

    /// Returns the body of a response that must have status 200.
    pub(crate) async fn ok(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(crate) async fn did(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.post(path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {body}");
        body
    }

    /// Accepts `count` jobs of a type.
    pub(crate) async fn enqueue(&self, group: &str, batch: &str, kind: &str, count: u64) {
        let jobs: Vec<Value> = (0..count)
            .map(|n| serde_json::json!({ "id": format!("{batch}-{n}"), "type": kind, "payload": { "n": n } }))
            .collect();
        let path = format!("/v1/groups/{group}/batches/{batch}/jobs?seal=true");
        let done = self.did(&path, serde_json::json!({ "jobs": jobs })).await;
        assert_eq!(done["accepted"], count, "{done}");
    }

    /// Polls until the response is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = tokio::time::Instant::now();
        loop {
            let (_, body) = self.get(path).await;
            if wanted(&body) {
                return body;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} is still {body}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Leases jobs of the queue `default`, and waits for them.
pub(crate) async fn lease(running: &Running, max: u64) -> Vec<Value> {
    let leased = running
        .did("/v1/leases", serde_json::json!({ "max": max, "waitMs": 60_000 }))
        .await;
    leased["jobs"].as_array().unwrap().clone()
}

/// Settles all jobs with the same outcome.
pub(crate) async fn settle(running: &Running, jobs: &[Value], outcome: Value) -> Value {
    let settlements: Vec<Value> = jobs
        .iter()
        .map(|job| {
            let mut settlement = outcome.clone();
            settlement["lease"] = job["lease"].clone();
            settlement
        })
        .collect();
    running
        .did(
            "/v1/leases/settle",
            serde_json::json!({ "settlements": settlements }),
        )
        .await
}

/// One call that the receiver got.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// One response of the receiver.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    pub after: Duration,
    /// The receiver responds once this many calls have run concurrently.
    pub at_once: u32,
}

impl Script {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
            after: Duration::ZERO,
            at_once: 0,
        }
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn after(mut self, pause: Duration) -> Self {
        self.after = pause;
        self
    }

    pub(crate) fn at_once(mut self, calls: u32) -> Self {
        self.at_once = calls;
        self
    }
}

#[derive(Default)]
struct Stage {
    received: Vec<Received>,
    script: VecDeque<Script>,
    now: u32,
    most_at_once: u32,
}

/// Plays a target: responds by its script, then with 200.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub url: String,
    stage: Arc<Mutex<Stage>>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let stage = Arc::new(Mutex::new(Stage::default()));
        let router = Router::new().fallback(receive).with_state(stage.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, stage }
    }

    pub(crate) fn then(&self, script: Script) -> &Self {
        self.stage.lock().unwrap().script.push_back(script);
        self
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.stage.lock().unwrap().received.clone()
    }

    pub(crate) fn most_at_once(&self) -> u32 {
        self.stage.lock().unwrap().most_at_once
    }

    pub(crate) async fn until_received(&self, count: usize) -> Vec<Received> {
        let begun = tokio::time::Instant::now();
        loop {
            let received = self.received();
            if received.len() >= count {
                return received;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "received only {} of {count} calls",
                received.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn receive(State(stage): State<Arc<Mutex<Stage>>>, headers: HeaderMap, body: Bytes) -> Response {
    let script = {
        let mut stage = stage.lock().unwrap();
        stage.received.push(Received { headers, body });
        stage.now += 1;
        stage.most_at_once = stage.most_at_once.max(stage.now);
        stage.script.pop_front().unwrap_or_else(|| Script::status(200))
    };
    while stage.lock().unwrap().most_at_once < script.at_once {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(script.after).await;
    stage.lock().unwrap().now -= 1;
    let mut response = (StatusCode::from_u16(script.status).unwrap(), script.body).into_response();
    for (name, value) in script.headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

/// Generates a test per store.
macro_rules! on_both_stores {
    ($($(#[$doc:meta])* $name:ident)+) => {
        mod embedded {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::support::Backend::Embedded).await })+
        }
        mod redis {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::support::Backend::Redis).await })+
        }
    };
}
