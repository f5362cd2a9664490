//! The log on Apache Kafka.
//!
//! ```text
//!   append ──> librdkafka's bounded queue ── acks=all, idempotent ──> broker
//!   next   <── bounded buffer <── a thread that polls, whatever the caller does
//!   commit ──> the offset, while this consumer owns the partition
//! ```
//!
//! Consumers use the cooperative sticky assignor: when one joins or leaves, only the partitions that move stop. An
//! eager assignor would revoke every partition of every member, and the broker would deliver all buffered records
//! again. Times are those of the broker (`LogAppendTime`).

mod client;
mod consumer;
mod layout;
mod poll;
mod reader;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use tokio::sync::OnceCell;

use self::client::{Clients, unavailable};
use self::consumer::KafkaConsumer;
use crate::settings::check_some_name;
use crate::{
    ConsumeParams, Consumer, Delivered, Lag, Log, LogError, LogSettings, Position, Record, Topic,
    partition_of,
};

/// Limit: how long one request to the broker may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Limit: how long `close` waits for records in flight.
const FLUSH: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct KafkaLogOptions {
    /// `host:port` of some brokers, separated by commas.
    pub brokers: String,
    pub settings: LogSettings,
    /// Further settings of librdkafka, such as `security.protocol`. Ours win where they would break a guarantee.
    pub properties: BTreeMap<String, String>,
}

impl KafkaLogOptions {
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            settings: LogSettings::default(),
            properties: BTreeMap::new(),
        }
    }
}

/// State that the log and its consumers share.
#[derive(Debug)]
struct Shared {
    clients: Clients,
    settings: LogSettings,
    closed: AtomicBool,
    /// Set once the topics matched the configuration.
    laid_out: OnceCell<()>,
}

impl Shared {
    fn open(&self) -> Result<(), LogError> {
        match self.closed.load(Ordering::SeqCst) {
            true => Err(LogError::Closed),
            false => Ok(()),
        }
    }

    /// Open, and the topics match the configuration.
    async fn ready(self: &Arc<Self>) -> Result<(), LogError> {
        self.open()?;
        self.laid_out
            .get_or_try_init(|| layout::ensure(self))
            .await
            .copied()
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

    /// Runs blocking work off the async threads.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Shared) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let shared = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&shared)).await;
        done.unwrap_or_else(|error| Err(LogError::Corrupt(format!("a call failed: {error}"))))
    }
}

/// The log on a Kafka cluster. It needs a Tokio runtime.
#[derive(Debug)]
pub struct KafkaLog {
    /// Taken only on drop.
    shared: Option<Arc<Shared>>,
    sender: Sender,
}

/// The producer, which has no debug output.
struct Sender(Mutex<FutureProducer>);

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl Sender {
    fn producer(&self) -> MutexGuard<'_, FutureProducer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A working producer. After a fatal error a producer rejects everything, because its order is in doubt; so this
    /// replaces it.
    fn able(&self, shared: &Shared) -> Result<FutureProducer, LogError> {
        let mut producer = self.producer();
        if let Some((_, reason)) = producer.client().fatal_error() {
            tracing::error!(
                reason,
                "a Kafka producer can send no more; another takes its place"
            );
            let another = shared.clients.producer(&shared.settings)?;
            let broken = std::mem::replace(&mut *producer, another);
            // Dropping a producer waits for its thread, which must not block an async thread.
            std::thread::spawn(move || drop(broken));
        }
        Ok(producer.clone())
    }
}

impl KafkaLog {
    /// Does not wait for the brokers: while they are unavailable, calls return `Unavailable`.
    pub fn open(options: KafkaLogOptions) -> Result<Self, LogError> {
        let KafkaLogOptions {
            brokers,
            settings,
            properties,
        } = options;
        settings.validate()?;
        if brokers.trim().is_empty() {
            return Err(LogError::Config("no address of a Kafka broker is given".into()));
        }
        let clients = Clients::new(brokers, properties, &settings)?;
        let sender = Sender(Mutex::new(clients.producer(&settings)?));
        let shared = Arc::new(Shared {
            clients,
            settings,
            closed: AtomicBool::new(false),
            laid_out: OnceCell::new(),
        });
        Ok(Self {
            shared: Some(shared),
            sender,
        })
    }

