//! The scripts: one file per transition, joined with shared code into one library of functions.
//!
//! A server loads a library once; EVAL would recreate its hundred functions with every call. The library's name
//! ends in a digest of its text, so that versions do not conflict.

use std::sync::LazyLock;

/// A transition by its function name on the server.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) function: String,
}

#[derive(Debug)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) text: String,
}

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("lua/", $name, ".lua"))
    };
}

/// Shared code of the bulk part, in order of dependency.
const BULK: [&str; 8] = [
    lua!("base"),
    lua!("group"),
    lua!("batch"),
    lua!("congestion"),
    lua!("job"),
    lua!("pick"),
    lua!("cancelling"),
    lua!("plain"),
];

/// The same for the refresh part.
const REFRESH: [&str; 2] = [lua!("refresh/record"), lua!("refresh/budget")];

/// The same for the waiting rooms.
const ROOM: [&str; 2] = [lua!("room/head"), lua!("room/ticket")];

/// Writes. The server rejects the call as a whole if it cannot write (out of memory, read-only), so it is never
/// half done.
const WRITES: &str = "";
/// Allowed on a server that cannot write.
const READS: &str = "'no-writes'";
/// Begins by reading the state of a shard.
const BEGIN: &str = "begin(keys, args)";
/// Does not read the state of a shard, or creates it; only the bulk part has shards.
const ALONE: &str = "KEYS, ARGV, call = keys, args, redis.call";

/// A transition as a function of the library, because Lua allows only 200 local names in one function.
fn function(library: &str, name: &str, flags: &str, begin: &str, text: &str) -> String {
    let name = name_of(library, name);
    format!(
        "do local function transition()\n{text}end\nredis.register_function{{ function_name = '{name}', \
         flags = {{ {flags} }}, callback = function(keys, args) {begin} return transition() end }}\nend\n"
    )
}

/// The function name of a transition on the server; those of other parts than bulk have a folder.
fn name_of(library: &str, transition: &str) -> String {
    format!("{library}_{}", transition.replace('/', "_"))
}

macro_rules! scripts {
    ($($shared:ident {
        $($name:ident: $flags:ident $begin:ident $transition:literal $(after $($part:literal)+)?;)+
    })+) => {
        $($(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script {
            function: name_of(&LIBRARY.name, $transition),
        });)+)+

        pub(super) static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
            let body = |library: &str| {
                let mut text = String::new();
                // Each part in its own block, which ends its local names: the parts share none.
                $(
                    text += "do\n";
                    text += &$shared.concat();
                    $(
                        let transition = [$($(lua!($part),)+)? lua!($transition)].concat();
                        text += &function(library, $transition, $flags, $begin, &transition);
                    )+
                    text += "end\n";
                )+
                text
            };
            let name = format!("tidegate_{:016x}", super::fingerprint(body("tidegate").as_bytes()));
            Library {
                text: format!("#!lua name={name}\n{}", body(&name)),
                name,
            }
        });
    };
}

