//! The refresh store: its suite on every backend, and tests of single backends.

mod differential;
mod embedded;
mod embedded_disk;
mod model;
mod mutants;
mod redis;
mod redis_cluster;
mod redis_server;
