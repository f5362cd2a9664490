//! A wall clock that a test steps for one process, with `libfaketime`.

use std::path::{Path, PathBuf};
use std::process::Command;

const WAITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/refresh/processes/waits.c");

/// The wall clock of one process. Monotonic time stays as it is, as with a real step.
#[derive(Debug)]
pub(crate) struct SteppedClock {
    file: PathBuf,
    /// Replaces librdkafka's timed waits; `waits.c` explains why.
    waits: PathBuf,
}

impl SteppedClock {
    pub(crate) fn new(folder: &Path) -> Self {
        let clock = Self {
            file: folder.join("clock"),
            waits: folder.join("waits.so"),
        };
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", WAITS, "-o"])
            .arg(&clock.waits)
            .status();
        assert!(
            compiled
                .expect("a C compiler, which librdkafka needs, too")
                .success()
        );
        clock.step(0);
        clock
    }

    /// Sets the clock of the process this many seconds ahead of the machine's.
    pub(crate) fn step(&self, seconds: i64) {
        // Replaced at once: half a file would be another time.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }

    /// What the process needs in its environment.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "LD_PRELOAD",
                format!("{}:{}", library().display(), self.waits.display()),
            ),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

/// Debian keeps it in a folder named after the architecture.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let mut found = files.filter(|file| file.exists());
    found.next().expect("the Debian package `faketime` is installed")
}
