//! A service that refreshes records of a real upstream on loopback.

use serde_json::Value;
use tidegate_core::time::Millis;
use tidegate_server::config::Config;
use tidegate_upstream::{Upstream, UpstreamSettings};

use crate::support::{Backend, Running, config};

/// An upstream with small responses, because these tests do not measure the speed of large ones.
pub(crate) fn upstream() -> Upstream {
    upstream_with(|_| {})
}

pub(crate) fn upstream_with(change: impl FnOnce(&mut UpstreamSettings)) -> Upstream {
    let mut settings = UpstreamSettings {
        payload_bytes: 24_000,
        ..UpstreamSettings::default()
    };
    change(&mut settings);
    Upstream::start(settings).unwrap()
}

/// Settings with short intervals and the upstream's budget. The timeouts of calls are long: a call that times out on a stalled
/// machine would be repeated and counted twice.
pub(crate) fn text(upstream: &Upstream, more: &str) -> String {
    format!(
        r#"
        [budgets.api]
        [sources.character]
        url = "{}/character/{{key}}"
        target = "api"
        connect_timeout_ms = 60000
        timeout_ms = 60000
        fields = ["character_name", "character_level", "revision"]
        prefetch = false
        [refresh.query]
        cache_ttl_ms = 50
        request_wait_ms = 1000
        [refresh.work]
        high_flush_ms = 10
        backoff_ms = 10
        [refresh.watch]
        lag_every_ms = 200
        census_every_ms = 300
        follow_every_ms = 100
        {more}"#,
        upstream.url()
    )
}

/// Sets as many partitions as few records need.
pub(crate) fn few_partitions(config: &mut Config) {
    config.refresh.log.high_partitions = 4;
    config.refresh.log.low_partitions = 4;
    config.refresh.log.dead_partitions = 2;
}

/// Sets long timeouts, so that a stalled machine does not look like an outage. Tests of outages do not use it.
pub(crate) fn patient(config: &mut Config) {
    let patient = Millis(20_000);
    config.refresh.query.read_timeout_ms = patient;
    config.refresh.query.request_wait_ms = patient;
    config.refresh.query.request_timeout_ms = patient;
    config.refresh.log.send_timeout_ms = patient;
    config.refresh.coalescer.send_timeout_ms = Millis(3 * patient.0);
    config.refresh.breaker.slow_ms = patient;
}

impl Running {
    pub(crate) async fn refreshing(backend: Backend, upstream: &Upstream, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(backend, &folder, &text(upstream, more));
        few_partitions(&mut config);
        patient(&mut config);
        Self::with(config, folder).await
    }

    pub(crate) async fn record(&self, key: &str) -> Value {
        self.ok(&format!("/v1/records/character/{key}")).await
    }

    pub(crate) async fn until_fresh(&self, key: &str) -> Value {
        let path = format!("/v1/records/character/{key}");
        self.until(&path, |record| record["freshness"] == "FRESH").await
    }
}
