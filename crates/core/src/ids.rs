//! Names given by users. Any characters are allowed, because a name never becomes part of a path or a key
//! pattern unescaped. Only the length is limited, because names stay in memory.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Limit: the longest name in bytes. Long enough for `promo-{customer}-{target}` with two UUIDs.
pub const MAX_ID_BYTES: usize = 256;

/// Why a name was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{what} is empty; it needs 1 to {MAX_ID_BYTES} bytes")]
    Empty { what: &'static str },
    #[error("{what} has {len} bytes; at most {MAX_ID_BYTES} are allowed")]
    TooLong { what: &'static str, len: usize },
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                match text.len() {
                    0 => Err(IdError::Empty { what: $what }),
                    len if len > MAX_ID_BYTES => Err(IdError::TooLong { what: $what, len }),
                    _ => Ok(Self(text.into())),
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = IdError;
            fn try_from(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// A customer: the unit of fairness and of rate share.
    GroupId,
    "group id"
);
id!(
    /// One bulk submission of a group: the unit of progress, completion and aggregation.
    BatchId,
    "batch id"
);
id!(
    /// One unit of work; unique within its group.
    JobId,
    "job id"
);
id!(
    /// The kind of work of a job: it selects the handler.
    JobType,
    "job type"
);
id!(
    /// Where jobs of one or several types wait.
    QueueId,
    "queue"
);
id!(
    /// The holder of a lease.
    Owner,
    "owner"
);

id!(
    /// A called downstream; it owns a budget.
    TargetId,
    "target"
);
id!(
    /// A kind of refreshed data.
    SourceId,
    "source"
);
id!(
    /// One record of a source.
    RecordKey,
    "record key"
);
id!(
    /// One request to refresh a record, unique over all records.
    EventId,
    "event id"
);
id!(
    /// Ties together everything that one reader's request caused.
    CorrelationId,
    "correlation id"
);

id!(
    /// A waiting room.
    RoomId,
    "room"
);
id!(
    /// A person who waits: the hash of a name or a cookie, never the name itself.
    PersonId,
    "person"
);
id!(
    /// The shop's id of a visit, so that it may repeat a request.
    SessionId,
    "session"
);

/// One record: a key of a source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordId {
    pub source: SourceId,
    pub key: RecordKey,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_characters_are_allowed_but_not_any_length() {
        for odd in [
            "global",
            ":",
            "{}",
            "a\nb",
            "\u{0}",
            "é",
            &"x".repeat(MAX_ID_BYTES),
        ] {
            assert_eq!(GroupId::new(odd).unwrap().as_str(), odd);
        }
        assert_eq!(
            JobId::new("").unwrap_err().to_string(),
            "job id is empty; it needs 1 to 256 bytes"
        );
        assert_eq!(
            GroupId::new("x".repeat(10_240)).unwrap_err().to_string(),
            "group id has 10240 bytes; at most 256 are allowed"
        );
    }
}
