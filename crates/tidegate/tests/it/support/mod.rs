//! The second process of a test, the command, and the service as processes.

pub(crate) mod child;
pub(crate) mod command;
pub(crate) mod served;
pub(crate) mod service;
