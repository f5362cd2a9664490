//! Visitors in child processes: one process has only so many open files.
//!
//! A child process joins its visitors at its start and reports the outcome. Commands on its standard input start the
//! watch, and end it with a report of what the visitors saw.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::visitor::{Watch, join};

/// Concurrent joins.
const AT_ONCE: u64 = 128;
const WATCH: &str = "watch";
const REPORT: &str = "report";

/// Arguments of the child process; not for users.
#[derive(Debug, Clone, Args)]
pub(in crate::bench) struct VisitorProcessArgs {
    #[arg(long, value_delimiter = ',', required = true)]
    servers: Vec<SocketAddr>,
    #[arg(long)]
    room: String,
    #[arg(long)]
    first: u64,
    #[arg(long)]
    count: u64,
}

/// Outcome of the joins.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Joined {
    pub(super) refused: u64,
    /// Why the first one was refused.
    pub(super) why: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Watched {
    arrival: Vec<(usize, u64)>,
    shown: Vec<(usize, u64)>,
}

/// The parent's side of a child process with visitors.
pub(super) struct VisitorProcess {
    process: Child,
    commands: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
}

impl VisitorProcess {
    /// Visitors with these numbers, spread over the servers.
    pub(super) fn start(
        servers: &[SocketAddr],
        room: &str,
        numbers: std::ops::Range<u64>,
    ) -> anyhow::Result<Self> {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let mut process = Command::new(std::env::current_exe()?)
            .args([
                "bench",
                "room-visitors",
                "--room",
                room,
                "--servers",
                &servers.join(","),
            ])
            .args(["--first", &numbers.start.to_string()])
            .args(["--count", &(numbers.end - numbers.start).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the visitor process does not start")?;
        let commands = process.stdin.take().context("the visitor process has no input")?;
        let reports = process
            .stdout
            .take()
            .context("the visitor process has no output")?;
        Ok(Self {
            process,
            commands,
            reports: BufReader::new(reports).lines(),
        })
    }

    async fn report<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let line = self
            .reports
            .next_line()
            .await?
            .context("the visitor process has ended")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until every visitor has joined or was refused.
    pub(super) async fn joined(&mut self) -> anyhow::Result<Joined> {
        self.report().await
    }

    pub(super) async fn watch(&mut self) -> anyhow::Result<()> {
        Ok(self.commands.write_all(format!("{WATCH}\n").as_bytes()).await?)
    }

    /// Adds what its visitors saw, and ends the process.
    pub(super) async fn finish(mut self, watch: &Watch) -> anyhow::Result<()> {
        self.commands.write_all(format!("{REPORT}\n").as_bytes()).await?;
        let watched: Watched = self.report().await?;
        watch.arrival.add_counted(&watched.arrival);
        watch.shown.add_counted(&watched.shown);
        Ok(self.process.kill().await?)
    }
}

/// The child process itself.
pub(in crate::bench) fn run(args: &VisitorProcessArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let watch = Arc::new(Watch::default());
        print(&join_all(args, &watch).await?)?;
        let mut commands = lines();
        wait_for(&mut commands, WATCH).await?;
        watch.watching.store(true, Ordering::Relaxed);
        wait_for(&mut commands, REPORT).await?;
        watch.watching.store(false, Ordering::Relaxed);
        print(&Watched {
            arrival: watch.arrival.counted(),
            shown: watch.shown.counted(),
        })?;
        // The parent kills this process. If the parent is gone, standard input ends.
        wait_for(&mut commands, "").await
    })
}

fn print<T: Serialize>(report: &T) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}

/// Lines of standard input, read by a thread of its own.
fn lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

async fn wait_for(commands: &mut mpsc::Receiver<String>, wanted: &str) -> anyhow::Result<()> {
    while let Some(line) = commands.recv().await {
        if line == wanted {
            return Ok(());
        }
    }
    anyhow::bail!("the parent process has ended")
}

async fn join_all(args: &VisitorProcessArgs, watch: &Arc<Watch>) -> anyhow::Result<Joined> {
    let next = Arc::new(AtomicU64::new(args.first));
    let end = args.first + args.count;
    let mut tasks = Vec::new();
    for _ in 0..AT_ONCE {
        let (args, watch, next) = (args.clone(), watch.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            let (mut refused, mut why) = (0, None);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return (refused, why);
                }
                let server = args.servers[number as usize % args.servers.len()];
                match join(server, &args.room, number).await {
                    Ok(visitor) => drop(tokio::spawn(visitor.wait(watch.clone(), None, number))),
                    Err(error) => {
                        refused += 1;
                        why.get_or_insert_with(|| format!("{error:#}"));
                    }
                }
            }
        }));
    }
    let mut joined = Joined {
        refused: 0,
        why: None,
    };
    for task in tasks {
        let (refused, why) = task.await?;
        joined.refused += refused;
        joined.why = joined.why.or(why);
    }
    Ok(joined)
}
