//! A service on its own port with its own keys, which ends with the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_server::config::{Config, KeyConfig, Role};
use tidegate_server::{Service, fresh_key};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub(crate) struct World {
    pub(crate) service: Service,
    pub(crate) folder: TempDir,
    pub(crate) client: Client,
    pub(crate) keys: BTreeMap<&'static str, String>,
}

/// Everything that the crates of this workspace have logged in this process.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log() -> &'static Logged {
    static LOG: OnceLock<Logged> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Logged::default();
        let writer = log.clone();
        let filter = "tidegate_server=trace,tidegate_engine=trace,tidegate_store=trace,audit=trace";
        let filter: Targets = filter.parse().unwrap();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        tracing_subscriber::registry().with(filter).with(lines).init();
        // The client uses the installed provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        log
    })
}

pub(crate) fn logged() -> String {
    String::from_utf8(log().0.lock().unwrap().clone()).unwrap()
}

/// Names, roles and groups of the keys of [`World::with_keys`].
const KEYS: &[(&str, &[Role], &[&str])] = &[
    ("reader", &[Role::Read], &[]),
    ("submitter", &[Role::Submit], &[]),
    ("worker", &[Role::Work], &[]),
    ("ops", &[Role::Admin], &[]),
    ("shop", &[Role::Read, Role::Submit, Role::Admin], &["shop-*"]),
];

impl World {
    /// Starts a service without keys.
    pub(crate) async fn open(settings: &str) -> Self {
        Self::start(settings, &[]).await
    }

    pub(crate) async fn with_keys(settings: &str) -> Self {
        Self::start(settings, KEYS).await
    }

    async fn start(settings: &str, keys: &[(&'static str, &[Role], &[&str])]) -> Self {
        log();
        let folder = tempfile::tempdir().unwrap();
        let settings = settings.replace("FOLDER", folder.path().to_str().unwrap());
        let mut config: Config = toml::from_str(&settings).unwrap();
        config.server.listen.set_port(0);
        config.store.data = folder.path().join("data");
        let mut secrets = BTreeMap::new();
        for (name, roles, groups) in keys {
            let fresh = fresh_key().unwrap();
            secrets.insert(*name, fresh.key);
            config.keys.push(KeyConfig {
                name: (*name).into(),
                hash: fresh.hash,
                roles: roles.to_vec(),
                groups: groups.iter().map(|group| (*group).into()).collect(),
            });
        }
        let client = Client::builder()
            .timeout(Duration::from_secs(30))
            .build()
            .unwrap();
        let service = Service::start(config).await.unwrap();
        Self {
            service,
            folder,
            client,
            keys: secrets,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.service.url())
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.client
            .request(Method::from_bytes(method.as_bytes()).unwrap(), self.url(path))
    }

    /// A request with the key of this name.
    pub(crate) fn by(&self, name: &str, method: &str, path: &str) -> RequestBuilder {
        self.request(method, path).bearer_auth(&self.keys[name])
    }

    pub(crate) fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("data/audit.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Submits a job of a group, so that the group exists.
    pub(crate) async fn submit(&self, by: &str, group: &str) -> StatusCode {
        let job = serde_json::json!({"jobs": [{"id": "1", "type": "MAIL"}]});
        let path = format!("/v1/groups/{group}/jobs");
        self.by(by, "POST", &path)
            .json(&job)
            .send()
            .await
            .unwrap()
            .status()
    }

    pub(crate) async fn end(self) {
        self.service.shutdown().await.unwrap();
    }
}

/// Sends a request whose response must be a problem of this status and code; returns its detail.
pub(crate) async fn problem(request: RequestBuilder, status: u16, code: &str) -> String {
    let response = request.send().await.unwrap();
    is_problem(response, status, code).await
}

pub(crate) async fn is_problem(response: Response, status: u16, code: &str) -> String {
    let given = response.status().as_u16();
    let kind = response.headers().get("content-type").cloned();
    let text = response.text().await.unwrap();
    assert_eq!(given, status, "{text}");
    assert_eq!(kind.unwrap(), "application/problem+json", "{text}");
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(problem["code"], code, "{text}");
    assert_eq!(problem["status"], status, "{text}");
    assert!(problem["requestId"].is_string(), "{text}");
    problem["detail"].as_str().unwrap().to_owned()
}

pub(crate) async fn ok(request: RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}
