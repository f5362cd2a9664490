//! Checks the settings of the refresh module and the relations between them.

use tidegate_core::ids::TargetId;
use tidegate_core::refresh::config::RefreshConfig;
use tidegate_core::time::Millis;

use super::DatabaseKind;
use crate::config::check::ensure;
use crate::config::{Config, ConfigError, LogKind, RolesConfig, StoreKind};

/// Refuses a setting that needs a feature this build does not have.
pub(crate) fn need_feature(setting: &str, feature: &str, built_in: bool) -> Result<(), ConfigError> {
    ensure!(
        built_in,
        "{setting} needs the feature `{feature}`, which this build does not have: build with `--features {feature}`"
    );
    Ok(())
}

impl Config {
    pub(in crate::config) fn check_refresh(&self) -> Result<(), ConfigError> {
        for (name, budget) in &self.budgets {
            budget.validate(name.as_str())?;
        }
        for (name, target) in &self.targets {
            if let Some(budget) = &target.budget {
                self.check_budget(&format!("targets.{name}.budget"), budget)?;
            }
        }
        let refresh = &self.refresh;
        refresh.core().validate()?;
        refresh.query.validate(&refresh.coalescer)?;
        refresh.work.validate()?;
        refresh.watch.validate()?;
        self.check_sources()?;
        self.check_roles()?;
        self.check_log()?;
        self.check_snapshots()?;
        self.check_archive()
    }

    fn check_budget(&self, setting: &str, budget: &TargetId) -> Result<(), ConfigError> {
        let known: Vec<&str> = self.budgets.keys().map(TargetId::as_str).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        ensure!(
            self.budgets.contains_key(budget),
            "{setting} = {budget:?}: this budget is not configured (configured: {known}); add [budgets.{budget}]"
        );
        Ok(())
    }

    fn check_sources(&self) -> Result<(), ConfigError> {
        for (name, source) in &self.sources {
            ensure!(
                source.id.is_empty() || source.id == name.as_str(),
                "sources.{name}.id = {:?}: the section already names the source {name:?}; leave the id out",
                source.id
            );
            let mut source = source.clone();
            source.id = name.as_str().to_owned();
            source.check().map_err(|error| ConfigError(error.to_string()))?;
            let template = source
                .template()
                .map_err(|error| ConfigError(error.to_string()))?;
            if let Some(unknown) = template.names().first() {
                return Err(ConfigError(format!(
                    "sources.{name}.url: {{{unknown}}} is not a known placeholder; use {{key}} for the record's key"
                )));
            }
            let target = TargetId::new(&source.target).map_err(|error| ConfigError(error.to_string()))?;
            self.check_budget(&format!("sources.{name}.target"), &target)?;
            let tiers = RefreshConfig {
                tiers: self.tiers_of(&source),
                ..RefreshConfig::default()
            };
            tiers
                .validate()
                .map_err(|error| ConfigError(format!("sources.{name}.ttl_ms with refresh.tiers: {error}")))?;
        }
        Ok(())
    }

    fn check_roles(&self) -> Result<(), ConfigError> {
        let roles = self.refresh.roles;
        if !self.refreshes() || roles == RolesConfig::All {
            return Ok(());
        }
        let shared = self.store.kind == StoreKind::Redis && self.log_kind() != LogKind::Embedded;
        let role = format!("{roles:?}").to_lowercase();
        ensure!(
            shared,
            "refresh.roles = \"{role}\" needs other processes for the remaining roles, but they cannot share store.kind = \
             \"{}\" with refresh.log.kind = \"{}\": use \"redis\" for the store and \"redis\" or \"kafka\" for the log, or \
             roles = \"all\"",
            format!("{:?}", self.store.kind).to_lowercase(),
            format!("{:?}", self.log_kind()).to_lowercase(),
        );
        Ok(())
    }

