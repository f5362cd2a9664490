//! The key names, in one place. All keys of a partition share a hash tag, so they are on one server of a Cluster; the
//! partitions spread over all of them.

use crate::Topic;

#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// The start of every key.
    stem: String,
    /// The prefix of the topics.
    prefix: String,
}

impl Keys {
    pub(super) fn new(key_prefix: &str, prefix: &str) -> Self {
        Self {
            stem: format!("{key_prefix}{prefix}log:"),
            prefix: prefix.to_owned(),
        }
    }

    pub(super) fn layout(&self) -> String {
        format!("{}{{{}layout}}", self.stem, self.prefix)
    }

    pub(super) fn members(&self, topic: Topic, group: &str) -> String {
        format!("{}{{{}{topic}}}:members:{group}", self.stem, self.prefix)
    }

    pub(super) fn partition(&self, topic: Topic, partition: u32) -> PartitionKeys {
        PartitionKeys {
            stem: format!("{}{{{}{topic}:{partition}}}:", self.stem, self.prefix),
        }
    }
}

/// The keys of one partition.
#[derive(Debug, Clone)]
pub(super) struct PartitionKeys {
    stem: String,
}

impl PartitionKeys {
    pub(super) fn records(&self) -> String {
        format!("{}records", self.stem)
    }

    pub(super) fn head(&self) -> String {
        format!("{}head", self.stem)
    }

    pub(super) fn recent(&self) -> String {
        format!("{}recent", self.stem)
    }

    pub(super) fn offsets(&self) -> String {
        format!("{}offsets", self.stem)
    }

    pub(super) fn groups(&self) -> String {
        format!("{}groups", self.stem)
    }

    pub(super) fn lease(&self, group: &str) -> String {
        format!("{}lease:{group}", self.stem)
    }
}
