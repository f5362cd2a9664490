//! Commands about jobs, batches, groups, queues and targets.

pub(crate) mod batch;
pub(crate) mod dead;
pub(crate) mod group;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod submit;
pub(crate) mod targets;
pub(crate) mod transfer;
pub(crate) mod watch;
pub(crate) mod why;
