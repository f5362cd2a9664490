//! Records: processes on real servers.

#[cfg(all(feature = "kafka", feature = "mysql", feature = "postgres", feature = "s3"))]
mod processes;
