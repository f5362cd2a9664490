//! The function library of the log: one file per transition.

use tidegate_redis::library;

const PROLOGUE: &str = "";

library! {
    part "log", files "lua/", shared ["base"];
    APPEND: Write PROLOGUE "append";
    ADOPT: Write PROLOGUE "adopt";
    OWN: Write PROLOGUE "own";
    RENEW: Write PROLOGUE "renew";
    FETCH: Read PROLOGUE "fetch";
    RELEASE: Free PROLOGUE "release";
    COMMIT: Write PROLOGUE "commit";
    ATTEND: Write PROLOGUE "attend";
    LAG: Read PROLOGUE "lag";
    SWEEP: Free PROLOGUE "sweep";
    LAYOUT: Write PROLOGUE "layout";
}
