//! Bulk jobs through the port: restarts under load, streams, workers in other languages.

mod example_workers;
mod service_restart;
mod service_stream;
