//! `tidegate submit`: streams the jobs of a file or of standard input, one per line.

mod source;

use std::io::IsTerminal;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use futures_util::stream;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate_client::{Client, ClientError, Destination, Enqueued};

use self::source::{Piece, Source};
use crate::exit::Reported;
use crate::remote::Remote;
use crate::table::visible;

/// Limit: refusals kept, and those printed as text.
const MAX_ERRORS: usize = 100;
const MAX_PRINTED: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    remote: Remote,
    /// One job per line, like {"id": "mail-1", "type": "SEND_MAIL", "payload": {"to": "a@example.org"}}; `-` reads
    /// standard input
    file: PathBuf,
    /// The group of the jobs; without it every line names its own
    #[arg(long)]
    group: Option<String>,
    /// The batch of the jobs; created if it does not exist
    #[arg(long, requires = "group")]
    batch: Option<String>,
    /// Type of the jobs whose line has none
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Seal the batch afterwards, so that it can complete
    #[arg(long, requires = "batch")]
    seal: bool,
    /// Send this many jobs per request instead of one stream; the client retries each request while the service
    /// is unavailable
    #[arg(long, value_name = "JOBS", num_args = 0..=1, default_missing_value = "1000",
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    chunk: Option<u64>,
}

pub(crate) fn run(args: &SubmitArgs) -> anyhow::Result<()> {
    let source = Source::open(&args.file, args.kind.as_deref())?;
    let progress = progress(source.bytes());
    args.remote.run(|client| async move {
        let done = match args.chunk {
            None => stream(args, &client, source, &progress).await,
            Some(chunk) => chunks(args, &client, source, chunk, &progress).await,
        };
        progress.finish_and_clear();
        let done = done?;
        args.remote.print(&done, summary)?;
        if done.refused == 0 {
            return Ok(());
        }
        for refused in done.errors.iter().take(MAX_PRINTED) {
            let id = refused.id.as_deref().map(|id| format!(" ({})", visible(id)));
            eprintln!(
                "tidegate: job {}{} was refused: {} ({})",
                refused.index + 1,
                id.unwrap_or_default(),
                visible(&refused.detail),
                refused.code
            );
        }
        if args.seal && !done.sealed {
            eprintln!(
                "tidegate: the batch was not sealed, because {} jobs were refused: correct and submit them with --seal, or \
                 seal it with `tidegate batch seal`",
                done.refused
            );
        }
        Err(Reported.into())
    })
}

fn summary(done: &Enqueued) -> String {
    let Enqueued {
        accepted,
        duplicates,
        refused,
        ..
    } = done;
    format!("{accepted} accepted, {duplicates} known already, {refused} refused\n")
}

/// A progress bar, on a terminal only.
fn progress(bytes: Option<u64>) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let look = match bytes {
        Some(_) => "{bar:40} {bytes:>10} of {total_bytes} {msg} {eta:>4}",
        None => "{spinner} {bytes:>10} {msg}",
    };
    let style = ProgressStyle::with_template(look)
        .expect("a constant template")
        .progress_chars("━╸─");
    ProgressBar::with_draw_target(bytes, target).with_style(style)
}

fn destination(args: &SubmitArgs) -> Destination {
    match (&args.group, &args.batch) {
        (Some(group), Some(batch)) => Destination::batch(group, batch),
        (Some(group), None) => Destination::group(group),
        (None, _) => Destination::anywhere(),
    }
}

fn advance(progress: &ProgressBar, piece: &Piece, jobs: &mut u64) {
    *jobs += piece.jobs;
    progress.inc(piece.bytes.len() as u64);
    progress.set_message(format!("{jobs} jobs"));
}

async fn stream(
    args: &SubmitArgs,
    client: &Client,
    source: Source,
    progress: &ProgressBar,
) -> anyhow::Result<Enqueued> {
    let destination = destination(args);
    let destination = if args.seal {
        destination.seal()
    } else {
        destination
    };
    let pieces = source.read(u64::MAX);
    let state = (pieces, progress.clone(), 0);
    let pieces = stream::unfold(state, |(mut pieces, progress, mut jobs)| async move {
        let piece = pieces.recv().await?;
        let piece = piece.map(|piece| {
            advance(&progress, &piece, &mut jobs);
            piece.bytes
        });
        Some((piece, (pieces, progress, jobs)))
    });
    Ok(client.enqueue_lines(&destination, pieces).await?)
}

async fn chunks(
    args: &SubmitArgs,
    client: &Client,
    source: Source,
    chunk: u64,
    progress: &ProgressBar,
) -> anyhow::Result<Enqueued> {
    let destination = destination(args);
    let (mut total, mut jobs) = (Enqueued::default(), 0);
    let mut pieces = source.read(chunk);
    while let Some(piece) = pieces.recv().await {
        let piece = piece.map_err(ClientError::Input)?;
        let before = jobs;
        let done = client
            .enqueue_text(&destination, Bytes::clone(&piece.bytes))
            .await?;
        advance(progress, &piece, &mut jobs);
        total.accepted += done.accepted;
        total.duplicates += done.duplicates;
        total.refused += done.refused;
        total.batch = done.batch.or(total.batch);
        let room = MAX_ERRORS - total.errors.len();
        total
            .errors
            .extend(done.errors.into_iter().take(room).map(|mut refused| {
                refused.index += before;
                refused
            }));
    }
    // Refused jobs may still be corrected and sent: the batch stays open.
    let whole = total.refused == 0 && total.accepted + total.duplicates > 0;
    if let (true, Some(group), Some(batch)) = (args.seal && whole, &args.group, &args.batch) {
        client.seal_batch(group, batch).await?;
        total.sealed = true;
    }
    Ok(total)
}
