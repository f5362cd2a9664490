//! The archive in a folder and on a real S3 server, from a real database, also when it is interrupted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_snapshots::archive::*;
use tidegate_snapshots::sqlite::{self, Durability, SqliteOptions};
use tidegate_snapshots::*;
use tidegate_testkit::servers::S3Server;
use wrapped::{Fault, Wrapped};

use crate::wrapped;

/// Noon of a day.
const NOW: Timestamp = Timestamp(1_706_011_200_000);
const KEPT: Timestamp = Timestamp(NOW.0 + 1_000);

fn days(days: u64) -> Millis {
    Millis::from_secs(days * 86_400)
}

struct World {
    folder: TempDir,
    snapshots: Arc<dyn Snapshots>,
}

impl World {
    async fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let options = SqliteOptions {
            durability: Durability::Buffered,
            ..SqliteOptions::new(folder.path().join("snapshots.db"))
        };
        let snapshots = Arc::new(sqlite::open(options).await.expect("the file opens"));
        snapshots.migrate().await.expect("the schema is made");
        Self { folder, snapshots }
    }

    fn archive_folder(&self) -> PathBuf {
        self.folder.path().join("archive")
    }

    fn in_folder(&self) -> Archive {
        let place = ArchivePlace::folder(self.archive_folder()).expect("a folder");
        Archive::new(self.snapshots.clone(), place, ArchiveSettings::default()).expect("an archive")
    }

    /// Changes records once a day for `count` days, the last time yesterday.
    async fn history(&self, sources: &[&str], keys: u64, count: u64) {
        for age in (1..=count).rev() {
            let at = NOW - days(age);
            let mut writes = Vec::new();
            for source in sources {
                for key in 0..keys {
                    writes.push(change(source, &format!("key {key}"), count - age + 1, at));
                }
            }
            self.snapshots.write(&writes).await.expect("a write");
        }
    }

    async fn versions(&self, source: &str, key: &str) -> Vec<u64> {
        let rows = self
            .snapshots
            .record_history(&record(source, key), 1_000)
            .await
            .expect("history");
        let mut versions: Vec<_> = rows.iter().map(|row| row.snapshot.version.0).collect();
        versions.reverse();
        versions
    }
}

fn record(source: &str, key: &str) -> RecordRef {
    RecordRef {
        source: SourceId::new(source).unwrap(),
        key: RecordKey::new(key).unwrap(),
    }
}

fn change(source: &str, key: &str, version: u64, at: Timestamp) -> Write {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&version.to_le_bytes());
    Write::Full {
        record: record(source, key),
        version: Version(version),
        data: Bytes::from(format!("{source} {key} {version} {}", "x".repeat(200))),
        hash,
        at,
    }
}

fn quiet(_: ArchiveStep) {}

/// Names of all files, relative to the folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(folder)
                    .expect("below")
                    .to_str()
                    .expect("text")
                    .to_owned();
                found.insert(name);
            }
        }
    }
    found
}

