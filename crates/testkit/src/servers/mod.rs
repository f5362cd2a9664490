//! Real servers for tests: each on its own loopback port, with its own folder, removed with the test.
//!
//! Each is a [`Server`], which can be stopped, killed, restarted, paused and resumed:
//!
//! - [`RedisServer`]: one `redis-server`.
//! - [`KafkaServer`]: one Kafka broker that is its own controller.
//! - [`PostgresServer`], [`MariaDbServer`]: databases with folders of their own.
//! - [`S3Server`]: object storage over a folder.
//!
//! And what works with them:
//!
//! - [`RedisCluster`]: masters that share the slots.
//! - [`Client`] and [`Reply`]: a tiny blocking client, to inspect keys.
//! - [`Proxy`]: forwards between a client and a server, and fails as networks do.
//!
//! A test that kills, pauses or flushes a server starts its own. Others take the shared one and keep to keys of
//! their own; `shared` hands out no mutable server, so it cannot be killed or paused.

mod account;
mod cluster;
mod folder;
mod jars;
mod kafka;
mod kafka_wire;
mod launch;
mod mariadb;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod resp;
mod s3;
mod server;
mod sql;
mod wait;

pub use cluster::RedisCluster;
pub use kafka::{KafkaOptions, KafkaServer};
pub use mariadb::MariaDbServer;
pub use port::free as free_port;
pub use postgres::PostgresServer;
pub use proxy::Proxy;
pub use redis::{RedisOptions, RedisServer};
pub use resp::{Client, Reply};
pub use s3::S3Server;
pub use server::Server;
pub use sql::SqlOptions;
