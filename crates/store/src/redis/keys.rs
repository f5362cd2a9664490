//! The names of the keys, in one place. What scripts build themselves begins with the same prefix and tag.

/// Where a shard's keys begin: `bulk-action:{0}:`. The tag in braces keeps them in one slot of a Cluster.
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

    pub(super) fn bells(&self, shard: u32) -> String {
        format!("{}{{{shard}}}:bells", self.prefix)
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

    /// The window that all shards share; used where there are several.
    pub(super) fn rate_limit(&self) -> String {
        format!("{}{{limit}}:rate-limit", self.prefix)
    }
}

/// The slot of a key in a Redis Cluster: CRC16 (XMODEM) of its tag, modulo 16384.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or(key, |(tag, _)| if tag.is_empty() { key } else { tag });
    let mut crc = 0u16;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("bulk-action:{0}:meta"), slot("{0}"));
        assert_eq!(slot("foo"), 12_182);
    }
}
