//! The measured store: embedded in a temporary folder, or on Redis under a prefix of its own.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tempfile::TempDir;
use tidegate_store::bulk::{
    BulkStore, EmbeddedBulkOptions, EmbeddedBulkStore, OnOtherSettings, RedisBulkOptions, RedisBulkStore,
};

use super::{BulkArgs, config};
use crate::bench::usage;

/// `embedded`, or addresses of Redis servers.
#[derive(Debug, Clone)]
pub(in crate::bench) enum StoreArg {
    Embedded,
    Redis(Vec<String>),
}

impl FromStr for StoreArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "embedded" {
            return Ok(Self::Embedded);
        }
        let urls: Vec<String> = text.split(',').map(str::to_owned).collect();
        let known = |url: &String| url.starts_with("redis://") || url.starts_with("rediss://");
        if urls.iter().all(known) {
            return Ok(Self::Redis(urls));
        }
        Err("it must be `embedded` or begin with redis:// or rediss://".to_owned())
    }
}

impl StoreArg {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis(_) => "redis",
        }
    }
}

/// Where the stores of a run are.
#[derive(Debug)]
pub(super) struct Subject {
    folder: TempDir,
    prefix: String,
}

/// Bytes that a store uses; absent where it does not apply.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) memory: Option<u64>,
    pub(super) disk: Option<u64>,
    pub(super) redis: Option<u64>,
}

impl Usage {
    pub(super) fn per_job(self, before: Usage, jobs: u64) -> Usage {
        let per_job = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?) / jobs);
        Usage {
            memory: per_job(self.memory, before.memory),
            disk: per_job(self.disk, before.disk),
            redis: per_job(self.redis, before.redis),
        }
    }
}

/// The concrete type of an open store.
enum Kind {
    Embedded(Arc<EmbeddedBulkStore>, PathBuf),
    Redis(Arc<RedisBulkStore>, String),
}

pub(super) struct Opened {
    kind: Kind,
    store: Arc<dyn BulkStore>,
}

impl Subject {
    pub(super) fn new(args: &BulkArgs) -> anyhow::Result<Self> {
        Ok(Self {
            folder: usage::folder(args.dir.as_deref())?,
            prefix: format!("tidegate-bench-{}:", std::process::id()),
        })
    }

    pub(super) async fn open(&self, name: &str, args: &BulkArgs) -> anyhow::Result<Opened> {
        match &args.store {
            StoreArg::Embedded => open_embedded(self.folder.path().join(name), args),
            StoreArg::Redis(_) => open_redis(format!("{}{name}:", self.prefix), args).await,
        }
    }

    /// The durability of an answer.
    pub(super) async fn durability(&self, args: &BulkArgs) -> anyhow::Result<String> {
        Ok(match &args.store {
            StoreArg::Embedded => format!("{:?}", args.durability).to_lowercase(),
            StoreArg::Redis(_) => {
                let opened = self.open("latency", args).await?;
                let persistence = match &opened.kind {
                    Kind::Redis(store, _) => store.persistence().await?,
                    Kind::Embedded(..) => unreachable!("Redis was opened"),
                };
                opened.close().await?;
                persistence
            }
        })
    }
}

fn open_embedded(folder: PathBuf, args: &BulkArgs) -> anyhow::Result<Opened> {
    let options = EmbeddedBulkOptions {
        durability: args.durability.into(),
        config: config(args),
        ..EmbeddedBulkOptions::new(&folder)
    };
    let store = Arc::new(EmbeddedBulkStore::open(options)?);
    Ok(Opened {
        store: store.clone(),
        kind: Kind::Embedded(store, folder),
    })
}

async fn open_redis(prefix: String, args: &BulkArgs) -> anyhow::Result<Opened> {
    let StoreArg::Redis(urls) = &args.store else {
        anyhow::bail!("no address of a Redis server is given");
    };
    let options = RedisBulkOptions {
        urls: urls.clone(),
        prefix: prefix.clone(),
        shards: args.shards,
        config: config(args),
        clock: None,
        on_other_settings: OnOtherSettings::Refuse,
    };
    let store = Arc::new(RedisBulkStore::open(options).await?);
    Ok(Opened {
        store: store.clone(),
        kind: Kind::Redis(store, prefix),
    })
}

impl Opened {
    pub(super) fn store(&self) -> &Arc<dyn BulkStore> {
        &self.store
    }

    pub(super) async fn usage(&self) -> anyhow::Result<Usage> {
        Ok(match &self.kind {
            Kind::Embedded(_, folder) => Usage {
                memory: Some(usage::memory_bytes()),
                disk: Some(usage::disk_bytes(folder)),
                redis: None,
            },
            Kind::Redis(store, _) => Usage {
                redis: Some(store.used_memory().await?),
                ..Usage::default()
            },
        })
    }

    /// The minimum latency of an answer, median of many: one page synced, or one PING.
    pub(super) async fn floor(&self) -> anyhow::Result<Duration> {
        match &self.kind {
            Kind::Embedded(_, folder) => Ok(usage::sync_floor(folder)?),
            Kind::Redis(store, _) => {
                let mut times = Vec::new();
                for _ in 0..1_000 {
                    let begun = Instant::now();
                    store.ping().await?;
                    times.push(begun.elapsed());
                }
                times.sort_unstable();
                Ok(times[times.len() / 2])
            }
        }
    }

    async fn release(self) -> anyhow::Result<(Option<PathBuf>, Option<String>)> {
        drop(self.store);
        Ok(match self.kind {
            Kind::Embedded(store, folder) => {
                let store = Arc::into_inner(store).context("the store is still in use")?;
                store.close().await?;
                (Some(folder), None)
            }
            Kind::Redis(_, prefix) => (None, Some(prefix)),
        })
    }

    pub(super) async fn reopen(self, args: &BulkArgs) -> anyhow::Result<Opened> {
        match self.release().await? {
            (Some(folder), _) => open_embedded(folder, args),
            (_, Some(prefix)) => open_redis(prefix, args).await,
            (None, None) => unreachable!("a store is in a folder or under a prefix"),
        }
    }

    /// Closes the store, and deletes its keys on Redis.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        if let Kind::Redis(store, _) = &self.kind {
            store.remove_all().await?;
        }
        self.release().await.map(drop)
    }
}
