//! `tidegate export` and `tidegate import`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use tidegate_store::embedded::{EmbeddedOptions, EmbeddedStore};

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The data folder
    data: PathBuf,
    /// Where to write; standard output if absent
    #[arg(long, short)]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The data folder to make
    data: PathBuf,
    /// Where to read; standard input if absent
    #[arg(long, short)]
    input: Option<PathBuf>,
}

pub(super) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.data.is_dir(),
        "there is no data folder {}",
        args.data.display()
    );
    // The store would make itself at home in an empty folder; an export changes nothing.
    anyhow::ensure!(
        args.data.read_dir()?.next().is_some(),
        "the folder {} is empty: there is nothing to export",
        args.data.display()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let counts = runtime.block_on(async {
        let store = EmbeddedStore::open(EmbeddedOptions::new(&args.data))?;
        // After the store is open: a failure up to here leaves an earlier export as it is.
        let out: Box<dyn Write> = match &args.output {
            Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
            None => Box::new(std::io::stdout().lock()),
        };
        let counts = store.export(BufWriter::new(out)).await?;
        store.close().await?;
        anyhow::Ok(counts)
    })?;
    eprintln!(
        "exported {} groups, {} actions, {} jobs",
        counts.groups, counts.actions, counts.jobs
    );
    Ok(())
}

pub(super) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        !args.data.exists() || args.data.is_dir(),
        "{} is not a folder; import makes a new data folder",
        args.data.display()
    );
    let input: Box<dyn Read> = match &args.input {
        Some(path) => Box::new(File::open(path).with_context(|| path.display().to_string())?),
        None => Box::new(std::io::stdin().lock()),
    };
    let counts = EmbeddedStore::import(&args.data, BufReader::new(input))?;
    eprintln!(
        "imported {} groups, {} actions, {} jobs",
        counts.groups, counts.actions, counts.jobs
    );
    Ok(())
}