    fn shared(&self) -> &Arc<Shared> {
        let shared = self.shared.as_ref();
        shared.unwrap_or_else(|| unreachable!("only taken when dropped"))
    }

    /// Puts a record into the queue, or rejects it at once.
    fn send(&self, producer: &FutureProducer, record: &Record) -> Result<DeliveryFuture, LogError> {
        record.check()?;
        let shared = self.shared();
        let name = shared.settings.name(record.topic);
        let partition = partition_of(&record.key, shared.settings.partitions(record.topic));
        let queued = FutureRecord::to(&name)
            .partition(partition as i32)
            .key(&record.key[..])
            .payload(&record.value[..]);
        producer
            .send_result(queued)
            .map_err(|(error, _)| refused(shared, record, &error))
    }
}

fn refused(shared: &Shared, record: &Record, error: &KafkaError) -> LogError {
    match error.rdkafka_error_code() {
        // Somebody else created the topic, with a smaller limit than ours.
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
            let bytes = record.key.len() + record.value.len();
            LogError::TooLarge {
                bytes,
                max: bytes.saturating_sub(1),
            }
        }
        Some(RDKafkaErrorCode::QueueFull) => LogError::Full,
        // In doubt: the record was in flight when the timeout, or the producer, ended.
        Some(RDKafkaErrorCode::MessageTimedOut | RDKafkaErrorCode::PurgeInflight) => {
            LogError::Timeout(shared.settings.send_timeout.0)
        }
        _ => unavailable(shared.clients.brokers(), error),
    }
}

#[async_trait]
impl Log for KafkaLog {
    fn settings(&self) -> &LogSettings {
        &self.shared().settings
    }

    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>> {
        let shared = self.shared();
        let limit = shared.settings.send_timeout;
        let ready = tokio::time::timeout(Duration::from(limit), shared.ready()).await;
        // Nothing was sent, for certain.
        let unavailable = || LogError::Unavailable {
            server: format!("Kafka at {}", shared.clients.brokers()),
            reason: format!("no answer within {} ms", limit.0),
        };
        if let Err(error) = ready.unwrap_or_else(|_| Err(unavailable())) {
            return vec![Err(error); records.len()];
        }
        // Queue all records before waiting for any: they travel together, and in order.
        let producer = match self.sender.able(shared) {
            Ok(producer) => producer,
            Err(error) => return vec![Err(error); records.len()],
        };
        let queued: Vec<_> = (records.iter())
            .map(|record| (record, self.send(&producer, record)))
            .collect();
        let answers = queued.into_iter().map(|(record, queued)| async move {
            match queued?.await {
                Ok(Ok(delivery)) => Ok(Position {
                    partition: delivery.partition as u32,
                    offset: delivery.offset as u64,
                }),
                Ok(Err((error, _))) => Err(refused(shared, record, &error)),
                Err(_) => Err(LogError::Closed),
            }
        });
        join_all(answers).await
    }

    async fn consume(&self, params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError> {
        check_some_name("the group", &params.group)?;
        self.shared().ready().await?;
        Ok(Box::new(KafkaConsumer::join(self.shared().clone(), params)?))
    }

    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError> {
        check_some_name("the group", group)?;
        self.shared().ready().await?;
        let group = group.to_owned();
        self.shared()
            .blocking(move |shared| reader::lag(shared, topic, &group))
            .await
    }

    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError> {
        self.shared().check_partition(topic, from.partition)?;
        self.shared().ready().await?;
        self.shared()
            .blocking(move |shared| reader::read(shared, topic, from, max))
            .await
    }

    async fn check(&self) -> Result<(), LogError> {
        self.shared().open()?;
        layout::ensure(self.shared()).await
    }

    async fn close(&self) {
        if self.shared().closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let producer = self.sender.producer().clone();
        let flushed = tokio::task::spawn_blocking(move || producer.flush(FLUSH)).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("records were still on their way to Kafka when the log was closed");
        }
    }
}

impl Drop for KafkaLog {
    fn drop(&mut self) {
        // Dropping a client waits for its threads, which must not block an async thread.
        let (shared, producer) = (self.shared.take(), self.sender.producer().clone());
        std::thread::spawn(move || drop((shared, producer)));
    }
}
