//! Reads: from the database alone, through a small cache, and what a reader can follow.

pub(super) mod activity;
pub(super) mod cache;
pub(super) mod change_feed;
pub(super) mod follow;
pub(super) mod reader;
pub(super) mod view;
