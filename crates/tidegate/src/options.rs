//! How a Tidegate is opened: where its jobs are kept, and the configuration.
//!
//! The place is part of the type, so what fits only one of them does not compile with the other.

use std::path::{Path, PathBuf};

use tidegate_core::config::BulkConfig;
use tidegate_store::embedded::Durability;
use tidegate_store::redis::RedisOptions;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("{}: {error}", .path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", .path.display())]
    Parse {
        path: PathBuf,
        error: Box<toml::de::Error>,
    },
    #[error("{}: {error}", .path.display())]
    Invalid {
        path: PathBuf,
        error: tidegate_core::config::ConfigError,
    },
}

/// A data folder: one process at a time, no server.
#[derive(Debug, Clone)]
pub struct Folder {
    /// Made if it is missing.
    pub path: PathBuf,
    pub durability: Durability,
}

/// A Redis server or Cluster, version 7 or later: any number of processes.
#[derive(Debug, Clone)]
pub struct Redis {
    /// One server, or some of a Cluster; the others are found.
    pub urls: Vec<String>,
    /// What every key begins with; stores with different ones have nothing in common.
    pub key_prefix: String,
    /// Groups are spread over so many; in a Cluster, over its servers. Fixed when the store is made.
    pub shards: u32,
}

/// Where a Tidegate keeps its jobs, and how it works: [`Options::new`] for a data folder, [`Options::redis`]
/// for a Redis server.
#[derive(Debug, Clone)]
pub struct Options<Place = Folder> {
    pub place: Place,
    /// All processes on one Redis store need the same: the one that connects last decides for all.
    pub config: BulkConfig,
}

impl Options<Folder> {
    /// In a data folder; for [`Tidegate::open`](crate::Tidegate::open).
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            place: Folder {
                path: folder.into(),
                durability: Durability::default(),
            },
            config: BulkConfig::default(),
        }
    }

    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.place.durability = durability;
        self
    }
}

impl Options<Redis> {
    /// On a Redis server, `redis://user:password@host:port/number` or `rediss://…`; for
    /// [`Tidegate::connect`](crate::Tidegate::connect).
    ///
    /// The server should keep an append-only file with `appendfsync always`: only then is what was answered
    /// safe from its crash.
    pub fn redis(url: impl Into<String>) -> Self {
        let defaults = RedisOptions::new(url);
        Self {
            place: Redis {
                urls: defaults.urls,
                key_prefix: defaults.prefix,
                shards: defaults.shards,
            },
            config: defaults.config,
        }
    }

    /// More servers of the same Cluster, to be asked if the first is away.
    #[must_use]
    pub fn more_urls(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.place.urls.extend(urls.into_iter().map(Into::into));
        self
    }

    /// What every key begins with, `bulk-action:` if not set.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.place.key_prefix = prefix.into();
        self
    }

    /// Spreads groups over so many parts of a Cluster. One if not set; fixed when the store is made.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> Self {
        self.place.shards = shards;
        self
    }
}

impl<Place> Options<Place> {
    #[must_use]
    pub fn config(mut self, config: BulkConfig) -> Self {
        self.config = config;
        self
    }

    /// Takes the configuration from a TOML file; unknown keys are refused.
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
        assert_eq!(config.backpressure.global_rps, 5.0);
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
                "backpressure.global_rps = 0: it must be above 0",
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
        let readme = include_str!("../../../README.md");
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
