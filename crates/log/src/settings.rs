//! The topics and their settings.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_core::time::Millis;

use crate::LogError;

const HOUR: u64 = 60 * 60 * 1_000;

/// Limit: partitions of a topic.
const MAX_PARTITIONS: u32 = 1_024;

/// The purpose of a record. No other topics exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// Refreshes that somebody waits for.
    High,
    /// Refreshes that nobody waits for.
    Low,
    /// Dead letters.
    Dead,
}

impl Topic {
    pub const ALL: [Topic; 3] = [Topic::High, Topic::Low, Topic::Dead];

    /// The name without the prefix of the settings.
    pub fn name(self) -> &'static str {
        match self {
            Topic::High => "update-priority-high",
            Topic::Low => "update-priority-low",
            Topic::Dead => "update-dlq",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSettings {
    /// Fixed when the topic is created: a key keeps its partition.
    pub partitions: u32,
    /// The log drops records older than this, consumed or not.
    pub retention: Millis,
    /// The log drops records that every group is done with when they are older than this; none: only `retention`
    /// applies. A group counts from its first commit. For backends that keep records in memory or on this disk; Kafka
    /// has only the retention. Default: none.
    #[serde(default)]
    pub completed_retention: Option<Millis>,
}

impl TopicSettings {
    /// How long the log retains a done record.
    pub(crate) fn completed_retention(&self) -> Millis {
        self.completed_retention
            .unwrap_or(self.retention)
            .min(self.retention)
    }

    fn hours(partitions: u32, hours: u64) -> Self {
        Self {
            partitions,
            retention: Millis(hours * HOUR),
            completed_retention: None,
        }
    }
}

/// Settings of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// The start of every topic name: letters, digits, `.`, `_`, `-`. Default: nothing.
    pub prefix: String,
    pub high: TopicSettings,
    pub low: TopicSettings,
    pub dead: TopicSettings,
    /// Replicas of each record in Kafka. Default 3.
    pub replication: u16,
    /// Longest wait for the confirmation of an append. Default 1,000 ms.
    pub send_timeout: Millis,
    /// Records that may wait to be appended; the log rejects further ones at once. Default 10,000.
    pub max_queued: usize,
    /// A consumer without a heartbeat for this long loses its partitions. Default 10,000 ms.
    pub session_timeout: Millis,
    /// How often the log sweeps for expired records, where the backend does not do so itself. Default 60,000 ms.
    pub sweep_every: Millis,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            high: TopicSettings::hours(24, 24),
            low: TopicSettings::hours(24, 72),
            dead: TopicSettings::hours(12, 168),
            replication: 3,
            send_timeout: Millis(1_000),
            max_queued: 10_000,
            session_timeout: Millis(10_000),
            sweep_every: Millis(60_000),
        }
    }
}

impl LogSettings {
    pub fn topic(&self, topic: Topic) -> &TopicSettings {
        match topic {
            Topic::High => &self.high,
            Topic::Low => &self.low,
            Topic::Dead => &self.dead,
        }
    }

    pub fn partitions(&self, topic: Topic) -> u32 {
        self.topic(topic).partitions
    }

    /// The name with its prefix.
    pub fn name(&self, topic: Topic) -> String {
        format!("{}{}", self.prefix, topic.name())
    }

    /// The error names the wrong value and a right one.
    pub fn validate(&self) -> Result<(), LogError> {
        let refuse = |reason: String| Err(LogError::Config(reason));
        check_name("prefix", &self.prefix)?;
        for topic in Topic::ALL {
            let TopicSettings {
                partitions,
                retention,
                ..
            } = *self.topic(topic);
            if !(1..=MAX_PARTITIONS).contains(&partitions) {
                return refuse(format!(
                    "{topic} has {partitions} partitions; from 1 to {MAX_PARTITIONS} work"
                ));
            }
            if retention.0 == 0 {
                return refuse(format!("{topic} keeps records for 0 ms, so it would keep none"));
            }
        }
        if self.replication == 0 {
            return refuse("replication = 0: at least one copy is needed".into());
        }
        if self.max_queued == 0 {
            return refuse("max_queued = 0: nothing could be appended".into());
        }
        for (name, span) in [
            ("send_timeout", self.send_timeout),
            ("session_timeout", self.session_timeout),
            ("sweep_every", self.sweep_every),
        ] {
            if span.0 == 0 {
                return refuse(format!("{name} = 0 ms: a time above 0 is needed"));
            }
        }
        Ok(())
    }
}

/// Names become parts of topic names and keys, where other characters have a meaning.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), LogError> {
    let fine = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    if name.len() <= 100 && name.chars().all(fine) {
        return Ok(());
    }
    Err(LogError::Config(format!(
        "{what} {name:?}: only letters, digits, '.', '_' and '-' are allowed, at most 100"
    )))
}

/// Like [`check_name`], but the name must not be empty.
pub(crate) fn check_some_name(what: &str, name: &str) -> Result<(), LogError> {
    if name.is_empty() {
        return Err(LogError::Config(format!("{what} is empty")));
    }
    check_name(what, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_topics() {
        let settings = LogSettings::default();
        settings.validate().unwrap();
        let seen: Vec<_> = Topic::ALL
            .map(|topic| {
                (
                    settings.name(topic),
                    settings.partitions(topic),
                    settings.topic(topic).retention.0 / HOUR,
                )
            })
            .into();
        assert_eq!(
            seen,
            [
                ("update-priority-high".to_owned(), 24, 24),
                ("update-priority-low".to_owned(), 24, 72),
                ("update-dlq".to_owned(), 12, 168)
            ]
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_value() {
        let wrong = |change: fn(&mut LogSettings)| {
            let mut settings = LogSettings::default();
            change(&mut settings);
            settings.validate().unwrap_err().to_string()
        };
        assert!(wrong(|s| s.high.partitions = 0).contains("update-priority-high has 0 partitions"));
        assert!(wrong(|s| s.low.partitions = 5_000).contains("5000"));
        assert!(wrong(|s| s.dead.retention = Millis(0)).contains("update-dlq"));
        assert!(wrong(|s| s.prefix = "a{b}".into()).contains("a{b}"));
        assert!(wrong(|s| s.max_queued = 0).contains("max_queued"));
        assert!(wrong(|s| s.session_timeout = Millis(0)).contains("session_timeout"));
    }
}
