//! The librdkafka clients of a log, with the settings that its guarantees rely on.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::FutureProducer;

use crate::log::max_record;
use crate::{LogError, LogSettings, Topic};

/// Limit: one record of a topic on the wire, with its framing. The log creates the topics with the same limit.
pub(super) fn max_message(topic: Topic) -> usize {
    max_record(topic) + 100_000
}

/// Longest time between two heartbeats, in milliseconds. Members learn through them of a rebalance, twice for each
/// member that joins or leaves. Until then some partitions have no owner.
const HEARTBEAT_MS: u64 = 1_000;

/// Shortest time between two log lines that the brokers reject our credentials or permissions.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// A consumer that only reads and joins no group.
pub(super) type ReaderClient = BaseConsumer<Quiet>;

/// Logs the client's own messages at debug level only: callers receive failures, and the end of a partition is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "a Kafka client");
    }
}

impl ConsumerContext for Quiet {}

pub(super) struct Clients {
    brokers: String,
    properties: BTreeMap<String, String>,
    prefix: String,
    /// Distinguishes the clients of this process from those of others.
    name: String,
    admin: AdminClient<DefaultClientContext>,
    /// Reads records and the ends of partitions, one call at a time.
    reader: Mutex<ReaderClient>,
    /// One for each group whose committed offsets somebody reads; none of them is a member.
    observers: Mutex<HashMap<String, Arc<ReaderClient>>>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients")
            .field("brokers", &self.brokers)
            .finish_non_exhaustive()
    }
}

pub(super) fn code_of(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// Decides whether the same call may succeed later. An operator may restore a missing permission, and readers of
/// records need no log: so a denial must not end the service.
pub(super) fn unavailable(brokers: &str, error: &KafkaError) -> LogError {
    let server = format!("Kafka at {brokers}");
    let reason = error.to_string();
    match code_of(error) {
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::Authentication,
        ) => {
            if may_log() {
                tracing::error!(
                    server,
                    reason,
                    "Kafka refuses us; refreshes wait until it does not"
                );
            }
            LogError::Unavailable { server, reason }
        }
        Some(
            RDKafkaErrorCode::InvalidReplicationFactor
            | RDKafkaErrorCode::PolicyViolation
            | RDKafkaErrorCode::UnsupportedVersion,
        ) => LogError::Unsuitable { server, reason },
        _ => LogError::Unavailable { server, reason },
    }
}

/// Every call fails then, so one line at intervals reports it.
fn may_log() -> bool {
    static LAST_LOGGED: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST_LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    let due = last.is_none_or(|last| last.elapsed() >= LOG_EVERY);
    if due {
        *last = Some(Instant::now());
    }
    due
}

impl Clients {
    pub(super) fn new(
        brokers: String,
        properties: BTreeMap<String, String>,
        settings: &LogSettings,
    ) -> Result<Self, LogError> {
        let name = format!("tidegate-{:016x}", RandomState::new().build_hasher().finish());
        let base = base(&brokers, &properties);
        let admin = base
            .clone()
            .set("client.id", format!("{name}-admin"))
            .create()
            .map_err(|error| unusable(&error))?;
        let reader = reader_config(base.clone())
            .set("client.id", format!("{name}-reader"))
            .set("group.id", format!("{}{name}-reader", settings.prefix))
            .create_with_context(Quiet)
            .map_err(|error| unusable(&error))?;
        Ok(Self {
            brokers,
            properties,
            prefix: settings.prefix.clone(),
            name,
            admin,
            reader: Mutex::new(reader),
            observers: Mutex::default(),
        })
    }

    pub(super) fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Groups of logs with different prefixes are independent.
    pub(super) fn group(&self, group: &str) -> String {
        format!("{}{group}", self.prefix)
    }

    pub(super) fn admin(&self) -> &AdminClient<DefaultClientContext> {
        &self.admin
    }

    pub(super) fn reader(&self) -> MutexGuard<'_, ReaderClient> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn observer(&self, group: &str) -> Result<Arc<ReaderClient>, LogError> {
        let mut observers = self.observers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(observer) = observers.get(group) {
            return Ok(observer.clone());
        }
        let observer: ReaderClient = reader_config(base(&self.brokers, &self.properties))
            .set("client.id", format!("{}-observer", self.name))
            .set("group.id", self.group(group))
            .create_with_context(Quiet)
            .map_err(|error| unusable(&error))?;
        let observer = Arc::new(observer);
        observers.insert(group.to_owned(), observer.clone());
        Ok(observer)
    }

    pub(super) fn producer(&self, settings: &LogSettings) -> Result<FutureProducer, LogError> {
        base(&self.brokers, &self.properties)
            .set("client.id", format!("{}-producer", self.name))
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("max.in.flight.requests.per.connection", "5")
            .set("compression.type", "zstd")
            .set("linger.ms", "2")
            // The largest of all topics; `check` rejects a record that is too large for its topic before this.
            .set("message.max.bytes", max_message(Topic::Dead).to_string())
            .set("queue.buffering.max.messages", settings.max_queued.to_string())
            .set("queue.buffering.max.kbytes", "65536")
            .set("message.timeout.ms", settings.send_timeout.0.to_string())
            .create()
            .map_err(|error| unusable(&error))
    }

    /// A member of a group, with a unique name.
    pub(super) fn member<C: ConsumerContext>(
        &self,
        settings: &LogSettings,
        group: &str,
        owner: &str,
        context: C,
    ) -> Result<BaseConsumer<C>, LogError> {
        let session = settings.session_timeout.0;
        let number = RandomState::new().build_hasher().finish();
        base(&self.brokers, &self.properties)
            .set("client.id", format!("{owner}-{number:016x}"))
            .set("group.id", self.group(group))
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("session.timeout.ms", session.to_string())
            .set(
                "heartbeat.interval.ms",
                (session / 4).clamp(1, HEARTBEAT_MS).to_string(),
            )
            .set("max.poll.interval.ms", session.max(300_000).to_string())
            .set("fetch.wait.max.ms", "100")
            .set("queued.max.messages.kbytes", "16384")
            .create_with_context(context)
            .map_err(|error| unusable(&error))
    }
}

fn unusable(error: &KafkaError) -> LogError {
    LogError::Config(format!("a Kafka client cannot be made: {error}"))
}

fn base(brokers: &str, properties: &BTreeMap<String, String>) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("socket.timeout.ms", "10000")
        .set("reconnect.backoff.max.ms", "1000");
    for (name, value) in properties {
        config.set(name, value);
    }
    config.set("bootstrap.servers", brokers);
    config
}

fn reader_config(mut config: ClientConfig) -> ClientConfig {
    config
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "50")
        .set("enable.partition.eof", "true")
        .set("queued.max.messages.kbytes", "4096");
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_right_is_a_failure_that_passes() {
        for (code, passes) in [
            (RDKafkaErrorCode::TopicAuthorizationFailed, true),
            (RDKafkaErrorCode::GroupAuthorizationFailed, true),
            (RDKafkaErrorCode::ClusterAuthorizationFailed, true),
            (RDKafkaErrorCode::SaslAuthenticationFailed, true),
            (RDKafkaErrorCode::AllBrokersDown, true),
            (RDKafkaErrorCode::InvalidReplicationFactor, false),
        ] {
            let error = unavailable("127.0.0.1:9", &KafkaError::MessageProduction(code));
            assert_eq!(error.is_retryable(), passes, "{code:?}: {error}");
        }
    }
}
