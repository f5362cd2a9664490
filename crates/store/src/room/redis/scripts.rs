//! The function library of the waiting rooms: one file per transition.

use tidegate_redis::library;

const PROLOGUE: &str = "KEYS, ARGV, call = keys, args, redis.call";

library! {
    part "room", files "../lua/", shared ["head", "ticket"];
    SCHEMA: Write PROLOGUE "schema";
    ENLIST: Write PROLOGUE "enlist";
    ROOMS: Read PROLOGUE "rooms";
    OPEN: Write PROLOGUE "open";
    REMOVE: Write PROLOGUE "remove";
    DELIST: Write PROLOGUE "delist";
    JOIN: Write PROLOGUE "join";
    TOUCH: Write PROLOGUE "touch";
    PROMOTE: Write PROLOGUE "promote";
    REDEEM: Write PROLOGUE "redeem";
    REISSUE: Write PROLOGUE "reissue";
    EXTEND: Write PROLOGUE "extend";
    COMPLETE: Write PROLOGUE "complete";
    LEAVE: Write PROLOGUE "leave";
    REAP: Write PROLOGUE "reap";
    RESIZE: Write PROLOGUE "resize";
    CONTROL: Write PROLOGUE "control";
    VOID: Write PROLOGUE "void";
    LOOK: Read PROLOGUE "look";
    OVERVIEW: Read PROLOGUE "overview";
}
