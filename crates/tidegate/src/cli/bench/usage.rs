//! What this process and a folder take up.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Resident memory of this process, in bytes.
pub(super) fn memory_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Blocks allocated below a folder, in bytes: files that are longer than what is written count as written.
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
