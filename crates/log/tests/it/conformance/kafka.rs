//! The conformance suite over a Kafka broker, each case under a prefix of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tidegate_core::time::Millis;
use tidegate_log::conformance::{Backend, Place};
use tidegate_log::kafka::{KafkaLog, KafkaLogOptions};
use tidegate_log::{Log, LogError, LogSettings, log_conformance_suite};
use tidegate_testkit::servers::{KafkaOptions, KafkaServer};

static PLACES: AtomicU64 = AtomicU64::new(0);

/// A broker that checks for old records often and allows short sessions.
fn broker() -> &'static KafkaServer {
    static BROKER: OnceLock<KafkaServer> = OnceLock::new();
    BROKER.get_or_init(|| {
        let settings = [
            ("log.retention.check.interval.ms", "500"),
            ("group.min.session.timeout.ms", "1000"),
        ];
        let options = KafkaOptions {
            settings: settings
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..KafkaOptions::default()
        };
        KafkaServer::start(options).unwrap_or_else(|error| panic!("the Kafka broker: {error}"))
    })
}

struct Prefixes;
struct Prefix(String);

#[async_trait]
impl Backend for Prefixes {
    async fn place(&self) -> Box<dyn Place> {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        Box::new(Prefix(format!("case-{number}.")))
    }
}

#[async_trait]
impl Place for Prefix {
    async fn open(&self, settings: LogSettings) -> Result<Arc<dyn Log>, LogError> {
        let options = KafkaLogOptions {
            settings: LogSettings {
                prefix: self.0.clone(),
                ..settings
            },
            ..KafkaLogOptions::new(broker().brokers())
        };
        Ok(Arc::new(KafkaLog::open(options)?))
    }

    fn drops_what_is_done(&self) -> bool {
        false
    }

    fn session(&self) -> Millis {
        Millis(8_000)
    }
}

fn prefixes() -> Prefixes {
    Prefixes
}

log_conformance_suite!(prefixes());
