//! The names of the keys, in one place. Keys that scripts build begin with the same prefix and tag.

use tidegate_core::ids::{RecordId, RoomId, TargetId};

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

/// Key names of the refresh part. The tag in braces is the record's or the target's, which spreads records over
/// a Cluster.
#[derive(Debug, Clone)]
pub(super) struct RefreshKeys {
    prefix: String,
}

impl RefreshKeys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    pub(super) fn schema(&self) -> String {
        format!("{}{{refresh}}:schema", self.prefix)
    }

    /// `upd:{source/key}`.
    pub(super) fn record(&self, record: &RecordId) -> String {
        let mut key = format!("{}upd:{{", self.prefix);
        escape(&mut key, record.source.as_str());
        key.push('/');
        escape(&mut key, record.key.as_str());
        key.push('}');
        key
    }

    /// `rate:{target}`.
    pub(super) fn target(&self, target: &TargetId) -> String {
        let mut key = format!("{}rate:{{", self.prefix);
        escape(&mut key, target.as_str());
        key.push('}');
        key
    }
}

/// Key names of the waiting rooms. The tag in braces is the room's, which keeps a room in one slot and spreads
/// rooms over a Cluster.
#[derive(Debug, Clone)]
pub(super) struct RoomKeys {
    prefix: String,
}

impl RoomKeys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    pub(super) fn schema(&self) -> String {
        format!("{}schema", self.prefix)
    }

    /// The list of rooms.
    pub(super) fn rooms(&self) -> String {
        format!("{}rooms", self.prefix)
    }

    /// The channel of the signals of all rooms.
    pub(super) fn signals(&self) -> String {
        format!("{}signals", self.prefix)
    }

    /// The channel of superseded streams; scripts derive its name from that of the signals.
    pub(super) fn streams(&self) -> String {
        format!("{}signals:streams", self.prefix)
    }

    /// `{room}:head`; scripts derive the other keys from it.
    pub(super) fn head(&self, room: &RoomId) -> String {
        let mut key = format!("{}{{", self.prefix);
        escape(&mut key, room.as_str());
        key.push_str("}:head");
        key
    }
}

/// Escapes braces, which would end the tag, and the slash that separates source and key.
fn escape(key: &mut String, name: &str) {
    for character in name.chars() {
        match character {
            '%' => key.push_str("%25"),
            '{' => key.push_str("%7B"),
            '}' => key.push_str("%7D"),
            '/' => key.push_str("%2F"),
            plain => key.push(plain),
        }
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
    use tidegate_core::ids::{RecordId, RecordKey, RoomId, SourceId};

    use super::{RefreshKeys, RoomKeys, slot};

    #[test]
    fn the_tag_of_a_record_holds_its_whole_name() {
        let keys = RefreshKeys::new("r:");
        let key = |source: &str, key: &str| {
            keys.record(&RecordId {
                source: SourceId::new(source).unwrap(),
                key: RecordKey::new(key).unwrap(),
            })
        };
        assert_eq!(key("character", "루나"), "r:upd:{character/루나}");
        assert_eq!(key("a/b", "}{%"), "r:upd:{a%2Fb/%7D%7B%25}");
        assert_eq!(slot(&key("c", "}")), slot("{c/%7D}"));
    }

    #[test]
    fn the_tag_of_a_room_holds_its_whole_name() {
        let keys = RoomKeys::new("room:");
        let head = |room: &str| keys.head(&RoomId::new(room).unwrap());
        assert_eq!(head("봄 콘서트"), "room:{봄 콘서트}:head");
        assert_eq!(head("}:{%"), "room:{%7D:%7B%25}:head");
        assert_eq!(slot(&head("a}b")), slot("{a%7Db}"));
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("bulk-action:{0}:meta"), slot("{0}"));
        assert_eq!(slot("foo"), 12_182);
    }
}
