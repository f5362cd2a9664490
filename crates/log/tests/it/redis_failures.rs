//! What only the log on Redis promises: it survives an unavailable server, a lost reply is not a second record, and an
//! owner that was absent too long is fenced.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::time::Millis;
use tidegate_log::redis::{RedisLog, RedisLogOptions};
use tidegate_log::{
    Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, Lag, Log, LogError, LogSettings, Record,
    Topic,
};
use tidegate_testkit::servers::{Proxy, RedisOptions, RedisServer};
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_secs(150);
const GROUP: &str = "high-worker";

/// Long enough that nobody loses a partition because the machine stalls.
fn open(url: String, prefix: &str) -> RedisLog {
    open_for(url, prefix, Millis(60_000))
}

fn open_for(url: String, prefix: &str, session_timeout: Millis) -> RedisLog {
    let mut settings = LogSettings {
        prefix: prefix.to_owned(),
        session_timeout,
        send_timeout: Millis(20_000),
        ..LogSettings::default()
    };
    settings.high.partitions = 4;
    let options = RedisLogOptions {
        settings,
        ..RedisLogOptions::new(url)
    };
    RedisLog::open(options).expect("the log opens")
}

fn record(key: &str, value: u64) -> Record {
    Record {
        topic: Topic::High,
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from(value.to_string()),
    }
}

async fn consume(log: &RedisLog) -> Box<dyn Consumer> {
    let params = ConsumeParams {
        topic: Topic::High,
        group: GROUP.into(),
        owner: "test".into(),
        max_buffered: 100,
    };
    log.consume(params).await.expect("a consumer")
}

async fn look(consumer: &dyn Consumer) -> Batch {
    let batch = consumer.next(100, Duration::from_millis(100)).await;
    batch.unwrap_or_else(|error| {
        assert!(error.is_retryable(), "{error}");
        Batch::default()
    })
}

/// Retries until there is a reply. Background calls fail after two seconds, and a busy machine may take longer.
async fn retry_until_available<T, F: Future<Output = Result<T, LogError>>>(mut call: impl FnMut() -> F) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error}"),
        }
    }
}

async fn commit(consumer: &dyn Consumer, offsets: &[CommittedOffset]) -> Vec<CommitOutcome> {
    retry_until_available(|| consumer.commit(offsets)).await
}

async fn lag(log: &RedisLog) -> Lag {
    retry_until_available(|| log.lag(Topic::High, GROUP)).await
}

