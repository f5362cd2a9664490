//! Foreign entries in the log become dead letters, and everything else continues.

use refresh::{few_partitions, patient, text, upstream};
use support::{Backend, Running, config};
use tidegate_testkit::servers::RedisServer;
use tidegate_upstream::Upstream;

use crate::support::{self, refresh};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits for `count` dead letters, and returns their raw events.
async fn raw_events(running: &Running, count: usize) -> Vec<String> {
    let page = running
        .until("/v1/refresh/dead-letters", |page| {
            page["items"].as_array().is_some_and(|all| all.len() >= count)
        })
        .await;
    let dead_letters = page["items"].as_array().unwrap();
    assert_eq!(dead_letters.len(), count, "{page}");
    for dead_letter in dead_letters {
        assert_eq!(dead_letter["failureReason"], "PARSE_ERROR", "{dead_letter}");
    }
    dead_letters
        .iter()
        .map(|dead_letter| dead_letter["rawEvent"].as_str().unwrap().to_owned())
        .collect()
}

/// Refreshes records in every partition.
async fn all_are_refreshed(running: &Running, upstream: &Upstream, name: &str) {
    let keys: Vec<String> = (0..20).map(|n| format!("{name}-{n}")).collect();
    for key in &keys {
        running.record(key).await;
    }
    for key in &keys {
        running.until_fresh(key).await;
        assert_eq!(upstream.report().keys[key], 1, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_entry_in_a_redis_stream_ended_the_service() {
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = config(Backend::Redis, &folder, &text(&upstream, ""));
    few_partitions(&mut settings);
    patient(&mut settings);
    let prefix = settings.redis.key_prefix.clone();
    let running = Running::with(settings, folder).await;
    all_are_refreshed(&running, &upstream, "before").await;

    let mut written = Vec::new();
    for partition in 0..4 {
        let stream = format!("{prefix}log:{{update-priority-high:{partition}}}:records");
        let note = format!("foreign {partition}");
        let words = ["XADD", &stream, "*", "note", &note, "left", "here"];
        let id = RedisServer::shared().command(&words).unwrap().text().unwrap();
        written.push(hex(
            format!(r#"["{id}",["note","{note}","left","here"]]"#).as_bytes()
        ));
    }
    all_are_refreshed(&running, &upstream, "after").await;
    let mut raw = raw_events(&running, 4).await;
    raw.sort();
    written.sort();
    assert_eq!(raw, written);

    let running = running.restart().await;
    all_are_refreshed(&running, &upstream, "again").await;
    assert_eq!(raw_events(&running, 4).await.len(), 4);
    running.stop().await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_in_a_kafka_topic_becomes_dead_letters() {
    use tidegate_log::kafka::{KafkaLog, KafkaLogOptions};
    use tidegate_log::{Log, Record, Topic};
    use tidegate_testkit::servers::KafkaServer;

    let brokers = KafkaServer::shared().brokers();
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let more = format!("[refresh.log]\nkind = \"kafka\"\nbrokers = [{brokers:?}]\nreplication_factor = 1\n");
    let mut settings = config(Backend::Embedded, &folder, &text(&upstream, &more));
    few_partitions(&mut settings);
    patient(&mut settings);
    let options = KafkaLogOptions {
        settings: settings.refresh.log.settings(),
        ..KafkaLogOptions::new(brokers)
    };
    let running = Running::with(settings, folder).await;
    all_are_refreshed(&running, &upstream, "before").await;

    let log = KafkaLog::open(options).unwrap();
    // One entry is as long as the log allows.
    let noise = (0..1_099_990u32).map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()[3]);
    let garbage = [b"\xff\x00 no event".to_vec(), b"[]".to_vec(), noise.collect()];
    for (number, value) in garbage.iter().enumerate() {
        let record = Record {
            topic: Topic::High,
            key: number.to_string().into(),
            value: value.clone().into(),
        };
        for answer in log.append(vec![record]).await {
            answer.unwrap();
        }
    }
    all_are_refreshed(&running, &upstream, "after").await;
    let mut raw = raw_events(&running, 3).await;
    let mut written: Vec<String> = garbage.iter().map(|bytes| hex(bytes)).collect();
    raw.sort();
    written.sort();
    assert!(raw == written, "the dead letters differ from the entries");
    log.close().await;
    running.stop().await;
}
