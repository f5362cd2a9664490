//! The command line, command by command.

mod records;
mod redis;
mod service;
mod settings;
mod store;
