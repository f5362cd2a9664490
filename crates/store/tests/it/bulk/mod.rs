//! The bulk store: its suite on every backend, and tests of single backends.

mod differential;
mod embedded;
mod embedded_dead_jobs;
mod embedded_disk;
mod embedded_jobs;
mod limits;
mod model;
mod mutants;
mod redis;
mod redis_cluster;
mod redis_keys;
mod redis_purge;
mod redis_settings;
mod redis_shards;
mod simulation;
mod transfer;
