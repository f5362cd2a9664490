//! Where objects are stored: a folder, or a bucket of S3 or a compatible service.

use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use jiff::civil::{Date, date};
use jiff::{Span, Unit};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use tidegate_core::hash::fnv1a;
use tidegate_core::ids::SourceId;
use tidegate_core::time::{Millis, Timestamp};

use super::{ArchiveError, DAY};

const EPOCH: Date = date(1970, 1, 1);
/// Limit: characters of a source in a name. File systems accept 255 for a whole name.
const MAX_NAME: usize = 60;

/// The storage for objects.
#[derive(Clone)]
pub struct ArchivePlace {
    store: Arc<dyn ObjectStore>,
    /// For messages; holds no secrets.
    name: String,
    has_storage_classes: bool,
}

impl fmt::Debug for ArchivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArchivePlace").field(&self.name).finish()
    }
}

impl ArchivePlace {
    /// A folder, created if it is missing. A write counts only once it is on disk.
    pub fn folder(folder: impl AsRef<FilePath>) -> Result<Self, ArchiveError> {
        let folder = folder.as_ref();
        let name = format!("the archive folder {}", folder.display());
        let open = std::fs::create_dir_all(folder)
            .map_err(|error| error.to_string())
            .and_then(|()| LocalFileSystem::new_with_prefix(folder).map_err(|error| error.to_string()));
        match open {
            Ok(store) => Ok(Self {
                store: Arc::new(store.with_fsync(true).with_automatic_cleanup(true)),
                name,
                has_storage_classes: false,
            }),
            Err(reason) => Err(ArchiveError::Settings(format!("{name} cannot be used: {reason}"))),
        }
    }

    /// Writes an object, replacing an existing one, and reads it back.
    pub(super) async fn put(
        &self,
        path: &Path,
        body: Bytes,
        class: Option<&str>,
    ) -> Result<(), ArchiveError> {
        let mut attributes = Attributes::new();
        if let Some(class) = class.filter(|_| self.has_storage_classes) {
            attributes.insert(Attribute::StorageClass, class.to_owned().into());
        }
        let options = PutOptions {
            attributes,
            ..PutOptions::default()
        };
        let payload = PutPayload::from_bytes(body.clone());
        self.store
            .put_opts(path, payload, options)
            .await
            .map_err(|error| self.unusable(path, error))?;
        self.verify(path, &body, class).await
    }

    async fn verify(&self, path: &Path, body: &Bytes, class: Option<&str>) -> Result<(), ArchiveError> {
        // Frozen objects cannot be read; the size is all that can be verified.
        if self.has_storage_classes && class.is_some_and(is_frozen) {
            let found = self
                .store
                .head(path)
                .await
                .map_err(|error| self.unusable(path, error))?;
            if found.size != body.len() as u64 {
                return Err(self.damaged(path, format!("it has {} bytes, not {}", found.size, body.len())));
            }
            return Ok(());
        }
        if self.get(path).await? != *body {
            return Err(self.damaged(path, "it reads differently".to_owned()));
        }
        Ok(())
    }

    pub(super) async fn get(&self, path: &Path) -> Result<Bytes, ArchiveError> {
        let found = self
            .store
            .get(path)
            .await
            .map_err(|error| self.unusable(path, error))?;
        found.bytes().await.map_err(|error| self.unusable(path, error))
    }

    pub(super) async fn delete(&self, path: &Path) -> Result<(), ArchiveError> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.unusable(path, error)),
        }
    }

    /// Names directly below `path`: folders, and objects.
    pub(super) async fn list(&self, path: &Path) -> Result<(Vec<Path>, Vec<Path>), ArchiveError> {
        let listed = self
            .store
            .list_with_delimiter(Some(path))
            .await
            .map_err(|error| self.unusable(path, error))?;
        let mut folders = listed.common_prefixes;
        let mut objects: Vec<_> = listed.objects.into_iter().map(|object| object.location).collect();
        folders.sort();
        objects.sort();
        Ok((folders, objects))
    }

    fn unusable(&self, path: &Path, error: object_store::Error) -> ArchiveError {
        let mut reason = error.to_string();
        if reason.contains("InvalidObjectState") {
            reason = format!("it is frozen: have it restored there first ({reason})");
        }
        ArchiveError::Storage {
            place: self.name.clone(),
            object: path.to_string(),
            reason,
        }
    }

    pub(super) fn damaged(&self, path: &Path, reason: String) -> ArchiveError {
        ArchiveError::Damaged {
            place: self.name.clone(),
            object: path.to_string(),
            reason,
        }
    }
}

