//! The tools of a case: a log at its own place, and short verbs.
//!
//! The verbs panic when the log breaks an assumption of a case, so that case bodies show only their subject.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::time::Millis;
use tokio::time::Instant;

use crate::{
    Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, Delivered, Log, LogError, LogSettings,
    Position, Record, Topic,
};

/// One poll of a case that waits for something.
const LOOK: Duration = Duration::from_millis(200);

/// A machine that freezes for less than this loses no partition.
const SESSION: Millis = Millis(10_000);

/// The group of cases that need only one.
pub(super) const GROUP: &str = "high-worker";

/// Makes fresh, empty places for logs.
#[async_trait]
pub trait Backend: Send + Sync {
    async fn place(&self) -> Box<dyn Place>;
}

/// Where a log stores its data: a folder, a prefix on a server. Dropping it deletes the data.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens the log at this place. The previous one is closed.
    async fn open(&self, settings: LogSettings) -> Result<Arc<dyn Log>, LogError>;

    /// A short session timeout. Where a server's clock ends sessions, it must exceed any freeze of the machine: a
    /// member that was present all the time must not lose anything.
    fn session(&self) -> Millis {
        Millis(2_500)
    }

    /// Whether the backend honours the retention of done records.
    fn drops_what_is_done(&self) -> bool {
        true
    }

    /// Longer than any machine needs for one step; a case that waits longer has failed.
    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }
}

/// Retries until there is a response. Backends soon abandon calls that no caller in particular waits for, and a busy
/// machine may be too slow for that.
async fn answered<T, F: Future<Output = Result<T, LogError>>>(
    what: &str,
    patience: Duration,
    mut call: impl FnMut() -> F,
) -> T {
    let until = Instant::now() + patience;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_retryable() && Instant::now() < until => {
                tokio::time::sleep(LOOK / 10).await;
            }
            Err(error) => panic!("{what} failed: {error}"),
        }
    }
}

/// Small topics, short times.
pub fn settings(session: Millis) -> LogSettings {
    let mut settings = LogSettings {
        replication: 1,
        session_timeout: session,
        sweep_every: Millis(100),
        send_timeout: Millis(30_000),
        ..LogSettings::default()
    };
    settings.high.partitions = 6;
    settings.low.partitions = 4;
    settings.dead.partitions = 2;
    settings
}

pub struct Harness {
    // Dropped in this order: the log before the place it uses.
    pub log: Arc<dyn Log>,
    pub settings: LogSettings,
    pub place: Box<dyn Place>,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

impl Harness {
    pub async fn new(backend: &dyn Backend) -> Self {
        Self::with(backend, |_| {}).await
    }

    pub async fn with(backend: &dyn Backend, change: impl FnOnce(&mut LogSettings)) -> Self {
        Self::at(backend.place().await, SESSION, change).await
    }

    /// For cases that wait for the end of a session.
    pub async fn with_short_sessions(backend: &dyn Backend) -> Self {
        let place = backend.place().await;
        let session = place.session();
        Self::at(place, session, |_| {}).await
    }

    async fn at(place: Box<dyn Place>, session: Millis, change: impl FnOnce(&mut LogSettings)) -> Self {
        let mut settings = settings(session);
        change(&mut settings);
        let log = open(&*place, &settings).await;
        Self { log, settings, place }
    }

    /// Closes the log and opens it again. Consumers must be gone.
    pub async fn reopen(self) -> Self {
        let Self { log, settings, place } = self;
        log.close().await;
        drop(log);
        let log = open(&*place, &settings).await;
        Self { log, settings, place }
    }

    pub fn session(&self) -> Duration {
        self.settings.session_timeout.into()
    }

    /// Appends to the high topic; the log must accept all records.
    pub async fn append(&self, records: &[(&str, &str)]) -> Vec<Position> {
        let records = records.iter().map(|(key, value)| record(Topic::High, key, value));
        self.append_all(records.collect()).await
    }

    pub async fn append_all(&self, records: Vec<Record>) -> Vec<Position> {
        let answers = self.log.append(records).await;
        let accepted = |answer: Result<Position, LogError>| {
            answer.unwrap_or_else(|error| panic!("a record was not accepted: {error}"))
        };
        answers.into_iter().map(accepted).collect()
    }

    /// Appends `count` records `from`, `from + 1`, … to the high topic, each with its own key.
    pub async fn append_numbers(&self, from: usize, count: usize) -> Vec<Position> {
        let number = |number: usize| record(Topic::High, &format!("key-{number}"), &number.to_string());
        self.append_all((from..from + count).map(number).collect()).await
    }

    pub async fn consume(&self) -> Member {
        self.consume_as(GROUP).await
    }

    pub async fn consume_as(&self, group: &str) -> Member {
        self.consume_buffered(group, 1_000).await
    }

    pub async fn consume_buffered(&self, group: &str, max_buffered: usize) -> Member {
        let params = ConsumeParams {
            topic: Topic::High,
            group: group.to_owned(),
            owner: "case".to_owned(),
            max_buffered,
        };
        let patience = self.place.patience();
        Member {
            consumer: answered("consume", patience, || self.log.consume(params.clone())).await,
            patience,
            owned: BTreeSet::new(),
            records: Vec::new(),
        }
    }

    pub fn partitions(&self) -> BTreeSet<u32> {
        (0..self.settings.high.partitions).collect()
    }

    pub async fn lag(&self, group: &str) -> crate::Lag {
        self.lag_of(Topic::High, group).await
    }

    pub async fn lag_of(&self, topic: Topic, group: &str) -> crate::Lag {
        answered("lag", self.place.patience(), || self.log.lag(topic, group)).await
    }

