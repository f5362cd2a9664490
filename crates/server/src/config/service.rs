//! The sections that are the service's own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};
use tidegate_api::Role;
use tidegate_core::ids::{JobType, TargetId};
use tidegate_core::time::Millis;

use super::secret::{Secret, ServerUrl};

/// Where and how the service listens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port. Anything but loopback needs keys, or `open = true`.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Listens beyond loopback without keys: everybody who reaches the port may do everything.
    pub open: bool,
    /// Host names that browsers may use for this service, besides loopback and the address it listens on.
    pub hosts: Vec<String>,
    /// Serves HTTPS when given.
    pub tls: Option<TlsConfig>,
    /// Largest body of a request that is read as one piece, in bytes (16 MiB).
    pub max_body_bytes: u64,
    /// Largest body of one NDJSON stream, in bytes (64 GiB).
    pub max_stream_bytes: u64,
    /// Longest time for one request, in milliseconds; streams and long polls have their own.
    pub request_timeout_ms: Millis,
    /// Longest pause of a client in the middle of a body, sent or received, in milliseconds.
    pub body_pause_ms: Millis,
    /// How long a client may acknowledge nothing that was sent to it, in milliseconds: then it counts as gone. At least
    /// `body_pause_ms`, if that is longer. Twice the heartbeat of visitors' streams, so that one lost packet ends none.
    pub unacknowledged_ms: Millis,
    /// Longest time for the head of a request, in milliseconds.
    pub header_timeout_ms: Millis,
    /// Longest wait of a call for work, in milliseconds; one that asks for longer is answered after this.
    pub max_wait_ms: Millis,
    /// Most connections at once; more wait.
    pub max_connections: u32,
    /// Most streams of events (progress, dashboard) at once.
    pub max_event_streams: u32,
    /// How long a session of the dashboard lasts, in milliseconds (12 hours).
    pub session_ms: Millis,
    /// How long a stop waits for open requests, in milliseconds.
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

/// Where jobs are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `embedded` (a data folder, one process) or `redis` (any number of processes).
    pub kind: StoreKind,
    /// The data folder; made if it is missing.
    pub data: PathBuf,
    /// `sync` (answered means on disk) or `buffered` (may lose the last moments).
    pub durability: DurabilityConfig,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            kind: StoreKind::default(),
            data: PathBuf::from("tidegate-data"),
            durability: DurabilityConfig::default(),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityConfig {
    #[default]
    Sync,
    Buffered,
}

/// The Redis server or Cluster, with `store.kind = "redis"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://user:password@host:port/number` or `rediss://…`, several for a Cluster; instead of what follows.
    pub urls: Vec<ServerUrl>,
    pub host: String,
    pub port: u16,
    pub password: Option<Secret>,
    /// Number of the database.
    pub db: u32,
    /// What every key begins with.
    pub key_prefix: String,
    /// Groups are spread over so many; fixed when the store is made.
    pub shards: u32,
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
        }
    }
}

/// Somebody who does the work of some job types and is called for each job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// Jobs are sent here by POST.
    pub url: String,
    /// The job types that are sent; their queue is the target's name.
    pub types: Vec<JobType>,
    /// Signs every call, as Standard Webhooks say: `whsec_` and base64 of 24 to 64 bytes.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// Calls at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Starts per second; the global rate if absent.
    #[serde(default)]
    pub rps: Option<f64>,
    /// Longest time for one call, in milliseconds; `worker_pool.job_timeout_ms` if absent.
    #[serde(default)]
    pub timeout_ms: Option<Millis>,
    /// An answer slower than this counts like a throttle for the target's rate, in milliseconds.
    #[serde(default)]
    pub slow_ms: Option<Millis>,
    /// Sent with every call.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// The budget that every call is taken from, as refreshes of the same provider are.
    #[serde(default)]
    pub budget: Option<TargetId>,
}

fn default_concurrency() -> u32 {
    10
}

/// Somebody who is told when a batch is decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackConfig {
    /// Where the service sends POST requests.
    pub url: String,
    /// Signs every call, as Standard Webhooks say.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// Longest time for one call, in milliseconds.
    #[serde(default = "default_callback_timeout")]
    pub timeout_ms: Millis,
    /// Given up after so long, in milliseconds (3 days).
    #[serde(default = "default_give_up_after")]
    pub give_up_after_ms: Millis,
    /// Sent with every call.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
}

fn default_callback_timeout() -> Millis {
    Millis(15_000)
}

fn default_give_up_after() -> Millis {
    Millis(3 * 86_400_000)
}

/// Somebody who may do something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// Who it is, for the audit log.
    pub name: String,
    /// `sha256:` and the digest of the key in hex; `tidegate key` makes both.
    pub hash: String,
    #[serde(with = "super::roles")]
    pub roles: Vec<Role>,
    /// Only these groups; `*` at the end stands for any rest. All if empty.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// Where it is kept who did what.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// A file of JSON lines; `audit.jsonl` in the data folder if absent.
    pub file: Option<PathBuf>,
}

/// What `/metrics` tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Groups with labels of their own, those with most to do first; the rest is `other`.
    pub max_groups: u32,
    /// Expose metrics under the names of the original design documents, too, beside their own names.
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

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `text` or `json`.
    pub format: LogFormat,
    /// Like `info` or `tidegate_server=debug,info`; the variable TIDEGATE_LOG goes before.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::default(),
            // The storage engine tells every file it writes.
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

/// Where traces are sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracingConfig {
    /// An OTLP collector's address for HTTP, like `http://127.0.0.1:4318`; nothing is sent if absent. Needs a
    /// build with the feature `otlp`.
    pub otlp_endpoint: Option<String>,
}

impl RedisConfig {
    /// The addresses, made of host, port, password and number if none are given.
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
        // A password may hold any characters, so it is not pasted into the address.
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
            "{text:?} is not an address and a port, like \"127.0.0.1:7171\" or \"[::1]:7171\""
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
