//! What only the log on Kafka promises: a broker that restarts in the middle loses nothing, an unavailable one is
//! reported quickly, and topics are created as configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use tidegate_core::time::Millis;
use tidegate_log::kafka::{KafkaLog, KafkaLogOptions};
use tidegate_log::{CommittedOffset, ConsumeParams, Consumer, Log, LogError, LogSettings, Record, Topic};
use tidegate_testkit::servers::{KafkaOptions, KafkaServer};
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_secs(300);
/// Limit: until a call reports an unavailable broker. Without our own limit, a client waits for five minutes.
const BOUND: Duration = Duration::from_secs(200);
const GROUP: &str = "high-worker";

fn open(server: &KafkaServer, change: impl FnOnce(&mut LogSettings)) -> KafkaLog {
    let mut settings = LogSettings {
        replication: 1,
        ..LogSettings::default()
    };
    settings.high.partitions = 4;
    change(&mut settings);
    let options = KafkaLogOptions {
        settings,
        ..KafkaLogOptions::new(server.brokers())
    };
    KafkaLog::open(options).expect("the log opens")
}

fn record(number: u64) -> Record {
    Record {
        topic: Topic::High,
        key: Bytes::from(format!("key-{}", number % 20)),
        value: Bytes::from(number.to_string()),
    }
}

async fn consume(log: &KafkaLog) -> Box<dyn Consumer> {
    let params = ConsumeParams {
        topic: Topic::High,
        group: GROUP.into(),
        owner: "test".into(),
        max_buffered: 200,
    };
    log.consume(params).await.expect("a consumer")
}

