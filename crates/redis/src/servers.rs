//! All servers of a store: one, or the masters of a Cluster. Finds the server of a key, and handles failed
//! calls.
//!
//! A call is retried with growing pauses, for a bounded time. If the connection broke before the reply, the
//! call may have run. The next attempt says so, and the script returns the outcome of the first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, Value};
use tidegate_core::retry::pause;

use crate::server::{Broken, Live, Server};
use crate::{Error, Library, keys};

/// Limit: how long one call is retried.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Limit: attempts of one call.
const MAX_TRIES: u32 = 40;

#[derive(Debug)]
pub struct Servers {
    /// The text of the function library.
    library: Arc<str>,
    seeds: Vec<ConnectionInfo>,
    known: Mutex<HashMap<String, Arc<Server>>>,
    /// First slot, last slot, server; empty without a Cluster.
    slots: Mutex<Vec<(u16, u16, String)>>,
}

/// How to handle a failed call.
enum Remedy {
    /// The functions are missing: a new connection loads them. The call did not run.
    Load,
    /// Another server has the key. The call did not run.
    Rediscover,
    /// The server cannot execute it at the moment. The call did not run.
    Wait,
    /// The connection broke; the call may have run.
    Reconnect,
    GiveUp,
}

fn remedy(error: &RedisError) -> Remedy {
    match error.code() {
        _ if error.to_string().contains("Function not found") => Remedy::Load,
        Some("MOVED" | "ASK" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "MASTERDOWN") => Remedy::Rediscover,
        Some("LOADING" | "BUSY" | "OOM" | "MISCONF" | "NOREPLICAS") => Remedy::Wait,
        _ if error.is_timeout() || error.is_io_error() || error.is_connection_dropped() => Remedy::Reconnect,
        _ if error.is_unrecoverable_error() => Remedy::Reconnect,
        _ => Remedy::GiveUp,
    }
}

fn name_of(info: &ConnectionInfo) -> String {
    info.addr().to_string()
}

impl Servers {
    /// Servers onto which every connection loads this function library.
    pub fn new(urls: &[String], library: &Library) -> Result<Self, Error> {
        let bad = |url: &str, error: String| {
            // No password in a message.
            let shown = url.rsplit_once('@').map_or(url, |(_, rest)| rest);
            Error::Config(format!(
                "{shown:?} is no address of a Redis server ({error}); use redis://host:port/number or rediss://…"
            ))
        };
        if urls.is_empty() {
            return Err(Error::Config("no address of a Redis server is given".into()));
        }
        let mut seeds = Vec::new();
        for url in urls {
            let info = url
                .as_str()
                .into_connection_info()
                .map_err(|error| bad(url, error.to_string()))?;
            seeds.push(info);
        }
        if seeds
            .iter()
            .any(|info| matches!(info.addr(), ConnectionAddr::TcpTls { .. }))
        {
            // Only the first provider of a process takes effect; any will do.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let servers = Self {
            library: library.text.as_str().into(),
            seeds: seeds.clone(),
            known: Mutex::default(),
            slots: Mutex::default(),
        };
        for info in seeds {
            servers.server(info)?;
        }
        Ok(servers)
    }

