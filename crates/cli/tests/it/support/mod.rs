//! The command and the service as processes.

pub(crate) mod command;
pub(crate) mod served;
pub(crate) mod service;
