//! Points in time in the format of the API.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time: `2026-03-01T09:30:00.250Z` on the wire, milliseconds since the Unix epoch in memory.
///
/// ```
/// use tidegate_api::Time;
///
/// let at: Time = "2026-03-01T10:30:00.25+01:00".parse()?;
/// assert_eq!(at, Time(1_772_357_400_250));
/// assert_eq!(at.to_string(), "2026-03-01T09:30:00.250Z");
/// # Ok::<(), tidegate_api::TimeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// The error for a text that is not an RFC 3339 time since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeError(String);

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a time; write it like 2026-03-01T09:30:00Z",
            self.0
        )
    }
}

impl std::error::Error for TimeError {}

/// Limit: the last millisecond of the year 9998. The API writes every later time as this one, which means
/// "never".
const LAST: u64 = 253_370_764_799_999;

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Timestamp::from_millisecond(self.0.min(LAST) as i64).map_err(|_| fmt::Error)?;
        write!(f, "{at:.3}")
    }
}

impl FromStr for Time {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let at: Timestamp = text.parse().map_err(|_| TimeError(text.to_owned()))?;
        let ms = u64::try_from(at.as_millisecond()).map_err(|_| TimeError(text.to_owned()))?;
        Ok(Self(ms))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Time;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like 2026-03-01T09:30:00Z")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(feature = "openapi")]
mod schema {
    use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
    use utoipa::openapi::{RefOr, Schema};

    impl utoipa::ToSchema for super::Time {
        fn name() -> std::borrow::Cow<'static, str> {
            "Time".into()
        }
    }

    impl utoipa::PartialSchema for super::Time {
        fn schema() -> RefOr<Schema> {
            ObjectBuilder::new()
                .schema_type(Type::String)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
                .description(Some(
                    "A point in time: RFC 3339 in UTC, with milliseconds. Requests may use any offset.",
                ))
                .examples(["2026-03-01T09:30:00.250Z"])
                .build()
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_and_read_with_any_offset() {
        let at = Time(1_772_357_400_250);
        assert_eq!(at.to_string(), "2026-03-01T09:30:00.250Z");
        assert_eq!("2026-03-01T10:30:00.25+01:00".parse(), Ok(at));
        assert_eq!(Time(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Time(u64::MAX).to_string(), "9998-12-31T23:59:59.999Z");
    }

    #[test]
    fn what_is_no_time_is_named() {
        for text in ["", "tomorrow", "1772357400", "1969-12-31T23:59:59Z"] {
            let error = text.parse::<Time>().unwrap_err().to_string();
            assert!(error.contains("write it like"), "{error}");
        }
    }
}
