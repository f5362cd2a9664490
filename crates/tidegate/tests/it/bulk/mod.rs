//! Bulk jobs: kills, restarts, full disks, lost servers, workers in other languages.

mod disk_full;
mod example_workers;
mod kill;
mod redis_cluster_down;
mod redis_failures;
mod redis_processes;
mod service_restart;
mod service_stream;
mod shutdown;
mod workers;
