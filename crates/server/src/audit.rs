//! The audit log: who did what, when and why, as JSON lines in a file.
//!
//! An entry is on disk before its command is done; if it is refused then, another entry says so. At [`MAX_BYTES`] the file becomes `….1`, in place of the one
//! before, and a fresh one begins.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_api::AuditEntry;
use tidegate_core::time::Timestamp;

use crate::convert::time;
use crate::problem::{AUDIT, ApiError, ApiResult};

/// Limit: the size of the file; twice that on disk.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Limit: entries that can be asked for, and what is read at a start to find them.
const LATEST: usize = 1_000;
const TAIL_BYTES: u64 = 4 * 1024 * 1024;

/// What somebody is about to do.
#[derive(Debug, Clone)]
pub(crate) struct AuditedCommand {
    what: &'static str,
    on: String,
    why: Option<String>,
    detail: Option<serde_json::Value>,
}

impl AuditedCommand {
    pub(crate) fn new(what: &'static str, on: impl ToString) -> Self {
        Self {
            what,
            on: on.to_string(),
            why: None,
            detail: None,
        }
    }

    pub(crate) fn because(mut self, why: Option<String>) -> Self {
        self.why = why;
        self
    }

    /// What was asked for, as it was asked.
    pub(crate) fn asked(mut self, asked: &impl serde::Serialize) -> Self {
        self.detail = serde_json::to_value(asked).ok();
        self
    }
}

#[derive(Debug)]
pub(crate) struct Audit(Arc<Mutex<Log>>);

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
    /// The file may end within a line: a write failed, or the machine did.
    torn: bool,
    /// Oldest first.
    latest: VecDeque<AuditEntry>,
}

impl Audit {
    /// Opens the file, or says why it cannot be written.
    pub(crate) fn open(file: PathBuf) -> Result<Self, String> {
        Self::with_limit(file, MAX_BYTES)
    }

    fn with_limit(path: PathBuf, max_bytes: u64) -> Result<Self, String> {
        let log = Log::open(&path, max_bytes);
        let log =
            log.map_err(|error| format!("the audit log {} cannot be written: {error}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(log))))
    }

    /// Durable when it returns. Fails if it cannot be kept: then the command must not be done either.
    pub(crate) async fn note(
        &self,
        at: Timestamp,
        who: &str,
        command: AuditedCommand,
        refused: Option<String>,
    ) -> ApiResult<()> {
        let what = command.what;
        let entry = AuditEntry {
            at: time(at),
            who: who.to_owned(),
            what: what.to_owned(),
            on: command.on,
            why: command.why,
            detail: command.detail,
            refused,
        };
        let detail = entry.detail.as_ref().map(ToString::to_string);
        tracing::info!(target: "audit", who, what, on = entry.on, why = entry.why, detail, refused = entry.refused);
        let log = self.0.clone();
        // Written to the end even if the caller goes away in the meantime.
        let written = tokio::task::spawn_blocking(move || locked(&log).append(entry)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|error| {
            tracing::error!(%error, what, "the audit log cannot be written; what was asked for is not done");
            ApiError::new(
                AUDIT,
                "the audit log cannot be written, so nothing was done; see the service's log",
            )
        })
    }

    /// The latest entries, newest first.
    pub(crate) async fn latest(&self, max: usize) -> ApiResult<Vec<AuditEntry>> {
        let log = self.0.clone();
        // The lock is held while the disk writes.
        let read = move || locked(&log).latest.iter().rev().take(max).cloned().collect();
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| ApiError::new(AUDIT, format!("the audit log cannot be read: {error}")))
    }
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let mut latest = VecDeque::new();
        // Right after the file was put aside, the latest are in the other one.
        if let Ok(mut before) = File::open(aside(path)) {
            read_tail(&mut before, &mut latest)?;
        }
        let mut file = open(path)?;
        let torn = read_tail(&mut file, &mut latest)?;
        Ok(Self {
            path: path.to_owned(),
            bytes: file.metadata()?.len(),
            file,
            max_bytes,
            torn,
            latest,
        })
    }

    fn append(&mut self, entry: AuditEntry) -> io::Result<()> {
        let mut line = if self.torn { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut line, &entry)?;
        line.push(b'\n');
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.max_bytes {
            std::fs::rename(&self.path, aside(&self.path))?;
            self.file = open(&self.path)?;
            self.bytes = 0;
        }
        self.torn = true;
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.torn = false;
        self.bytes += line.len() as u64;
        remember(&mut self.latest, entry);
        Ok(())
    }
}

