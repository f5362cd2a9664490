//! When somebody was last active, according to the record itself.

use jiff::civil::Date;
use tidegate_core::time::Timestamp;

/// Numbers from here on are milliseconds, below it seconds: 100 billion seconds are the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// Parses a JSON value: a date and time with an offset, a date (its first moment in UTC), or seconds or milliseconds
/// since the Unix epoch. Any other value says nothing about activity.
pub(crate) fn read(raw: &str) -> Option<Timestamp> {
    if let Ok(number) = raw.parse::<u64>() {
        let ms = if number < MILLISECONDS_FROM {
            number * 1_000
        } else {
            number
        };
        return Some(Timestamp(ms));
    }
    let text: std::borrow::Cow<'_, str> = serde_json::from_str(raw).ok()?;
    let at = match text.parse::<jiff::Timestamp>() {
        Ok(at) => at.as_millisecond(),
        Err(_) => {
            let date: Date = text.parse().ok()?;
            date.to_zoned(jiff::tz::TimeZone::UTC)
                .ok()?
                .timestamp()
                .as_millisecond()
        }
    };
    u64::try_from(at).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_numbers_are_read() {
        for (raw, ms) in [
            (r#""2026-03-01T09:30:00Z""#, 1_772_357_400_000),
            (r#""2026-03-01T18:30+09:00""#, 1_772_357_400_000),
            (r#""2026-03-01T18:30:00.250\u002b09:00""#, 1_772_357_400_250),
            (r#""2026-03-01""#, 1_772_323_200_000),
            ("1772357400", 1_772_357_400_000),
            ("1772357400250", 1_772_357_400_250),
        ] {
            assert_eq!(read(raw), Some(Timestamp(ms)), "{raw}");
        }
    }

    #[test]
    fn anything_else_says_nothing() {
        for raw in [
            "null",
            "true",
            "-1",
            "1e9",
            "\"soon\"",
            "\"\"",
            "[1]",
            "\"1969-01-01T00:00:00Z\"",
        ] {
            assert_eq!(read(raw), None, "{raw}");
        }
    }
}
