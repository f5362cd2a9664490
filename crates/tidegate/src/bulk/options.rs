//! Options of a Tidegate: the location of its jobs, and the configuration.
//!
//! The location is part of the type, so that options of one backend do not compile with the other.

use std::path::{Path, PathBuf};

use tidegate_core::bulk::config::BulkConfig;
use tidegate_durable::Durability;
#[cfg(feature = "redis")]
use tidegate_store::bulk::{OnOtherSettings, RedisBulkOptions};

/// Why a configuration file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The file cannot be read.
    #[error("{}: {error}", .path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file is not valid TOML, or has an unknown key.
    #[error("{}: {error}", .path.display())]
    Parse {
        /// The path of the file.
        path: PathBuf,
        /// The parse error with its line.
        error: Box<toml::de::Error>,
    },
    /// A value is out of range, or two values contradict each other.
    #[error("{}: {error}", .path.display())]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// The invalid value, and what would be right.
        error: tidegate_core::config::ConfigError,
    },
}

/// A data folder: one process at a time, no server.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The path of the folder, which the store creates if it is missing.
    pub path: PathBuf,
    /// When the store acknowledges a write. Default: after the sync to disk.
    pub durability: Durability,
}

/// A Redis server or Cluster, version 7 or later: any number of processes.
#[cfg(feature = "redis")]
#[derive(Debug, Clone)]
pub struct Redis {
    /// The address of one server, or of some nodes of a Cluster; the client discovers the others.
    pub urls: Vec<String>,
    /// The prefix of every key. Default: `bulk-action:`. Stores with different prefixes share nothing.
    pub key_prefix: String,
    /// The number of shards for the groups, which a Cluster spreads over its nodes. Default: 1. Fixed when the
    /// store is created.
    pub shards: u32,
    /// What to do if the store has other settings than [`Options::config`]. Default: refuse to start, and name them.
    pub on_other_settings: OnOtherSettings,
}

/// The location of a Tidegate's jobs, and its configuration: [`Options::new`] for a data folder,
/// [`Options::redis`] for a Redis server.
///
/// ```
/// use tidegate::config::BulkConfig;
/// use tidegate::{Durability, Options};
///
/// let mut config = BulkConfig::default();
/// config.backpressure.global_rps = 50.0.into();
/// let options = Options::new("data").durability(Durability::Buffered).config(config);
/// assert_eq!(options.config.backpressure.global_rps, 50.0.into());
/// ```
#[derive(Debug, Clone)]
pub struct Options<Location = Folder> {
    /// The location: a [`Folder`] or, with the feature `redis`, a Redis server.
    pub location: Location,
    /// The configuration. Limits, queues and retention belong to a store on Redis: all its processes have the same.
    pub config: BulkConfig,
}

impl Options<Folder> {
    /// Keeps jobs in a data folder; for [`Tidegate::open`](crate::Tidegate::open).
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            location: Folder {
                path: folder.into(),
                durability: Durability::default(),
            },
            config: BulkConfig::default(),
        }
    }

    /// Sets when the store acknowledges a write. Default: after the sync to disk.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.location.durability = durability;
        self
    }
}

#[cfg(feature = "redis")]
impl Options<Redis> {
    /// Keeps jobs on a Redis server, `redis://user:password@host:port/number` or `rediss://…`; for
    /// [`Tidegate::connect`](crate::Tidegate::connect).
    ///
    /// The server should keep an append-only file with `appendfsync always`: otherwise a crash of the server
    /// may lose acknowledged writes.
    pub fn redis(url: impl Into<String>) -> Self {
        let defaults = RedisBulkOptions::new(url);
        Self {
            location: Redis {
                urls: defaults.urls,
                key_prefix: defaults.prefix,
                shards: defaults.shards,
                on_other_settings: defaults.on_other_settings,
            },
            config: defaults.config,
        }
    }

    /// Adds nodes of the same Cluster, which the client tries if the first is unavailable.
    #[must_use]
    pub fn more_urls(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.location.urls.extend(urls.into_iter().map(Into::into));
        self
    }

    /// Sets the prefix of every key. Default: `bulk-action:`.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.location.key_prefix = prefix.into();
        self
    }

    /// Sets the number of shards for the groups. Default: 1. Fixed when the store is created.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> Self {
        self.location.shards = shards;
        self
    }

    /// Uses the settings of the store where they differ from these. By default, such a process does not start.
    #[must_use]
    pub fn follow_settings(mut self) -> Self {
        self.location.on_other_settings = OnOtherSettings::Follow;
        self
    }
}

impl<Location> Options<Location> {
    /// Sets the configuration. Default: [`BulkConfig::default`].
    #[must_use]
    pub fn config(mut self, config: BulkConfig) -> Self {
        self.config = config;
        self
    }

    /// Reads the configuration from a TOML file. Unknown keys are an error.
    pub fn config_file(mut self, path: impl AsRef<Path>) -> Result<Self, OptionsError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| OptionsError::Read {
            path: path.to_owned(),
            error,
        })?;
        let config: BulkConfig = toml::from_str(&text).map_err(|error| OptionsError::Parse {
            path: path.to_owned(),
            error: Box::new(error),
        })?;
        config.validate().map_err(|error| OptionsError::Invalid {
            path: path.to_owned(),
            error,
        })?;
        self.config = config;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options, OptionsError> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("writable");
        Options::new("data").config_file(file.path())
    }

    #[test]
    fn one_field_of_a_section_keeps_the_others() {
        let config = read("[backpressure]\nglobal_rps = 5")
            .expect("a valid file")
            .config;
        assert_eq!(config.backpressure.global_rps, 5.0.into());
        assert_eq!(config.backpressure.ready_queue_max_size, 10_000);
        assert_eq!(config.worker_pool, Default::default());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (text, why) in [
            (
                "[backpressure]\nglobal_rqs = 5",
                "unknown field `global_rqs`, expected one of `global_rps`",
            ),
            (
                "[backpresure]",
                "unknown field `backpresure`, expected one of `fair_queue`, `backpressure`",
            ),
            (
                "[backpressure]\nglobal_rps = 0",
                "backpressure.global_rps = 0/s: it must be from 0.00001",
            ),
            (
                "[backpressure]\nhold = \"nobody\"",
                "unknown variant `nobody`, expected `group` or `job`",
            ),
            ("[job_types.\"\"]\nqueue = \"mail\"", "job type is empty"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error:?} should contain {why:?}");
        }
        let missing = Options::new("data")
            .config_file("no such file")
            .expect_err("missing")
            .to_string();
        assert!(missing.starts_with("no such file: "), "{missing}");
    }

    /// The README's example is a valid configuration.
    #[test]
    fn the_documented_configuration_works() {
        let readme = include_str!("../../../../README.md");
        let mut blocks = readme
            .split("```toml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        let toml = blocks.find(|block| block.starts_with("[backpressure]"));
        let config = read(toml.expect("the README shows a configuration"))
            .expect("a valid file")
            .config;
        assert_eq!(
            config.worker_pool,
            Default::default(),
            "the values shown are the defaults"
        );
    }
}
