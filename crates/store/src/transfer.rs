//! A whole store as a stream.
