//! Encodes commands for the room scripts.

use tidegate_core::room::command::{Change, JoinParams, RedeemParams, ResizeParams, Status, TouchParams};
use tidegate_core::room::config::{MAX_PEOPLE, MAX_PER_SECOND, RoomConfig};
use tidegate_core::room::{CHANGES, DRAW_STEP, INSPECTIONS};
use tidegate_redis::Args;

/// The scripts' value for uncounted seats.
const UNCOUNTED: &str = "-1";

fn seats(args: &mut Args, seats: Option<u64>) {
    match seats {
        Some(seats) => args.big(seats),
        None => args.text(UNCOUNTED),
    };
}

/// Updates the settings of an existing room, unless `created` is the status of a room to create.
pub(super) fn open(incarnation: u64, config: &RoomConfig, created: Option<Status>) -> Args {
    let RoomConfig {
        capacity,
        opens_at,
        presence_ms,
        grace_ms,
        pass_ms,
        inside_ms,
        remember_ms,
        max_waiting,
    } = config;
    let mut args = Args::default();
    args.big(incarnation);
    seats(&mut args, capacity.seats);
    args.big(capacity.inside).big(capacity.per_second);
    args.option(*opens_at, |args, at| {
        args.big(at.0);
    });
    for span in [presence_ms, grace_ms, pass_ms, inside_ms, remember_ms] {
        args.span(*span);
    }
    args.big(*max_waiting).flag(created.is_none());
    args.number(match created.unwrap_or(Status::Open) {
        Status::Open => 1,
        Status::Paused => 2,
        Status::Closed => 3,
    });
    args
}

pub(super) fn join(args: &mut Args, params: &JoinParams) {
    let flags = i64::from(params.stream) + 2 * i64::from(params.again);
    args.text(params.person.as_str()).number(flags).big(params.draw);
}

pub(super) fn touch(args: &mut Args, params: &TouchParams) {
    args.text(params.person.as_str())
        .big(params.stream.0)
        .flag(params.present);
}

pub(super) fn promote(max: u64) -> Args {
    let mut args = Args::default();
    args.big(max).big(DRAW_STEP).big(INSPECTIONS);
    args
}

pub(super) fn redeem(params: &RedeemParams) -> Args {
    let mut args = Args::default();
    args.text(params.person.as_str())
        .big(params.index.0)
        .big(params.wave.0);
    args.text(params.session.as_ref().map_or("", |session| session.as_str()));
    args
}

pub(super) fn resize(params: &ResizeParams) -> Args {
    fn change<T>(args: &mut Args, change: Option<Change<T>>, set: impl FnOnce(&mut Args, T)) {
        match change {
            None => args.text("").text(""),
            Some(Change::Reset) => args.text("r").text(""),
            Some(Change::Add(by)) => args.text("a").number(by),
            Some(Change::Set(value)) => {
                args.text("s");
                set(args, value);
                args
            }
        };
    }
    let number = |args: &mut Args, value| {
        args.big(value);
    };
    let mut args = Args::default();
    // As text: it may exceed the integers of the scripts.
    args.text(&params.request.to_string());
    change(&mut args, params.seats, seats);
    change(&mut args, params.inside, number);
    change(&mut args, params.per_second, number);
    args.big(MAX_PEOPLE).big(MAX_PER_SECOND).big(CHANGES as u64);
    args.text(&params.by).text(&params.why);
    args
}
