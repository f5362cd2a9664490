//! Append: every confirmed record exists, in order and unchanged.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::harness::{Backend, Harness, record, text, texts};
use crate::log::MAX_RECORD;
use crate::{LogError, Record, Topic};

pub async fn what_was_appended_is_read_in_order(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut positions = Vec::new();
    for number in 0..20 {
        positions.extend(harness.append(&[("a", &number.to_string())]).await);
    }
    assert!(positions.is_sorted(), "offsets rise: {positions:?}");
    let read = harness.read(Topic::High, positions[0], 100).await;
    let expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(texts(&read), expected);
    let read_at: Vec<_> = read.iter().map(|record| record.position).collect();
    assert_eq!(read_at, positions, "each where its answer says");
    assert!(read.is_sorted_by_key(|record| record.appended_at));
    let page = harness.read(Topic::High, positions[5], 3).await;
    assert_eq!(texts(&page), ["5", "6", "7"]);
}

pub async fn each_record_is_answered_for_itself(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let huge = Record {
        topic: Topic::High,
        key: Bytes::from_static(b"huge"),
        value: Bytes::from(vec![0; 4_000_000]),
    };
    let records = vec![
        record(Topic::High, "a", "1"),
        huge,
        record(Topic::Low, "b", "2"),
        record(Topic::High, "a", "3"),
    ];
    let answers = harness.log.append(records).await;
    assert_eq!(answers.len(), 4);
    assert!(
        matches!(answers[1], Err(LogError::TooLarge { .. })),
        "{:?}",
        answers[1]
    );
    let high = harness
        .read(Topic::High, answers[0].clone().expect("accepted"), 10)
        .await;
    assert_eq!(texts(&high), ["1", "3"]);
    assert_eq!(high[1].position, answers[3].clone().expect("accepted"));
    let low = harness
        .read(Topic::Low, answers[2].clone().expect("accepted"), 10)
        .await;
    assert_eq!(texts(&low), ["2"]);
}

pub async fn a_key_keeps_its_partition(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut seen: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for round in 0..3 {
        for number in 0..40 {
            let key = format!("key-{number}");
            let at = harness.append(&[(&key, &round.to_string())]).await;
            seen.entry(key).or_default().insert(at[0].partition);
        }
    }
    assert!(seen.values().all(|partitions| partitions.len() == 1), "{seen:?}");
    let used: BTreeSet<u32> = seen.into_values().flatten().collect();
    assert_eq!(used, harness.partitions(), "forty keys reach every partition");
}

pub async fn any_bytes_pass_through_untouched(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let all: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..1_000_000u32)
        .map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    let values = [
        Vec::new(),
        vec![0],
        b"\xff\xfe{not json".to_vec(),
        all.clone(),
        large,
    ];
    let mut expected = BTreeMap::new();
    for (number, value) in values.into_iter().enumerate() {
        for key in [vec![number as u8], [&all[..], &[number as u8]].concat()] {
            expected.insert(key, value.clone());
        }
    }
    expected.insert(Vec::new(), b"an empty key".to_vec());
    for (key, value) in &expected {
        let record = Record {
            topic: Topic::High,
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(value),
        };
        harness.append_all(vec![record]).await;
    }
    let mut member = harness.consume().await;
    let delivered = member.take(expected.len()).await;
    let delivered: BTreeMap<Vec<u8>, Vec<u8>> = delivered
        .iter()
        .map(|record| (record.key.to_vec(), record.value.to_vec()))
        .collect();
    assert!(
        delivered == expected,
        "what was delivered differs from what was appended"
    );
    let read = harness.everything(Topic::High).await;
    let read: BTreeMap<Vec<u8>, Vec<u8>> = read
        .iter()
        .map(|record| (record.key.to_vec(), record.value.to_vec()))
        .collect();
    assert!(read == expected, "what was read differs from what was appended");
}

pub async fn a_dead_letter_has_room_for_the_largest_record(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let noise = |bytes: usize| -> Bytes {
        let noise = (0..bytes as u32).map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()[3]);
        noise.collect()
    };
    let of = |topic, bytes| Record {
        topic,
        key: Bytes::new(),
        value: noise(bytes),
    };
    harness.append_all(vec![of(Topic::High, MAX_RECORD)]).await;
    // Two characters for each byte, and the description.
    let dead_letter = of(Topic::Dead, 2 * MAX_RECORD + 50_000);
    harness.append_all(vec![dead_letter.clone()]).await;
    let read = harness.everything(Topic::Dead).await;
    assert!(
        read.len() == 1 && read[0].value == dead_letter.value,
        "the dead letter is not there as it was"
    );
}

pub async fn concurrent_appends_lose_nothing_and_keep_each_order(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let writers = (0..8).map(|writer| {
        let log = harness.log.clone();
        tokio::spawn(async move {
            for batch in 0..10 {
                let records = (0..5).map(|number| {
                    let value = format!("{}", batch * 5 + number);
                    record(Topic::High, &format!("writer-{writer}"), &value)
                });
                for answer in log.append(records.collect()).await {
                    answer.expect("accepted");
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("a writer");
    }
    let mut values: BTreeMap<Vec<u8>, Vec<String>> = BTreeMap::new();
    for record in harness.everything(Topic::High).await {
        values.entry(record.key.to_vec()).or_default().push(text(&record));
    }
    let expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    assert_eq!(values.len(), 8);
    for (writer, values) in values {
        assert_eq!(values, expected, "{}", String::from_utf8_lossy(&writer));
    }
}

pub async fn a_call_without_records_is_answered(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    assert!(harness.log.append(Vec::new()).await.is_empty());
}

pub async fn topics_are_apart(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let records = Topic::ALL.map(|topic| record(topic, "same key", topic.name()));
    harness.append_all(records.to_vec()).await;
    for topic in Topic::ALL {
        assert_eq!(texts(&harness.everything(topic).await), [topic.name()]);
    }
}
