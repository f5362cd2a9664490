//! Authentication and limits through the port: keys, groups, sessions, hosts, origins, bounds, TLS, the audit log.

mod access;
mod bounds;
mod browser;
mod records;
mod world;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
