//! The sections of waiting rooms: what they share, and each one's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_api::Time;
use tidegate_core::ids::RoomId;
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_core::time::{Millis, Timestamp};

use super::check::ensure;
use super::{Config, ConfigError, Secret};
use crate::room::address::{Proxies, ProxiesConfig};
use crate::room::event_service::EventServiceConfig;
use crate::room::joins::JoinLimitsConfig;
use crate::room::page::{Colours, OwnTexts};
use crate::room::pass::PassKeysConfig;
use crate::room::proof::ProofConfig;
use crate::room::visitor::{MIN_SECRET_BYTES, ShopKeyConfig, ShopKeys};

/// Connections that are left when every stream is taken, for redemptions, the dashboard and health checks.
const OTHER_CONNECTIONS: u32 = 500;
/// Limit: an exception that lasts is none. In days.
const FAIL_OPEN_DAYS: u64 = 7;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// What all rooms share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoomSection {
    /// The keys that sign passes.
    pub keys: PassKeysConfig,
    /// Where visitors come from, if they come through proxies of ours.
    pub visitors: ProxiesConfig,
    /// How often somebody may come.
    pub joins: JoinLimitsConfig,
    /// Who knows rooms that are not configured here.
    pub event_service: Option<EventServiceConfig>,
    /// The room of `[rooms]` whose settings those share that the event service knows; the defaults if absent.
    pub template: Option<RoomId>,
    /// Most visitors' streams at once, over all rooms. Each holds a connection.
    pub max_streams: u32,
    /// The longest time until a free slot, or a deadline, is noticed without a signal, in milliseconds.
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
    /// `seats` in all, people `inside` at once, admissions `per_second`. Changed at run time, what was set there holds.
    pub capacity: Capacity,
    /// Before this nobody is let in; those who come wait for a draw. RFC 3339.
    pub opens_at: Option<Time>,
    /// How long a heartbeat counts, in milliseconds.
    pub presence_ms: Millis,
    /// How long an absent visitor keeps the place, in milliseconds.
    pub grace_ms: Millis,
    /// How long a pass can be redeemed, in milliseconds.
    pub pass_ms: Millis,
    /// How long one may stay inside, in milliseconds; the shop can extend it.
    pub inside_ms: Millis,
    /// How long an ended ticket is remembered, in milliseconds.
    pub remember_ms: Millis,
    /// Most people who wait; more are turned away.
    pub max_waiting: u64,
    /// Where visitors go with their pass, which is added as `pass=`.
    pub shop: Option<String>,
    /// Keys of the shop that say who a visitor is. Without any, a visitor is a browser.
    pub signed_by: Vec<ShopKeyConfig>,
    /// With `signed_by`: browsers without a token are let in as well.
    pub anonymous: bool,
    /// Whoever comes without a ticket has to work for it.
    pub proof: Option<ProofConfig>,
    /// Decides the draw together with who draws: at least 32 bytes, as `openssl rand -base64 32` makes them. Absent: derived
    /// from the oldest key of passes.
    pub draw_seed: Option<Secret>,
    /// Somebody who has completed may queue again while that is remembered.
    pub again: bool,
    /// Until then, and only while the store is away, everybody is let in, if the room was open when it was last seen. RFC
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
    /// The part that the state machine needs.
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
            "{what}.presence_ms = {}: at least 1000, for heartbeats are a third of it apart",
            self.presence_ms.0
        );
        if let Some(shop) = &self.shop {
            let url = reqwest::Url::parse(shop).ok();
            ensure!(
                url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()),
                "{what}.shop = {shop:?}: it must be an address like https://shop.example/enter"
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
                "{what}.draw_seed has {} bytes, and can be guessed from the commitment that everybody is told; it needs \
                 {MIN_SECRET_BYTES}, as `openssl rand -base64 32` makes them",
                seed.len()
            );
        }
        for lang in self.texts.keys() {
            ensure!(
                matches!(lang.as_str(), "en" | "ko"),
                "{what}.texts.{lang}: the page speaks \"en\" and \"ko\""
            );
        }
        ShopKeys::open(&format!("{what}.signed_by"), &self.signed_by).map_err(ConfigError)?;
        Ok(())
    }
}

impl Config {
    /// Whether there are rooms here.
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
                "room.template = {template:?}: there is no such room in [rooms]"
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
             {events} and {others} for everything else together: streams would lock out the shop and the operators"
        );
        let joins = self.room.joins.validate();
        joins.map_err(|error| ConfigError(format!("room.joins.{error}")))?;
        Proxies::new(&self.room.visitors)
            .map_err(|error| ConfigError(format!("room.visitors.{error}")))
            .map(drop)
    }

    /// What depends on when it is asked. What is right stays right as time goes on.
    pub(crate) fn validate_at(&self, now: Timestamp) -> Result<(), ConfigError> {
        let last = Time(now.0.saturating_add(FAIL_OPEN_DAYS * DAY_MS));
        for (name, room) in &self.rooms {
            if let Some(until) = room.fail_open_until {
                ensure!(
                    until.0 <= last.0,
                    "rooms.{name}.fail_open_until = {until}: an exception ends at most {FAIL_OPEN_DAYS} days from now, so \
                     by {last} at the latest"
                );
            }
        }
        Ok(())
    }

    /// The settings of rooms that the event service knows, but for what it says of them.
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
    fn an_exception_has_an_end_that_is_near() {
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
            let told = odd.replace("Z", ".000Z");
            assert_eq!(
                error,
                format!(
                    "rooms.hall.fail_open_until = {told}: an exception ends at most 7 days from now, so by \
                     2026-12-08T10:00:00.000Z at the latest"
                )
            );
        }
    }
}
