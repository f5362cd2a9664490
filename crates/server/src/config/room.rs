//! The sections of waiting rooms: the settings that all rooms share, and those of each room.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_api::Time;
use tidegate_core::ids::RoomId;
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_core::secret::Secret;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::room::identity::{MIN_SECRET_BYTES, ShopKeyConfig, ShopKeys};
use tidegate_engine::room::{JoinLimitsConfig, PassKeysConfig, ProofConfig};

use super::check::ensure;
use super::{Config, ConfigError};
use crate::room::event_service::EventServiceConfig;
use crate::room::page::{Colours, OwnTexts};
use crate::room::proxies::{Proxies, ProxiesConfig};

/// Connections that remain for redemptions, the dashboard and health checks when every stream is in use.
const OTHER_CONNECTIONS: u32 = 500;
/// Limit: how far ahead `fail_open_until` may be, in days, because an exception must end.
const FAIL_OPEN_DAYS: u64 = 7;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// The settings that all rooms share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoomSection {
    /// The keys that sign passes.
    pub keys: PassKeysConfig,
    /// The trusted proxies in front of the service, for the addresses of visitors.
    pub visitors: ProxiesConfig,
    /// How often a visitor may join.
    pub joins: JoinLimitsConfig,
    /// The service that knows rooms without a section of their own.
    pub event_service: Option<EventServiceConfig>,
    /// The room of `[rooms]` whose settings apply to rooms of the event service; the defaults if absent.
    pub template: Option<RoomId>,
    /// Most concurrent visitors' streams, over all rooms. Each uses a connection.
    pub max_streams: u32,
    /// The longest time until the service handles a free slot or a deadline without a signal, in milliseconds.
    pub sweep_ms: Millis,
}

impl Default for RoomSection {
    fn default() -> Self {
        Self {
            keys: PassKeysConfig::default(),
            visitors: ProxiesConfig::default(),
            joins: JoinLimitsConfig::default(),
            event_service: None,
            template: None,
            max_streams: 8_000,
            sweep_ms: Millis(1_000),
        }
    }
}

/// One room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoomSettings {
    /// `seats` in all, people `inside` at once, admissions `per_second`. A change at run time overrides them.
    pub capacity: Capacity,
    /// The room admits nobody before this; early visitors wait for a draw. RFC 3339.
    pub opens_at: Option<Time>,
    /// How long a visitor counts as present after a heartbeat, in milliseconds.
    pub presence_ms: Millis,
    /// How long an absent visitor keeps the ticket, in milliseconds.
    pub grace_ms: Millis,
    /// How long a pass can be redeemed, in milliseconds.
    pub pass_ms: Millis,
    /// How long a visitor may stay inside, in milliseconds. The shop can extend it.
    pub inside_ms: Millis,
    /// How long the store keeps an ended ticket, in milliseconds.
    pub remember_ms: Millis,
    /// Most people who wait. The room refuses more.
    pub max_waiting: u64,
    /// The URL of the shop. The service adds the visitor's pass as `pass=`.
    pub shop: Option<String>,
    /// Keys of the shop that sign who a visitor is. Without any, the browser identifies the visitor.
    pub signed_by: Vec<ShopKeyConfig>,
    /// With `signed_by`: browsers without a token may join as well.
    pub anonymous: bool,
    /// The proof of work that a visitor without a ticket must solve.
    pub proof: Option<ProofConfig>,
    /// The secret of the draw: at least 32 bytes, like the output of `openssl rand -base64 32`. If absent, the service derives
    /// it from the oldest key of passes.
    pub draw_seed: Option<Secret>,
    /// A visitor whose ticket ended as completed may join again.
    pub again: bool,
    /// Until then the room admits everybody while the store is unavailable, if the room was open before the outage. RFC
    /// 3339; at most 7 days ahead.
    pub fail_open_until: Option<Time>,
    /// The room's own texts, by language: `en`, `ko`.
    pub texts: BTreeMap<String, OwnTexts>,
    pub colours: Colours,
}

impl Default for RoomSettings {
    fn default() -> Self {
        let room = RoomConfig::default();
        Self {
            capacity: room.capacity,
            opens_at: None,
            presence_ms: room.presence_ms,
            grace_ms: room.grace_ms,
            pass_ms: room.pass_ms,
            inside_ms: room.inside_ms,
            remember_ms: room.remember_ms,
            max_waiting: room.max_waiting,
            shop: None,
            signed_by: Vec::new(),
            anonymous: false,
            proof: None,
            draw_seed: None,
            again: false,
            fail_open_until: None,
            texts: BTreeMap::new(),
            colours: Colours::default(),
        }
    }
}

impl RoomSettings {
    /// The settings that the state machine needs.
    pub fn core(&self) -> RoomConfig {
        RoomConfig {
            capacity: self.capacity,
            opens_at: self.opens_at.map(|at| Timestamp(at.0)),
            presence_ms: self.presence_ms,
            grace_ms: self.grace_ms,
            pass_ms: self.pass_ms,
            inside_ms: self.inside_ms,
            remember_ms: self.remember_ms,
            max_waiting: self.max_waiting,
        }
    }