scripts! {
    BULK {
        OPEN: WRITES ALONE "open" after "rates";
        GRANT: WRITES ALONE "grant" after "rates";
        ADOPT_RATES: WRITES ALONE "adopt_rates" after "rates";
        ENQUEUE: WRITES BEGIN "enqueue";
        OPEN_BATCH: WRITES BEGIN "open_batch";
        SEAL_BATCH: WRITES BEGIN "seal_batch";
        ADMIT: WRITES BEGIN "admit";
        LEASE: WRITES BEGIN "lease";
        EXTEND: WRITES BEGIN "extend";
        SETTLE: WRITES BEGIN "settle";
        RELEASE_DUE: WRITES BEGIN "release_due" after "stale";
        EXPIRE_LEASES: WRITES BEGIN "expire_leases";
        CLAIM_AGGREGATION: WRITES BEGIN "claim_aggregation";
        FINISH_AGGREGATION: WRITES BEGIN "finish_aggregation";
        CONFIRM_COMPLETION: WRITES BEGIN "confirm_completion";
        PAUSE: WRITES BEGIN "pause";
        RESUME: WRITES BEGIN "resume";
        CANCEL: WRITES BEGIN "cancel" after "stale";
        CONFIGURE_GROUP: WRITES BEGIN "configure_group";
        CONFIGURE_LIMITS: WRITES BEGIN "configure_limits" after "rates" "enforce";
        ADOPT_LIMITS: WRITES BEGIN "adopt_limits" after "rates" "enforce";
        REPLAY: WRITES BEGIN "replay";
        PURGE: WRITES BEGIN "purge" after "dropping";
        DROP_FINISHED: WRITES BEGIN "drop_finished" after "dropping";
        SNAPSHOT_CONGESTION: WRITES BEGIN "snapshot_congestion";
        RESET_STATS: WRITES BEGIN "reset_stats";
        QUERY: READS BEGIN "query";
        DEAD: READS BEGIN "dead";
        WHY: READS BEGIN "why";
        QUEUES: READS BEGIN "queues";
        LIMITS: READS BEGIN "limits" after "rates";
        SURVEY: READS ALONE "survey";
        EXPORT: READS BEGIN "export";
        IMPORT: WRITES BEGIN "import" after "rates" "restore";
        CLEAR: WRITES BEGIN "clear";
    }
    REFRESH {
        REFRESH_OPEN: WRITES ALONE "refresh/open";
        REFRESH_REQUEST: WRITES ALONE "refresh/request";
        REFRESH_CONFIRM_SENT: WRITES ALONE "refresh/confirm_sent";
        REFRESH_SEND_FAILED: WRITES ALONE "refresh/send_failed";
        REFRESH_BEGIN: WRITES ALONE "refresh/begin";
        REFRESH_EXTEND: WRITES ALONE "refresh/extend";
        REFRESH_ABANDON: WRITES ALONE "refresh/abandon";
        REFRESH_SETTLE: WRITES ALONE "refresh/settle";
        REFRESH_LOOK: READS ALONE "refresh/look";
        REFRESH_OPEN_BUDGET: WRITES ALONE "refresh/open_budget";
        REFRESH_TAKE: WRITES ALONE "refresh/take";
        REFRESH_HOLD: WRITES ALONE "refresh/hold";
        REFRESH_LIFT: WRITES ALONE "refresh/lift";
        REFRESH_LOOK_BUDGET: READS ALONE "refresh/look_budget";
    }
    ROOM {
        ROOM_SCHEMA: WRITES ALONE "room/schema";
        ROOM_ENLIST: WRITES ALONE "room/enlist";
        ROOM_ROOMS: READS ALONE "room/rooms";
        ROOM_OPEN: WRITES ALONE "room/open";
        ROOM_REMOVE: WRITES ALONE "room/remove";
        ROOM_DELIST: WRITES ALONE "room/delist";
        ROOM_JOIN: WRITES ALONE "room/join";
        ROOM_TOUCH: WRITES ALONE "room/touch";
        ROOM_PROMOTE: WRITES ALONE "room/promote";
        ROOM_REDEEM: WRITES ALONE "room/redeem";
        ROOM_REISSUE: WRITES ALONE "room/reissue";
        ROOM_EXTEND: WRITES ALONE "room/extend";
        ROOM_COMPLETE: WRITES ALONE "room/complete";
        ROOM_LEAVE: WRITES ALONE "room/leave";
        ROOM_REAP: WRITES ALONE "room/reap";
        ROOM_RESIZE: WRITES ALONE "room/resize";
        ROOM_CONTROL: WRITES ALONE "room/control";
        ROOM_VOID: WRITES ALONE "room/void";
        ROOM_LOOK: READS ALONE "room/look";
        ROOM_SURVEY: READS ALONE "room/survey";
    }
}
