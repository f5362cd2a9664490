//! Fields whose absence and `null` mean different things.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A field of a partial update.
///
/// Use it with `#[serde(default, skip_serializing_if = "Nullable::is_absent")]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nullable<T> {
    /// The field is not there.
    #[default]
    Absent,
    /// The field is `null`.
    Null,
    /// The field has a value.
    Value(T),
}

impl<T> Nullable<T> {
    /// Whether the field is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<T: Serialize> Serialize for Nullable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Null => serializer.serialize_none(),
            Self::Value(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::deserialize(deserializer)?;
        Ok(value.map_or(Self::Null, Self::Value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Patch {
        #[serde(default, skip_serializing_if = "Nullable::is_absent")]
        rate: Nullable<u32>,
    }

    #[test]
    fn absence_null_and_a_value_stay_apart() {
        for (text, rate) in [
            ("{}", Nullable::Absent),
            (r#"{"rate":null}"#, Nullable::Null),
            (r#"{"rate":7}"#, Nullable::Value(7)),
        ] {
            assert_eq!(serde_json::from_str::<Patch>(text).unwrap(), Patch { rate });
            assert_eq!(serde_json::to_string(&Patch { rate }).unwrap(), text);
        }
    }
}
