//! The log on Redis Streams, shared by several processes.
//!
//! ```text
//!   partition = one stream, its head (start, end), its committed offsets, a lease per group (owner, fence, deadline)
//!   append  ── one call per partition ──> takes and uses the offsets at once
//!   member  ── attend, renew, own, release ──> its share of the partitions
//!           ── XRANGE ahead into a bounded buffer ──> next
//!           ── commit under the fence ──> committed offset
//! ```
//!
//! Foreign entries in a stream read like records, with the bytes they hold. The log adopts each of them under an
//! offset of ours before it appends or reads anything behind it.
//!
//! An append is as durable as the server's own settings make it (`appendfsync`). A lease is valid for one run of the
//! server: a restarted one may have lost its last writes, and would give their offsets to other records. The owner of
//! a partition then starts again at the committed offset, and reads those records.
//!
//! The keys of a partition share a hash tag; partitions spread over a Cluster.

mod consumer;
mod fetch;
mod keys;
mod member;
mod scripts;
mod server;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tidegate_core::clock::Clock;
use tidegate_core::time::Timestamp;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use self::consumer::RedisConsumer;
use self::keys::Keys;
use self::server::{Server, call};
use crate::capacity::{Capacity, Taken};
use crate::settings::check_some_name;
use crate::{
    ConsumeParams, Consumer, Delivered, Lag, Log, LogError, LogSettings, PartitionLag, Position, Record,
    Topic, partition_of,
};

/// Limit: records that one call drops.
const MAX_DROPPED: u64 = 1_000;

#[derive(Debug, Clone)]
pub struct RedisLogOptions {
    /// One server, or some of a Cluster: `redis://user:password@host:port/number`, `rediss://…`.
    pub urls: Vec<String>,
    /// The start of every key, before the prefix of the settings: logs with different ones are independent. No
    /// braces. Default: nothing.
    pub key_prefix: String,
    pub settings: LogSettings,
    /// A test clock; without one, the server's own clock applies.
    pub clock: Option<Arc<dyn Clock>>,
}

impl RedisLogOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            key_prefix: String::new(),
            settings: LogSettings::default(),
            clock: None,
        }
    }
}

/// State that the log and its consumers share.
#[derive(Debug)]
struct Shared {
    server: Server,
    keys: Keys,
    settings: LogSettings,
    room: Capacity,
    closed: AtomicBool,
    /// Set once the layout matched the configuration.
    laid_out: OnceCell<()>,
}

impl Shared {
    fn open(&self) -> Result<(), LogError> {
        match self.closed.load(Ordering::SeqCst) {
            true => Err(LogError::Closed),
            false => Ok(()),
        }
    }

    /// Open, and the partitions match the configuration.
    async fn ready(&self) -> Result<(), LogError> {
        self.open()?;
        self.laid_out
            .get_or_try_init(|| self.check_layout())
            .await
            .copied()
    }

    async fn check_layout(&self) -> Result<(), LogError> {
        let mut call = call(&scripts::LAYOUT, [self.keys.layout()]);
        for topic in Topic::ALL {
            call = call
                .arg(topic.name())
                .number(u64::from(self.settings.partitions(topic)));
        }
        let known = self.server.numbers(&call).await?;
        for (topic, found) in Topic::ALL.into_iter().zip(known) {
            let configured = self.settings.partitions(topic);
            if found != i64::from(configured) {
                return Err(LogError::Layout {
                    topic: self.settings.name(topic),
                    configured,
                    found: found as u32,
                });
            }
        }
        Ok(())
    }

    fn check_partition(&self, topic: Topic, partition: u32) -> Result<(), LogError> {
        let partitions = self.settings.partitions(topic);
        if partition < partitions {
            return Ok(());
        }
        Err(LogError::Config(format!(
            "{topic} has {partitions} partitions, so there is no partition {partition}"
        )))
    }

