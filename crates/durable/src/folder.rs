//! The data folder: its format marker, and whether it is ours to use.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::DurableError;
use crate::disk::Table;
use crate::fjall_disk::FjallDisk;

/// The format of the folder. Every later version reads it or migrates it.
pub const FORMAT: u32 = 4;

const MARK: &str = "FORMAT";

/// Opens the sub-folder of one part, and creates both folders if they are missing.
pub fn open(folder: &Path, part: &str, tables: &[Table]) -> Result<FjallDisk, DurableError> {
    prepare(folder)?;
    FjallDisk::open(&folder.join(part), tables).map_err(|error| match error {
        DurableError::Locked(_) => DurableError::Locked(folder.to_owned()),
        other => other,
    })
}

/// Creates the folder if it is missing; rejects one that holds something else or another format.
pub fn prepare(path: &Path) -> Result<(), DurableError> {
    let failed = |reason: String| DurableError::Folder {
        path: path.to_owned(),
        reason,
    };
    fs::create_dir_all(path).map_err(|error| failed(error.to_string()))?;
    match fs::read_to_string(path.join(MARK)) {
        Ok(mark) if mark == text(FORMAT) => Ok(()),
        Ok(mark) => {
            let found = mark.trim().strip_prefix("tidegate ").unwrap_or("unknown");
            Err(DurableError::Format {
                path: path.to_owned(),
                found: found.to_owned(),
                known: FORMAT,
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let entries = fs::read_dir(path).map_err(|error| failed(error.to_string()))?;
            // A full disk at the first start leaves a partial marker.
            let ours = ["FORMAT.new", "lost+found"];
            if entries
                .flatten()
                .any(|entry| !ours.iter().any(|name| entry.file_name() == *name))
            {
                return Err(failed(format!(
                    "it is not empty and has no {MARK} file, so it is not Tidegate's; use an empty folder"
                )));
            }
            write_mark(path).map_err(|error| failed(error.to_string()))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

fn text(format: u32) -> String {
    format!("tidegate {format}\n")
}

/// Written to a temporary file and renamed, so that there is never a partial marker.
fn write_mark(path: &Path) -> std::io::Result<()> {
    let beside = path.join("FORMAT.new");
    let mut file = File::create(&beside)?;
    file.write_all(text(FORMAT).as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path.join(MARK))?;
    File::open(path)?.sync_all()
}
