//! Flags that select the settings; the same for every command that reads them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tidegate_server::config::{ConfigError, Flag, Loaded, Sources, load};
use tracing_subscriber::filter::Targets;

/// Takes precedence over `log.filter`.
pub(super) const LOG_VARIABLE: &str = "TIDEGATE_LOG";

#[derive(Debug, Clone, Default, Args)]
pub(super) struct SettingsArgs {
    /// The configuration file; `tidegate.toml` in the working directory if absent and there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen here: server.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Keep jobs in this folder: store.data
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Keep jobs on this Redis server: store.kind = "redis", redis.urls
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Any setting, like backpressure.global_rps=500; may be repeated
    #[arg(long, value_name = "SECTION.FIELD=VALUE")]
    set: Vec<String>,
}

impl SettingsArgs {
    /// Defaults, then the file, then the environment, then flags.
    pub(super) fn load(&self) -> Result<Loaded, ConfigError> {
        let loaded = load(&Sources {
            file: self.config.clone(),
            folder: PathBuf::new(),
            env: std::env::vars_os().collect(),
            flags: self.flags()?,
        })?;
        filter(&loaded)?;
        Ok(loaded)
    }

    fn flags(&self) -> Result<Vec<Flag>, ConfigError> {
        // Quoted as TOML strings, so that no text is parsed as another type.
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut flags = Vec::new();
        let mut put = |flag: &str, key: &str, value: String| {
            flags.push(Flag {
                flag: flag.into(),
                key: key.into(),
                value,
            });
        };
        if let Some(listen) = self.listen {
            put("--listen", "server.listen", quoted(&listen.to_string()));
        }
        if let Some(data) = &self.data {
            let text = data.to_str();
            let text = text.ok_or_else(|| ConfigError(format!("--data {data:?} is not valid UTF-8")))?;
            put("--data", "store.data", quoted(text));
        }
        if let Some(url) = &self.redis {
            put("--redis", "store.kind", quoted("redis"));
            put("--redis", "redis.urls", format!("[{}]", quoted(url)));
        }
        for set in &self.set {
            // The message does not repeat the value: it may be a mistyped secret.
            let Some((key, value)) = set.split_once('=') else {
                return Err(ConfigError(
                    "--set needs a setting and its value, like --set backpressure.global_rps=500".into(),
                ));
            };
            put(
                &format!("--set {}", key.trim()),
                key.trim(),
                value.trim().to_owned(),
            );
        }
        Ok(flags)
    }
}

/// The log filter: from the variable, or from the configuration.
pub(super) fn filter(loaded: &Loaded) -> Result<Targets, ConfigError> {
    let (name, words) = match std::env::var(LOG_VARIABLE) {
        Ok(words) if !words.is_empty() => (LOG_VARIABLE, words),
        _ => ("log.filter", loaded.config.log.filter.clone()),
    };
    words.parse::<Targets>().map_err(|error| {
        ConfigError(format!(
            "{name} = {words:?}: {error}; it must be like \"info\" or \"tidegate_server=debug,info\""
        ))
    })
}
