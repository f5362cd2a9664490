//! What the commands about dead jobs and dead letters share: the question before a purge of all, and the report.

use std::io::{BufRead, IsTerminal};

use anyhow::bail;
use serde::Serialize;
use tidegate_client::DeadOutcome;

use crate::exit::Reported;
use crate::remote::Remote;
use crate::table::visible;

/// Skipped items that a report names.
const MAX_ERRORS: usize = 10;

/// Asks for confirmation on a terminal; a script has to pass --yes. `question` is like `delete every dead job`.
pub(crate) fn confirm(question: &str, url: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("this would {question} of {url}; pass --yes to confirm");
    }
    let (first, rest) = question.split_at(1);
    eprint!("{}{rest} of {url}? [y/N] ", first.to_uppercase());
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was purged");
    }
    Ok(())
}

/// Prints what became of the items, and fails if some were skipped.
pub(crate) fn report<T: Serialize>(
    remote: &Remote,
    outcome: &DeadOutcome<T>,
    command: &str,
    name: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    remote.print(outcome, |outcome| {
        format!("{} {command}, {} skipped\n", outcome.handled, outcome.skipped)
    })?;
    if outcome.skipped == 0 {
        return Ok(());
    }
    for skipped in outcome.errors.iter().take(MAX_ERRORS) {
        let (detail, code) = (visible(&skipped.detail), &skipped.code);
        eprintln!("tidegate: {}: {detail} ({code})", name(&skipped.item));
    }
    Err(Reported.into())
}