    fn check(&self, what: &str) -> Result<(), ConfigError> {
        let within = |error: String| ConfigError(format!("{what}: {error}"));
        self.core()
            .validate()
            .map_err(|error| within(error.to_string()))?;
        ensure!(
            self.presence_ms >= Millis(1_000),
            "{what}.presence_ms = {}: it must be at least 1000, because heartbeats come every third of it",
            self.presence_ms.0
        );
        if let Some(shop) = &self.shop {
            let url = reqwest::Url::parse(shop).ok();
            ensure!(
                url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()),
                "{what}.shop = {shop:?}: it must be a URL like https://shop.example/enter"
            );
        }
        if let Some(proof) = &self.proof {
            proof
                .validate()
                .map_err(|error| within(format!("proof.{error}")))?;
        }
        if let Some(seed) = &self.draw_seed {
            ensure!(
                seed.len() >= MIN_SECRET_BYTES,
                "{what}.draw_seed has {} bytes, so it can be guessed from the public commitment: it must have at least \
                 {MIN_SECRET_BYTES}, like the output of `openssl rand -base64 32`",
                seed.len()
            );
        }
        for lang in self.texts.keys() {
            ensure!(
                matches!(lang.as_str(), "en" | "ko"),
                "{what}.texts.{lang}: the page has no such language; it must be \"en\" or \"ko\""
            );
        }
        ShopKeys::open(&format!("{what}.signed_by"), &self.signed_by).map_err(ConfigError)?;
        Ok(())
    }
}

impl Config {
    /// Whether this service serves rooms.
    pub fn has_rooms(&self) -> bool {
        !self.rooms.is_empty() || self.room.event_service.is_some()
    }

    pub(super) fn check_rooms(&self) -> Result<(), ConfigError> {
        for (name, room) in &self.rooms {
            room.check(&format!("rooms.{name}"))?;
        }
        if let Some(template) = &self.room.template {
            ensure!(
                self.rooms.contains_key(template),
                "room.template = {template:?}: [rooms] has no such room; add [rooms.{template}] or name another"
            );
        }
        ensure!(
            (Millis(10)..=Millis(60_000)).contains(&self.room.sweep_ms),
            "room.sweep_ms = {}: it must be from 10 to 60000",
            self.room.sweep_ms.0
        );
        let (streams, events) = (self.room.max_streams, self.server.max_event_streams);
        let (most, others) = (self.server.max_connections, OTHER_CONNECTIONS);
        let needed = u64::from(streams) + u64::from(events) + u64::from(others);
        ensure!(
            !self.has_rooms() || u64::from(most) >= needed,
            "server.max_connections = {most} is less than room.max_streams = {streams}, server.max_event_streams = \
             {events} and {others} for everything else together: it must be at least {needed}, or streams would lock out \
             the shop and the operators"
        );
        let joins = self.room.joins.validate();
        joins.map_err(|error| ConfigError(format!("room.joins.{error}")))?;
        Proxies::new(&self.room.visitors)
            .map_err(|error| ConfigError(format!("room.visitors.{error}")))
            .map(drop)
    }

    /// Checks what depends on the current time. Settings that are valid stay valid as time passes.
    pub(crate) fn validate_at(&self, now: Timestamp) -> Result<(), ConfigError> {
        let last = Time(now.0.saturating_add(FAIL_OPEN_DAYS * DAY_MS));
        for (name, room) in &self.rooms {
            if let Some(until) = room.fail_open_until {
                ensure!(
                    until.0 <= last.0,
                    "rooms.{name}.fail_open_until = {until}: it must be at most {FAIL_OPEN_DAYS} days ahead, so {last} at \
                     the latest"
                );
            }
        }
        Ok(())
    }

    /// The settings of rooms of the event service, except for what the event service decides.
    pub(crate) fn room_template(&self) -> RoomSettings {
        let template = self.room.template.as_ref();
        template
            .and_then(|template| self.rooms.get(template))
            .cloned()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_open_must_end_soon() {
        let until = |until: &str| -> Config {
            toml::from_str(&format!("[rooms.hall]\nfail_open_until = {until:?}")).unwrap()
        };
        let now = Timestamp("2026-12-01T10:00:00Z".parse::<Time>().unwrap().0);
        for good in [
            "2026-12-08T10:00:00Z",
            "2026-12-01T10:00:01Z",
            "2001-01-01T00:00:00Z",
        ] {
            until(good).validate_at(now).unwrap();
        }
        for odd in ["2026-12-08T10:00:01Z", "2100-01-01T00:00:00Z"] {
            let error = until(odd).validate_at(now).unwrap_err().to_string();
            let shown = odd.replace("Z", ".000Z");
            assert_eq!(
                error,
                format!(
                    "rooms.hall.fail_open_until = {shown}: it must be at most 7 days ahead, so \
                     2026-12-08T10:00:00.000Z at the latest"
                )
            );
        }
    }
}