    fn check_log(&self) -> Result<(), ConfigError> {
        let log = &self.refresh.log;
        log.settings()
            .validate()
            .map_err(|error| ConfigError(format!("refresh.log: {error}")))?;
        let kind = self.log_kind();
        if kind == LogKind::Kafka {
            need_feature("refresh.log.kind = \"kafka\"", "kafka", cfg!(feature = "kafka"))?;
            ensure!(
                !log.brokers.is_empty() && log.brokers.iter().all(|broker| !broker.trim().is_empty()),
                "refresh.log.kind = \"kafka\", but refresh.log.brokers is empty: name some, like [\"127.0.0.1:9092\"]"
            );
        } else {
            ensure!(
                log.brokers.is_empty(),
                "refresh.log.brokers is set, but refresh.log.kind = \"{}\": set the kind to \"kafka\", or leave the brokers out",
                format!("{kind:?}").to_lowercase()
            );
        }
        for (name, pending, retention) in [
            (
                "high",
                self.refresh.coalescer.high_pending_ms,
                log.high_retention_ms,
            ),
            ("low", self.refresh.coalescer.low_pending_ms, log.low_retention_ms),
        ] {
            ensure!(
                pending <= retention,
                "refresh.coalescer.{name}_pending_ms = {} is longer than refresh.log.{name}_retention_ms = {}: it must not be, \
                 or requests would join an event that the log has dropped",
                pending.0,
                retention.0
            );
        }
        let (ask, send) = (self.refresh.query.request_timeout_ms, log.send_timeout_ms);
        let slot = self.refresh.coalescer.send_timeout_ms;
        ensure!(
            ask.0.saturating_add(send.0) < slot.0,
            "refresh.coalescer.send_timeout_ms = {} must be longer than refresh.query.request_timeout_ms = {} and \
             refresh.log.send_timeout_ms = {} together, or an event would count as not sent while the log still writes it",
            slot.0,
            ask.0,
            send.0
        );
        Ok(())
    }

    fn check_snapshots(&self) -> Result<(), ConfigError> {
        let snapshots = &self.refresh.snapshots;
        let setting = "refresh.snapshots.url";
        match snapshots.kind() {
            Some(DatabaseKind::Sqlite) => {}
            Some(DatabaseKind::Postgres) => {
                need_feature(
                    &format!("{setting} = \"postgres://…\""),
                    "postgres",
                    cfg!(feature = "postgres"),
                )?;
            }
            Some(DatabaseKind::Mysql) => {
                need_feature(
                    &format!("{setting} = \"mysql://…\""),
                    "mysql",
                    cfg!(feature = "mysql"),
                )?;
            }
            // The message does not repeat the value, because it may hold a password.
            None => {
                return Err(ConfigError(format!(
                    "{setting} must start with sqlite:, postgres:// or mysql://, like \"sqlite:\" for a file in the data folder"
                )));
            }
        }
        ensure!(
            (1..=1_000).contains(&snapshots.connections),
            "refresh.snapshots.connections = {}: it must be from 1 to 1000",
            snapshots.connections
        );
        ensure!(
            snapshots.write_timeout_ms > Millis(0),
            "refresh.snapshots.write_timeout_ms = 0: it must be at least 1 ms"
        );
        Ok(())
    }

