//! Bulk jobs: kills, full disks, lost servers, several processes on one Redis.

mod disk_full;
mod kill;
mod redis_cluster_down;
mod redis_failures;
mod redis_processes;
mod shutdown;
mod workers;
