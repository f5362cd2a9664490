//! The limits of a room as arguments: `100` sets one, `+5` and `-5` change it, `reset` restores the configuration.

use anyhow::bail;
use clap::Args;
use tidegate_client::{LimitBy, PatchCapacity};

use crate::remote::WhyArg;

#[derive(Debug, Args)]
pub(super) struct CapacityArgs {
    /// Seats in all: a number, +N or -N to change it, `unlimited`, or `reset` for the configured value
    #[arg(long, value_name = "CHANGE", value_parser = seats_change, allow_negative_numbers = true)]
    seats: Option<LimitBy>,
    /// Most visitors inside at once: a number, +N or -N to change it, or `reset`
    #[arg(long, value_name = "CHANGE", value_parser = limit_change, allow_negative_numbers = true)]
    inside: Option<LimitBy>,
    /// Most admissions per second: a number, +N or -N to change it, or `reset`
    #[arg(long, value_name = "CHANGE", value_parser = limit_change, allow_negative_numbers = true)]
    per_second: Option<LimitBy>,
    /// Name of this change, to repeat the command safely: the service applies it once
    #[arg(long, value_name = "NAME")]
    request: Option<String>,
    #[command(flatten)]
    why: WhyArg,
}

impl CapacityArgs {
    pub(super) fn patch(&self) -> anyhow::Result<PatchCapacity> {
        if self.seats.is_none() && self.inside.is_none() && self.per_second.is_none() {
            bail!("nothing to change: give --seats, --inside, or --per-second");
        }
        Ok(PatchCapacity {
            seats: self.seats,
            inside: self.inside,
            per_second: self.per_second,
            why: self.why.why.clone(),
            request: self.request.clone(),
        })
    }
}

fn limit_change(text: &str) -> Result<LimitBy, String> {
    if text == "reset" {
        return Ok(LimitBy::Reset(true));
    }
    let number: i64 = text
        .parse()
        .map_err(|_| "write it like 100, +5, -5 or reset".to_owned())?;
    Ok(match text.starts_with(['+', '-']) {
        true => LimitBy::Add(number),
        false => LimitBy::Set(Some(number)),
    })
}

/// The same for the only limit that can be absent.
fn seats_change(text: &str) -> Result<LimitBy, String> {
    match text {
        "unlimited" => Ok(LimitBy::Set(None)),
        _ => limit_change(text).map_err(|_| "write it like 100, +5, -5, unlimited or reset".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_makes_a_change_relative() {
        for (text, expected) in [
            ("100", LimitBy::Set(Some(100))),
            ("+5", LimitBy::Add(5)),
            ("-5", LimitBy::Add(-5)),
            ("reset", LimitBy::Reset(true)),
        ] {
            assert_eq!(limit_change(text), Ok(expected), "{text}");
            assert_eq!(seats_change(text), Ok(expected), "{text}");
        }
        assert_eq!(seats_change("unlimited"), Ok(LimitBy::Set(None)));
        for wrong in ["", "+", "many", "+-5", "1.5", "unlimited"] {
            let error = limit_change(wrong).unwrap_err();
            assert_eq!(error, "write it like 100, +5, -5 or reset", "{wrong}");
        }
    }
}
