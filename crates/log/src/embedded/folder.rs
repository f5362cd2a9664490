//! The data folder: its format file, and whether this log may use it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::LogError;

const MARK: &str = "FORMAT";
const TEXT: &str = "tidegate-log 1\n";

/// Creates the folder if it is missing. Rejects one that holds something else or another format.
pub(super) fn prepare(path: &Path) -> Result<(), LogError> {
    let failed = |reason: String| LogError::Folder {
        path: path.to_owned(),
        reason,
    };
    fs::create_dir_all(path).map_err(|error| failed(error.to_string()))?;
    match fs::read_to_string(path.join(MARK)) {
        Ok(mark) if mark == TEXT => Ok(()),
        Ok(mark) => Err(failed(format!(
            "its format is {:?}, this program reads {:?}; use the version of Tidegate that wrote it",
            mark.trim(),
            TEXT.trim()
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let entries = fs::read_dir(path).map_err(|error| failed(error.to_string()))?;
            // A full disk at the first start leaves half a format file.
            if entries.flatten().any(|entry| entry.file_name() != "FORMAT.new") {
                return Err(failed(format!(
                    "it is not empty and has no {MARK} file, so it is not Tidegate's; use an empty folder"
                )));
            }
            write_mark(path).map_err(|error| failed(error.to_string()))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Writes a temporary file and renames it, so that no partial format file can exist.
fn write_mark(path: &Path) -> std::io::Result<()> {
    let beside = path.join("FORMAT.new");
    let mut file = File::create(&beside)?;
    file.write_all(TEXT.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path.join(MARK))?;
    File::open(path)?.sync_all()
}
