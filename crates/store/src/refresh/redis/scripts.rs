//! The function library of the refresh part: one file per transition.

use tidegate_redis::library;

const PROLOGUE: &str = "KEYS, ARGV, call = keys, args, redis.call";

library! {
    part "refresh", files "../lua/", shared ["record", "budget"];
    OPEN: Write PROLOGUE "open";
    REQUEST: Write PROLOGUE "request";
    CONFIRM_SENT: Write PROLOGUE "confirm_sent";
    SEND_FAILED: Write PROLOGUE "send_failed";
    BEGIN: Write PROLOGUE "begin";
    EXTEND: Write PROLOGUE "extend";
    ABANDON: Write PROLOGUE "abandon";
    SETTLE: Write PROLOGUE "settle";
    LOOK: Read PROLOGUE "look";
    OPEN_BUDGET: Write PROLOGUE "open_budget";
    TAKE: Write PROLOGUE "take";
    HOLD: Write PROLOGUE "hold";
    LIFT: Write PROLOGUE "lift";
    LOOK_BUDGET: Read PROLOGUE "look_budget";
}
