//! Memory of a process, size of a folder, and the sync latency of a disk.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use tempfile::TempDir;

/// A temporary folder below `parent`, or below the current one.
pub(super) fn folder(parent: Option<&Path>) -> anyhow::Result<TempDir> {
    let parent = match parent {
        Some(parent) => parent.to_owned(),
        None => std::env::current_dir()?,
    };
    tempfile::Builder::new()
        .prefix("tidegate-bench-")
        .tempdir_in(&parent)
        .with_context(|| format!("no temporary folder in {}", parent.display()))
}

/// Resident memory of this process, in bytes.
pub(super) fn memory_bytes() -> u64 {
    memory_bytes_of(std::process::id())
}

/// Resident memory of a process, in bytes.
pub(super) fn memory_bytes_of(process: u32) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{process}/statm"))
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Blocks allocated below a folder, in bytes: unwritten parts of a longer file do not count.
pub(super) fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// The minimum latency of a durable answer: one page appended and synced, median of many.
pub(super) fn sync_floor(folder: &Path) -> std::io::Result<Duration> {
    const ROUNDS: usize = 300;
    let path = folder.join("floor");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        file.write_all(&[7; 4_096])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    fs::remove_file(path)?;
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}
