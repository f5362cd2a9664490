//! The refresh store: its suite on every backend, and what one backend alone can show.

mod embedded;
mod embedded_disk;
mod model;
mod mutants;
mod redis;
mod redis_cluster;
mod redis_server;
