//! The audit log: who did what, when and why, as JSON lines in a file.
//!
//! An entry is on disk before its command runs. If the command is then refused, another entry says so. At [`MAX_BYTES`] the
//! log rotates: the file replaces the earlier `….1`, and an empty one begins.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_api::AuditEntry;
use tidegate_core::time::Timestamp;

use crate::bulk::convert::time;
use crate::problem::{AUDIT, ApiError, ApiResult};

/// Limit: the size of one file. Two of them are on disk.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Limit: entries that the API returns, and how much of the file a start reads to find them.
const LATEST: usize = 1_000;
const TAIL_BYTES: u64 = 4 * 1024 * 1024;

/// A command that somebody is about to run.
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

    /// Adds the body of the request.
    pub(crate) fn with_detail(mut self, body: &impl serde::Serialize) -> Self {
        self.detail = serde_json::to_value(body).ok();
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
    /// The file may end within a line, after a failed write or a crash.
    torn: bool,
    /// Oldest first.
    latest: VecDeque<AuditEntry>,
}

impl Audit {
    /// Opens the file. The error says why the service cannot write it.
    pub(crate) fn open(file: PathBuf) -> Result<Self, String> {
        Self::with_limit(file, MAX_BYTES)
    }

    fn with_limit(path: PathBuf, max_bytes: u64) -> Result<Self, String> {
        let log = Log::open(&path, max_bytes);
        let log = log.map_err(|error| format!("cannot write the audit log {}: {error}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(log))))
    }

    /// Appends an entry, which is durable when this returns. If it fails, the command must not run.
    pub(crate) async fn record(
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
        // In a task of its own, so that the write completes even if the client disconnects.
        let written = tokio::task::spawn_blocking(move || locked(&log).append(entry)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|error| {
            tracing::error!(%error, what, "failed to write the audit log; the command does not run");
            ApiError::new(
                AUDIT,
                "the audit log cannot be written, so nothing was done; see the service's log",
            )
        })
    }

    /// Returns the latest entries, newest first.
    pub(crate) async fn latest(&self, max: usize) -> ApiResult<Vec<AuditEntry>> {
        let log = self.0.clone();
        // A blocking task, because a writer holds the lock while the disk syncs.
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
        // Right after a rotation the latest entries are in the rotated file.
        if let Ok(mut before) = File::open(rotated(path)) {
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
            std::fs::rename(&self.path, rotated(&self.path))?;
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

/// The path of the rotated file.
fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Opens the file for appending. Creates it if it is missing, readable by its owner only.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A new file survives a crash only after its folder is synced.
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// Reads the last entries into `latest`; returns true if the file ends within a line. It skips lines that are not entries:
/// a crash may have torn one.
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

    async fn record(audit: &Audit, on: &str) -> ApiResult<()> {
        let command = AuditedCommand::new("group.pause", on)
            .because(Some("because".into()))
            .with_detail(&serde_json::json!({"n": 1}));
        audit.record(Timestamp(1_000), "ops", command, None).await
    }

    async fn on(audit: &Audit) -> Vec<String> {
        let latest = audit.latest(LATEST).await.unwrap();
        latest.into_iter().map(|entry| entry.on).collect()
    }

    #[tokio::test]
    async fn entries_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/audit.jsonl");
        let audit = Audit::open(path.clone()).unwrap();
        record(&audit, "A").await.unwrap();
        record(&audit, "B").await.unwrap();
        assert_eq!(on(&audit).await, ["B", "A"]);
        assert_eq!(audit.latest(1).await.unwrap()[0].on, "B");
        let text = std::fs::read_to_string(&path).unwrap();
        let first = r#"{"at":"1970-01-01T00:00:01.000Z","who":"ops","what":"group.pause","on":"A","why":"because","detail":{"n":1}}"#;
        assert_eq!(text.lines().next().unwrap(), first);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(audit);
        let audit = Audit::open(path).unwrap();
        record(&audit, "C").await.unwrap();
        assert_eq!(on(&audit).await, ["C", "B", "A"]);
    }

    #[tokio::test]
    async fn a_torn_line_costs_no_other_entry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(path.clone()).unwrap();
        record(&audit, "A").await.unwrap();
        record(&audit, "B").await.unwrap();
        drop(audit);
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 20]).unwrap();
        let audit = Audit::open(path.clone()).unwrap();
        assert_eq!(on(&audit).await, ["A"]);
        record(&audit, "C").await.unwrap();
        drop(audit);
        assert_eq!(on(&Audit::open(path).unwrap()).await, ["C", "A"]);
    }

    #[tokio::test]
    async fn a_long_log_rotates_and_keeps_one_earlier_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::with_limit(path.clone(), 1_000).unwrap();
        for entry in 0..50 {
            record(&audit, &entry.to_string()).await.unwrap();
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
    async fn a_log_that_cannot_be_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = Audit::open(folder.path().join("file/audit.jsonl")).unwrap_err();
        assert!(
            error.starts_with("cannot write the audit log ") && error.contains("audit.jsonl: "),
            "{error}"
        );

        let audit = Audit::open("/dev/full".into()).unwrap();
        let refused = record(&audit, "A").await.unwrap_err();
        assert_eq!(refused.kind, AUDIT);
        assert!(refused.detail.contains("nothing was done"), "{}", refused.detail);
        assert!(on(&audit).await.is_empty());
    }
}
