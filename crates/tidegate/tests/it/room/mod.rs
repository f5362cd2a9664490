//! Rooms: the library, and processes that share a room.

mod library;
mod processes;
mod streams;
