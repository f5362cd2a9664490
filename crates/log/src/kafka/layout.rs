//! The topics: made when they are missing, compared when they are there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::client::{MAX_MESSAGE, unavailable};
use super::{PATIENCE, Shared};
use crate::{LogError, Topic};

/// Limit: one question for metadata, so that somebody who waits for an append soon has another try.
const ASK: Duration = Duration::from_secs(3);
/// Between two looks whether a new topic is known.
const LOOK: Duration = Duration::from_millis(50);

/// Makes what is missing and compares the rest.
pub(super) async fn ensure(shared: &Arc<Shared>) -> Result<(), LogError> {
    let found = shared.blocking(find).await?;
    let missing: Vec<Topic> = missing(&found).collect();
    check(shared, &found)?;
    if missing.is_empty() {
        return Ok(());
    }
    create(shared, &missing).await?;
    let found = shared.blocking(wait).await?;
    check(shared, &found)
}

/// The partitions of each topic; none if it is not there.
type Found = Vec<(Topic, Option<u32>)>;

fn missing(found: &Found) -> impl Iterator<Item = Topic> + '_ {
    found
        .iter()
        .filter(|(_, partitions)| partitions.is_none())
        .map(|(topic, _)| *topic)
}

fn check(shared: &Shared, found: &Found) -> Result<(), LogError> {
    for (topic, partitions) in found {
        let configured = shared.settings.partitions(*topic);
        if let Some(found) = partitions.filter(|found| *found != configured) {
            return Err(LogError::Layout {
                topic: shared.settings.name(*topic),
                configured,
                found,
            });
        }
    }
    Ok(())
}

fn find(shared: &Shared) -> Result<Found, LogError> {
    let failed = |error: KafkaError| unavailable(shared.clients.brokers(), &error);
    let reader = shared.clients.reader();
    Topic::ALL
        .into_iter()
        .map(|topic| {
            let name = shared.settings.name(topic);
            let metadata = reader.fetch_metadata(Some(&name), ASK).map_err(failed)?;
            let known = metadata.topics().iter().find(|known| known.name() == name);
            let partitions = match known.map(|known| (known.error(), known.partitions().len())) {
                None => None,
                Some((None, partitions)) => Some(partitions as u32),
                Some((Some(error), _)) => match RDKafkaErrorCode::from(error) {
                    RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => None,
                    error => return Err(failed(KafkaError::MetadataFetch(error))),
                },
            };
            Ok((topic, partitions))
        })
        .collect()
}

/// Until every topic is there with a leader for each partition.
fn wait(shared: &Shared) -> Result<Found, LogError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = find(shared)?;
        if missing(&found).next().is_none() && led(shared)? {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(LogError::Unavailable {
                server: format!("Kafka at {}", shared.clients.brokers()),
                reason: "topics that were made are not there yet".into(),
            });
        }
        std::thread::park_timeout(LOOK);
    }
}

fn led(shared: &Shared) -> Result<bool, LogError> {
    let reader = shared.clients.reader();
    let mut led = true;
    for topic in Topic::ALL {
        let metadata = reader
            .fetch_metadata(Some(&shared.settings.name(topic)), ASK)
            .map_err(|error| unavailable(shared.clients.brokers(), &error))?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        led &= partitions.into_iter().all(|partition| partition.leader() >= 0);
    }
    Ok(led)
}

async fn create(shared: &Shared, topics: &[Topic]) -> Result<(), LogError> {
    let replication = shared.settings.replication;
    // With three copies one broker may be away, and what was answered is still on two.
    let min_in_sync = (replication / 2 + 1).to_string();
    let named: Vec<(String, String, i32)> = topics
        .iter()
        .map(|topic| {
            let settings = shared.settings.topic(*topic);
            let name = shared.settings.name(*topic);
            (name, settings.retention.0.to_string(), settings.partitions as i32)
        })
        .collect();
    let size = MAX_MESSAGE.to_string();
    let new: Vec<NewTopic<'_>> = named
        .iter()
        .map(|(name, retention, partitions)| {
            NewTopic::new(name, *partitions, TopicReplication::Fixed(i32::from(replication)))
                .set("cleanup.policy", "delete")
                .set("retention.ms", retention)
                .set("message.timestamp.type", "LogAppendTime")
                .set("max.message.bytes", &size)
                .set("min.insync.replicas", &min_in_sync)
        })
        .collect();
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let made = shared.clients.admin().create_topics(&new, &options).await;
    for made in made.map_err(|error| unavailable(shared.clients.brokers(), &error))? {
        match made {
            // Another process was faster.
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, error)) => {
                let error = KafkaError::AdminOp(error);
                tracing::warn!(topic = name, %error, "a topic cannot be made");
                return Err(unavailable(shared.clients.brokers(), &error));
            }
        }
    }
    Ok(())
}