    fn check_archive(&self) -> Result<(), ConfigError> {
        let archive = &self.refresh.archive;
        ensure!(
            archive.minutes().is_some(),
            "refresh.archive.at = {:?}: it must be a time of the day, like \"03:00\"",
            archive.at
        );
        ensure!(
            (-840..=840).contains(&archive.utc_offset_minutes),
            "refresh.archive.utc_offset_minutes = {}: it must be from -840 to 840",
            archive.utc_offset_minutes
        );
        ensure!(
            (1..=19).contains(&archive.compression),
            "refresh.archive.compression = {}: it must be from 1 to 19",
            archive.compression
        );
        crate::refresh::archive_settings(archive)
            .check()
            .map_err(|error| ConfigError(format!("refresh.archive: {error}")))?;
        let Some(to) = &archive.to else { return Ok(()) };
        ensure!(
            !to.is_empty(),
            "refresh.archive.to is empty: name a folder or s3://bucket/prefix, or leave it out"
        );
        if let Some(rest) = to.strip_prefix("s3://") {
            need_feature("refresh.archive.to = \"s3://…\"", "s3", cfg!(feature = "s3"))?;
            ensure!(
                !rest.split('/').next().unwrap_or_default().is_empty(),
                "refresh.archive.to = {to:?} names no bucket: write it like s3://bucket/prefix"
            );
        }
        ensure!(
            to.starts_with("s3://") || !to.contains("://"),
            "refresh.archive.to = {to:?}: it must be a folder, or s3://bucket/prefix"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "[budgets.api]\n[sources.a]\nurl = \"http://a.example/{key}\"\ntarget = \"api\"\nfields = [\"b\"]\n";

    fn check(text: &str) -> Result<(), String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        config.validate().map_err(|error| error.to_string())
    }

    #[test]
    fn invalid_settings_are_named_with_the_remedy() {
        assert_eq!(check(SOURCE), Ok(()));
        for (more, expected) in [
            (
                "[budgets.b]\nrate = 500",
                "budgets.b: rate 500 × (1 s + validity 50 ms) + burst 25",
            ),
            (
                "[targets.mail]\nurl = \"http://m/\"\ntypes = [\"M\"]\nbudget = \"apu\"",
                "targets.mail.budget = \"apu\": this budget is not configured (configured: api); add [budgets.apu]",
            ),
            (
                "[sources.b]\nurl = \"http://a.example/{key}\"\ntarget = \"other\"\nfields = [\"b\"]",
                "sources.b.target = \"other\": this budget is not configured (configured: api)",
            ),
            (
                "[sources.b]\nid = \"c\"\nurl = \"http://a.example/{key}\"\ntarget = \"api\"\nfields = [\"b\"]",
                "sources.b.id = \"c\": the section already names the source \"b\"",
            ),
            (
                "[sources.b]\nurl = \"http://a.example/all\"\ntarget = \"api\"\nfields = [\"b\"]",
                "sources.b.url: the URL does not depend on the record",
            ),
            (
                "[sources.b]\nurl = \"http://a.example/{world}?ocid={key}\"\ntarget = \"api\"\nfields = [\"b\"]",
                "sources.b.url: {world} is not a known placeholder; use {key} for the record's key",
            ),
            (
                "[refresh]\nroles = \"query\"",
                "refresh.roles = \"query\" needs other processes for the remaining roles, but they cannot share store.kind = \
                 \"embedded\"",
            ),
            (
                "[refresh.log]\nbrokers = [\"127.0.0.1:9092\"]",
                "refresh.log.brokers is set, but refresh.log.kind = \"embedded\"",
            ),
            ("[refresh.log]\nhigh_partitions = 0", "refresh.log: "),
            (
                "[refresh.log]\nhigh_retention_ms = 1000",
                "refresh.coalescer.high_pending_ms = 86400000 is longer than refresh.log.high_retention_ms = 1000",
            ),
            (
                "[refresh.snapshots]\nurl = \"oracle://me:hunter2@host\"",
                "refresh.snapshots.url must start with sqlite:",
            ),
            (
                "[refresh.snapshots]\nconnections = 0",
                "refresh.snapshots.connections = 0",
            ),
            (
                "[refresh.archive]\nat = \"3am\"",
                "refresh.archive.at = \"3am\": it must be a time of the day",
            ),
            (
                "[refresh.archive]\nto = \"ftp://x\"",
                "refresh.archive.to = \"ftp://x\": it must be a folder",
            ),
            ("[refresh.archive]\ntiers = []", "refresh.archive: "),
            (
                "[refresh.archive]\ncompression = 30",
                "refresh.archive.compression = 30",
            ),
            (
                "[refresh.pressure]\nresume_below = 2000",
                "refresh.pressure.resume_below = 2000 must be below pause_above = 1000",
            ),
            (
                "[refresh.work]\nhigh_in_flight = 0",
                "refresh.work.high_in_flight = 0: it must be from 1 to 100000",
            ),
            (
                "[refresh.work]\nhigh_group = \"a b\"",
                "refresh.work.high_group = \"a b\": it must be 1 to 100 letters",
            ),
            (
                "[refresh.query]\nmax_requests = 9000000000000000000",
                "refresh.query.max_requests = 9000000000000000000: it must be from 1 to 1000000",
            ),
            (
                "[refresh.watch]\nlag_every_ms = 0",
                "refresh.watch.lag_every_ms = 0: it must be from 10 to 3600000",
            ),
            (
                "[refresh.query]\nrequest_timeout_ms = 10000",
                "refresh.query.request_timeout_ms = 10000 must be shorter than refresh.coalescer.send_timeout_ms = 10000",
            ),
            (
                "[refresh.log]\nsend_timeout_ms = 9000",
                "refresh.coalescer.send_timeout_ms = 10000 must be longer than refresh.query.request_timeout_ms = 1000 and \
                 refresh.log.send_timeout_ms = 9000 together",
            ),
        ] {
            let error = check(&format!("{SOURCE}{more}")).unwrap_err();
            assert!(
                error.starts_with(expected),
                "{error:?} should start with {expected:?}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[cfg(not(any(feature = "kafka", feature = "postgres", feature = "mysql", feature = "s3")))]
    #[test]
    fn a_setting_without_its_feature_is_refused_with_the_feature() {
        for (more, feature) in [
            (
                "[refresh.log]\nkind = \"kafka\"\nbrokers = [\"127.0.0.1:9092\"]",
                "kafka",
            ),
            (
                "[refresh.snapshots]\nurl = \"postgres://me:hunter2@host/db\"",
                "postgres",
            ),
            (
                "[refresh.snapshots]\nurl = \"mysql://me:hunter2@host/db\"",
                "mysql",
            ),
            ("[refresh.archive]\nto = \"s3://bucket/prefix\"", "s3"),
        ] {
            let error = check(&format!("{SOURCE}{more}")).unwrap_err();
            assert!(error.contains(&format!("--features {feature}")), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn another_process_may_play_the_other_role() {
        let text = format!("{SOURCE}[store]\nkind = \"redis\"\n[refresh]\nroles = \"work\"");
        assert_eq!(check(&text), Ok(()));
    }
}
