//! The names of the keys. The tag in braces is the room's, which keeps a room in one slot and spreads rooms over a Cluster.

use tidegate_core::ids::RoomId;
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
        format!("{}{{{}}}:head", self.prefix, escaped(room.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_room_holds_its_whole_name() {
        let keys = Keys::new("room:");
        let head = |room: &str| keys.head(&RoomId::new(room).unwrap());
        assert_eq!(head("봄 콘서트"), "room:{봄 콘서트}:head");
        assert_eq!(head("}:{%"), "room:{%7D:%7B%25}:head");
    }
}
