//! The scripts: one file per transition, joined with what they share.

use std::sync::LazyLock;

/// A script as it is sent, and the name that the server gives it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
}

impl Script {
    fn new(text: String) -> Self {
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Self { text, sha }
    }
}

/// Refused as a whole when the server may not write (out of memory, read-only), so never half done.
const WRITES: &str = "#!lua\n";
/// Allowed on a server that may not write.
const READS: &str = "#!lua flags=no-writes\n";

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("lua/", $name, ".lua"))
    };
}

/// Around a transition, because Lua allows 200 local names in one function.
const BEGIN: &str = "local function transition()\n";
const END: &str = "end\nreturn transition()\n";

macro_rules! scripts {
    ($($name:ident: $flags:ident [$($part:literal)*] $transition:literal;)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new([$flags, $(lua!($part),)* BEGIN, lua!($transition), END].concat())
        });)+

        /// Every script, for loading all of them at once.
        pub(super) fn all() -> Vec<&'static Script> {
            vec![$(&*$name),+]
        }
    };
}

scripts! {
    OPEN: WRITES [] "open";
    GRANT: WRITES [] "grant";
    ENQUEUE: WRITES ["base" "group" "action" "congestion" "job"] "enqueue";
    OPEN_ACTION: WRITES ["base" "group" "action" "congestion" "job"] "open_action";
    SEAL_ACTION: WRITES ["base" "group" "action" "congestion" "job"] "seal_action";
    ADMIT: WRITES ["base" "group" "action" "congestion" "job" "pick"] "admit";
    LEASE: WRITES ["base" "group" "action" "congestion" "job" "pick"] "lease";
    EXTEND: WRITES ["base" "group" "action" "congestion" "job"] "extend";
    SETTLE: WRITES ["base" "group" "action" "congestion" "job" "pick"] "settle";
    RELEASE_DUE: WRITES ["base" "group" "action" "congestion" "job" "pick" "cancelling"] "release_due";
    EXPIRE_LEASES: WRITES ["base" "group" "action" "congestion" "job" "pick"] "expire_leases";
    CLAIM_AGGREGATION: WRITES ["base" "group" "action" "congestion" "job"] "claim_aggregation";
    FINISH_AGGREGATION: WRITES ["base" "group" "action" "congestion" "job"] "finish_aggregation";
    CONFIRM_COMPLETION: WRITES ["base" "group" "action" "congestion" "job"] "confirm_completion";
    PAUSE: WRITES ["base" "group" "action" "congestion" "job"] "pause";
    RESUME: WRITES ["base" "group" "action" "congestion" "job"] "resume";
    CANCEL: WRITES ["base" "group" "action" "congestion" "job" "pick" "cancelling"] "cancel";
    CONFIGURE_GROUP: WRITES ["base" "group" "action" "congestion" "job"] "configure_group";
    REPLAY: WRITES ["base" "group" "action" "congestion" "job" "pick"] "replay";
    DROP_FINISHED: WRITES ["base" "group" "action" "congestion" "job"] "drop_finished";
    SNAPSHOT_CONGESTION: WRITES ["base" "group" "action" "congestion" "job"] "snapshot_congestion";
    RESET_STATS: WRITES ["base" "group" "action" "congestion" "job"] "reset_stats";
    QUERY: READS ["base" "group" "action" "congestion" "job"] "query";
}