async fn moves_and_comes_back(world: &World, archive: &Archive) {
    world.history(&["characters", "Gilden/ä"], 3, 40).await;
    let steps = Mutex::new(Vec::new());
    let report = archive
        .run(NOW, &|step| {
            steps.lock().unwrap_or_else(PoisonError::into_inner).push(step)
        })
        .await
        .expect("a run");
    // Rows were replaced 1 to 39 days ago; those of 31 days and more belong to days that are over for 30.
    assert_eq!((report.rows, report.objects, report.moved), (2 * 3 * 9, 2 * 9, 0));
    assert_eq!(steps.lock().unwrap_or_else(PoisonError::into_inner).len(), 18);
    assert_eq!(
        world.versions("characters", "key 1").await,
        (10..=39).collect::<Vec<_>>()
    );
    let rows = world
        .snapshots
        .read(&[record("characters", "key 1")])
        .await
        .expect("a read");
    assert_eq!(
        rows[0].snapshot.as_ref().expect("the current one").version,
        Version(40)
    );
    // Nothing more to do.
    assert_eq!(
        archive.run(NOW, &quiet).await.expect("a run"),
        ArchiveReport::default()
    );

    let all = archive
        .restore(&RestoreFilter::default(), KEPT, &quiet)
        .await
        .expect("restored");
    assert_eq!((all.objects, all.found, all.restored), (18, 54, 54));
    assert_eq!(
        world.versions("characters", "key 1").await,
        (1..=39).collect::<Vec<_>>()
    );
    let restored = world
        .snapshots
        .record_history(&record("Gilden/ä", "key 2"), 1_000)
        .await
        .expect("history");
    let oldest = restored.last().expect("rows");
    assert_eq!(oldest.snapshot.version, Version(1));
    assert!(oldest.snapshot.data.starts_with("Gilden/ä key 2 1 ".as_bytes()));
    assert_eq!(oldest.replaced_at, NOW - days(39));
    let again = archive
        .restore(&RestoreFilter::default(), KEPT, &quiet)
        .await
        .expect("restored");
    assert_eq!(again.restored, 0);
    // Restored rows stay as long as requested, and are not archived a second time.
    let run = archive.run(NOW, &quiet).await.expect("a run");
    assert_eq!(run, ArchiveReport::default());
    let run = archive.run(KEPT, &quiet).await.expect("a run");
    assert_eq!((run.dropped, run.rows), (54, 0));
    assert_eq!(
        world.versions("characters", "key 1").await,
        (10..=39).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn old_history_moves_to_a_folder_and_back() {
    let world = World::new().await;
    moves_and_comes_back(&world, &world.in_folder()).await;
}

fn bucket() -> String {
    static BUCKETS: AtomicU64 = AtomicU64::new(0);
    let name = format!("archive-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
    S3Server::shared().create_bucket(&name).expect("a bucket");
    name
}

fn s3(bucket: &str, prefix: &str) -> ArchivePlace {
    let server = S3Server::shared();
    ArchivePlace::s3(S3Options {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        region: Some(server.region().to_owned()),
        endpoint: Some(server.endpoint()),
        access_key_id: Some(server.access_key().to_owned()),
        secret_access_key: Some(server.secret_key().to_owned()),
        allow_http: true,
    })
    .expect("a bucket")
}

#[tokio::test]
async fn old_history_moves_to_s3_and_back() {
    let world = World::new().await;
    let place = s3(&bucket(), "tide/gate");
    let archive =
        Archive::new(world.snapshots.clone(), place, ArchiveSettings::default()).expect("an archive");
    moves_and_comes_back(&world, &archive).await;
}

async fn ages(world: &World, archive: &Archive) {
    world.history(&["characters"], 2, 40).await;
    archive.run(NOW, &quiet).await.expect("a run");
    let run = archive.run(NOW + days(70), &quiet).await.expect("a run");
    // All of it is old enough by then; what moved to `warm` before moves on to `cold`.
    assert_eq!((run.rows, run.moved), (2 * 30, 9));
    let run = archive.run(NOW + days(400), &quiet).await.expect("a run");
    assert_eq!((run.rows, run.moved), (0, 39));
    let run = archive.run(NOW + days(400), &quiet).await.expect("a run");
    assert_eq!(run, ArchiveReport::default());
    let filter = RestoreFilter::default();
    let all = archive
        .restore(&filter, NOW + days(500), &quiet)
        .await
        .expect("restored");
    assert_eq!((all.objects, all.restored), (39, 78));
    assert_eq!(
        world.versions("characters", "key 1").await,
        (1..=39).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn history_goes_from_tier_to_tier_in_a_folder() {
    let world = World::new().await;
    ages(&world, &world.in_folder()).await;
    assert!(
        files(&world.archive_folder())
            .iter()
            .all(|name| name.starts_with("archive/characters/20"))
    );
}

#[tokio::test]
async fn history_goes_from_tier_to_tier_on_s3() {
    let world = World::new().await;
    let place = s3(&bucket(), "");
    let archive =
        Archive::new(world.snapshots.clone(), place, ArchiveSettings::default()).expect("an archive");
    ages(&world, &archive).await;
}

/// Ends as if the program died right before it deletes rows.
#[derive(Debug, Default)]
struct DiesBeforeDeleting(AtomicBool);

impl Fault for DiesBeforeDeleting {
    fn before_delete_history(&self, _ids: &[u64]) -> Result<(), SnapshotsError> {
        if self.0.swap(false, Ordering::Relaxed) {
            return Err(SnapshotsError::Unavailable {
                database: "the database".to_owned(),
                reason: "the program died".to_owned(),
            });
        }
        Ok(())
    }
}

async fn survives_an_end_before_deleting(world: &World, place: ArchivePlace) {
    world.history(&["characters"], 3, 40).await;
    let dying = Arc::new(Wrapped {
        inner: world.snapshots.clone(),
        fault: DiesBeforeDeleting(AtomicBool::new(true)),
    });
    let archive = Archive::new(dying, place.clone(), ArchiveSettings::default()).expect("an archive");
    let error = archive.run(NOW, &quiet).await.expect_err("the program died");
    assert!(error.is_retryable());
    assert_eq!(
        world.versions("characters", "key 1").await.len(),
        39,
        "nothing is gone yet"
    );
    let archive =
        Archive::new(world.snapshots.clone(), place, ArchiveSettings::default()).expect("an archive");
    let run = archive.run(NOW, &quiet).await.expect("a run");
    assert_eq!((run.rows, run.objects), (27, 9));
    let all = archive
        .restore(&RestoreFilter::default(), KEPT, &quiet)
        .await
        .expect("restored");
    assert_eq!(
        (all.objects, all.found, all.restored),
        (9, 27, 27),
        "no object twice"
    );
}

#[tokio::test]
async fn an_end_between_storing_and_deleting_does_no_harm_in_a_folder() {
    let world = World::new().await;
    let place = ArchivePlace::folder(world.archive_folder()).expect("a folder");
    survives_an_end_before_deleting(&world, place).await;
}

#[tokio::test]
async fn an_end_between_storing_and_deleting_does_no_harm_on_s3() {
    let world = World::new().await;
    survives_an_end_before_deleting(&world, s3(&bucket(), "")).await;
}

#[tokio::test]
async fn an_end_in_the_middle_of_moving_on_does_no_harm() {
    let world = World::new().await;
    world.history(&["characters"], 2, 40).await;
    let archive = world.in_folder();
    archive.run(NOW, &quiet).await.expect("a run");
    let folder = world.archive_folder();
    let before = files(&folder);
    // One object is in both tiers, as after a crash between writing there and deleting here.
    let name = before.first().expect("an object").clone();
    let copy = folder.join(name.replacen("warm", "cold", 1));
    std::fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
    std::fs::copy(folder.join(&name), copy).expect("a copy");
    let double = archive
        .restore(&RestoreFilter::default(), KEPT, &quiet)
        .await
        .expect("restored");
    assert_eq!(
        (double.objects, double.restored),
        (10, 18),
        "a row is put back once"
    );
    let run = archive.run(NOW + days(70), &quiet).await.expect("a run");
    assert_eq!(run.moved, 9);
    let cold: BTreeSet<_> = before
        .iter()
        .map(|name| name.replacen("warm", "cold", 1))
        .collect();
    assert!(cold.is_subset(&files(&folder)));
    assert!(before.is_disjoint(&files(&folder)));
}

#[tokio::test]
async fn a_filter_chooses_what_comes_back() {
    let world = World::new().await;
    world.history(&["characters", "guilds"], 3, 40).await;
    let archive = world.in_folder();
    archive.run(NOW, &quiet).await.expect("a run");
    let filter = RestoreFilter {
        source: Some(SourceId::new("characters").unwrap()),
        key: Some(RecordKey::new("key 1").unwrap()),
        from: NOW - days(35),
        before: NOW - days(32),
    };
    let some = archive.restore(&filter, KEPT, &quiet).await.expect("restored");
    assert_eq!((some.found, some.restored), (3, 3));
    assert!(some.objects <= 4, "other days are not read");
    let mut expected: Vec<u64> = (10..=39).collect();
    expected.splice(0..0, [5, 6, 7]);
    assert_eq!(world.versions("characters", "key 1").await, expected);
    assert_eq!(world.versions("guilds", "key 1").await.len(), 30);
}

#[tokio::test]
async fn objects_have_no_more_rows_than_set() {
    let world = World::new().await;
    world.history(&["characters"], 10, 33).await;
    let settings = ArchiveSettings {
        object_rows: 4,
        ..ArchiveSettings::default()
    };
    let place = ArchivePlace::folder(world.archive_folder()).expect("a folder");
    let archive = Archive::new(world.snapshots.clone(), place, settings).expect("an archive");
    let run = archive.run(NOW, &quiet).await.expect("a run");
    // Two days of ten rows, in fours; an object never has rows of two days.
    assert_eq!((run.rows, run.objects), (20, 6));
}

#[tokio::test]
async fn a_damaged_object_is_reported_and_nothing_is_lost() {
    let world = World::new().await;
    world.history(&["characters"], 2, 40).await;
    let archive = world.in_folder();
    archive.run(NOW, &quiet).await.expect("a run");
    let folder = world.archive_folder();
    let name = files(&folder).first().expect("an object").clone();
    let mut bytes = std::fs::read(folder.join(&name)).expect("an object");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(folder.join(&name), bytes).expect("damaged");
    let error = archive
        .restore(&RestoreFilter::default(), KEPT, &quiet)
        .await
        .expect_err("damaged");
    assert!(matches!(error, ArchiveError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&name) && !error.is_retryable());
    // It does not move on: the only copy stays where it is.
    archive.run(NOW + days(70), &quiet).await.expect_err("damaged");
    assert!(files(&folder).contains(&name));
}

#[tokio::test]
async fn an_unavailable_archive_is_reported_and_the_rows_stay() {
    let world = World::new().await;
    world.history(&["characters"], 2, 40).await;
    let place = s3("there-is-no-such-bucket", "");
    let archive =
        Archive::new(world.snapshots.clone(), place, ArchiveSettings::default()).expect("an archive");
    let error = archive.run(NOW, &quiet).await.expect_err("no bucket");
    assert!(matches!(error, ArchiveError::Storage { .. }), "{error}");
    assert_eq!(world.versions("characters", "key 1").await.len(), 39);
}

#[tokio::test]
async fn settings_that_do_not_work_are_refused() {
    let world = World::new().await;
    let place = ArchivePlace::folder(world.archive_folder()).expect("a folder");
    let refused = |change: fn(&mut ArchiveSettings)| {
        let mut settings = ArchiveSettings::default();
        change(&mut settings);
        let archive = Archive::new(world.snapshots.clone(), place.clone(), settings);
        archive.expect_err("refused").to_string()
    };
    assert!(refused(|settings| settings.tiers.clear()).contains("no tier"));
    let order = refused(|settings| settings.tiers.swap(0, 1));
    assert!(order.contains("cold") && order.contains("warm"), "{order}");
    assert!(refused(|settings| settings.tiers[1].name = "../etc".to_owned()).contains("../etc"));
    assert!(refused(|settings| settings.tiers[1].name = "warm".to_owned()).contains("warm"));
    assert!(refused(|settings| settings.object_rows = 0).contains("one row"));
}
