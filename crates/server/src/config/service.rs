//! The sections of the service itself: port, store, targets, callbacks, keys, logs.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};
use tidegate_api::Role;
use tidegate_core::ids::{JobType, TargetId};
use tidegate_core::limits::quota::{Limit, Quota};
use tidegate_core::secret::{Secret, ServerUrl};
use tidegate_core::time::Millis;
use tidegate_durable::Durability;

/// The port of the service and its limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port. Anything but loopback needs keys, or `open = true`.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Allows listening beyond loopback without keys: everybody who reaches the port may do everything.
    pub open: bool,
    /// Host names that browsers may use for this service, besides loopback and the address it listens on.
    pub hosts: Vec<String>,
    /// The certificate; with one the service serves HTTPS.
    pub tls: Option<TlsConfig>,
    /// Largest body of a request other than an NDJSON stream, in bytes (16 MiB).
    pub max_body_bytes: u64,
    /// Largest body of one NDJSON stream, in bytes (64 GiB).
    pub max_stream_bytes: u64,
    /// Longest time for one request, in milliseconds; streams and long polls have their own.
    pub request_timeout_ms: Millis,
    /// Longest pause of a client within a body that it sends or receives, in milliseconds.
    pub body_pause_ms: Millis,
    /// How long a client may acknowledge nothing before its connection ends, in milliseconds. `body_pause_ms` counts if it is
    /// longer. The default is twice the heartbeat of visitors' streams, so that one lost packet ends no stream.
    pub unacknowledged_ms: Millis,
    /// Longest time for the head of a request, in milliseconds.
    pub header_timeout_ms: Millis,
    /// Longest wait of a lease call, in milliseconds. The service answers a call that waits longer after this time.
    pub max_wait_ms: Millis,
    /// Most concurrent connections. Further ones wait.
    pub max_connections: u32,
    /// Most concurrent event streams (progress, dashboard).
    pub max_event_streams: u32,
    /// How long a session of the dashboard lasts, in milliseconds (12 hours).
    pub session_ms: Millis,
    /// How long a shutdown waits for open requests, in milliseconds.
    pub shutdown_grace_period_ms: Millis,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7171)),
            open: false,
            hosts: Vec::new(),
            tls: None,
            max_body_bytes: 16 * 1024 * 1024,
            max_stream_bytes: 64 * 1024 * 1024 * 1024,
            request_timeout_ms: Millis(30_000),
            body_pause_ms: Millis(30_000),
            unacknowledged_ms: Millis(30_000),
            header_timeout_ms: Millis(10_000),
            max_wait_ms: Millis(60_000),
            max_connections: 10_000,
            max_event_streams: 1_000,
            session_ms: Millis(43_200_000),
            shutdown_grace_period_ms: Millis(10_000),
        }
    }
}

/// A certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate with its chain.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The store of jobs, refresh state and rooms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `embedded` (a data folder, one process) or `redis` (any number of processes).
    pub kind: StoreKind,
    /// The data folder. The service creates it if it is missing.
    pub data: PathBuf,
    /// `sync` (a response means that the data is on disk) or `buffered` (a crash may lose the last writes).
    pub durability: Durability,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            kind: StoreKind::default(),
            data: PathBuf::from("tidegate-data"),
            durability: Durability::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    #[default]
    Embedded,
    Redis,
}

/// The Redis server or Cluster, with `store.kind = "redis"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://user:password@host:port/number` or `rediss://…`, several for a Cluster. They replace the fields below.
    pub urls: Vec<ServerUrl>,
    pub host: String,
    pub port: u16,
    pub password: Option<Secret>,
    /// Number of the database.
    pub db: u32,
    /// The prefix of every key.
    pub key_prefix: String,
    /// The number of shards of the groups, fixed when the store is created.
    pub shards: u32,
    /// What to do if the settings of the store differ from these: `false` refuses to start and names them, `true` uses those
    /// of the store. `tidegate config apply` changes them for all processes.
    pub follow_settings: bool,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            host: "localhost".into(),
            port: 6379,
            password: None,
            db: 0,
            key_prefix: "bulk-action:".into(),
            shards: 1,
            follow_settings: false,
        }
    }
}

