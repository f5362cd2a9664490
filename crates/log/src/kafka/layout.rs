//! The topics: creates missing ones, compares existing ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminOptions, ConfigResource, NewTopic, OwnedResourceSpecifier, ResourceSpecifier, TopicReplication,
};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tidegate_core::time::Millis;

use super::client::{code_of, max_message, unavailable};
use super::{PATIENCE, Shared};
use crate::{LogError, Topic};

/// Limit: one metadata request, so that a waiting append soon gets another attempt.
const ASK: Duration = Duration::from_secs(3);
/// Pause between two checks whether the brokers know a new topic.
const LOOK: Duration = Duration::from_millis(50);

const POLICY: &str = "cleanup.policy";
const RETENTION: &str = "retention.ms";

/// Creates missing topics and compares the rest.
pub(super) async fn ensure(shared: &Arc<Shared>) -> Result<(), LogError> {
    let found = shared.blocking(find).await?;
    let missing: Vec<Topic> = missing(&found).collect();
    check(shared, &found)?;
    check_settings(shared, &found).await?;
    if missing.is_empty() {
        return Ok(());
    }
    create(shared, &missing).await?;
    let found = shared.blocking(wait).await?;
    check(shared, &found)
}

/// A topic as the brokers report it.
#[derive(Debug, Clone, Copy)]
struct Laid {
    partitions: u32,
    /// Replicas of the partition that has the fewest.
    copies: usize,
}

/// Each topic; none if it does not exist.
type Found = Vec<(Topic, Option<Laid>)>;

fn missing(found: &Found) -> impl Iterator<Item = Topic> + '_ {
    found
        .iter()
        .filter(|(_, laid)| laid.is_none())
        .map(|(topic, _)| *topic)
}

fn there(found: &Found) -> impl Iterator<Item = (Topic, Laid)> + '_ {
    found.iter().filter_map(|(topic, laid)| Some((*topic, (*laid)?)))
}

fn check(shared: &Shared, found: &Found) -> Result<(), LogError> {
    for (topic, laid) in there(found) {
        let configured = shared.settings.partitions(topic);
        if laid.partitions != configured {
            return Err(LogError::Layout {
                topic: shared.settings.name(topic),
                configured,
                found: laid.partitions,
            });
        }
    }
    Ok(())
}

/// Topics that others created must guarantee what we rely on: they retain every record, for the configured time.
async fn check_settings(shared: &Shared, found: &Found) -> Result<(), LogError> {
    let configured = usize::from(shared.settings.replication);
    let mut topics = Vec::new();
    for (topic, Laid { copies, .. }) in there(found) {
        let name = shared.settings.name(topic);
        if copies < configured {
            tracing::warn!(
                topic = name,
                copies,
                configured,
                "a topic has fewer copies than configured; records are lost when as many brokers are"
            );
        }
        topics.push((topic, name));
    }
    let asked: Vec<ResourceSpecifier<'_>> = topics
        .iter()
        .map(|(_, name)| ResourceSpecifier::Topic(name))
        .collect();
    if asked.is_empty() {
        return Ok(());
    }
    let options = AdminOptions::new().request_timeout(Some(ASK));
    let described: Vec<Result<ConfigResource, KafkaError>> =
        match shared.clients.admin().describe_configs(&asked, &options).await {
            Ok(described) => described
                .into_iter()
                .map(|one| one.map_err(KafkaError::AdminOp))
                .collect(),
            Err(error) => vec![Err(error)],
        };
    for described in described {
        match described {
            Ok(resource) => {
                let is_it = |(_, name): &&(Topic, String)| {
                    OwnedResourceSpecifier::Topic(name.clone()) == resource.specifier
                };
                if let Some((topic, name)) = topics.iter().find(is_it) {
                    check_setting(shared.settings.topic(*topic).retention, name, &resource)?;
                }
            }
            Err(error) if may_not_describe(&error) => {
                tracing::warn!(%error, "cannot check whether the topics retain records as configured");
            }
            Err(error) => return Err(unavailable(shared.clients.brokers(), &error)),
        }
    }
    Ok(())
}

/// Describing settings is a separate permission, which a client that only uses topics need not have.
fn may_not_describe(error: &KafkaError) -> bool {
    matches!(
        code_of(error),
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::UnsupportedFeature
        )
    )
}

fn check_setting(retention: Millis, topic: &str, found: &ConfigResource) -> Result<(), LogError> {
    let value = |name| found.get(name).and_then(|entry| entry.value.clone());
    let wrong = |setting, found, right| {
        Err(LogError::TopicSetting {
            topic: topic.to_owned(),
            setting,
            found,
            right,
        })
    };
    // Compaction retains only the last record of a key.
    if let Some(policy) = value(POLICY).filter(|policy| policy != "delete") {
        return wrong(POLICY, policy, "delete".to_owned());
    }
    // A negative value means forever.
    let short =
        |kept: &String| (kept.parse::<i64>()).is_ok_and(|kept| (0..retention.0 as i64).contains(&kept));
    match value(RETENTION).filter(short) {
        Some(kept) => wrong(RETENTION, kept, format!("at least {}", retention.0)),
        None => Ok(()),
    }
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
            let laid = match known.map(|known| (known.error(), known.partitions())) {
                None => None,
                Some((None, partitions)) => Some(Laid {
                    partitions: partitions.len() as u32,
                    copies: (partitions.iter().map(|one| one.replicas().len()).min()).unwrap_or_default(),
                }),
                Some((Some(error), _)) => match RDKafkaErrorCode::from(error) {
                    RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => None,
                    error => return Err(failed(KafkaError::MetadataFetch(error))),
                },
            };
            Ok((topic, laid))
        })
        .collect()
}

/// Waits until every topic exists, with a leader for each partition.
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
    // With three replicas one broker may be unavailable, and every confirmed record is still on two.
    let min_in_sync = (replication / 2 + 1).to_string();
    let named: Vec<(String, String, String, i32)> = topics
        .iter()
        .map(|topic| {
            let settings = shared.settings.topic(*topic);
            let name = shared.settings.name(*topic);
            let size = max_message(*topic).to_string();
            (
                name,
                settings.retention.0.to_string(),
                size,
                settings.partitions as i32,
            )
        })
        .collect();
    let new: Vec<NewTopic<'_>> = named
        .iter()
        .map(|(name, retention, size, partitions)| {
            NewTopic::new(name, *partitions, TopicReplication::Fixed(i32::from(replication)))
                .set(POLICY, "delete")
                .set(RETENTION, retention)
                .set("message.timestamp.type", "LogAppendTime")
                .set("max.message.bytes", size)
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
                tracing::warn!(topic = name, %error, "failed to create a topic");
                return Err(unavailable(shared.clients.brokers(), &error));
            }
        }
    }
    Ok(())
}
