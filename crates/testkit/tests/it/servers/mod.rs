//! The servers that tests start.

mod databases;
mod kafka;
mod redis;
mod s3;
