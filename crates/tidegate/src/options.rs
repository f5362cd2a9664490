//! How a Tidegate is opened: folder, durability, configuration.

use std::path::{Path, PathBuf};

use tidegate_core::config::BulkConfig;
use tidegate_store::embedded::Durability;

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

#[derive(Debug, Clone)]
pub struct Options {
    /// The data folder; made if it is missing.
    pub folder: PathBuf,
    pub durability: Durability,
    pub config: BulkConfig,
}

impl Options {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            durability: Durability::default(),
            config: BulkConfig::default(),
        }
    }

    #[must_use]
    pub fn config(mut self, config: BulkConfig) -> Self {
        self.config = config;
        self
    }

    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
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
            ("[job_types.\"\"]\nlane = \"mail\"", "job type is empty"),
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
        let toml = readme
            .split("```toml\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
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
