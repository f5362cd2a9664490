//! The function library of the bulk part: one file per transition.

use tidegate_redis::library;

/// Begins by reading the state of a shard.
const BEGIN: &str = "begin(keys, args)";
/// Does not read the state of a shard, or creates it.
const ALONE: &str = "KEYS, ARGV, call = keys, args, redis.call";

library! {
    part "bulk", files "../lua/", shared ["base", "rate", "downstream", "throughput", "group", "batch", "congestion", "job", "pick", "move", "plain"];
    OPEN: Write ALONE "open" after "rates";
    GRANT: Write ALONE "grant" after "rates";
    ADOPT_RATES: Write ALONE "adopt_rates" after "rates";
    ENQUEUE: Write BEGIN "enqueue" after "dropping";
    OPEN_BATCH: Write BEGIN "open_batch";
    SEAL_BATCH: Write BEGIN "seal_batch";
    ADMIT: Write BEGIN "admit";
    LEASE: Write BEGIN "lease";
    EXTEND: Write BEGIN "extend";
    SETTLE: Write BEGIN "settle";
    RELEASE_DUE: Write BEGIN "release_due" after "cancelling" "stale";
    EXPIRE_LEASES: Write BEGIN "expire_leases";
    CLAIM_AGGREGATION: Write BEGIN "claim_aggregation";
    FINISH_AGGREGATION: Write BEGIN "finish_aggregation";
    CONFIRM_COMPLETION: Write BEGIN "confirm_completion";
    PAUSE: Write BEGIN "pause";
    RESUME: Write BEGIN "resume";
    CANCEL: Write BEGIN "cancel" after "cancelling" "stale";
    CONFIGURE_GROUP: Write BEGIN "configure_group";
    CONFIGURE_LIMITS: Write BEGIN "configure_limits" after "rates" "enforce";
    ADOPT_LIMITS: Write BEGIN "adopt_limits" after "rates" "enforce";
    REPLAY: Write BEGIN "replay";
    PURGE: Write BEGIN "purge" after "dropping";
    CHANGE_JOBS: Write BEGIN "change_jobs" after "stale";
    DROP_FINISHED: Write BEGIN "drop_finished" after "dropping";
    SNAPSHOT_CONGESTION: Write BEGIN "snapshot_congestion";
    RESET_STATS: Write BEGIN "reset_stats";
    QUERY: Read BEGIN "query" after "oldest" "paces";
    JOBS: Read BEGIN "jobs";
    BACKLOG: Read BEGIN "backlog" after "oldest";
    DEAD: Read BEGIN "dead";
    WHY: Read BEGIN "why" after "paces";
    QUEUES: Read BEGIN "queues";
    LIMITS: Read BEGIN "limits" after "rates";
    OVERVIEW: Read ALONE "overview";
    SETTINGS: Read ALONE "settings";
    EXPORT: Read BEGIN "export";
    IMPORT: Write BEGIN "import" after "rates" "restore";
    CLEAR: Write BEGIN "clear";
}
