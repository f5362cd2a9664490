//! Rooms: processes that share a room, and the streams of their visitors.

mod processes;
mod streams;
