//! A server's own folder, removed with it.
//!
//! A test process that is killed, and a shared server, cannot remove theirs. So each folder holds a locked
//! file; the system unlocks it with the end of the process, and the next process that starts a server removes
//! what is unlocked.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "tidegate-server-";
const LOCK: &str = "owner.lock";

/// A younger folder may not be locked yet: it would look like one that was left behind.
const YOUNG: Duration = Duration::from_secs(60);

/// Removed, with everything in it, when dropped.
#[derive(Debug)]
pub(super) struct Folder {
    dir: TempDir,
    _lock: File,
}

impl Folder {
    pub(super) fn new() -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&std::env::temp_dir()));
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = File::create_new(dir.path().join(LOCK))?;
        lock.lock()?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the folders of processes that have ended. What cannot be removed is left to a later run.
fn sweep(below: &Path) {
    let Ok(entries) = fs::read_dir(below) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_left_behind(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_left_behind(folder: &Path) -> bool {
    let age = fs::metadata(folder).and_then(|data| data.modified());
    let old = age.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > YOUNG));
    old && File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_old(folder: &Path) {
        let file = File::open(folder).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }

    #[test]
    fn only_old_unlocked_folders_are_swept() {
        let below = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = below.path().join(name);
            fs::create_dir(&path).unwrap();
            let lock = File::create_new(path.join(LOCK)).unwrap();
            (path, lock)
        };
        let (locked, held) = make("tidegate-server-locked");
        held.lock().unwrap();
        let (left, _) = make("tidegate-server-left");
        let (young, _) = make("tidegate-server-young");
        let (other, _) = make("other");
        for folder in [&locked, &left, &other] {
            make_old(folder);
        }
        sweep(below.path());
        assert!(locked.exists() && young.exists() && other.exists());
        assert!(!left.exists());
    }
}
