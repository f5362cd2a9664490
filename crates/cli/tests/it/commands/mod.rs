//! The command line, command by command.

mod records;
mod redis;
mod rooms;
mod serve_and_config;
mod service;
mod store;