/// A push target: a service that runs some job types, and that Tidegate calls for each job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// The URL that the service sends jobs to by POST.
    pub url: String,
    /// The job types that the target runs. Their queue has the target's name.
    pub types: Vec<JobType>,
    /// The secret that signs every call by Standard Webhooks: `whsec_` and base64 of 24 to 64 bytes.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// Most concurrent calls.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Starts, such as "30/min"; the global rate if absent.
    #[serde(default)]
    pub rate: Option<Quota>,
    /// Calls that run at once, over all processes; no limit if absent.
    #[serde(default)]
    pub max_running: Option<u32>,
    /// The limit of every group in the target's queue, unless the group has one of its own there.
    #[serde(default, skip_serializing_if = "Limit::is_none")]
    pub per_group: Limit,
    /// Longest time for one call, in milliseconds; `worker_pool.job_timeout_ms` if absent.
    #[serde(default)]
    pub timeout_ms: Option<Millis>,
    /// Whose calls were too many when the target answers 429 or 503: those of the whole queue, or those of the job's
    /// group. A response may say otherwise in its header `tidegate-throttle-scope`.
    #[serde(default)]
    pub throttle_scope: ThrottleScopeConfig,
    /// Headers of every call.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// The budget that every call needs a token of. Refreshes of the same provider share it.
    #[serde(default)]
    pub budget: Option<TargetId>,
}

/// Whose calls a target finds too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleScopeConfig {
    #[default]
    Queue,
    Group,
}

fn default_concurrency() -> u32 {
    10
}

/// A callback: a URL that the service calls when a batch ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackConfig {
    /// Where the service sends POST requests.
    pub url: String,
    /// The secret that signs every call by Standard Webhooks.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// Longest time for one call, in milliseconds.
    #[serde(default = "default_callback_timeout")]
    pub timeout_ms: Millis,
    /// How long the service retries, in milliseconds (3 days).
    #[serde(default = "default_give_up_after")]
    pub give_up_after_ms: Millis,
    /// Headers of every call.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
}

fn default_callback_timeout() -> Millis {
    Millis(15_000)
}

fn default_give_up_after() -> Millis {
    Millis(3 * 86_400_000)
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The name of the key's owner, for the audit log.
    pub name: String,
    /// `sha256:` and the digest of the key in hex; `tidegate key` generates both.
    pub hash: String,
    #[serde(with = "super::roles")]
    pub roles: Vec<Role>,
    /// The groups that the key has access to; all if empty. A `*` at the end matches any suffix.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// A file of JSON lines; `audit.jsonl` in the data folder if absent.
    pub file: Option<PathBuf>,
}

/// What `/metrics` exposes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// How many groups get labels of their own, the busiest first. All others share `other`.
    pub max_groups: u32,
    /// Exposes metrics under the names of the original design documents as well.
    pub original_names: bool,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            max_groups: 50,
            original_names: false,
        }
    }
}

/// The log of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `text` or `json`.
    pub format: LogFormat,
    /// A filter like `info` or `tidegate_server=debug,info`. The variable TIDEGATE_LOG overrides it.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::default(),
            // The storage engine logs every file that it writes.
            filter: "info,fjall=warn,lsm_tree=warn".into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The export of traces.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracingConfig {
    /// The URL of an OTLP collector, like `http://127.0.0.1:4318`; the service exports nothing if absent. Needs a build with
    /// the feature `otlp`.
    pub otlp_endpoint: Option<String>,
}

impl RedisConfig {
    /// The URLs. Without any, one of host, port, password and database number.
    pub fn urls(&self) -> Vec<String> {
        if !self.urls.is_empty() {
            return self.urls.iter().map(|url| url.expose().to_owned()).collect();
        }
        let (port, db) = (self.port, self.db);
        let host = if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let plain = format!("redis://{host}:{port}/{db}");
        // A password may hold any characters, so the URL must escape it.
        let with_password = self.password.as_ref().and_then(|password| {
            let mut url = reqwest::Url::parse(&plain).ok()?;
            url.set_password(Some(password.expose())).ok()?;
            Some(url.into())
        });
        vec![with_password.unwrap_or(plain)]
    }
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!(
            "{text:?} is not an address and a port; it must be like \"127.0.0.1:7171\" or \"[::1]:7171\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_hold_any_characters() {
        let config = RedisConfig {
            password: Some(Secret::new("p@ss/w:rd#%")),
            ..RedisConfig::default()
        };
        assert_eq!(config.urls(), ["redis://:p%40ss%2Fw%3Ard%23%@localhost:6379/0"]);
        let six = RedisConfig {
            host: "::1".into(),
            ..RedisConfig::default()
        };
        assert_eq!(six.urls(), ["redis://[::1]:6379/0"]);
    }
}
