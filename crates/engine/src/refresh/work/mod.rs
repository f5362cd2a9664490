//! Work on refresh events: from delivery to commit.

pub(super) mod claims;
pub(super) mod consumer;
pub(super) mod dead_letter_writer;
pub(super) mod event;
pub(super) mod keyed_queue;
pub(super) mod offsets;
pub(super) mod token_counts;
pub(super) mod token_dispenser;
pub(super) mod turn;
pub(super) mod writer;
