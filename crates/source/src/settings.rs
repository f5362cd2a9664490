//! Every setting of a source: meaning, unit, default and validity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::time::Millis;

use crate::header::HeaderSetting;
use crate::key::KeyRule;
use crate::project::{FieldError, Projection};
use crate::template::{TemplateError, UrlTemplate};

/// Limit: a longer timeout would hold a record for longer than it may wait.
const MAX_TIMEOUT: Millis = Millis(120_000);
/// Limit: memory holds responses, several at a time.
const MAX_RESPONSE_BYTES: usize = 100_000_000;
const MAX_ID_BYTES: usize = 64;

/// Where records of one kind come from, and which of their fields to keep.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSettings {
    /// The name of the source: letters, digits, `-` and `_`, at most 64. Where sources are listed by name, that name
    /// applies.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The URL of a record, called with GET. `{key}` stands for its key, another name in braces for a value that a
    /// resolver derives from it; both are percent-encoded.
    pub url: String,
    /// Sent with every call; each is a text, `{ env = "NAME" }` or `{ file = "path" }`. Default: none.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderSetting>,
    /// The target whose budget pays for every call.
    pub target: String,
    /// How long connecting may take, in milliseconds. Default 3,000.
    #[serde(default = "connect_timeout")]
    pub connect_timeout_ms: Millis,
    /// How long one attempt may take, from connecting to the last byte, in milliseconds. Default 10,000.
    #[serde(default = "timeout")]
    pub timeout_ms: Millis,
    /// Longest response in bytes, both as sent and after decompression. Default 5,000,000.
    #[serde(default = "max_response_bytes")]
    pub max_response_bytes: usize,
    /// The fields to keep: dotted paths, with `[]` after a list, like `item_equipment[].item_name`.
    pub fields: Vec<String>,
    /// Which of them must be present and not null. Default: none.
    #[serde(default)]
    pub required: Vec<String>,
    /// The field that says when somebody was last active: a date, a date and time, or seconds or milliseconds since
    /// the Unix epoch. It need not be kept. Default: none, and activity is unknown.
    #[serde(default)]
    pub activity_field: Option<String>,
    /// Part of every hash: raise it when `fields` changes, and the service stores all records anew. Default 1.
    #[serde(default = "projection_version")]
    pub projection_version: u32,
    /// The valid keys.
    #[serde(default)]
    pub key: KeyRule,
    /// Statuses that mean a record does not exist. Default 404.
    #[serde(default = "absent_statuses")]
    pub absent_statuses: Vec<u16>,
    /// Where a 4xx response holds the provider's code, like `error.name`. Default: none.
    #[serde(default)]
    pub error_code_field: Option<String>,
    /// Codes found there that mean a record does not exist. Default: none.
    #[serde(default)]
    pub absent_codes: Vec<String>,
    /// How long a record is fresh after a check, by its activity. Default: the value for all sources.
    #[serde(default)]
    pub ttl_ms: Option<TierTtl>,
    /// Whether the service prefetches records before anybody requests them. Default true.
    #[serde(default = "prefetch")]
    pub prefetch: bool,
}

/// How long a record is fresh, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TierTtl {
    /// Recently active. Default one hour.
    pub hot: Millis,
    /// Active within a week. Default six hours.
    pub warm: Millis,
    /// All others. Default a day.
    pub cold: Millis,
}

impl Default for TierTtl {
    fn default() -> Self {
        Self {
            hot: Millis::from_secs(3_600),
            warm: Millis::from_secs(6 * 3_600),
            cold: Millis::from_secs(24 * 3_600),
        }
    }
}

fn connect_timeout() -> Millis {
    Millis(3_000)
}

fn timeout() -> Millis {
    Millis(10_000)
}

fn max_response_bytes() -> usize {
    5_000_000
}

fn projection_version() -> u32 {
    1
}

fn prefetch() -> bool {
    true
}

fn absent_statuses() -> Vec<u16> {
    vec![404]
}

/// What is wrong with the settings of a source, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sources.{source_id}.{setting}: {problem}")]
pub struct SettingsError {
    pub source_id: String,
    pub setting: String,
    pub problem: String,
}

