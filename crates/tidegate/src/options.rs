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