/// Consumes and commits until everything is done and nobody appends any more; returns how often each number came.
async fn work(log: Arc<KafkaLog>, appending: Arc<AtomicBool>) -> BTreeMap<u64, u32> {
    let consumer = consume(&log).await;
    let mut seen = BTreeMap::new();
    loop {
        let quiet = !appending.load(Ordering::SeqCst);
        let batch = match consumer.next(100, Duration::from_millis(200)).await {
            Ok(batch) => batch,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                continue;
            }
        };
        let mut offsets = BTreeMap::new();
        for record in batch.records {
            offsets.insert(record.position.partition, record.position.offset + 1);
            let number: u64 = String::from_utf8_lossy(&record.value).parse().expect("a number");
            *seen.entry(number).or_default() += 1;
        }
        let offsets: Vec<CommittedOffset> = offsets
            .into_iter()
            .map(|(partition, next)| CommittedOffset { partition, next })
            .collect();
        if let Err(error) = consumer.commit(&offsets).await {
            assert!(error.is_retryable(), "{error}");
        }
        if quiet
            && offsets.is_empty()
            && log
                .lag(Topic::High, GROUP)
                .await
                .is_ok_and(|lag| lag.records() == 0)
        {
            consumer.close().await;
            return seen;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_started_again_loses_nothing() {
    let mut server = KafkaServer::start(KafkaOptions::default()).expect("a broker");
    let log = Arc::new(open(&server, |settings| settings.send_timeout = Millis(150_000)));
    let appending = Arc::new(AtomicBool::new(true));
    let worker = tokio::spawn(work(log.clone(), appending.clone()));
    let writer = tokio::spawn({
        let (log, appending) = (log.clone(), appending.clone());
        async move {
            let mut answered = Vec::new();
            for number in 0..2_000 {
                // One by one, so that many are in flight when the broker stops.
                let answers = log.append(vec![record(number)]).await;
                if answers[0].is_ok() {
                    answered.push(number);
                }
            }
            appending.store(false, Ordering::SeqCst);
            answered
        }
    });
    for killed in [true, false] {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        if !killed {
            server.stop().expect("stopped");
        }
        server.restart().expect("started again");
    }
    let answered = tokio::time::timeout(DEADLINE, writer)
        .await
        .expect("in time")
        .expect("no panic");
    assert_eq!(answered.len(), 2_000, "all are accepted in the end");
    let seen = tokio::time::timeout(DEADLINE, worker)
        .await
        .expect("in time")
        .expect("no panic");
    let lost: Vec<&u64> = answered
        .iter()
        .filter(|number| !seen.contains_key(number))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    // Each is appended once: duplicates were delivered again, not written again.
    let until = Instant::now() + DEADLINE;
    let lag = loop {
        match log.lag(Topic::High, GROUP).await {
            Ok(lag) => break lag,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error}"),
        }
    };
    let ends: u64 = lag.partitions.iter().map(|lag| lag.end).sum();
    assert_eq!(ends, 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_broker_is_reported_quickly() {
    let mut server = KafkaServer::start(KafkaOptions::default()).expect("a broker");
    let log = open(&server, |settings| {
        settings.max_queued = 50;
        // Longer than a machine stalls: the queued records must still wait when the last ones come.
        settings.send_timeout = Millis(10_000);
    });
    let until = Instant::now() + DEADLINE;
    while let Err(error) = log.append(vec![record(0)]).await.remove(0) {
        assert!(error.is_retryable() && Instant::now() < until, "{error}");
    }
    server.pause().expect("paused");
    let begun = Instant::now();
    let answers = log.append((0..60).map(record).collect()).await;
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().is_err_and(LogError::is_retryable)),
        "{answers:?}"
    );
    assert!(
        answers[50..].iter().all(|answer| *answer == Err(LogError::Full)),
        "{answers:?}"
    );
    server.resume().expect("resumed");
    let until = Instant::now() + DEADLINE;
    while let Err(error) = log.append(vec![record(1)]).await.remove(0) {
        assert!(error.is_retryable() && Instant::now() < until, "{error}");
    }

    // A log opened while no broker runs: it reports an error, and works later.
    server.stop().expect("stopped");
    let late = open(&server, |settings| settings.prefix = "late.".into());
    let begun = Instant::now();
    let refused = late
        .append(vec![record(0)])
        .await
        .remove(0)
        .expect_err("nobody is there");
    assert!(refused.is_retryable(), "{refused}");
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    server.restart().expect("started again");
    let until = Instant::now() + DEADLINE;
    while let Err(error) = late.append(vec![record(0)]).await.remove(0) {
        assert!(error.is_retryable() && Instant::now() < until, "{error}");
    }
}

/// A topic that an operator creates, with as many partitions as ours have.
fn create(server: &KafkaServer, name: &str, settings: &[&str]) {
    let partitions = match name {
        name if name.ends_with("-high") => "4",
        name if name.ends_with("-low") => "24",
        _ => "12",
    };
    let mut args = vec!["--create", "--topic", name, "--partitions", partitions];
    for setting in settings {
        args.extend(["--config", setting]);
    }
    server.command("kafka-topics.sh", &args).expect("a topic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topics_are_those_of_the_documentation() {
    let server = KafkaServer::shared();
    let settings = LogSettings {
        replication: 1,
        prefix: "documented.".into(),
        ..LogSettings::default()
    };
    let options = KafkaLogOptions {
        settings,
        ..KafkaLogOptions::new(server.brokers())
    };
    let log = KafkaLog::open(options).expect("the log opens");
    log.check().await.expect("made");
    for (name, partitions, hours) in [
        ("update-priority-high", 24, 24),
        ("update-priority-low", 24, 72),
        ("update-dlq", 12, 168),
    ] {
        let args = ["--describe", "--topic", &format!("documented.{name}")];
        let described = server.command("kafka-topics.sh", &args).expect("described");
        for part in [
            format!("PartitionCount: {partitions}"),
            format!("retention.ms={}", hours * 3_600_000),
            "cleanup.policy=delete".to_owned(),
            "ReplicationFactor: 1".to_owned(),
        ] {
            assert!(described.contains(&part), "{part}: {described}");
        }
    }
    log.check().await.expect("as it was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_without_key_or_value_are_delivered_and_the_partition_goes_on() {
    let server = KafkaServer::shared();
    let log = open(server, |settings| settings.prefix = "bare.".into());
    log.check().await.expect("made");
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", server.brokers())
        .create()
        .expect("a producer");
    let bare = || FutureRecord::<[u8], [u8]>::to("bare.update-priority-high").partition(0);
    for record in [
        bare(),
        bare().key(b"a key alone"),
        bare().payload(b"\xff\x00 alone"),
    ] {
        producer.send(record, DEADLINE).await.expect("appended");
    }
    let consumer = consume(&log).await;
    let until = Instant::now() + DEADLINE;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        assert!(Instant::now() < until, "waited in vain: {seen:?}");
        let batch = consumer.next(100, Duration::from_millis(200)).await;
        seen.extend(batch.expect("a batch").records);
    }
    let seen: Vec<(&[u8], &[u8])> = seen
        .iter()
        .map(|record| (&record.key[..], &record.value[..]))
        .collect();
    assert_eq!(
        seen,
        [
            (&b""[..], &b""[..]),
            (b"a key alone", b""),
            (b"", b"\xff\x00 alone")
        ]
    );
    consumer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_created_as_configured_and_a_wrong_layout_is_reported() {
    let server = KafkaServer::shared();
    let log = open(server, |settings| settings.prefix = "made.".into());
    log.check().await.expect("made");
    let topics = server.topics().expect("topics");
    for (name, partitions) in [("high", 4), ("low", 24)] {
        assert_eq!(
            topics.get(&format!("made.update-priority-{name}")),
            Some(&partitions)
        );
    }
    assert_eq!(topics.get("made.update-dlq"), Some(&12));

    server
        .create_topic("wrong.update-priority-high", 3)
        .expect("a topic");
    let wrong = open(server, |settings| settings.prefix = "wrong.".into());
    let refused = wrong.check().await.expect_err("the layout differs").to_string();
    assert!(
        refused.contains("wrong.update-priority-high has 3 partitions, but 4"),
        "{refused}"
    );
    let refused = wrong
        .append(vec![record(0)])
        .await
        .remove(0)
        .expect_err("the layout differs");
    assert!(matches!(refused, LogError::Layout { .. }), "{refused}");

    for (prefix, name, setting, right) in [
        (
            "compacted.",
            "update-priority-high",
            "cleanup.policy=compact",
            "delete",
        ),
        (
            "mixed.",
            "update-priority-high",
            "cleanup.policy=compact,delete",
            "delete",
        ),
        (
            "short.",
            "update-priority-low",
            "retention.ms=1000",
            "at least 259200000",
        ),
        (
            "dead_letters.",
            "update-dlq",
            "retention.ms=604799999",
            "at least 604800000",
        ),
    ] {
        create(server, &format!("{prefix}{name}"), &[setting]);
        let wrong = open(server, |settings| settings.prefix = prefix.into());
        let refused = wrong.check().await.expect_err("it keeps too little").to_string();
        let (setting, found) = setting.split_once('=').expect("a pair");
        for part in [
            format!("{prefix}{name} has {setting} = {found}"),
            format!("but {right} is needed"),
        ] {
            assert!(refused.contains(&part), "{part}: {refused}");
        }
    }
    create(
        server,
        "ample.update-priority-high",
        &["retention.ms=-1", "cleanup.policy=delete"],
    );
    // Fewer replicas than configured, but created on purpose: a warning, not a rejection.
    for topic in ["update-priority-low", "update-dlq"] {
        create(server, &format!("ample.{topic}"), &["retention.ms=900000000"]);
    }
    let ample = open(server, |settings| {
        settings.prefix = "ample.".into();
        settings.replication = 3;
    });
    ample.check().await.expect("it keeps enough");

    let copies = open(server, |settings| {
        settings.prefix = "copies.".into();
        settings.replication = 3;
    });
    let refused = copies
        .check()
        .await
        .expect_err("one broker cannot keep three copies");
    assert!(matches!(refused, LogError::Unsuitable { .. }), "{refused}");
}
