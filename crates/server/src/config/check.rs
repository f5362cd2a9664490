//! Checks the service's settings and the relations between them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use axum::http::{HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use tidegate_api::Role;
use tidegate_core::ids::{JobType, QueueId};
use tidegate_core::secret::Secret;
use tidegate_core::time::Millis;
use tidegate_store::bulk::MAX_SHARDS;

use super::{Config, ConfigError, StoreKind};
use crate::auth::{ANYBODY, key_digest};

/// The digest of an empty key, which everybody knows.
const EMPTY_KEY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Limit: several attempts have to fit into one claim on a batch.
const MAX_CALLBACK_TIMEOUT: Millis = Millis(30_000);

macro_rules! ensure {
    ($ok:expr, $($message:tt)+) => {
        let ok: bool = $ok;
        if !ok {
            return Err(ConfigError(format!($($message)+)));
        }
    };
}
pub(super) use ensure;

/// The queue of job types that have none of their own.
const DEFAULT_QUEUE: &str = "default";
/// The prefix of a signing secret, and how many bytes it may have, by Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

impl Config {
    /// Checks every value and every relation. The error names the values and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_server()?;
        self.check_store()?;
        self.check_targets()?;
        self.check_refresh()?;
        self.check_rooms()?;
        self.check_callbacks()?;
        self.check_keys()?;
        ensure!(
            self.metrics.max_groups > 0,
            "metrics.max_groups = 0: it must be at least 1"
        );
        ensure!(
            self.audit
                .file
                .as_ref()
                .is_none_or(|file| !file.as_os_str().is_empty()),
            "audit.file is empty: name a file, or leave it out for `audit.jsonl` in store.data"
        );
        if let Some(endpoint) = &self.tracing.otlp_endpoint {
            check_url("tracing.otlp_endpoint", endpoint)?;
        }
        self.bulk().validate()
    }

    fn check_server(&self) -> Result<(), ConfigError> {
        let server = &self.server;
        ensure!(
            server.listen.ip().to_canonical().is_loopback() || !self.keys.is_empty() || server.open,
            "server.listen = \"{}\" is reachable from other machines, but there are no keys: generate one with `tidegate \
             key`, listen on 127.0.0.1, or set server.open = true to let everybody do everything",
            server.listen
        );
        ensure!(
            !server.open || self.keys.is_empty(),
            "server.open = true lets everybody do everything, but there are {} keys: remove server.open or the keys",
            self.keys.len()
        );
        for host in &server.hosts {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
            ensure!(
                !host.is_empty() && host.chars().all(plain),
                "server.hosts contains {host:?}: it must be a name without scheme, port and path, like \"queue.example.com\""
            );
        }
        for (name, value) in [
            ("max_body_bytes", server.max_body_bytes),
            ("max_stream_bytes", server.max_stream_bytes),
            ("max_connections", server.max_connections.into()),
            ("max_event_streams", server.max_event_streams.into()),
        ] {
            ensure!(value > 0, "server.{name} = 0: it must be at least 1");
        }
        for (name, value) in [
            ("request_timeout_ms", server.request_timeout_ms),
            ("body_pause_ms", server.body_pause_ms),
            ("unacknowledged_ms", server.unacknowledged_ms),
            ("header_timeout_ms", server.header_timeout_ms),
            ("session_ms", server.session_ms),
        ] {
            ensure!(value > Millis(0), "server.{name} = 0: it must be at least 1 ms");
        }
        let (body, stream) = (server.max_body_bytes, server.max_stream_bytes);
        let payload = self.limits.max_payload_bytes;
        ensure!(
            body >= payload,
            "server.max_body_bytes = {body} is less than limits.max_payload_bytes = {payload}: \
             the largest payload would not fit into a request"
        );
        ensure!(
            stream >= body,
            "server.max_stream_bytes = {stream} is less than server.max_body_bytes = {body}: it must be at least as much"
        );
        if let Some(tls) = &server.tls {
            for (name, path) in [("cert", &tls.cert), ("key", &tls.key)] {
                ensure!(
                    !path.as_os_str().is_empty(),
                    "server.tls.{name} is empty: name a PEM file"
                );
            }
        }
        Ok(())
    }

    fn check_store(&self) -> Result<(), ConfigError> {
        ensure!(
            !self.store.data.as_os_str().is_empty(),
            "store.data is empty: name a folder, like \"tidegate-data\""
        );
        let redis = &self.redis;
        ensure!(
            (1..=MAX_SHARDS).contains(&redis.shards),
            "redis.shards = {}: it must be from 1 to {MAX_SHARDS}",
            redis.shards
        );
        ensure!(
            !redis.key_prefix.contains(['{', '}']),
            "redis.key_prefix = {:?} has a brace, which would change the hash slots of a Cluster: leave it out",
            redis.key_prefix
        );
        ensure!(
            !redis.key_prefix.is_empty(),
            "redis.key_prefix is empty: name one that no other program uses, like \"bulk-action:\""
        );
        for url in &redis.urls {
            let parsed = Url::parse(url.expose()).ok();
            let fits = parsed.is_some_and(|url| matches!(url.scheme(), "redis" | "rediss") && url.has_host());
            ensure!(
                fits,
                "redis.urls contains \"{url}\": it must be redis://user:password@host:port/number or rediss://…"
            );
        }
        if self.store.kind == StoreKind::Redis && redis.urls.is_empty() {
            ensure!(redis.port > 0, "redis.port = 0: it must be from 1 to 65535");
            let host = redis.host.as_str();
            let address = !host.contains(':') || host.parse::<std::net::Ipv6Addr>().is_ok();
            ensure!(
                !host.is_empty() && address && !host.contains(['/', '@', ' ']),
                "redis.host = {host:?}: it must be a host name or an address without port and scheme"
            );
        }
        Ok(())
    }

    fn check_targets(&self) -> Result<(), ConfigError> {
        let mut sent_to: BTreeMap<&JobType, &QueueId> = BTreeMap::new();
        for (name, target) in &self.targets {
            let at = format!("targets.{name}");
            ensure!(
                name.as_str() != DEFAULT_QUEUE,
                "targets.{DEFAULT_QUEUE}: the queue `{DEFAULT_QUEUE}` holds all job types without a queue of their own, which \
                 the target would never get; give the target another name"
            );
            check_url(&format!("{at}.url"), &target.url)?;
            check_secret(&at, target.secret.as_ref())?;
            check_headers(&at, &target.headers)?;
            ensure!(
                !target.types.is_empty(),
                "{at}.types is empty: name the job types that the target runs"
            );
            for kind in &target.types {
                let other = sent_to.insert(kind, name);
                ensure!(
                    other != Some(name),
                    "{at}.types contains {kind:?} twice: leave one out"
                );
                if let Some(other) = other {
                    return Err(ConfigError(format!(
                        "job type {kind:?} is in targets.{other}.types and in {at}.types: only one target can run it"
                    )));
                }
                let queue = self
                    .job_types
                    .get(kind)
                    .and_then(|settings| settings.queue.as_ref());
                ensure!(
                    queue.is_none_or(|queue| queue == name),
                    "job_types.{kind}.queue = {:?}, but {at}.types contains {kind:?}, whose queue has the target's name: leave \
                     the queue out",
                    queue.map_or("", |queue| queue.as_str())
                );
            }
            ensure!(
                target.concurrency > 0,
                "{at}.concurrency = 0: it must be at least 1"
            );
            for (field, rate) in [("rate", target.rate), ("per_group.rate", target.per_group.rate)] {
                if let Some(rate) = rate
                    && let Some(right) = rate.error(self.backpressure.window())
                {
                    return Err(ConfigError(format!("{at}.{field} = {rate}: {right}")));
                }
            }
            for (field, most) in [
                ("max_running", target.max_running),
                ("per_group.max_running", target.per_group.max_running),
            ] {
                ensure!(most != Some(0), "{at}.{field} = 0: it must be at least 1");
            }
            ensure!(
                target.timeout_ms != Some(Millis(0)),
                "{at}.timeout_ms = 0: it must be at least 1 ms"
            );
            if let Some(queue) = self.queues.get(name) {
                for (field, given, instead) in [
                    ("worker_count", queue.worker_count.is_some(), "concurrency"),
                    ("rate", queue.rate.is_some() && target.rate.is_some(), "rate"),
                    (
                        "max_running",
                        queue.max_running.is_some() && target.max_running.is_some(),
                        "max_running",
                    ),
                    (
                        "per_group",
                        !queue.per_group.is_none() && !target.per_group.is_none(),
                        "per_group",
                    ),
                ] {
                    ensure!(
                        !given,
                        "queues.{name}.{field}: the queue belongs to a target, so {at}.{instead} decides; leave it out"
                    );
                }
            }
        }
        for (kind, settings) in &self.job_types {
            let queue = settings
                .queue
                .as_ref()
                .filter(|queue| self.targets.contains_key(*queue));
            ensure!(
                queue.is_none() || sent_to.contains_key(kind),
                "job_types.{kind}.queue = {:?} belongs to a target that does not run {kind:?}, so no worker would: add the type \
                 to targets.{}.types",
                queue.map_or("", |queue| queue.as_str()),
                queue.map_or("", |queue| queue.as_str())
            );
        }
        Ok(())
    }

    fn check_callbacks(&self) -> Result<(), ConfigError> {
        for (name, callback) in &self.callbacks {
            ensure!(
                !name.is_empty(),
                "callbacks contains an empty name: name the callback"
            );
            let at = format!("callbacks.{name}");
            check_url(&format!("{at}.url"), &callback.url)?;
            check_secret(&at, callback.secret.as_ref())?;
            check_headers(&at, &callback.headers)?;
            let (timeout, give_up) = (callback.timeout_ms, callback.give_up_after_ms);
            ensure!(
                timeout > Millis(0),
                "{at}.timeout_ms = 0: it must be at least 1 ms"
            );
            ensure!(
                timeout <= MAX_CALLBACK_TIMEOUT,
                "{at}.timeout_ms = {}: it must be at most {}",
                timeout.0,
                MAX_CALLBACK_TIMEOUT.0
            );
            ensure!(
                give_up >= timeout,
                "{at}.give_up_after_ms = {} is shorter than {at}.timeout_ms = {}: it must be at least as long",
                give_up.0,
                timeout.0
            );
        }
        Ok(())
    }

    fn check_keys(&self) -> Result<(), ConfigError> {
        let (mut names, mut digests) = (BTreeSet::new(), BTreeMap::new());
        for key in &self.keys {
            let name = &key.name;
            ensure!(
                !name.is_empty() && !name.chars().any(char::is_control),
                "keys contains the name {name:?}: it must name the owner, without control characters"
            );
            ensure!(
                name != ANYBODY,
                "keys contains the name {name:?}, which callers without a key have; choose another"
            );
            ensure!(
                names.insert(name),
                "keys contains {name:?} twice: each key needs its own name"
            );
            let Some(digest) = key_digest(&key.hash) else {
                return Err(ConfigError(format!(
                    "the hash of key {name:?} must be `sha256:` and 64 hex digits; `tidegate key` generates one"
                )));
            };
            ensure!(
                !key.hash.eq_ignore_ascii_case(EMPTY_KEY),
                "the hash of key {name:?} is that of an empty key; `tidegate key` generates a key and its hash"
            );
            ensure!(
                key.groups.is_empty() || !key.roles.contains(&Role::Work),
                "key {name:?} has the role work and groups, but workers get jobs of all groups: leave the role or the groups out"
            );
            if let Some(other) = digests.insert(digest, name) {
                return Err(ConfigError(format!(
                    "keys {other:?} and {name:?} have the same hash: each needs its own key"
                )));
            }
            ensure!(
                !key.roles.is_empty(),
                "key {name:?} has no roles: give it at least one of read, submit, work, admin"
            );
            for group in &key.groups {
                let start = group.strip_suffix('*').unwrap_or(group);
                ensure!(
                    !group.is_empty() && !start.contains('*'),
                    "key {name:?} has the group {group:?}: it must be a group id, or a prefix of one and `*`"
                );
            }
        }
        Ok(())
    }
}