fn remember(latest: &mut VecDeque<AuditEntry>, entry: AuditEntry) {
    if latest.len() == LATEST {
        latest.pop_front();
    }
    latest.push_back(entry);
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// For appending; made if it is missing, for its owner only.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A file is safe only when its folder knows it.
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// Takes the last entries into `latest`; true if the file ends within a line. What is no entry is passed over:
/// the line that a crash tore.
fn read_tail(file: &mut File, latest: &mut VecDeque<AuditEntry>) -> io::Result<bool> {
    let bytes = file.metadata()?.len();
    let skipped = bytes.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(skipped))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let from = if skipped > 0 { 1 } else { 0 };
    for line in tail.split(|byte| *byte == b'\n').skip(from) {
        if let Ok(entry) = serde_json::from_slice(line) {
            remember(latest, entry);
        }
    }
    Ok(tail.last().is_some_and(|last| *last != b'\n'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn note(audit: &Audit, on: &str) -> ApiResult<()> {
        let command = AuditedCommand::new("group.pause", on)
            .because(Some("because".into()))
            .asked(&serde_json::json!({"n": 1}));
        audit.note(Timestamp(1_000), "ops", command, None).await
    }

    async fn on(audit: &Audit) -> Vec<String> {
        let latest = audit.latest(LATEST).await.unwrap();
        latest.into_iter().map(|entry| entry.on).collect()
    }

    #[tokio::test]
    async fn entries_are_kept_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/audit.jsonl");
        let audit = Audit::open(path.clone()).unwrap();
        note(&audit, "A").await.unwrap();
        note(&audit, "B").await.unwrap();
        assert_eq!(on(&audit).await, ["B", "A"]);
        assert_eq!(audit.latest(1).await.unwrap()[0].on, "B");
        let text = std::fs::read_to_string(&path).unwrap();
        let first = r#"{"at":"1970-01-01T00:00:01.000Z","who":"ops","what":"group.pause","on":"A","why":"because","detail":{"n":1}}"#;
        assert_eq!(text.lines().next().unwrap(), first);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(audit);
        let audit = Audit::open(path).unwrap();
        note(&audit, "C").await.unwrap();
        assert_eq!(on(&audit).await, ["C", "B", "A"]);
    }

    #[tokio::test]
    async fn a_line_that_a_crash_tore_costs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(path.clone()).unwrap();
        note(&audit, "A").await.unwrap();
        note(&audit, "B").await.unwrap();
        drop(audit);
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 20]).unwrap();
        let audit = Audit::open(path.clone()).unwrap();
        assert_eq!(on(&audit).await, ["A"]);
        note(&audit, "C").await.unwrap();
        drop(audit);
        assert_eq!(on(&Audit::open(path).unwrap()).await, ["C", "A"]);
    }

    #[tokio::test]
    async fn a_long_log_is_put_aside_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::with_limit(path.clone(), 1_000).unwrap();
        for entry in 0..50 {
            note(&audit, &entry.to_string()).await.unwrap();
        }
        assert_eq!(on(&audit).await.len(), 50);
        let mut names: Vec<_> = folder
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["audit.jsonl", "audit.jsonl.1"]);
        for name in names {
            assert!(folder.path().join(name).metadata().unwrap().len() <= 1_000);
        }
        let again = on(&Audit::open(path).unwrap()).await;
        assert_eq!(&again[..2], ["49", "48"]);
        assert!(again.len() > 8, "both files are read: {again:?}");
    }

    #[tokio::test]
    async fn only_the_tail_of_a_long_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let entry = r#"{"at":"1970-01-01T00:00:01.000Z","who":"a","what":"b","on":"ON"}"#;
        let lines = (0..100_000).map(|number| entry.replace("ON", &number.to_string()) + "\n");
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        let audit = Audit::open(path).unwrap();
        let all = on(&audit).await;
        assert_eq!(
            (all.len(), all[0].as_str(), all[999].as_str()),
            (1_000, "99999", "99000")
        );
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = Audit::open(folder.path().join("file/audit.jsonl")).unwrap_err();
        assert!(error.contains("audit.jsonl cannot be written: "), "{error}");

        let audit = Audit::open("/dev/full".into()).unwrap();
        let refused = note(&audit, "A").await.unwrap_err();
        assert_eq!(refused.kind, AUDIT);
        assert!(refused.detail.contains("nothing was done"), "{}", refused.detail);
        assert!(on(&audit).await.is_empty());
    }
}
