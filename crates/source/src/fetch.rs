//! One attempt to fetch one record, and what can come of it. All outcomes are values: the worker decides what
//! happens next by their kind.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use tidegate_core::time::{Millis, Timestamp};
use tokio::time::Instant;

use crate::hash::{Hash, hash};

/// What is to be fetched.
#[derive(Debug, Clone, Default)]
pub struct FetchParams {
    /// The record's key.
    pub key: String,
    /// Values for the names in the source's address that a resolver found for this key, like `ocid`.
    pub params: BTreeMap<String, String>,
    /// When the answer is of no use any more; the source's own timeout holds in any case.
    pub deadline: Option<Instant>,
    /// When the call has to be on its way; later it is not sent at all.
    pub send_by: Option<Instant>,
}

/// What came of one attempt. Messages are for people; they hold neither secrets nor keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchOutcome {
    Fetched(Projected),
    /// The provider says that there is no such record.
    Absent {
        code: String,
        message: String,
    },
    /// No call was made: it could not be sent by the time it had to be. One that has its turn later may be.
    NotSent,
    /// Too many calls, or the provider asks for time (429, or 503 with Retry-After).
    Throttled {
        retry_after: Option<Millis>,
    },
    /// Another attempt may help.
    Transient {
        code: TransientCode,
        message: String,
    },
    /// Another attempt gives the same.
    Permanent {
        code: PermanentCode,
        message: String,
    },
}

/// A record as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Projected {
    /// Canonical JSON of what is kept.
    pub canonical: Bytes,
    /// Of the projection's version and the canonical bytes.
    pub hash: Hash,
    /// When somebody was last active, if the source has a field for it.
    pub activity: Option<Timestamp>,
}

impl Projected {
    /// JSON that is stored as it is. It should be the same text whenever the record is the same: a change of the text is
    /// a change of the record.
    pub fn json(text: impl Into<Bytes>) -> Self {
        let canonical = text.into();
        Self {
            hash: hash(1, &canonical),
            canonical,
            activity: None,
        }
    }
}

/// Records are large and none of a log's business.
impl fmt::Debug for Projected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.canonical.len();
        write!(f, "Projected({bytes} bytes, activity {:?})", self.activity)
    }
}

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

codes! {
    /// Why another attempt may help.
    TransientCode {
        /// The provider failed: 5xx, 408 or 425.
        Api5xx = "API_5XX",
        /// No answer, or not all of it, in time.
        Timeout = "TIMEOUT",
        /// No connection, or it broke.
        Connection = "CONNECTION",
    }
}

codes! {
    /// Why another attempt gives the same.
    PermanentCode {
        /// The provider refuses the call.
        Api4xx = "API_4XX",
        /// The answer is no JSON, or empty.
        ParseError = "PARSE_ERROR",
        /// The answer is longer than allowed, packed or unpacked.
        TooLarge = "TOO_LARGE",
        /// The answer is elsewhere. It is not followed: it would be a call that no budget knows of.
        Redirect = "REDIRECT",
        /// The answer, or a field of it, is of another kind.
        WrongType = "WRONG_TYPE",
        /// A required field is not there.
        MissingField = "MISSING_FIELD",
        /// The key does not fit the source's rule; no call was made.
        BadKey = "BAD_KEY",
        /// A name in the address has no value; no call was made.
        MissingParam = "MISSING_PARAM",
    }
}

impl FetchOutcome {
    /// For logs and metrics.
    pub fn code(&self) -> &str {
        match self {
            Self::Fetched(_) => "FETCHED",
            Self::Absent { .. } => "ABSENT",
            Self::NotSent => "NOT_SENT",
            Self::Throttled { .. } => "THROTTLED",
            Self::Transient { code, .. } => code.as_str(),
            Self::Permanent { code, .. } => code.as_str(),
        }
    }

    pub(crate) fn transient(code: TransientCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Transient { code, message }
    }

    pub(crate) fn permanent(code: PermanentCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Permanent { code, message }
    }
}

/// Fetches records of one source.
#[async_trait::async_trait]
pub trait Fetcher: Send + Sync + fmt::Debug + 'static {
    /// One attempt, at most one call.
    async fn fetch(&self, params: FetchParams) -> FetchOutcome;
}