/// Checks a URL that the service calls: it must be HTTP without credentials. The error does not repeat the URL, because it
/// may hold a secret.
fn check_url(name: &str, url: &str) -> Result<(), ConfigError> {
    let parsed = Url::parse(url).map_err(|error| {
        ConfigError(format!(
            "{name} is not a URL ({error}): it must be like http://host:port/path"
        ))
    })?;
    ensure!(
        matches!(parsed.scheme(), "http" | "https"),
        "{name} has the scheme {}: it must be http or https",
        parsed.scheme()
    );
    ensure!(
        parsed.username().is_empty() && parsed.password().is_none(),
        "{name} contains a user or a password, which the service would show: put them into a header, like \
         headers = {{ authorization = \"Basic …\" }}"
    );
    Ok(())
}

fn check_secret(at: &str, secret: Option<&Secret>) -> Result<(), ConfigError> {
    let Some(secret) = secret else { return Ok(()) };
    let packed = secret.strip_prefix(SECRET_PREFIX);
    let bytes = packed.and_then(|packed| STANDARD.decode(packed).ok());
    ensure!(
        bytes.is_some_and(|bytes| SECRET_BYTES.contains(&bytes.len())),
        "{at}.secret must be `{SECRET_PREFIX}` and base64 of {} to {} bytes",
        SECRET_BYTES.start(),
        SECRET_BYTES.end()
    );
    Ok(())
}

