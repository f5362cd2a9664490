//! How the provider behaves. Every field can be changed while it runs; `listen` and `backlog` only apply at the
//! start.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Behaviour of the provider; the default answers every key at once, within the usual limits of a game's API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamSettings {
    /// Where it listens; port 0 takes a free one. Default 127.0.0.1:0.
    pub listen: SocketAddr,
    /// Length of the listen queue, about; the provider accepts further connections late. Applies at the start only.
    /// Default 1,024.
    pub backlog: u32,
    /// While false it accepts no connection; open ones go on. Default true.
    pub accepting: bool,
    /// While true, calls are held before they arrive, as a network may do; then all of them arrive at once. Default
    /// false.
    pub holding: bool,
    /// The value that the header `x-nxopen-api-key` must have; without it the answer is 403. Default: none needed.
    pub api_key: Option<String>,

    /// Size of an answer before compression, in bytes, about. Default 300,000; below 24,000 the core shrinks too.
    pub payload_bytes: usize,
    /// How many different bodies there are below the head of the document; a key has always the same one.
    /// Default 8.
    pub bodies: usize,
    /// The revision of every record not named in `revisions`. Default 0.
    pub revision: u64,
    /// The revision of single records.
    pub revisions: BTreeMap<String, u64>,
    /// A record's revision grows by one each time this span passes, in milliseconds; records change at different
    /// times. Default 0: never.
    pub change_every_ms: u64,

    /// Shortest time until the answer, in milliseconds. Default 0.
    pub latency_min_ms: u64,
    /// Longest; between the two it is uniform. Default 0; less than the shortest means the shortest.
    pub latency_max_ms: u64,

    /// Calls in any sliding second that are allowed. Default 500.
    pub per_second: u32,
    /// Calls per day that are allowed. Default 20,000,000.
    pub per_day: u64,
    /// Where the provider's day begins, in seconds east of UTC. Default 32,400: Seoul.
    pub utc_offset_s: i32,
    /// Whether calls over a limit are answered with 429 (they are counted in any case). Default true.
    pub enforce: bool,
    /// Retry-After of 429 and 503, in seconds. Default 1; none leaves the header out.
    pub retry_after_s: Option<u64>,
    /// Sends Retry-After as a date of the provider's own clock. Default false.
    pub retry_after_as_date: bool,
    /// Added to the provider's clock, in seconds: the Date header, the date in the answers, and its day.
    /// Default 0.
    pub clock_offset_s: i64,

    /// Share of calls, from 0 to 1, that are answered with 500. Default 0, as of all shares.
    pub rate_500: f64,
    /// … with 503 and Retry-After.
    pub rate_503: f64,
    /// … with 429 and Retry-After, whatever the limits say.
    pub rate_429: f64,
    /// … never answered.
    pub rate_hang: f64,
    /// … answered by a reset of the connection.
    pub rate_reset: f64,

    /// Keys that do not exist (404); one that ends with `*` is a prefix. Default `missing-*`.
    pub missing: Vec<String>,
    /// The answer to every key. Default `normal`.
    pub answer: Answer,
    /// The answers to single keys.
    pub answers: BTreeMap<String, Answer>,
    /// Size of the answers `huge`, `huge_chunked` and `gzip_bomb`, in bytes. Default 50,000,000.
    pub huge_bytes: usize,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            backlog: 1_024,
            accepting: true,
            holding: false,
            api_key: None,
            payload_bytes: 300_000,
            bodies: 8,
            revision: 0,
            revisions: BTreeMap::new(),
            change_every_ms: 0,
            latency_min_ms: 0,
            latency_max_ms: 0,
            per_second: 500,
            per_day: 20_000_000,
            utc_offset_s: 9 * 3_600,
            enforce: true,
            retry_after_s: Some(1),
            retry_after_as_date: false,
            clock_offset_s: 0,
            rate_500: 0.0,
            rate_503: 0.0,
            rate_429: 0.0,
            rate_hang: 0.0,
            rate_reset: 0.0,
            missing: vec!["missing-*".to_owned()],
            answer: Answer::Normal,
            answers: BTreeMap::new(),
            huge_bytes: 50_000_000,
        }
    }
}

/// The answer to a call, unless limits, errors or a missing key come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The record.
    #[default]
    Normal,
    /// The record, cut off in the middle.
    BrokenJson,
    /// Valid JSON of another shape: a list.
    WrongType,
    /// The record with a text where a list belongs.
    WrongShape,
    /// `huge_bytes` of valid JSON, announced in Content-Length.
    Huge,
    /// The same, not announced.
    HugeChunked,
    /// The same, small until it is unpacked.
    GzipBomb,
    /// 200 and no body.
    Empty,
    /// 302 to another host.
    Redirect,
    /// 200 and a page for people.
    Html,
    /// A record that lacks name and equipment.
    MissingFields,
    /// The record, in pieces that take ten seconds together.
    SlowBody,
    /// The connection ends in the middle of the record.
    CutBody,
    /// 500.
    Error500,
    /// 503 with Retry-After.
    Error503,
    /// 400 with the provider's code for an unknown character.
    Error400,
    /// 429 with Retry-After.
    Throttled,
    /// No answer.
    Hang,
    /// The connection is reset.
    Reset,
}

impl UpstreamSettings {
    /// These settings with the fields of `patch` in place of their own; maps are replaced as a whole.
    pub fn patched(&self, patch: serde_json::Map<String, serde_json::Value>) -> Result<Self, String> {
        let mut all = serde_json::to_value(self).map_err(|error| error.to_string())?;
        let fields = all.as_object_mut().ok_or("settings are an object")?;
        fields.extend(patch);
        serde_json::from_value(all).map_err(|error| error.to_string())
    }

    pub(crate) fn is_missing(&self, key: &str) -> bool {
        self.missing
            .iter()
            .any(|missing| match missing.strip_suffix('*') {
                Some(beginning) => key.starts_with(beginning),
                None => key == missing,
            })
    }

    pub(crate) fn answer_to(&self, key: &str) -> Answer {
        self.answers.get(key).copied().unwrap_or(self.answer)
    }
}
