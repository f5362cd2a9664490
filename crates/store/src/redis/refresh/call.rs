//! One function call on one key that can be resent.

use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;
use tidegate_core::budget::{BudgetConfig, MAX_PER_DAY};

use super::super::args::Args;
use super::super::scripts::Script;
use super::super::server::Live;
use super::super::servers::{Failure, Request};
use super::super::{eval, servers};
use super::decode::Seen;

const MINUTE_MS: i64 = 60_000;

/// Limit: how long a take is retried. A later grant is useless.
const TAKE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
enum Head {
    /// Nothing precedes the arguments.
    None,
    Record,
    /// Needs the run id of the replying server.
    Budget,
    /// No function at all: the server's time.
    Time,
}

/// One function call on one key.
#[derive(Debug)]
pub(super) struct Call {
    head: Head,
    script: Option<&'static Script>,
    key: String,
    time: String,
    request: String,
    args: Args,
}

impl Call {
    pub(super) fn bare(script: &'static Script, key: String, args: Args) -> Self {
        Self::new(
            Head::None,
            Some(script),
            key,
            (String::new(), String::new()),
            args,
        )
    }

    pub(super) fn of_record(
        script: &'static Script,
        key: String,
        time: String,
        request: String,
        args: Args,
    ) -> Self {
        Self::new(Head::Record, Some(script), key, (time, request), args)
    }

    pub(super) fn of_budget(
        script: &'static Script,
        key: String,
        time: String,
        request: String,
        args: Args,
    ) -> Self {
        Self::new(Head::Budget, Some(script), key, (time, request), args)
    }

    /// The time of the server that has this key.
    pub(super) fn time(key: String) -> Self {
        Self::new(
            Head::Time,
            None,
            key,
            (String::new(), String::new()),
            Args::default(),
        )
    }

    fn new(
        head: Head,
        script: Option<&'static Script>,
        key: String,
        (time, request): (String, String),
        args: Args,
    ) -> Self {
        Self {
            head,
            script,
            key,
            time,
            request,
            args,
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

#[async_trait]
impl Request for Call {
    fn command(&self, live: &Live, maybe_ran: bool) -> Cmd {
        let Some(script) = self.script else {
            return redis::cmd("TIME");
        };
        let mut command = eval(script, &self.key);
        if matches!(self.head, Head::Record | Head::Budget) {
            command.arg(&self.time).arg(if maybe_ran { "1" } else { "" });
            command.arg(&self.request);
        }
        if matches!(self.head, Head::Budget) {
            command.arg(&live.run_id);
        }
        for bytes in self.args.each() {
            command.arg(bytes);
        }
        command
    }

    async fn prepare(&self, _: &Live) -> Result<(), Failure> {
        Ok(())
    }

    fn patience(&self) -> Duration {
        match self.head {
            Head::Budget => TAKE_PATIENCE,
            Head::None | Head::Record | Head::Time => servers::PATIENCE,
        }
    }
}

/// What this process has seen of the budget, and its settings as numbers.
pub(super) fn budget_args(config: &BudgetConfig, seen: Seen) -> Args {
    let (flow, low) = (config.flow(), config.low_flow());
    let (quota, low_quota) = match config.per_day {
        0 => (MAX_PER_DAY, MAX_PER_DAY),
        all => (all, all - config.day_reserve),
    };
    let zone = config.zone;
    let shift = (i64::from(zone.utc_offset_minutes) - i64::from(zone.day_starts_at_minutes)) * MINUTE_MS;
    let mut args = Args::default();
    args.big(seen.day.day).big(seen.day.used).big(seen.day.low);
    args.big(seen.hold_until.0);
    args.big(flow.rate).big(flow.burst).big(low.rate).big(low.burst);
    args.big(config.low_floor_percent).big(quota).big(low_quota);
    args.number(shift).span(config.validity_ms);
    args
}
