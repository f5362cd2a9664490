//! `tidegate serve`: runs the service until a signal stops it.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use tidegate_server::config::{Config, Loaded, LogFormat, StoreKind};
use tidegate_server::telemetry::{self, Guard};
use tidegate_server::{Service, ServiceError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::settings::{self, SettingsArgs};

/// The exit code that shells use for an interrupted program.
const INTERRUPTED: i32 = 130;
/// How long the process waits at its end for threads of libraries.
const EXIT_GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
}

pub(super) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let loaded = args.settings.load()?;
    // Outlives the runtime: its drop sends the last spans and waits for them.
    let _traces = log(&loaded)?;
    match &loaded.file {
        Some(file) => tracing::info!(file = %file.display(), "read the settings"),
        None => tracing::info!("no configuration file; using defaults"),
    }
    warn(&loaded.config);
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(serve(loaded.config));
    // The service has finished its own work. Threads that a library still holds, like a client's, may not end.
    runtime.shutdown_timeout(EXIT_GRACE);
    ended
}

fn log(loaded: &Loaded) -> anyhow::Result<Option<Guard>> {
    let setting = |reason| ServiceError::Setting(reason);
    let (traces, guard) = telemetry::layer(&loaded.config.tracing).map_err(setting)?.unzip();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match loaded.config.log.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(settings::filter(loaded)?))
        // Spans have level INFO; the log filter does not apply to them.
        .with(traces.map(|traces| traces.with_filter(LevelFilter::INFO)))
        .init();
    Ok(guard)
}

fn warn(config: &Config) {
    let server = &config.server;
    if server.listen.ip().is_loopback() {
        return;
    }
    if server.open {
        tracing::warn!(listen = %server.listen, "no keys, but reachable from other machines: anybody may do everything");
    } else if server.tls.is_none() {
        tracing::warn!(listen = %server.listen, "no TLS: the network can read keys, unless a proxy in front encrypts");
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut stop = Stop {
        interrupt: signal(SignalKind::interrupt())?,
        terminate: signal(SignalKind::terminate())?,
    };
    let words = banner(&config);
    let service = tokio::select! {
        service = Service::start(config) => service?,
        () = stop.requested() => anyhow::bail!("stopped by a signal before it had started"),
    };
    // The parent process may have closed standard output. Serve anyway.
    let _ = writeln!(
        std::io::stdout(),
        "Tidegate listens on {}\n{words}",
        service.url()
    );
    let failed = tokio::select! {
        () = stop.requested() => false,
        () = service.failed() => true,
    };
    if failed {
        tracing::error!("the store has failed; stopping");
    }
    tracing::info!("stopping: running jobs finish first; a second signal ends at once");
    tokio::select! {
        ended = service.shutdown() => ended?,
        () = stop.requested() => std::process::exit(INTERRUPTED),
    }
    anyhow::ensure!(!failed, "the store has failed; see the log");
    Ok(())
}

struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn banner(config: &Config) -> String {
    let store = match config.store.kind {
        StoreKind::Embedded => format!("embedded, in {}", config.store.data.display()),
        StoreKind::Redis if config.redis.urls.is_empty() => {
            format!("Redis at {}:{}", config.redis.host, config.redis.port)
        }
        StoreKind::Redis => {
            let urls: Vec<String> = config.redis.urls.iter().map(ToString::to_string).collect();
            format!("Redis at {}", urls.join(", "))
        }
    };
    let keys = match config.keys.len() {
        0 => "none: whoever reaches the port may do everything".to_owned(),
        keys => keys.to_string(),
    };
    format!(
        "  store    {store}\n  targets  {}\n  keys     {keys}",
        config.targets.len()
    )
}
