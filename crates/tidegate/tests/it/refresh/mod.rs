//! Records: the library, and processes on real servers.

mod library;
#[cfg(all(feature = "kafka", feature = "mysql", feature = "postgres", feature = "s3"))]
mod processes;
