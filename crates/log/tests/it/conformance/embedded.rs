//! The conformance suite over the embedded log, each case in a folder of its own.

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_log::conformance::{Backend, Place};
use tidegate_log::embedded::{EmbeddedLog, EmbeddedLogOptions};
use tidegate_log::{Log, LogError, LogSettings, log_conformance_suite};

struct Folders;
struct Folder(TempDir);

#[async_trait]
impl Backend for Folders {
    async fn place(&self) -> Box<dyn Place> {
        Box::new(Folder(TempDir::new().expect("a temporary folder")))
    }
}

#[async_trait]
impl Place for Folder {
    async fn open(&self, settings: LogSettings) -> Result<Arc<dyn Log>, LogError> {
        let options = EmbeddedLogOptions {
            settings,
            ..EmbeddedLogOptions::new(self.0.path().join("log"))
        };
        Ok(Arc::new(EmbeddedLog::open(options)?))
    }
}

fn folders() -> Folders {
    Folders
}

log_conformance_suite!(folders());
