//! Rules of the tree: who may depend on whom, what every file has, which words are retired.

mod dependencies;
mod documents;
mod sources;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is there")
}

/// All files below these folders whose name ends in one of these, builds and packages of others left out.
fn files(folders: &[&str], endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        collect(&root().join(folder), endings, &mut found);
    }
    found
}

fn collect(below: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a readable folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() && !["target", "node_modules"].contains(&&*name) && !name.starts_with('.') {
            collect(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(&format!(".{ending}"))) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A path as a reader of the tree writes it.
fn shown(path: &Path) -> String {
    let root = root();
    path.strip_prefix(&root).unwrap_or(path).display().to_string()
}
