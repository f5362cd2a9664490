//! A quota as people write it: so many starts per second, minute, hour or day. And a limit: a quota, and how many may
//! run at once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::rate::Rate;
use crate::time::Millis;

/// The slowest quota, in starts per second: a little less than one per day.
const SLOWEST: f64 = 0.00001;
const FASTEST: f64 = 1e9;
/// The smallest share of a start that a window may allow.
const LEAST_PER_WINDOW: f64 = 0.000_001;

/// What a quota counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

impl Unit {
    fn seconds(self) -> f64 {
        match self {
            Unit::Second => 1.0,
            Unit::Minute => 60.0,
            Unit::Hour => 3_600.0,
            Unit::Day => 86_400.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Second => "s",
            Unit::Minute => "min",
            Unit::Hour => "h",
            Unit::Day => "day",
        }
    }
}

/// So many starts per unit of time, a fraction included. As text `30/min`; a bare number is per second.
///
/// ```
/// # use tidegate_core::limits::quota::Quota;
/// let quota: Quota = "30/min".parse().unwrap();
/// assert_eq!(quota.per_second(), 0.5);
/// assert_eq!(quota.to_string(), "30/min");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    count: f64,
    unit: Unit,
}

impl Quota {
    pub const fn new(count: f64, unit: Unit) -> Self {
        Self { count, unit }
    }

    /// Starts per second.
    pub fn per_second(self) -> f64 {
        self.count / self.unit.seconds()
    }

    /// Exact in aligned windows of this length.
    pub fn in_windows(self, window: Millis) -> Rate {
        Rate::new(self.per_second(), window)
    }

    /// Why it does not work with windows of this length, if so: what would be right.
    pub fn error(self, window: Millis) -> Option<String> {
        let per_second = self.per_second();
        if !per_second.is_finite() || !(SLOWEST..=FASTEST).contains(&per_second) {
            return Some(format!("it must be from {SLOWEST}/s to {FASTEST}/s"));
        }
        let least = LEAST_PER_WINDOW * 1_000.0 / window.0 as f64;
        (per_second < least).then(|| {
            format!(
                "with windows of {} s it must be at least {least}/s",
                window.as_secs_f64()
            )
        })
    }
}

/// Per second.
impl From<f64> for Quota {
    fn from(per_second: f64) -> Self {
        Self::new(per_second, Unit::Second)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.unit.name())
    }
}

/// A text that is no quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rate: write it like \"10/s\", \"30/min\", \"500/h\" or \"10000/day\"")]
pub struct NoQuota(String);

impl FromStr for Quota {
    type Err = NoQuota;

    fn from_str(text: &str) -> Result<Self, NoQuota> {
        let wrong = || NoQuota(text.to_owned());
        let (count, unit) = text.split_once('/').unwrap_or((text, "s"));
        let unit = match unit.trim() {
            "s" | "sec" | "second" => Unit::Second,
            "min" | "minute" => Unit::Minute,
            "h" | "hour" => Unit::Hour,
            "d" | "day" => Unit::Day,
            _ => return Err(wrong()),
        };
        let count = count.trim().parse().map_err(|_| wrong())?;
        Ok(Self { count, unit })
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A format that does not describe itself holds what was written: a text.
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(TextOrNumber),
            false => deserializer.deserialize_str(TextOrNumber),
        }
    }
}

struct TextOrNumber;

impl de::Visitor<'_> for TextOrNumber {
    type Value = Quota;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate like \"30/min\", or a number per second")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quota, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, per_second: f64) -> Result<Quota, E> {
        Ok(per_second.into())
    }

    fn visit_u64<E: de::Error>(self, per_second: u64) -> Result<Quota, E> {
        Ok((per_second as f64).into())
    }

    fn visit_i64<E: de::Error>(self, per_second: i64) -> Result<Quota, E> {
        Ok((per_second as f64).into())
    }
}

/// How fast jobs may start, and how many may run at once over all processes. What is absent is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    pub rate: Option<Quota>,
    pub max_running: Option<u32>,
}

impl Limit {
    /// A rate alone.
    pub fn rate(rate: impl Into<Quota>) -> Self {
        Self {
            rate: Some(rate.into()),
            max_running: None,
        }
    }

    /// Running jobs alone.
    pub fn max_running(most: u32) -> Self {
        Self {
            rate: None,
            max_running: Some(most),
        }
    }

    /// What this one leaves open is as in `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            max_running: self.max_running.or(other.max_running),
        }
    }

    /// Limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read_and_written_as_text() {
        for (text, per_second, written) in [
            ("30/min", 0.5, "30/min"),
            ("0.5/s", 0.5, "0.5/s"),
            ("10000/day", 10_000.0 / 86_400.0, "10000/day"),
            ("1/h", 1.0 / 3_600.0, "1/h"),
            (" 7 / hour ", 7.0 / 3_600.0, "7/h"),
            ("12", 12.0, "12/s"),
        ] {
            let quota: Quota = text.parse().unwrap();
            assert_eq!(quota.per_second(), per_second, "{text}");
            assert_eq!(quota.to_string(), written);
            assert_eq!(written.parse(), Ok(quota));
        }
    }

    #[test]
    fn what_is_no_quota_is_refused_with_examples() {
        for text in ["", "fast", "5/week", "/s", "5/", "1/2/s"] {
            let error = text.parse::<Quota>().unwrap_err().to_string();
            let expected = format!("{text:?} is no rate: write it like \"10/s\"");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_quota_that_cannot_work_says_what_would() {
        let error = |text: &str, window| text.parse::<Quota>().unwrap().error(Millis(window));
        assert_eq!(error("30/min", 1_000), None);
        assert_eq!(error("1/day", 1_000), None);
        let range = Some("it must be from 0.00001/s to 1000000000/s".to_owned());
        for text in ["0", "-1/min", "NaN", "inf", "0.5/day", "1e12/s"] {
            assert_eq!(error(text, 1_000), range, "{text}");
        }
        assert_eq!(
            error("0.00002", 10),
            Some("with windows of 0.01 s it must be at least 0.0001/s".to_owned())
        );
    }

    #[test]
    fn a_quota_is_exact_over_its_unit() {
        for (text, starts) in [("30/min", 30), ("100/h", 100 / 60), ("90/min", 90)] {
            let rate = text.parse::<Quota>().unwrap().in_windows(Millis(1_000));
            let minute: u64 = (60_000_000..60_000_060).map(|window| rate.allowed(window)).sum();
            assert!(minute.abs_diff(starts) <= 1, "{text}: {minute}");
        }
    }
}
