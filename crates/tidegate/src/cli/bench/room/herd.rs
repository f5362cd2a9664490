//! Visitors in processes of their own: one process has only so many open files.
//!
//! A herd comes when it is started and says how that went; then it is told by lines when to watch, and when to tell what
//! it has seen.

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

use super::crowd::{Watch, come};

/// People who come at once.
const AT_ONCE: u64 = 128;
const WATCH: &str = "watch";
const TELL: &str = "tell";

/// The other side of [`Herd`]: not for people.
#[derive(Debug, Clone, Args)]
pub(in crate::cli::bench) struct HerdArgs {
    #[arg(long, value_delimiter = ',', required = true)]
    servers: Vec<SocketAddr>,
    #[arg(long)]
    room: String,
    #[arg(long)]
    first: u64,
    #[arg(long)]
    count: u64,
}

/// How the coming went.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Came {
    pub(super) refused: u64,
    /// Why the first one was.
    pub(super) why: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Watched {
    arrival: Vec<(usize, u64)>,
    shown: Vec<(usize, u64)>,
}

/// A process of visitors.
pub(super) struct Herd {
    process: Child,
    told: ChildStdin,
    tells: Lines<BufReader<ChildStdout>>,
}

impl Herd {
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
                "room-herd",
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
            .context("visitors cannot be started")?;
        let told = process.stdin.take().context("visitors hear nothing")?;
        let tells = process.stdout.take().context("visitors say nothing")?;
        Ok(Self {
            process,
            told,
            tells: BufReader::new(tells).lines(),
        })
    }

    async fn heard<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let line = self.tells.next_line().await?.context("visitors are gone")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until all have come, or been refused.
    pub(super) async fn came(&mut self) -> anyhow::Result<Came> {
        self.heard().await
    }

    pub(super) async fn watch(&mut self) -> anyhow::Result<()> {
        Ok(self.told.write_all(format!("{WATCH}\n").as_bytes()).await?)
    }

    /// Adds what its visitors saw, and ends it.
    pub(super) async fn tell(mut self, watch: &Watch) -> anyhow::Result<()> {
        self.told.write_all(format!("{TELL}\n").as_bytes()).await?;
        let watched: Watched = self.heard().await?;
        watch.arrival.add_counted(&watched.arrival);
        watch.shown.add_counted(&watched.shown);
        Ok(self.process.kill().await?)
    }
}

/// The process itself.
pub(in crate::cli::bench) fn run(args: &HerdArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let watch = Arc::new(Watch::default());
        say(&all_come(args, &watch).await?)?;
        let mut told = lines();
        wait_for(&mut told, WATCH).await?;
        watch.watching.store(true, Ordering::Relaxed);
        wait_for(&mut told, TELL).await?;
        watch.watching.store(false, Ordering::Relaxed);
        say(&Watched {
            arrival: watch.arrival.counted(),
            shown: watch.shown.counted(),
        })?;
        // Whoever asked ends it; or is gone, and then so is this.
        wait_for(&mut told, "").await
    })
}

fn say<T: Serialize>(what: &T) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(what)?);
    Ok(())
}

/// What comes by the standard input, read by a thread of its own.
fn lines() -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if tell.blocking_send(line).is_err() {
                return;
            }
        }
    });
    told
}

async fn wait_for(told: &mut mpsc::Receiver<String>, wanted: &str) -> anyhow::Result<()> {
    while let Some(line) = told.recv().await {
        if line == wanted {
            return Ok(());
        }
    }
    anyhow::bail!("nobody is there to tell")
}

async fn all_come(args: &HerdArgs, watch: &Arc<Watch>) -> anyhow::Result<Came> {
    let next = Arc::new(AtomicU64::new(args.first));
    let end = args.first + args.count;
    let mut comers = Vec::new();
    for _ in 0..AT_ONCE {
        let (args, watch, next) = (args.clone(), watch.clone(), next.clone());
        comers.push(tokio::spawn(async move {
            let (mut refused, mut why) = (0, None);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return (refused, why);
                }
                let server = args.servers[number as usize % args.servers.len()];
                match come(server, &args.room, number).await {
                    Ok(visitor) => drop(tokio::spawn(visitor.wait(watch.clone(), None, number))),
                    Err(error) => {
                        refused += 1;
                        why.get_or_insert_with(|| format!("{error:#}"));
                    }
                }
            }
        }));
    }
    let mut came = Came {
        refused: 0,
        why: None,
    };
    for comer in comers {
        let (refused, why) = comer.await?;
        came.refused += refused;
        came.why = came.why.or(why);
    }
    Ok(came)
}
