//! Records per second through each backend, on this machine: 300 bytes, batches of 100, durable.
//!
//! `cargo run --release -p tidegate-log --all-features --example throughput`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_log::embedded::{EmbeddedLog, EmbeddedLogOptions};
use tidegate_log::redis::{RedisLog, RedisLogOptions};
use tidegate_log::{CommittedOffset, ConsumeParams, Log, LogError, LogSettings, Record, Topic};
use tidegate_testkit::servers::{RedisOptions, RedisServer};

const RECORDS: usize = 40_000;
const BATCH: usize = 100;
const SIZE: usize = 300;
const CLIENTS: usize = 8;

fn settings() -> LogSettings {
    LogSettings {
        replication: 1,
        send_timeout: tidegate_core::time::Millis(30_000),
        ..LogSettings::default()
    }
}

fn batch(first: usize) -> Vec<Record> {
    let record = |number: usize| Record {
        topic: Topic::High,
        key: Bytes::from(number.to_string()),
        value: Bytes::from(vec![b'x'; SIZE]),
    };
    (first..first + BATCH).map(record).collect()
}

async fn append(log: &Arc<dyn Log>, clients: usize) -> Result<f64, LogError> {
    let begun = Instant::now();
    let each = RECORDS / clients;
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let log = log.clone();
            tokio::spawn(async move {
                for first in (client * each..(client + 1) * each).step_by(BATCH) {
                    for answer in log.append(batch(first)).await {
                        answer?;
                    }
                }
                Ok::<(), LogError>(())
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap_or(Err(LogError::Closed))?;
    }
    Ok(RECORDS as f64 / begun.elapsed().as_secs_f64())
}

async fn consume(log: &Arc<dyn Log>, expected: usize) -> Result<f64, LogError> {
    let params = ConsumeParams {
        topic: Topic::High,
        group: "bench".into(),
        owner: "bench".into(),
        max_buffered: 5_000,
    };
    let consumer = log.consume(params).await?;
    let mut count = 0;
    let mut begun = None;
    while count < expected {
        let batch = consumer.next(BATCH, Duration::from_secs(1)).await?;
        let mut offsets = BTreeMap::new();
        for record in &batch.records {
            begun.get_or_insert_with(Instant::now);
            offsets.insert(record.position.partition, record.position.offset + 1);
        }
        count += batch.records.len();
        let offsets: Vec<CommittedOffset> = offsets
            .into_iter()
            .map(|(partition, next)| CommittedOffset { partition, next })
            .collect();
        consumer.commit(&offsets).await?;
    }
    consumer.close().await;
    Ok(count as f64 / begun.map_or(f64::INFINITY, |begun| begun.elapsed().as_secs_f64()))
}

async fn measure(name: &str, log: Arc<dyn Log>) -> Result<(), LogError> {
    let one = append(&log, 1).await?;
    let many = append(&log, CLIENTS).await?;
    let consumed = consume(&log, 2 * RECORDS).await?;
    println!(
        "{name}: append {one:.0}/s by one caller, {many:.0}/s by {CLIENTS}; consume and commit {consumed:.0}/s"
    );
    log.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let options = EmbeddedLogOptions {
        settings: settings(),
        ..EmbeddedLogOptions::new(folder.path().join("log"))
    };
    measure("embedded", Arc::new(EmbeddedLog::open(options)?)).await?;

    for (name, options) in [
        ("redis, appendfsync always", RedisOptions::durable()),
        ("redis, in memory", RedisOptions::default()),
    ] {
        let server = RedisServer::start(options)?;
        let options = RedisLogOptions {
            settings: settings(),
            ..RedisLogOptions::new(server.url())
        };
        measure(name, Arc::new(RedisLog::open(options)?)).await?;
    }
    #[cfg(feature = "kafka")]
    {
        use tidegate_log::kafka::{KafkaLog, KafkaLogOptions};
        use tidegate_testkit::servers::{KafkaOptions, KafkaServer};
        let server = KafkaServer::start(KafkaOptions::default())?;
        let options = KafkaLogOptions {
            settings: settings(),
            ..KafkaLogOptions::new(server.brokers())
        };
        measure("kafka", Arc::new(KafkaLog::open(options)?)).await?;
    }
    Ok(())
}