    /// Appends records of one partition, in order. Returns the offset of the first.
    async fn append_to(&self, topic: Topic, partition: u32, records: Vec<Record>) -> Result<u64, LogError> {
        let keys = self.keys.partition(topic, partition);
        let limit = self.settings.send_timeout;
        let mut call = call(&scripts::APPEND, [keys.records(), keys.head(), keys.recent()])
            .again()
            .patience(limit.into())
            .arg(self.server.caller.time())
            .arg(self.server.caller.request_id());
        for record in records {
            call = call.arg(record.key).arg(record.value);
        }
        let tried = tokio::time::timeout(Duration::from(limit), async {
            self.ready().await?;
            self.server.number(&call).await
        });
        match tried.await {
            Ok(Ok(first)) => Ok(first as u64),
            Err(_) | Ok(Err(LogError::Unavailable { .. })) if call.maybe_ran() => {
                Err(LogError::Timeout(limit.0))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(LogError::Unavailable {
                server: "Redis".to_owned(),
                reason: format!("no answer within {} ms", limit.0),
            }),
        }
    }

    async fn sweep(&self) -> Result<(), LogError> {
        for topic in Topic::ALL {
            let settings = self.settings.topic(topic);
            for partition in 0..settings.partitions {
                let keys = self.keys.partition(topic, partition);
                let call = call(
                    &scripts::SWEEP,
                    [keys.records(), keys.head(), keys.offsets(), keys.groups()],
                )
                .arg(self.server.caller.time())
                .number(settings.retention.0)
                .number(settings.completed_retention().0)
                .number(MAX_DROPPED);
                while self.server.number(&call).await? as u64 == MAX_DROPPED {}
            }
        }
        Ok(())
    }

    async fn partition_lag(
        &self,
        topic: Topic,
        partition: u32,
        group: &str,
    ) -> Result<PartitionLag, LogError> {
        let keys = self.keys.partition(topic, partition);
        let call = call(&scripts::LAG, [keys.records(), keys.head(), keys.offsets()]).arg(group);
        let numbers = self.server.numbers(&call).await?;
        let [start, end, committed, oldest] = numbers[..] else {
            return Err(LogError::Corrupt(format!("a lag of {} numbers", numbers.len())));
        };
        Ok(PartitionLag {
            partition,
            start: start as u64,
            end: end as u64,
            committed: u64::try_from(committed).ok(),
            oldest: u64::try_from(oldest).ok().map(Timestamp),
        })
    }
}

/// The log on a server or Cluster. It needs a Tokio runtime.
#[derive(Debug)]
pub struct RedisLog {
    shared: Arc<Shared>,
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

impl RedisLog {
    /// Does not wait for the server: while it is unavailable, calls return `Unavailable`.
    pub fn open(options: RedisLogOptions) -> Result<Self, LogError> {
        let RedisLogOptions {
            urls,
            key_prefix,
            settings,
            clock,
        } = options;
        settings.validate()?;
        if key_prefix.contains(['{', '}']) {
            return Err(LogError::Config(format!(
                "the key prefix {key_prefix:?} has a brace, which would change where a Cluster keeps the keys"
            )));
        }
        let shared = Arc::new(Shared {
            server: Server::new(&urls, clock)?,
            keys: Keys::new(&key_prefix, &settings.prefix),
            room: Capacity::new(settings.max_queued),
            settings,
            closed: AtomicBool::new(false),
            laid_out: OnceCell::new(),
        });
        let sweeper = tokio::spawn(sweep_for_ever(shared.clone()));
        Ok(Self {
            shared,
            sweeper: Mutex::new(Some(sweeper)),
        })
    }

    fn stop(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sweeper) = sweeper.take() {
            sweeper.abort();
        }
    }

    async fn append_all(&self, records: Vec<Record>, _taken: Taken) -> Vec<Result<Position, LogError>> {
        let count = records.len();
        let mut by_partition: BTreeMap<(Topic, u32), (Vec<usize>, Vec<Record>)> = BTreeMap::new();
        for (place, record) in records.into_iter().enumerate() {
            let partition = partition_of(&record.key, self.shared.settings.partitions(record.topic));
            let (places, records) = by_partition.entry((record.topic, partition)).or_default();
            places.push(place);
            records.push(record);
        }
        let calls = by_partition
            .into_iter()
            .map(|((topic, partition), (places, records))| async move {
                (
                    partition,
                    places,
                    self.shared.append_to(topic, partition, records).await,
                )
            });
        let mut answers = vec![Err(LogError::Closed); count];
        for (partition, places, first) in join_all(calls).await {
            for (after, place) in (0..).zip(places) {
                let offset = first.clone().map(|first| first + after);
                answers[place] = offset.map(|offset| Position { partition, offset });
            }
        }
        answers
    }
}

async fn sweep_for_ever(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(shared.settings.sweep_every.into()).await;
        if let Err(error) = shared.sweep().await {
            tracing::debug!(%error, "old records cannot be looked for now");
        }
    }
}

#[async_trait]
impl Log for RedisLog {
    fn settings(&self) -> &LogSettings {
        &self.shared.settings
    }

    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>> {
        let checks: Vec<Result<(), LogError>> = records
            .iter()
            .map(|record| self.shared.open().and_then(|()| record.check()))
            .collect();
        let fine: Vec<Record> = (records.into_iter().zip(&checks))
            .filter_map(|(record, check)| check.is_ok().then_some(record))
            .collect();
        let mut appended = match self.shared.room.take(fine.len()) {
            Ok(taken) => self.append_all(fine, taken).await,
            Err(error) => vec![Err(error); fine.len()],
        }
        .into_iter();
        let answer = |check: Result<(), LogError>| {
            check.and_then(|()| appended.next().unwrap_or(Err(LogError::Closed)))
        };
        checks.into_iter().map(answer).collect()
    }

    async fn consume(&self, params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError> {
        check_some_name("the group", &params.group)?;
        self.shared.ready().await?;
        Ok(Box::new(RedisConsumer::join(self.shared.clone(), params)))
    }

    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError> {
        check_some_name("the group", group)?;
        self.shared.ready().await?;
        let partitions = 0..self.shared.settings.partitions(topic);
        let calls = partitions.map(|partition| self.shared.partition_lag(topic, partition, group));
        let partitions = join_all(calls).await.into_iter().collect::<Result<_, _>>()?;
        Ok(Lag { partitions })
    }

    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError> {
        self.shared.check_partition(topic, from.partition)?;
        self.shared.ready().await?;
        let keys = self.shared.keys.partition(topic, from.partition);
        let found = self.shared.server.range(&keys, None, from, max).await?;
        Ok(found.unwrap_or_default())
    }

    async fn check(&self) -> Result<(), LogError> {
        self.shared.open()?;
        self.shared.check_layout().await
    }

    async fn close(&self) {
        self.stop();
    }
}

impl Drop for RedisLog {
    fn drop(&mut self) {
        self.stop();
    }
}
