//! Requests for refreshes on their way into the log.

pub(super) mod events;
pub(super) mod in_doubt;
pub(super) mod publisher;
