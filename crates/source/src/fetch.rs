//! One attempt to fetch one record, and its outcomes. All outcomes are values: the worker decides by their kind what
//! happens next.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use tidegate_core::time::{Millis, Timestamp};
use tokio::time::Instant;

use crate::hash::{Hash, hash};

/// What to fetch.
#[derive(Debug, Clone, Default)]
pub struct FetchParams {
    /// The record's key.
    pub key: String,
    /// Values for the placeholders in the source's URL besides the key.
    pub params: BTreeMap<String, String>,
    /// The response is useless after this time; the source's own timeout applies in any case.
    pub deadline: Option<Instant>,
    /// The latest time to send the call; after it the fetcher sends nothing.
    pub send_by: Option<Instant>,
}

/// The outcome of one attempt. Messages are for people; they hold neither secrets nor keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchOutcome {
    Fetched(Projected),
    /// The provider says that the record does not exist.
    Absent {
        code: String,
        message: String,
    },
    /// No call was made: it could not be sent in time. A later attempt may succeed.
    NotSent,
    /// Too many calls, or the provider asks for time (429, or 503 with Retry-After).
    Throttled {
        retry_after: Option<Millis>,
    },
    /// Another attempt may succeed.
    Transient {
        code: TransientCode,
        message: String,
    },
    /// Another attempt would give the same result.
    Permanent {
        code: PermanentCode,
        message: String,
    },
}

/// A record in its stored form.
#[derive(Clone, PartialEq, Eq)]
pub struct Projected {
    /// Canonical JSON of the kept fields.
    pub canonical: Bytes,
    /// Over the projection's version and the canonical bytes.
    pub hash: Hash,
    /// When somebody was last active, if the source has a field for it.
    pub activity: Option<Timestamp>,
}

impl Projected {
    /// JSON to store as it is. The text should be the same whenever the record is the same: a change of the text
    /// counts as a change of the record.
    pub fn json(text: impl Into<Bytes>) -> Self {
        let canonical = text.into();
        Self {
            hash: hash(1, &canonical),
            canonical,
            activity: None,
        }
    }
}

/// Records are large and do not belong into a log.
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
    /// Why another attempt may succeed.
    TransientCode {
        /// The provider failed: 5xx, 408 or 425.
        Api5xx = "API_5XX",
        /// No response, or not all of it, in time.
        Timeout = "TIMEOUT",
        /// No connection, or it broke.
        Connection = "CONNECTION",
    }
}

codes! {
    /// Why another attempt would give the same result.
    PermanentCode {
        /// The provider rejects the call.
        Api4xx = "API_4XX",
        /// The response is not JSON, or empty.
        ParseError = "PARSE_ERROR",
        /// The response is longer than allowed, compressed or decompressed.
        TooLarge = "TOO_LARGE",
        /// The response redirects. The fetcher does not follow: no budget would cover that call.
        Redirect = "REDIRECT",
        /// The response, or a field of it, has another type.
        WrongType = "WRONG_TYPE",
        /// A required field is missing.
        MissingField = "MISSING_FIELD",
        /// The key violates the source's rule; no call was made.
        BadKey = "BAD_KEY",
        /// A placeholder in the URL has no value; no call was made.
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

    /// A failure that a later attempt may not meet.
    pub fn transient(code: TransientCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Transient { code, message }
    }

    /// A failure that every attempt meets.
    pub fn permanent(code: PermanentCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Permanent { code, message }
    }
}

/// Fetches records of one source.
#[async_trait::async_trait]
pub trait Fetcher: Send + Sync + fmt::Debug + 'static {
    /// Makes one attempt, with at most one call.
    async fn fetch(&self, params: FetchParams) -> FetchOutcome;
}