/// Storage classes that do not allow an immediate read.
fn is_frozen(class: &str) -> bool {
    matches!(class, "GLACIER" | "DEEP_ARCHIVE")
}

/// How to reach a bucket. The usual `AWS_` variables supply what is missing here.
#[cfg(feature = "s3")]
#[derive(Clone, Default)]
pub struct S3Options {
    pub bucket: String,
    /// The start of every object name.
    pub prefix: String,
    pub region: Option<String>,
    /// For servers other than Amazon's.
    pub endpoint: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
    /// Without TLS: for a server on the same machine.
    pub allow_http: bool,
}

#[cfg(feature = "s3")]
impl fmt::Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Options")
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "s3")]
impl ArchivePlace {
    pub fn s3(options: S3Options) -> Result<Self, ArchiveError> {
        let name = format!("the archive bucket {}", options.bucket);
        // An error means that the program has already installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = object_store::aws::AmazonS3Builder::from_env()
            .with_bucket_name(options.bucket)
            .with_allow_http(options.allow_http);
        if let Some(region) = options.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = options.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(id) = options.access_key_id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(secret) = options.secret_access_key {
            builder = builder.with_secret_access_key(secret);
        }
        let store = builder
            .build()
            .map_err(|error| ArchiveError::Settings(format!("{name} cannot be used: {error}")))?;
        let store: Arc<dyn ObjectStore> = match options.prefix.trim_matches('/') {
            "" => Arc::new(store),
            prefix => Arc::new(object_store::prefix::PrefixStore::new(store, prefix)),
        };
        Ok(Self {
            store,
            name,
            has_storage_classes: true,
        })
    }
}

/// A day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Day(u64);

impl Day {
    pub(super) fn of(time: Timestamp) -> Self {
        Self(time.0 / DAY.0)
    }

    pub(super) fn start(self) -> Timestamp {
        Timestamp(self.0 * DAY.0)
    }

    pub(super) fn end(self) -> Timestamp {
        self.start() + DAY
    }

    /// The age of the youngest row that it can hold.
    pub(super) fn age(self, now: Timestamp) -> Millis {
        now.since(self.end())
    }

    fn name(self) -> String {
        // The calendar ends in the year 9999, and so do names that are dates.
        let span = i64::try_from(self.0)
            .ok()
            .and_then(|days| Span::new().try_days(days).ok());
        match span.and_then(|span| EPOCH.checked_add(span).ok()) {
            Some(date) => date.to_string(),
            None => format!("day-{}", self.0),
        }
    }

    /// The day of a folder with this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        if let Some(number) = name.strip_prefix("day-") {
            return number.parse().ok().map(Self);
        }
        let date: Date = name.parse().ok()?;
        let days = EPOCH.until((Unit::Day, date)).ok()?.get_days();
        u64::try_from(days).ok().map(Self)
    }
}

pub(super) fn object_path(tier: &str, source: &SourceId, day: Day, first: u64, last: u64) -> Path {
    let source = source_name(source);
    let day = day.name();
    Path::from(format!("{tier}/{source}/{day}/{first:020}-{last:020}.tga"))
}

/// The folder name of a source. Plain names are used as they are. Others keep their plain characters, and a hash
/// makes them distinct. The rows of an object name their source, so nobody parses it from names.
pub(super) fn source_name(source: &SourceId) -> String {
    let plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-' || char == '_';
    let text = source.as_str();
    if text.len() <= MAX_NAME && text.chars().all(plain) {
        return text.to_owned();
    }
    let kept: String = text
        .chars()
        .take(MAX_NAME)
        .map(|char| if plain(char) { char } else { '_' })
        .collect();
    let number = fnv1a(text.as_bytes());
    format!("{kept}.{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_distinct() {
        let name = |text: &str| source_name(&SourceId::new(text).unwrap());
        assert_eq!(name("characters"), "characters");
        for odd in ["..", "a/b", "A", "ä", "a b", "\0", &"x".repeat(256)] {
            let name = name(odd);
            assert!(
                name.len() < 100 && !name.starts_with('.') && !name.contains('/'),
                "{name}"
            );
        }
        assert_ne!(name("A"), name("B"));
        assert_ne!(name("a/b"), name("a_b"));
    }

    #[test]
    fn days_are_named_after_their_date() {
        let day = Day::of(Timestamp(1_706_000_000_000));
        assert_eq!(day.name(), "2024-01-23");
        for day in [Day(0), day, Day(2_932_896), Day(2_932_897), Day(u64::MAX / DAY.0)] {
            assert_eq!(Day::parse(&day.name()), Some(day));
        }
        assert_eq!(Day::parse("other"), None);
    }
}