impl SourceSettings {
    /// Uses the defaults for everything else.
    pub fn new(id: &str, url: &str, target: &str, fields: &[&str]) -> Self {
        Self {
            id: id.to_owned(),
            url: url.to_owned(),
            headers: BTreeMap::new(),
            target: target.to_owned(),
            connect_timeout_ms: connect_timeout(),
            timeout_ms: timeout(),
            max_response_bytes: max_response_bytes(),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            required: Vec::new(),
            activity_field: None,
            projection_version: projection_version(),
            key: KeyRule::default(),
            absent_statuses: absent_statuses(),
            error_code_field: None,
            absent_codes: Vec::new(),
            ttl_ms: None,
            prefetch: prefetch(),
        }
    }

    /// Checks everything that needs neither secrets nor a call.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.check_names()?;
        self.template()?;
        self.projection()?;
        self.check_headers()?;
        self.check_limits()?;
        self.check_absent()?;
        self.key
            .check_rule()
            .map_err(|problem| self.wrong("key", problem))?;
        self.check_ttl()
    }

    pub fn template(&self) -> Result<UrlTemplate, SettingsError> {
        UrlTemplate::parse(&self.url).map_err(|error: TemplateError| self.wrong("url", error.to_string()))
    }

    pub fn projection(&self) -> Result<Projection, SettingsError> {
        let compiled = Projection::with(&self.fields, &self.required, self.activity_field.as_deref());
        compiled.map_err(|error: FieldError| {
            let is = |path: &String| *path == error.path;
            let setting = if self.activity_field.as_ref().is_some_and(is) && !self.fields.iter().any(is) {
                "activity_field"
            } else if self.required.iter().any(is) && !self.fields.iter().any(is) {
                "required"
            } else {
                "fields"
            };
            self.wrong(setting, error.to_string())
        })
    }

    pub(crate) fn wrong(&self, setting: &str, problem: impl Into<String>) -> SettingsError {
        SettingsError {
            source_id: self.id.clone(),
            setting: setting.to_owned(),
            problem: problem.into(),
        }
    }

    fn check_names(&self) -> Result<(), SettingsError> {
        for (setting, name) in [("id", &self.id), ("target", &self.target)] {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if name.is_empty() || name.len() > MAX_ID_BYTES || !name.bytes().all(fits) {
                let problem = format!(
                    "{name:?} is not a valid name; it must be 1 to {MAX_ID_BYTES} letters, digits, - and _"
                );
                return Err(self.wrong(setting, problem));
            }
        }
        Ok(())
    }

    fn check_headers(&self) -> Result<(), SettingsError> {
        for name in self.headers.keys() {
            if http::HeaderName::try_from(name).is_err() {
                return Err(self.wrong("headers", format!("{name:?} is not a header name")));
            }
            // The fetcher decodes the body according to its own request headers.
            if name.eq_ignore_ascii_case("accept-encoding") || name.eq_ignore_ascii_case("host") {
                return Err(self.wrong(
                    "headers",
                    format!("{name} is set by the client itself; remove it"),
                ));
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), SettingsError> {
        let (connect, total) = (self.connect_timeout_ms, self.timeout_ms);
        if total.0 == 0 || total > MAX_TIMEOUT {
            return Err(self.wrong(
                "timeout_ms",
                format!("{total} must be from 1 ms to {MAX_TIMEOUT}"),
            ));
        }
        if connect.0 == 0 || connect > total {
            let problem = format!("{connect} must be from 1 ms to timeout_ms, which is {total}");
            return Err(self.wrong("connect_timeout_ms", problem));
        }
        if !(1_000..=MAX_RESPONSE_BYTES).contains(&self.max_response_bytes) {
            let problem = format!(
                "{} must be from 1000 to {MAX_RESPONSE_BYTES}",
                self.max_response_bytes
            );
            return Err(self.wrong("max_response_bytes", problem));
        }
        Ok(())
    }

    fn check_absent(&self) -> Result<(), SettingsError> {
        for status in &self.absent_statuses {
            // 429 and 408 mean "later", and a success is a record.
            if !(400..500).contains(status) || matches!(status, 408 | 425 | 429) {
                let problem =
                    format!("{status} cannot mean that a record does not exist; 4xx can, like 404 or 410");
                return Err(self.wrong("absent_statuses", problem));
            }
        }
        if !self.absent_codes.is_empty() && self.error_code_field.is_none() {
            let problem =
                "codes need error_code_field, which says where an answer holds its code, like error.name";
            return Err(self.wrong("absent_codes", problem));
        }
        Ok(())
    }

    fn check_ttl(&self) -> Result<(), SettingsError> {
        let Some(TierTtl { hot, warm, cold }) = self.ttl_ms else {
            return Ok(());
        };
        if hot.0 == 0 || hot > warm || warm > cold {
            let problem = format!("hot {hot}, warm {warm} and cold {cold} must be above 0 and not fall");
            return Err(self.wrong("ttl_ms", problem));
        }
        Ok(())
    }
}

/// Leaves out path and query of the URL: they may hold a secret.
impl std::fmt::Debug for SourceSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceSettings")
            .field("id", &self.id)
            .field("url", &UrlTemplate::parse(&self.url).map_err(|_| "not valid"))
            .field("headers", &self.headers)
            .field("target", &self.target)
            .field("timeout_ms", &self.timeout_ms)
            .field("fields", &self.fields)
            .field("projection_version", &self.projection_version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        id = "character"
        url = "https://api.example/character/basic?ocid={ocid}"
        target = "nexon"
        fields = ["character_name", "item_equipment[].item_name"]
    "#;

    fn read(more: &str) -> SourceSettings {
        toml::from_str(&format!("{GOOD}{more}")).unwrap()
    }

    #[test]
    fn defaults_are_as_documented() {
        let settings = read("");
        settings.check().unwrap();
        let fields = ["character_name", "item_equipment[].item_name"];
        let made = SourceSettings::new("character", &settings.url, "nexon", &fields);
        assert_eq!(settings, made);
        assert_eq!(settings.max_response_bytes, 5_000_000);
        assert_eq!(settings.absent_statuses, [404]);
    }

    #[test]
    fn unknown_settings_are_refused() {
        let error = toml::from_str::<SourceSettings>(&format!("{GOOD}\ntimeout = 3")).unwrap_err();
        assert!(error.message().contains("timeout"), "{error}");
    }

    #[test]
    fn what_cannot_work_is_named_with_what_would() {
        for (more, setting, problem) in [
            ("timeout_ms = 0", "timeout_ms", "from 1 ms to 120000 ms"),
            (
                "connect_timeout_ms = 20000",
                "connect_timeout_ms",
                "timeout_ms, which is 10000 ms",
            ),
            ("max_response_bytes = 10", "max_response_bytes", "from 1000"),
            ("absent_statuses = [429]", "absent_statuses", "like 404 or 410"),
            ("absent_codes = [\"X\"]", "absent_codes", "error_code_field"),
            ("ttl_ms = { hot = 5, warm = 4 }", "ttl_ms", "hot 5 ms, warm 4 ms"),
            ("required = [\"level\"]", "required", "add it to the fields"),
            (
                "activity_field = \"item_equipment[].t\"",
                "activity_field",
                "cannot be in a list",
            ),
            ("key = { max_bytes = 0 }", "key", "from 1 to 1024"),
            ("headers = { \"a b\" = \"c\" }", "headers", "is not a header name"),
            ("headers = { Accept-Encoding = \"br\" }", "headers", "remove it"),
        ] {
            let error = read(more).check().unwrap_err();
            assert_eq!(error.setting, setting, "{error}");
            assert!(error.to_string().starts_with("sources.character."), "{error}");
            assert!(error.problem.contains(problem), "{error}");
        }
        let mut settings = read("");
        settings.url = "https://api.example/all?token=hunter2".to_owned();
        let error = settings.check().unwrap_err().to_string();
        assert!(error.starts_with("sources.character.url: "), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        settings.id = "a/b".to_owned();
        assert_eq!(settings.check().unwrap_err().setting, "id");
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut settings = read("headers = { x-nxopen-api-key = \"hunter2\" }");
        settings.url = "https://api.example/hunter2/{key}?token=hunter2".to_owned();
        settings.check().unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");
    }
}