fn offsets(batch: &Batch) -> Vec<CommittedOffset> {
    let mut offsets = BTreeMap::new();
    for record in &batch.records {
        offsets.insert(record.position.partition, record.position.offset + 1);
    }
    offsets
        .into_iter()
        .map(|(partition, next)| CommittedOffset { partition, next })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_answer_is_lost_is_one_record() {
    let proxy = Proxy::start(RedisServer::shared().port()).expect("a proxy");
    let log = open(proxy.url(), "lost-answer.");
    retry_until_available(|| log.check()).await;
    for number in 0..20 {
        proxy.drop_next_reply();
        log.append(vec![record("a", number)])
            .await
            .remove(0)
            .expect("appended in the end");
    }
    assert_eq!(proxy.dropped_replies(), 20);
    let lag = lag(&log).await;
    assert_eq!(lag.records(), 20, "each is there once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_server_is_reported_quickly_and_nothing_that_was_answered_is_lost() {
    let mut server = RedisServer::start(RedisOptions::durable()).expect("a server");
    let log = open(server.url(), "");
    let consumer = consume(&log).await;
    let mut answered = 0;
    for number in 0..50 {
        log.append(vec![record("a", number)])
            .await
            .remove(0)
            .expect("appended");
        answered += 1;
    }
    let mut seen = Vec::new();
    while seen.len() < 10 {
        seen.extend(look(&*consumer).await.records);
    }

    server.kill().expect("killed");
    let begun = Instant::now();
    let refused = log
        .append(vec![record("a", 50)])
        .await
        .remove(0)
        .expect_err("nobody is there");
    assert!(refused.is_retryable(), "{refused}");
    // The call retries for twenty seconds.
    assert!(begun.elapsed() < DEADLINE, "{:?}", begun.elapsed());
    let failure = tokio::time::timeout(DEADLINE, async {
        loop {
            match consumer.next(100, Duration::from_millis(100)).await {
                Ok(batch) => seen.extend(batch.records),
                Err(error) => return error,
            }
        }
    });
    let failure = failure.await.expect("it is reported");
    assert!(matches!(failure, LogError::Unavailable { .. }), "{failure}");

    server.restart().expect("started again");
    // The rejected record may have arrived: a client cannot know.
    for number in 51..100 {
        log.append(vec![record("a", number)])
            .await
            .remove(0)
            .expect("appended");
        answered += 1;
    }
    let all = tokio::time::timeout(DEADLINE, async {
        loop {
            let batch = look(&*consumer).await;
            commit(&*consumer, &offsets(&batch)).await;
            seen.extend(batch.records);
            let lag = lag(&log).await;
            if lag.records() == 0 && lag.partitions.iter().any(|lag| lag.end >= answered) {
                return;
            }
        }
    });
    all.await.expect("everything is done in the end");
    let mut numbers: Vec<u64> = seen
        .iter()
        .map(|record| String::from_utf8_lossy(&record.value).parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(
        (0..100)
            .filter(|number| *number != 50)
            .all(|number| numbers.contains(&number)),
        "{numbers:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_absent_too_long_is_fenced() {
    let server = RedisServer::shared();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    // Longer than a machine stalls: only the stalled member may lose partitions.
    let open = |url| open_for(url, "fenced.", Millis(12_000));
    let (stalled_log, other_log) = (open(proxy.url()), open(server.url()));
    for number in 0..40 {
        let key = format!("key-{number}");
        other_log
            .append(vec![record(&key, number)])
            .await
            .remove(0)
            .expect("appended");
    }
    let stalled: Arc<dyn Consumer> = Arc::from(consume(&stalled_log).await);
    let mut taken = Batch::default();
    while taken.records.len() < 40 {
        taken.records.extend(look(&*stalled).await.records);
    }

    proxy.stall(true);
    // Sent while it is the owner, received when it no longer is.
    let on_its_way = tokio::spawn({
        let (stalled, offsets) = (stalled.clone(), offsets(&taken));
        async move { stalled.commit(&offsets).await }
    });
    let other = consume(&other_log).await;
    let heir = tokio::time::timeout(DEADLINE, async {
        let mut heir = Batch::default();
        while heir.records.len() < 40 {
            heir.records.extend(look(&*other).await.records);
        }
        heir
    });
    let heir = heir.await.expect("the other gets everything");
    // While it gets no replies, it releases by itself what another may have.
    let mut revoked = Vec::new();
    while revoked.len() < 4 {
        let batch = look(&*stalled).await;
        assert!(
            batch.records.is_empty(),
            "nothing is handed out that another may have"
        );
        revoked.extend(batch.revoked);
    }
    proxy.stall(false);
    let late = commit(&*stalled, &offsets(&taken)).await;
    assert!(
        late.iter().all(|outcome| *outcome == CommitOutcome::Lost),
        "{late:?}"
    );
    match on_its_way.await.expect("no panic") {
        Ok(outcomes) => assert!(
            outcomes.iter().all(|outcome| *outcome == CommitOutcome::Lost),
            "{outcomes:?}"
        ),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
    assert_eq!(lag(&other_log).await.records(), 40);
    let offsets = offsets(&heir);
    let outcomes = commit(&*other, &offsets).await;
    let held: usize = outcomes
        .iter()
        .filter(|outcome| **outcome == CommitOutcome::Committed)
        .count();
    assert!(
        held >= 2,
        "what it still has when the first one is back: {outcomes:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_refused_at_once() {
    let proxy = Proxy::start(RedisServer::shared().port()).expect("a proxy");
    let mut settings = LogSettings {
        prefix: "full.".into(),
        max_queued: 10,
        // Longer than a machine stalls: until then the capacity is taken.
        send_timeout: Millis(15_000),
        ..LogSettings::default()
    };
    settings.high.partitions = 4;
    let options = RedisLogOptions {
        settings,
        ..RedisLogOptions::new(proxy.url())
    };
    let log = RedisLog::open(options).expect("the log opens");
    retry_until_available(|| log.check()).await;
    proxy.stall(true);
    let waiting = log.append((0..10).map(|number| record("a", number)).collect());
    tokio::pin!(waiting);
    // It has started, so it has taken all the capacity.
    let begun = tokio::time::timeout(Duration::from_millis(1), waiting.as_mut()).await;
    assert!(begun.is_err(), "no answer can come");
    let refused = log.append(vec![record("a", 10)]).await.remove(0);
    assert_eq!(refused, Err(LogError::Full));
    let begun = tokio::time::timeout(Duration::ZERO, waiting.as_mut()).await;
    assert!(begun.is_err(), "it did not wait for the others");
    let answers = waiting.await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().is_err_and(LogError::is_retryable)),
        "{answers:?}"
    );
    proxy.stall(false);
    log.append(vec![record("a", 11)])
        .await
        .remove(0)
        .expect("there is room again");
}

/// Everything that is not done, in order; commits what it returns.
async fn drain(consumer: &dyn Consumer, count: usize) -> Vec<(String, String)> {
    let until = Instant::now() + DEADLINE;
    let mut seen = Vec::new();
    while seen.len() < count {
        assert!(Instant::now() < until, "waited in vain: {seen:?}");
        let batch = look(consumer).await;
        for outcome in commit(consumer, &offsets(&batch)).await {
            assert_eq!(outcome, CommitOutcome::Committed);
        }
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        seen.extend(
            batch
                .records
                .iter()
                .map(|record| (text(&record.key), text(&record.value))),
        );
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_into_a_stream_ended_every_start() {
    let server = RedisServer::shared();
    let log = open(server.url(), "others.");
    let first = log
        .append(vec![record("a", 1)])
        .await
        .remove(0)
        .expect("appended");
    let stream = format!(
        "others.log:{{others.update-priority-high:{}}}:records",
        first.partition
    );
    let write = |id: &str, fields: &[&str]| {
        let words = [&["XADD", &stream, id], fields].concat();
        let reply = server.command(&words).expect("an answer");
        reply.text().unwrap_or_else(|| panic!("{reply:?}"))
    };
    // Ids that Redis assigns, in one millisecond or not; an id beside ours; more and fewer fields than ours.
    let beside = write(&format!("{}-7", first.offset), &["note", "beside"]);
    let ids = [
        write("*", &["note", "\"quoted\""]),
        write("*", &["a", "1", "b", "2", "c", "3", "d", "4"]),
    ];
    let known = write("*", &["t", "no time", "k", "theirs", "v", "a value"]);
    let consumer = consume(&log).await;
    let expected = |id: &str, fields: &str| (String::new(), format!("[\"{id}\",[{fields}]]"));
    let mut wanted = vec![
        ("a".to_owned(), "1".to_owned()),
        expected(&beside, r#""note","beside""#),
        expected(&ids[0], r#""note","\"quoted\"""#),
        expected(&ids[1], r#""a","1","b","2","c","3","d","4""#),
        ("theirs".to_owned(), "a value".to_owned()),
    ];
    assert_eq!(drain(&*consumer, 5).await, wanted, "{known}");

    // Entries between two appends, and one that leaves only its id behind.
    let between = write("*", &["note", "between"]);
    log.append(vec![record("a", 2)])
        .await
        .remove(0)
        .expect("appended");
    let gone = write("*", &["note", "gone"]);
    server.command(&["XDEL", &stream, &gone]).expect("deleted");
    log.append(vec![record("a", 3)])
        .await
        .remove(0)
        .expect("appended");
    let last = write("18446744073709551615-18446744073709551615", &["note", "last"]);
    log.append(vec![record("a", 4)])
        .await
        .remove(0)
        .expect("appended");
    wanted = vec![
        expected(&between, r#""note","between""#),
        ("a".to_owned(), "2".to_owned()),
        ("a".to_owned(), "3".to_owned()),
        expected(&last, r#""note","last""#),
        ("a".to_owned(), "4".to_owned()),
    ];
    assert_eq!(drain(&*consumer, 5).await, wanted);
    let lag = lag(&log).await;
    let lag = &lag.partitions[first.partition as usize];
    assert_eq!(
        (lag.records(), lag.end),
        (0, first.offset + 10),
        "offsets follow each other"
    );
    consumer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_first_is_kept() {
    let server = RedisServer::shared();
    let log = open(server.url(), "first.");
    for partition in 0..4 {
        let stream = format!("first.log:{{first.update-priority-high:{partition}}}:records");
        server
            .command(&["XADD", &stream, "*", "number", &partition.to_string()])
            .expect("written");
    }
    log.append(vec![record("a", 1)])
        .await
        .remove(0)
        .expect("appended");
    let consumer = consume(&log).await;
    let seen = drain(&*consumer, 5).await;
    for partition in 0..4 {
        let end = format!("[\"number\",\"{partition}\"]]");
        assert!(seen.iter().any(|(_, value)| value.ends_with(&end)), "{seen:?}");
    }
    assert!(seen.contains(&("a".to_owned(), "1".to_owned())), "{seen:?}");
    consumer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_with_other_key_prefixes_are_apart() {
    let server = RedisServer::shared();
    let open = |key_prefix: &str| {
        let options = RedisLogOptions {
            key_prefix: key_prefix.to_owned(),
            ..RedisLogOptions::new(server.url())
        };
        RedisLog::open(options)
    };
    let (one, two) = (
        open("apart-one:").expect("opens"),
        open("apart-two:").expect("opens"),
    );
    one.append(vec![record("a", 1)])
        .await
        .remove(0)
        .expect("appended");
    assert_eq!(lag(&one).await.records(), 1);
    assert_eq!(lag(&two).await.records(), 0);
    let refused = open("{a}:").expect_err("a brace moves keys").to_string();
    assert!(refused.contains("{a}:"), "{refused}");
}

/// Replaces the contents of a server's folder by a copy.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("its files") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

async fn append(log: &RedisLog, numbers: Range<u64>) -> u32 {
    let records = numbers.map(|number| record("a", number)).collect();
    let appended = log.append(records).await.into_iter();
    let positions: Vec<_> = appended.map(|answer| answer.expect("appended")).collect();
    positions[0].partition
}

/// Polls until so many records have come, whatever is reported between them.
async fn numbers(consumer: &dyn Consumer, count: usize) -> Vec<u64> {
    let until = Instant::now() + DEADLINE;
    let mut numbers = Vec::new();
    while numbers.len() < count {
        assert!(Instant::now() < until, "waited in vain: {numbers:?}");
        let batch = look(consumer).await;
        let number = |value: &Bytes| String::from_utf8_lossy(value).parse::<u64>().expect("a number");
        numbers.extend(batch.records.iter().map(|record| number(&record.value)));
    }
    numbers
}

/// As with `appendfsync everysec` after a crash, or a promoted replica: the server returns within the session and has lost
/// its last moments. The log delivers the records that replace the lost ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_in_the_place_of_forgotten_ones_were_skipped() {
    let mut server = RedisServer::start(RedisOptions::durable()).expect("a server");
    let log = open_for(server.url(), "", Millis(60_000));
    let consumer = consume(&log).await;
    let partition = append(&log, 0..10).await;
    assert_eq!(numbers(&*consumer, 10).await, (0..10).collect::<Vec<_>>());
    let offset = |next| [CommittedOffset { partition, next }];
    let stored = commit(&*consumer, &offset(4)).await;
    assert_eq!(stored, [CommitOutcome::Committed]);

    let (files, kept) = (
        server.folder().join("appendonlydir"),
        server.folder().join("kept"),
    );
    copy(&files, &kept);
    append(&log, 10..15).await;
    assert_eq!(numbers(&*consumer, 5).await, (10..15).collect::<Vec<_>>());
    server.kill().expect("killed");
    copy(&kept, &files);
    server.restart().expect("started again");

    // Offsets of the lost records must not cover their replacements, early or late. Nor do reads continue behind them while
    // there are records.
    let early = commit(&*consumer, &offset(15)).await;
    assert_eq!(early, [CommitOutcome::Lost]);
    append(&log, 100..110).await;
    let late = commit(&*consumer, &offset(15)).await;
    assert_ne!(late, [CommitOutcome::Committed]);
    let wanted: Vec<u64> = (4..10).chain(100..110).collect();
    assert_eq!(numbers(&*consumer, 16).await, wanted);
    let stored = commit(&*consumer, &offset(20)).await;
    assert_eq!(stored, [CommitOutcome::Committed]);
    assert_eq!(lag(&log).await.records(), 0);
    append(&log, 110..112).await;
    assert_eq!(numbers(&*consumer, 2).await, [110, 111]);
    consumer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_beyond_the_end_hid_the_next_records() {
    let server = RedisServer::shared();
    let log = open(server.url(), "beyond.");
    let partition = append(&log, 0..3).await;
    let offsets = format!("beyond.log:{{beyond.update-priority-high:{partition}}}:offsets");
    server
        .command(&["HSET", &offsets, GROUP, "8"])
        .expect("an offset of records that the server forgot");
    let consumer = consume(&log).await;
    while !look(&*consumer).await.assigned.contains(&partition) {}
    append(&log, 3..6).await;
    assert_eq!(numbers(&*consumer, 3).await, [3, 4, 5]);
    let offset = [CommittedOffset { partition, next: 4 }];
    let stored = commit(&*consumer, &offset).await;
    assert_eq!(stored, [CommitOutcome::Committed]);
    assert_eq!(lag(&log).await.records(), 2);
    consumer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_may_have_run_is_distinguished_from_one_that_did_not() {
    let server = RedisServer::start(RedisOptions::default()).expect("a server");
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let open = |url: String| {
        let mut options = RedisLogOptions::new(url);
        options.settings.send_timeout = Millis(1_500);
        RedisLog::open(options).expect("the log opens")
    };
    let log = open(proxy.url());
    let append = async || log.append(vec![record("a", 1)]).await.remove(0);
    retry_until_available(|| async { append().await }).await;

    proxy.stall(true);
    assert_eq!(append().await, Err(LogError::Timeout(1_500)), "nobody knows");
    proxy.stall(false);

    let full = ["CONFIG", "SET", "maxmemory", "1"];
    server.command(&full).expect("no memory is left");
    let until = Instant::now() + DEADLINE;
    loop {
        let refused = append().await.expect_err("it is refused");
        match &refused {
            LogError::Unavailable { reason, .. } if reason.contains("maxmemory") => break,
            // A server on a busy machine may not reply in time.
            _ => assert!(refused.is_retryable() && Instant::now() < until, "{refused}"),
        }
    }

    let nobody = open("redis://127.0.0.1:1/".to_owned());
    let refused = nobody.append(vec![record("a", 1)]).await.remove(0);
    assert!(
        matches!(refused, Err(LogError::Unavailable { .. })),
        "nothing was sent: {refused:?}"
    );
}
