//! Points in time as ISO-8601 text in UTC, as events carry them: `2026-11-16T09:30:00.250Z`.

use serde::{Deserialize, Deserializer, Serializer};

use crate::budget::DAY_MS;
use crate::time::Timestamp;

/// Text that is not a time in UTC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time like 2026-11-16T09:30:00.250Z (UTC, from 1970 to 9999)")]
pub struct NotATime(pub String);

/// Limit: the first moment of the year 10000.
const END: u64 = 253_402_300_800_000;

/// Always with milliseconds and `Z`. Times after the year 9999 become its last moment.
pub fn format(at: Timestamp) -> String {
    let at = at.0.min(END - 1);
    let (year, month, day) = civil(at / DAY_MS);
    let ms = at % DAY_MS;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    let milli = ms % 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Seconds may have a fraction of any length; digits beyond milliseconds are truncated.
pub fn parse(text: &str) -> Result<Timestamp, NotATime> {
    read(text).ok_or_else(|| NotATime(text.chars().take(40).collect()))
}

fn read(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let fixed = bytes.get(..19)?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(index, mark)| fixed[*index] != *mark) {
        return None;
    }
    let [year, month, day] = [
        number(&fixed[..4])?,
        number(&fixed[5..7])?,
        number(&fixed[8..10])?,
    ];
    let [hour, minute, second] = [
        number(&fixed[11..13])?,
        number(&fixed[14..16])?,
        number(&fixed[17..19])?,
    ];
    let rest = text.get(19..)?;
    let fraction = rest.strip_suffix('Z').or_else(|| rest.strip_suffix("+00:00"))?;
    let milli = match fraction.strip_prefix('.') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            number(format!("{digits:0<3}").as_bytes().get(..3)?)?
        }
        None if fraction.is_empty() => 0,
        _ => return None,
    };
    let in_range = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // A day that its month does not have would become a day of another month.
    if civil(days) != (year, month, day) {
        return None;
    }
    Some(Timestamp(
        days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1_000 + milli,
    ))
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'))
    })
}

/// Days from 1 March of year 0 to 1 January 1970.
const EPOCH: u64 = 719_468;
const DAYS_IN_400_YEARS: u64 = 146_097;

/// Days since 1970-01-01. Years count from March here, so that the leap day comes last.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let (era, year) = (year / 400, year % 400);
    era * DAYS_IN_400_YEARS + year * 365 + year / 4 - year / 100 + day_of_year - EPOCH
}

fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH;
    let (era, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year + u64::from(month <= 2);
    (year, month, day)
}

/// For `#[serde(with = "iso8601")]`.
pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format(*at))
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_both_ways() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_821_400_250, "2026-11-16T09:30:00.250Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(format(Timestamp(ms)), text);
            assert_eq!(parse(text), Ok(Timestamp(ms)));
        }
        assert_eq!(
            parse("2026-11-16T09:30:00+00:00"),
            Ok(Timestamp(1_794_821_400_000))
        );
        assert_eq!(
            parse("2026-11-16T09:30:00.2509999Z"),
            Ok(Timestamp(1_794_821_400_250))
        );
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-11-16",
            "2026-11-16T09:30:00",
            "2026-11-16T09:30:00+09:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-16T24:00:00Z",
            "2026-11-16T09:30:00.Z",
            "2026-11-16T09:30:00.+5Z",
            "1969-12-31T23:59:59Z",
            "2026-11-1éT09:30:00Z",
            "+026-11-16T09:30:00Z",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_time_comes_back(ms in 0..END) {
            proptest::prop_assert_eq!(parse(&format(Timestamp(ms))), Ok(Timestamp(ms)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
