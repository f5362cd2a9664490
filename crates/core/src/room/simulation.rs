//! Rooms under crashes.