    fn server(&self, info: ConnectionInfo) -> Result<Arc<Server>, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name_of(&info);
        if let Some(server) = known.get(&name) {
            return Ok(server.clone());
        }
        let server = Arc::new(Server::new(info, self.library.clone())?);
        known.insert(name, server.clone());
        Ok(server)
    }

    /// One of the configured servers, for calls that any server can answer.
    pub fn any(&self, attempt: usize) -> Result<Arc<Server>, Error> {
        self.server(self.seeds[attempt % self.seeds.len()].clone())
    }

    pub fn holder(&self, key: &str, attempt: u32) -> Result<Arc<Server>, Error> {
        let slot = keys::slot(key);
        let found = {
            let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots
                .iter()
                .find(|(first, last, _)| (*first..=*last).contains(&slot))
                .map(|(_, _, name)| name.clone())
        };
        let Some(name) = found else {
            return self.any(attempt as usize);
        };
        self.named(&name)
    }

    /// A server of the Cluster, with the connection settings of the first configured one.
    fn named(&self, name: &str) -> Result<Arc<Server>, Error> {
        let (host, port) = name.rsplit_once(':').unwrap_or((name, "6379"));
        let port = port.parse().unwrap_or(6_379);
        let seed = &self.seeds[0];
        let addr = match seed.addr() {
            ConnectionAddr::TcpTls {
                insecure, tls_params, ..
            } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        self.server(seed.clone().set_addr(addr))
    }

    /// The one server, or all masters of a Cluster.
    pub fn masters(&self) -> Result<Vec<Arc<Server>>, Error> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if slots.is_empty() {
            return Ok(vec![self.any(0)?]);
        }
        let mut names: Vec<String> = slots.into_iter().map(|(_, _, name)| name).collect();
        names.sort_unstable();
        names.dedup();
        names.iter().map(|name| self.named(name)).collect()
    }

    /// Learns which server of a Cluster has which slots.
    async fn learn_slots(&self, live: &Live) -> Result<(), RedisError> {
        if !live.cluster {
            return Ok(());
        }
        let mut connection = live.connection.clone();
        let answer: Value = redis::cmd("CLUSTER")
            .arg("SLOTS")
            .query_async(&mut connection)
            .await?;
        let mut found = Vec::new();
        if let Value::Array(ranges) = answer {
            for range in ranges {
                let Value::Array(range) = range else { continue };
                let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &range[..] else {
                    continue;
                };
                let [Value::BulkString(host), Value::Int(port), ..] = &master[..] else {
                    continue;
                };
                let host = String::from_utf8_lossy(host);
                found.push((*first as u16, *last as u16, format!("{host}:{port}")));
            }
        }
        *self.slots.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    fn slots_unknown(&self) -> bool {
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// Runs a command on the server that has the key.
    pub async fn run(&self, key: &str, request: &dyn Request) -> Result<Value, Error> {
        self.run_again(key, request, false).await
    }

    /// The same for a command that an earlier attempt may have run.
    pub async fn run_again(
        &self,
        key: &str,
        request: &dyn Request,
        mut maybe_ran: bool,
    ) -> Result<Value, Error> {
        let (begun, patience) = (Instant::now(), request.patience());
        let mut tries = 0;
        loop {
            let server = self.holder(key, tries)?;
            // Includes the wait while others are connecting: they do it one after the other.
            let left = patience.saturating_sub(begun.elapsed());
            let tried = tokio::time::timeout(left, self.try_once(&server, maybe_ran, request)).await;
            let failure = match tried {
                Err(_) => {
                    return Err(Error::Unavailable {
                        server: server.name.clone(),
                        reason: format!("no answer within {} s", patience.as_secs()),
                    });
                }
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(Failure::Fatal(error))) => return Err(error),
                Ok(Err(Failure::Redis(error, live))) => {
                    let remedy = remedy(&error);
                    if live.is_some() && !matches!(remedy, Remedy::Reconnect) {
                        request.refused(maybe_ran);
                    }
                    match remedy {
                        Remedy::Load => {
                            if let Some(live) = &live {
                                server.forget(live).await;
                            }
                        }
                        Remedy::Rediscover => self.rediscover(tries).await,
                        Remedy::Wait => {}
                        Remedy::Reconnect => {
                            maybe_ran = true;
                            if let Some(live) = &live {
                                server.forget(live).await;
                            } else {
                                self.rediscover(tries).await;
                            }
                        }
                        Remedy::GiveUp => return Err(failed(request, &server, &error)),
                    }
                    error
                }
            };
            tries += 1;
            if tries >= MAX_TRIES || begun.elapsed() + pause(tries) > request.persistence() {
                return Err(Error::Unavailable {
                    server: server.name.clone(),
                    reason: failure.to_string(),
                });
            }
            tokio::time::sleep(pause(tries)).await;
        }
    }

    /// Asks the servers for the slot map; it is no error here if none replies.
    async fn rediscover(&self, tries: u32) {
        let Ok(server) = self.any(tries as usize) else {
            return;
        };
        let Ok(live) = server.live().await else { return };
        if self.learn_slots(&live).await.is_err() {
            server.forget(&live).await;
        }
    }

    /// A connection; in a Cluster it also loads the slot map.
    pub async fn live(&self, server: &Server) -> Result<Live, Failure> {
        let live = match server.live().await {
            Ok(live) => live,
            Err(Broken::Now(error)) => return Err(Failure::Redis(error, None)),
            Err(Broken::ForGood(error)) => return Err(Failure::Fatal(error)),
        };
        if live.cluster && self.slots_unknown() {
            self.learn_slots(&live)
                .await
                .map_err(|error| Failure::Redis(error, Some(live.clone())))?;
            // The key may be elsewhere; the server says so, and the next attempt uses that.
        }
        Ok(live)
    }

    async fn try_once(
        &self,
        server: &Server,
        maybe_ran: bool,
        request: &dyn Request,
    ) -> Result<Value, Failure> {
        let live = self.live(server).await?;
        request.prepare(&live).await?;
        let mut connection = live.connection.clone();
        request
            .command(&live, maybe_ran)
            .query_async::<Value>(&mut connection)
            .await
            .map_err(|error| Failure::Redis(error, Some(live)))
    }
}

/// A command to run.
#[async_trait]
pub trait Request: Send + Sync {
    /// The command; `maybe_ran`: an earlier attempt may have run.
    fn command(&self, live: &Live, maybe_ran: bool) -> Cmd;

    /// Called with the connection before every attempt.
    async fn prepare(&self, _live: &Live) -> Result<(), Failure> {
        Ok(())
    }

    /// The server replied that it did not run the command; `maybe_ran`: an earlier attempt may have run.
    fn refused(&self, _maybe_ran: bool) {}

    /// Why the server cannot be used, if the script's own error says so.
    fn explain(&self, _error: &str) -> Option<String> {
        None
    }

    /// The total time for attempts.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Limit: how long to retry after an error, which usually comes at once.
    fn persistence(&self) -> Duration {
        self.patience()
    }
}

/// How an attempt ended without a reply.
#[derive(Debug)]
pub enum Failure {
    Redis(RedisError, Option<Live>),
    Fatal(Error),
}

fn failed(request: &dyn Request, server: &Server, error: &RedisError) -> Error {
    let text = error.to_string();
    if let Some(reason) = request.explain(&text) {
        return Error::Unsuitable {
            server: server.name.clone(),
            reason,
        };
    }
    // The scripts begin errors of their own with this word.
    if text.contains("TIDEGATE") {
        return Error::Corrupt(format!("{}: {text}", server.name));
    }
    Error::Unsuitable {
        server: server.name.clone(),
        reason: text,
    }
}
