//! `tidegate export` and `tidegate import`: a whole store as a stream, to and from a data folder or Redis.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate::Options;
use tidegate_store::bulk::transfer::Counts;
use tidegate_store::bulk::{EmbeddedBulkOptions, EmbeddedBulkStore, RedisBulkOptions, RedisBulkStore};

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A data folder, or a store on Redis: `redis://…`, `rediss://…`, several nodes with commas
    ///
    /// A data folder must not be in use. A store on Redis should not be: the stream may or may not contain what
    /// changes during the export.
    store: String,
    #[command(flatten)]
    redis: RedisArgs,
    /// Where to write; standard output if absent
    #[arg(long, short)]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The data folder to create, or a store on Redis: `redis://…`, `rediss://…`, several nodes with commas
    store: String,
    #[command(flatten)]
    redis: RedisArgs,
    /// Configuration of the service that will use the store on Redis: it maps job types to queues
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to read; standard input if absent
    #[arg(long, short)]
    input: Option<PathBuf>,
}

/// Options of a store on Redis.
#[derive(Debug, Args)]
struct RedisArgs {
    /// Prefix of every key on Redis [default: bulk-action:]
    #[arg(long, value_name = "PREFIX")]
    key_prefix: Option<String>,
    /// Shards of the store on Redis [default: those it has, or 1]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
}

/// Where a store is.
enum Place<'a> {
    Folder(&'a Path),
    Redis(Box<RedisBulkOptions>),
}

impl RedisArgs {
    fn place<'a>(&self, store: &'a str) -> anyhow::Result<Place<'a>> {
        if !is_redis(store) {
            let options = [
                ("--key-prefix", self.key_prefix.is_some()),
                ("--shards", self.shards.is_some()),
            ];
            for (name, given) in options {
                anyhow::ensure!(!given, "{name} is for a store on Redis; {store} is a folder");
            }
            return Ok(Place::Folder(Path::new(store)));
        }
        let mut options = RedisBulkOptions::new("");
        options.urls = store.split(',').map(str::to_owned).collect();
        if let Some(prefix) = &self.key_prefix {
            options.prefix.clone_from(prefix);
        }
        options.shards = self.shards.unwrap_or(1);
        Ok(Place::Redis(Box::new(options)))
    }
}

fn is_redis(store: &str) -> bool {
    ["redis://", "rediss://"]
        .iter()
        .any(|scheme| store.starts_with(scheme))
}

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let place = args.redis.place(&args.store)?;
    let progress = progress(args.output.is_none() && io::stdout().is_terminal(), None);
    let output = Output::new(args.output.clone());
    let out = BufWriter::new(progress.wrap_write(output));
    let counts = runtime()?.block_on(async {
        match place {
            Place::Folder(folder) => export_folder(folder, out).await,
            Place::Redis(mut options) => {
                if args.redis.shards.is_none() {
                    options.shards = RedisBulkStore::shards_of(&options).await?.unwrap_or(1);
                }
                Ok(RedisBulkStore::export_of(&options, out).await?)
            }
        }
    });
    progress.finish_and_clear();
    report("exported", counts?);
    Ok(())
}

async fn export_folder(folder: &Path, out: impl Write) -> anyhow::Result<Counts> {
    let shown = folder.display();
    anyhow::ensure!(folder.is_dir(), "there is no data folder {shown}");
    // Opening would create a store in an empty folder; an export changes nothing.
    anyhow::ensure!(
        folder.read_dir()?.next().is_some(),
        "the folder {shown} is empty: there is nothing to export"
    );
    let store = EmbeddedBulkStore::open(EmbeddedBulkOptions::new(folder))?;
    let counts = store.export(out).await?;
    store.close().await?;
    Ok(counts)
}

pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let place = args.redis.place(&args.store)?;
    if let Place::Folder(folder) = place {
        let shown = folder.display();
        anyhow::ensure!(
            !folder.exists() || folder.is_dir(),
            "{shown} is not a folder; import creates a new data folder"
        );
        anyhow::ensure!(
            args.config.is_none(),
            "--config is for a store on Redis; {shown} is a folder"
        );
    }
    let (input, len): (Box<dyn Read>, _) = match &args.input {
        Some(path) => {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            let len = file.metadata().ok().map(|metadata| metadata.len());
            (Box::new(file), len)
        }
        None => (Box::new(io::stdin().lock()), None),
    };
    let progress = progress(false, len);
    let input = BufReader::new(progress.wrap_read(input));
    let counts = match place {
        Place::Folder(folder) => EmbeddedBulkStore::import(folder, input).map_err(Into::into),
        Place::Redis(mut options) => configured(&mut options, args.config.as_deref()).and_then(|()| {
            let import = RedisBulkStore::import(*options, input);
            Ok(runtime()?.block_on(import)?)
        }),
    };
    progress.finish_and_clear();
    report("imported", counts?);
    Ok(())
}

fn configured(options: &mut RedisBulkOptions, file: Option<&Path>) -> anyhow::Result<()> {
    if let Some(file) = file {
        options.config = Options::new("").config_file(file)?.config;
    }
    Ok(())
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

fn report(done: &str, counts: Counts) {
    let Counts {
        groups,
        batches,
        jobs,
    } = counts;
    eprintln!("{done} {groups} groups, {batches} batches, {jobs} jobs");
}

/// On standard error, if that is a terminal and the stream does not go there as well.
fn progress(hidden: bool, len: Option<u64>) -> ProgressBar {
    let target = if hidden || !io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let look = match len {
        Some(_) => "{bar:44} {bytes:>10} of {total_bytes:10} {bytes_per_sec}",
        None => "{spinner} {bytes:>10} {bytes_per_sec}",
    };
    let style = ProgressStyle::with_template(look).expect("a constant template");
    ProgressBar::with_draw_target(len, target).with_style(style.progress_chars("━╸─"))
}

/// Creates the file at the first write: a failure before that leaves an earlier export untouched.
struct Output {
    path: Option<PathBuf>,
    out: Option<Box<dyn Write>>,
}

impl Output {
    fn new(path: Option<PathBuf>) -> Self {
        Self { path, out: None }
    }

    fn opened(&mut self) -> io::Result<&mut dyn Write> {
        let out = match (self.out.take(), &self.path) {
            (Some(out), _) => out,
            (None, None) => Box::new(io::stdout().lock()),
            (None, Some(path)) => {
                let named =
                    |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
                Box::new(File::create(path).map_err(named)?)
            }
        };
        Ok(&mut **self.out.insert(out))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.opened()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), |out| out.flush())
    }
}
