//! The conformance suite over a Redis server, each case under a prefix of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidegate_core::time::Millis;
use tidegate_log::conformance::{Backend, Place};
use tidegate_log::redis::{RedisLog, RedisLogOptions};
use tidegate_log::{Log, LogError, LogSettings, log_conformance_suite};
use tidegate_testkit::servers::RedisServer;

static PLACES: AtomicU64 = AtomicU64::new(0);

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
        let options = RedisLogOptions {
            settings: LogSettings {
                prefix: self.0.clone(),
                ..settings
            },
            ..RedisLogOptions::new(RedisServer::shared().url())
        };
        Ok(Arc::new(RedisLog::open(options)?))
    }

    fn session(&self) -> Millis {
        Millis(8_000)
    }
}

fn prefixes() -> Prefixes {
    Prefixes
}

log_conformance_suite!(prefixes());