    pub async fn read(&self, topic: Topic, from: Position, max: usize) -> Vec<Delivered> {
        answered("read", self.place.patience(), || self.log.read(topic, from, max)).await
    }

    /// The layout matches the configuration.
    pub async fn checked(&self) {
        answered("check", self.place.patience(), || self.log.check()).await;
    }

    /// Everything that a topic retains, by partition.
    pub async fn everything(&self, topic: Topic) -> Vec<Delivered> {
        let mut all = Vec::new();
        for partition in 0..self.settings.partitions(topic) {
            let mut offset = 0;
            loop {
                let page = self.read(topic, Position { partition, offset }, 50).await;
                let Some(last) = page.last() else { break };
                offset = last.position.offset + 1;
                all.extend(page);
            }
        }
        all
    }
}

async fn open(place: &dyn Place, settings: &LogSettings) -> Arc<dyn Log> {
    let log = place.open(settings.clone()).await;
    log.unwrap_or_else(|error| panic!("the log does not open: {error}"))
}

pub(super) fn record(topic: Topic, key: &str, value: &str) -> Record {
    Record {
        topic,
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

pub(super) fn text(record: &Delivered) -> String {
    String::from_utf8_lossy(&record.value).into_owned()
}

pub(super) fn texts(records: &[Delivered]) -> Vec<String> {
    records.iter().map(text).collect()
}

/// A consumer with everything it has received so far.
#[derive(Debug)]
pub struct Member {
    consumer: Box<dyn Consumer>,
    patience: Duration,
    pub owned: BTreeSet<u32>,
    /// All delivered records, in order.
    pub records: Vec<Delivered>,
}

impl Member {
    pub fn consumer(&self) -> &dyn Consumer {
        &*self.consumer
    }

    /// Makes one call and records its result. After a retryable error it continues for the remaining time: a busy
    /// machine may be late for its group.
    pub async fn look(&mut self, max: usize, wait: Duration) -> Batch {
        let until = Instant::now() + wait;
        let batch = loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.consumer.next(max, left).await {
                Ok(batch) => break batch,
                Err(error) if !error.is_retryable() => panic!("next failed: {error}"),
                Err(_) if left.is_zero() => break Batch::default(),
                Err(_) => tokio::time::sleep(LOOK.min(left) / 10).await,
            }
        };
        for partition in &batch.revoked {
            assert!(
                self.owned.remove(partition),
                "{partition} was revoked, but not assigned"
            );
        }
        for partition in &batch.assigned {
            assert!(self.owned.insert(*partition), "{partition} was assigned twice");
        }
        for record in &batch.records {
            let partition = record.position.partition;
            assert!(
                self.owned.contains(&partition),
                "a record of {partition}, which is not ours"
            );
        }
        assert!(
            batch.records.len() <= max,
            "{} records, {max} at most",
            batch.records.len()
        );
        self.records.extend(batch.records.iter().cloned());
        batch
    }

    /// Polls until this many records have arrived in total.
    pub async fn take(&mut self, count: usize) -> &[Delivered] {
        let until = Instant::now() + self.patience;
        while self.records.len() < count {
            let left = count - self.records.len();
            self.look(left, LOOK).await;
            assert!(
                Instant::now() < until,
                "{} of {count} records came",
                self.records.len()
            );
        }
        &self.records
    }

    /// Polls until it owns these partitions.
    pub async fn own(&mut self, partitions: &BTreeSet<u32>) {
        let until = Instant::now() + self.patience;
        while self.owned != *partitions {
            self.look(1, LOOK).await;
            assert!(
                Instant::now() < until,
                "owns {:?}, not {partitions:?}",
                self.owned
            );
        }
    }

    /// Polls for this long and returns what arrived.
    pub async fn listen(&mut self, span: Duration) -> Vec<Delivered> {
        let until = Instant::now() + span;
        let before = self.records.len();
        while Instant::now() < until {
            self.look(1_000, LOOK.min(until - Instant::now())).await;
        }
        self.records[before..].to_vec()
    }

    pub async fn commit(&self, partition: u32, next: u64) -> CommitOutcome {
        let offsets = [CommittedOffset { partition, next }];
        answered("commit", self.patience, || self.consumer.commit(&offsets)).await[0]
    }

    /// Commits everything that was delivered in partitions still owned.
    pub async fn commit_all(&self) {
        let mut offsets = BTreeMap::new();
        for record in &self.records {
            let Position { partition, offset } = record.position;
            if self.owned.contains(&partition) {
                offsets.insert(partition, offset + 1);
            }
        }
        for (partition, next) in offsets {
            assert_eq!(self.commit(partition, next).await, CommitOutcome::Committed);
        }
    }

    pub async fn close(self) {
        self.consumer.close().await;
    }
}

/// Polls all members in turn until their partitions are as wanted.
pub(super) async fn settle(members: &mut [Member], wanted: impl Fn(&[BTreeSet<u32>]) -> bool) {
    let until = Instant::now() + members[0].patience;
    loop {
        for member in members.iter_mut() {
            member.look(1_000, LOOK / 2).await;
        }
        let owned: Vec<BTreeSet<u32>> = members.iter().map(|member| member.owned.clone()).collect();
        if wanted(&owned) {
            return;
        }
        assert!(Instant::now() < until, "the partitions are shared as {owned:?}");
    }
}

/// Whether each partition has exactly one owner.
pub(super) fn disjoint(owned: &[BTreeSet<u32>], all: &BTreeSet<u32>) -> bool {
    let count: usize = owned.iter().map(BTreeSet::len).sum();
    let together: BTreeSet<u32> = owned.iter().flatten().copied().collect();
    count == all.len() && together == *all
}
