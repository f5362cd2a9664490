//! The names of the keys, in one place. Keys that scripts build begin with the same prefix and tag.

/// The prefix of a shard's keys: `bulk-action:{0}:`. The tag in braces keeps them in one slot of a Cluster.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    pub(super) fn meta(&self, shard: u32) -> String {
        format!("{}{{{shard}}}:meta", self.prefix)
    }

    pub(super) fn signals(&self, shard: u32) -> String {
        format!("{}{{{shard}}}:signals", self.prefix)
    }

    /// Matches every key of the store, whatever characters the prefix has.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::new();
        for character in self.prefix.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern + "{*"
    }

    /// The window that all shards share; used with several shards only.
    pub(super) fn rate_limit(&self) -> String {
        format!("{}{{limit}}:rate-limit", self.prefix)
    }
}
