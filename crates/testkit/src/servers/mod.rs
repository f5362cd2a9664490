//! Real servers for tests: each on its own loopback port, with its own folder, gone when the test is.
//!
//! - [`RedisServer`]: one `redis-server` that can be killed, started again, paused and resumed.
//! - [`RedisCluster`]: masters that share the slots.
//! - [`Client`] and [`Reply`]: a tiny blocking client, to look at keys with the server's own eyes.
//! - [`Proxy`]: stands between a client and a server and does what networks do.
//!
//! A test that kills, pauses or flushes a server starts its own. Others take the shared one and keep to keys of
//! their own; `shared` hands out no mutable server, so it cannot be killed or paused.

mod cluster;
mod folder;
mod launch;
mod port;
mod proxy;
mod redis;
mod resp;
mod wait;

pub use cluster::RedisCluster;
pub use proxy::Proxy;
pub use redis::{RedisOptions, RedisServer};
pub use resp::{Client, Reply};