fn check_headers(at: &str, headers: &BTreeMap<String, Secret>) -> Result<(), ConfigError> {
    let mut seen = HashSet::new();
    for (name, value) in headers {
        let Ok(header) = HeaderName::try_from(name.as_str()) else {
            return Err(ConfigError(format!(
                "{at}.headers contains {name:?}, which is not a valid header name"
            )));
        };
        ensure!(
            HeaderValue::from_str(value).is_ok(),
            "{at}.headers.{name} contains characters that a header must not have"
        );
        let ours = header.as_str().starts_with("webhook-")
            || matches!(
                header.as_str(),
                "content-length" | "content-type" | "transfer-encoding"
            );
        ensure!(
            !ours,
            "{at}.headers.{name}: the service sets this header itself; leave it out"
        );
        ensure!(
            seen.insert(header),
            "{at}.headers contains {name:?} twice, in different case: leave one out"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let config: Config = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        config.validate().expect_err(text).to_string()
    }

    const KEY: &str = "[[keys]]\nname = \"ops\"\nroles = [\"admin\"]\n\
                       hash = \"sha256:00000000000000000000000000000000000000000000000000000000000000aB\"\n";

    #[test]
    fn defaults_are_valid() {
        Config::default().validate().unwrap();
    }

    #[test]
    fn valid_settings_are_accepted() {
        for text in [
            &format!("{KEY}[server]\nlisten = \"0.0.0.0:80\"\nhosts = [\"queue.example.com\"]"),
            "[server]\nlisten = \"[::ffff:127.0.0.1]:80\"",
            "[server]\nlisten = \"0.0.0.0:80\"\nopen = true",
            "[targets.mail]\nurl = \"https://host/x?y=1\"\ntypes = [\"A\"]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
             headers = { authorization = \"Basic x\" }\n[job_types.A]\nqueue = \"mail\"\n[queues.mail]\nrate = 5",
            "[redis]\nurls = [\"redis://:p@host:1/2\", \"rediss://host\"]",
            "[store]\nkind = \"redis\"\n[redis]\nhost = \"::1\"\npassword = \"a/b@c\"",
        ] {
            let config: Config = toml::from_str(text).unwrap();
            config
                .validate()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn invalid_settings_are_refused_with_their_values() {
        let target = |more: &str| format!("[targets.mail]\nurl = \"http://a/\"\ntypes = [\"A\"]\n{more}");
        let callback = |more: &str| format!("[callbacks.shop]\nurl = \"http://a/\"\n{more}");
        let key = |more: &str| KEY.replace("name = \"ops\"", more);
        for (text, expected) in [
            (
                "[server]\nlisten = \"0.0.0.0:80\"".into(),
                "server.listen = \"0.0.0.0:80\" is reachable from other machines",
            ),
            (
                "[server]\nlisten = \"[::]:80\"".into(),
                "but there are no keys: generate one with `tidegate key`",
            ),
            (
                format!("{KEY}[server]\nopen = true"),
                "server.open = true lets everybody do everything, but there are 1 keys",
            ),
            (
                "[server]\nhosts = [\"http://x\"]".into(),
                "server.hosts contains \"http://x\"",
            ),
            (
                "[server]\nhosts = [\"x:80\"]".into(),
                "without scheme, port and path",
            ),
            (
                "[server]\nmax_body_bytes = 0".into(),
                "server.max_body_bytes = 0: it must be at least 1",
            ),
            (
                "[server]\nmax_stream_bytes = 0".into(),
                "server.max_stream_bytes = 0",
            ),
            (
                "[server]\nmax_connections = 0".into(),
                "server.max_connections = 0",
            ),
            (
                "[rooms.hall]\n[server]\nmax_connections = 9499".into(),
                "server.max_connections = 9499 is less than room.max_streams = 8000, server.max_event_streams = 1000",
            ),
            (
                "[rooms.hall]\n[room]\nmax_streams = 100000".into(),
                "server.max_connections = 10000 is less than room.max_streams = 100000",
            ),
            (
                "[rooms.hall]\ndraw_seed = \"hunter2\"".into(),
                "rooms.hall.draw_seed has 7 bytes, so it can be guessed from the public commitment: it must have at least 32",
            ),
            (
                "[server]\nmax_event_streams = 0".into(),
                "server.max_event_streams = 0",
            ),
            (
                "[server]\nrequest_timeout_ms = 0".into(),
                "server.request_timeout_ms = 0: it must be at least 1 ms",
            ),
            ("[server]\nbody_pause_ms = 0".into(), "server.body_pause_ms = 0"),
            (
                "[server]\nheader_timeout_ms = 0".into(),
                "server.header_timeout_ms = 0",
            ),
            ("[server]\nsession_ms = 0".into(), "server.session_ms = 0"),
            (
                "[server]\nmax_body_bytes = 10".into(),
                "server.max_body_bytes = 10 is less than limits.max_payload_bytes = 262144",
            ),
            (
                "[server]\nmax_stream_bytes = 10".into(),
                "server.max_stream_bytes = 10 is less than server.max_body_bytes = 16777216",
            ),
            (
                "[server.tls]\ncert = \"\"\nkey = \"k\"".into(),
                "server.tls.cert is empty",
            ),
            ("[store]\ndata = \"\"".into(), "store.data is empty"),
            (
                "[redis]\nshards = 0".into(),
                "redis.shards = 0: it must be from 1 to 64",
            ),
            ("[redis]\nshards = 65".into(), "redis.shards = 65"),
            (
                "[redis]\nkey_prefix = \"{a}:\"".into(),
                "redis.key_prefix = \"{a}:\" has a brace",
            ),
            ("[redis]\nkey_prefix = \"\"".into(), "redis.key_prefix is empty"),
            (
                "[redis]\nurls = [\"http://:p@host\"]".into(),
                "redis.urls contains \"http://:***@host\": it must be redis://",
            ),
            (
                "[redis]\nurls = [\"host:6379\"]".into(),
                "redis.urls contains \"host:6379\"",
            ),
            (
                "[store]\nkind = \"redis\"\n[redis]\nport = 0".into(),
                "redis.port = 0: it must be from 1 to 65535",
            ),
            (
                "[store]\nkind = \"redis\"\n[redis]\nhost = \"\"".into(),
                "redis.host = \"\"",
            ),
            (
                "[store]\nkind = \"redis\"\n[redis]\nhost = \"redis://x\"".into(),
                "redis.host = \"redis://x\": it must be a host name",
            ),
            (
                target("").replace("http://a/", "a/b"),
                "targets.mail.url is not a URL",
            ),
            (
                target("").replace("http://a/", "ftp://a/"),
                "targets.mail.url has the scheme ftp: it must be http or https",
            ),
            (
                target("").replace("http://a/", "http://me@a/"),
                "targets.mail.url contains a user or a password",
            ),
            (target("").replace("[\"A\"]", "[]"), "targets.mail.types is empty"),
            (
                target("").replace("[\"A\"]", "[\"A\", \"A\"]"),
                "targets.mail.types contains \"A\" twice",
            ),
            (
                target("").replace("mail", "default"),
                "targets.default: the queue `default` holds all job types",
            ),
            (
                target("[targets.other]\nurl = \"http://a/\"\ntypes = [\"A\"]"),
                "job type \"A\" is in targets.mail.types and in targets.other.types",
            ),
            (
                target("concurrency = 0"),
                "targets.mail.concurrency = 0: it must be at least 1",
            ),
            (
                target("rate = 0"),
                "targets.mail.rate = 0/s: it must be from 0.00001",
            ),
            (
                target("per_group = { max_running = 0 }"),
                "targets.mail.per_group.max_running = 0: it must be at least 1",
            ),
            (
                target("timeout_ms = 0"),
                "targets.mail.timeout_ms = 0: it must be at least 1 ms",
            ),
            (
                target("secret = \"abc\""),
                "targets.mail.secret must be `whsec_` and base64 of 24 to 64 bytes",
            ),
            (target("secret = \"whsec_YWJj\""), "targets.mail.secret must be"),
            (
                target("headers = { \"a b\" = \"x\" }"),
                "targets.mail.headers contains \"a b\", which is not a valid header name",
            ),
            (
                target("headers = { a = \"x\\ny\" }"),
                "targets.mail.headers.a contains characters",
            ),
            (
                target("headers = { Webhook-Id = \"x\" }"),
                "targets.mail.headers.Webhook-Id: the service sets this header itself",
            ),
            (
                target("headers = { a = \"x\", A = \"y\" }"),
                "twice, in different case",
            ),
            (
                target("[job_types.A]\nqueue = \"other\""),
                "job_types.A.queue = \"other\", but targets.mail.types contains \"A\"",
            ),
            (
                target("[job_types.B]\nqueue = \"mail\""),
                "job_types.B.queue = \"mail\" belongs to a target that does not run \"B\"",
            ),
            (
                target("[queues.mail]\nworker_count = 3"),
                "queues.mail.worker_count: the queue belongs to a target, so targets.mail.concurrency",
            ),
            (
                target("rate = 1\n[queues.mail]\nrate = 3"),
                "queues.mail.rate: the queue belongs to a target",
            ),
            (
                callback("").replace("http://a/", "mailto:x"),
                "callbacks.shop.url has the scheme mailto",
            ),
            (callback("secret = \"x\""), "callbacks.shop.secret must be"),
            (
                callback("headers = { \"\" = \"x\" }"),
                "callbacks.shop.headers contains \"\"",
            ),
            (callback("timeout_ms = 0"), "callbacks.shop.timeout_ms = 0"),
            (
                callback("give_up_after_ms = 5"),
                "callbacks.shop.give_up_after_ms = 5 is shorter than callbacks.shop.timeout_ms = 15000",
            ),
            (key("name = \"\""), "keys contains the name \"\""),
            (
                key("name = \"anybody\""),
                "keys contains the name \"anybody\", which callers without a key have",
            ),
            (format!("{KEY}{KEY}"), "keys contains \"ops\" twice"),
            (
                format!("{KEY}{}", key("name = \"b\"")),
                "keys \"ops\" and \"b\" have the same hash",
            ),
            (
                KEY.replace("sha256:", "md5:"),
                "the hash of key \"ops\" must be `sha256:` and 64 hex digits",
            ),
            (KEY.replace("aB", "a"), "64 hex digits"),
            (
                KEY.replace("\"admin\"", ""),
                "key \"ops\" has no roles: give it at least one of read, submit, work, admin",
            ),
            (
                key("name = \"ops\"\ngroups = [\"a*b\"]"),
                "key \"ops\" has the group \"a*b\"",
            ),
            (
                key("name = \"ops\"\ngroups = [\"\"]"),
                "key \"ops\" has the group \"\"",
            ),
            (
                "[metrics]\nmax_groups = 0".into(),
                "metrics.max_groups = 0: it must be at least 1",
            ),
            ("[audit]\nfile = \"\"".into(), "audit.file is empty"),
            (
                "[tracing]\notlp_endpoint = \"x\"".into(),
                "tracing.otlp_endpoint is not a URL",
            ),
            (
                "[worker_pool]\nworker_count = 0".into(),
                "worker_pool.worker_count = 0",
            ),
        ] {
            let text: String = text;
            let message = refused(&text);
            assert!(
                message.contains(expected),
                "{message:?} should contain {expected:?}"
            );
        }
    }
}
