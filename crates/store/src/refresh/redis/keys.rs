//! The names of the keys. The tag in braces is the record's or the target's, which spreads records over a Cluster.

use tidegate_core::ids::{RecordId, TargetId};
use tidegate_redis::keys::escaped;

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

    pub(super) fn schema(&self) -> String {
        format!("{}{{refresh}}:schema", self.prefix)
    }

    /// `upd:{source/key}`.
    pub(super) fn record(&self, record: &RecordId) -> String {
        let (source, key) = (escaped(record.source.as_str()), escaped(record.key.as_str()));
        format!("{}upd:{{{source}/{key}}}", self.prefix)
    }

    /// `rate:{target}`.
    pub(super) fn target(&self, target: &TargetId) -> String {
        format!("{}rate:{{{}}}", self.prefix, escaped(target.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::ids::{RecordKey, SourceId};

    use super::*;

    #[test]
    fn the_tag_of_a_record_holds_its_whole_name() {
        let keys = Keys::new("r:");
        let key = |source: &str, key: &str| {
            keys.record(&RecordId {
                source: SourceId::new(source).unwrap(),
                key: RecordKey::new(key).unwrap(),
            })
        };
        assert_eq!(key("character", "루나"), "r:upd:{character/루나}");
        assert_eq!(key("a/b", "}{%"), "r:upd:{a%2Fb/%7D%7B%25}");
    }
}
