//! How many records a second each database stores, in batches as the workers write them. Starts its own servers:
//!
//! ```text
//! cargo run --release -p tidegate-snapshots --all-features --example write_speed [-- sqlite postgres mariadb]
//! ```
//!
//! Everything is as durable as it would be in earnest: every batch is on disk when it is answered.

use std::error::Error;
use std::time::Instant;

use bytes::Bytes;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;
use tidegate_snapshots::mysql::MySqlOptions;
use tidegate_snapshots::postgres::PostgresOptions;
use tidegate_snapshots::sqlite::SqliteOptions;
use tidegate_snapshots::{RecordRef, Snapshots, Write, mysql, postgres, sqlite};
use tidegate_testkit::servers::{MariaDbServer, PostgresServer, SqlOptions};

type Anyhow<T> = Result<T, Box<dyn Error>>;

const RECORDS: u64 = 2_000;
const BATCH: usize = 100;
const BYTES: usize = 17_000;

#[tokio::main]
async fn main() -> Anyhow<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    if wanted("sqlite") {
        let folder = tempfile::TempDir::new()?;
        let snapshots = sqlite::open(SqliteOptions::new(folder.path().join("snapshots.db"))).await?;
        measure("SQLite", &snapshots).await?;
    }
    if wanted("postgres") {
        let server = PostgresServer::start(SqlOptions::default())?;
        let snapshots = postgres::open(PostgresOptions::new(server.create_database("speed")?))?;
        measure("PostgreSQL", &snapshots).await?;
    }
    if wanted("mariadb") {
        let server = MariaDbServer::start(SqlOptions::default())?;
        let snapshots = mysql::open(MySqlOptions::new(server.create_database("speed")?))?;
        measure("MariaDB", &snapshots).await?;
    }
    Ok(())
}

async fn measure(name: &str, snapshots: &dyn Snapshots) -> Anyhow<()> {
    snapshots.migrate().await?;
    let kinds: [(&str, u64, u8); 4] = [
        ("first write", 1, 1),
        ("changed", 2, 2),
        ("changed again", 3, 3),
        ("unchanged", 4, 3),
    ];
    for (kind, version, content) in kinds {
        let batches: Vec<Vec<Write>> = (0..RECORDS)
            .collect::<Vec<_>>()
            .chunks(BATCH)
            .map(|numbers| numbers.iter().map(|n| write(*n, version, content)).collect())
            .collect();
        let start = Instant::now();
        for batch in &batches {
            snapshots.write(batch).await?;
        }
        let rate = RECORDS as f64 / start.elapsed().as_secs_f64();
        println!("{name:12} {kind:14} {rate:8.0} records/s");
    }
    let records: Vec<_> = (0..RECORDS).map(record).collect();
    let start = Instant::now();
    for record in &records {
        snapshots.read(std::slice::from_ref(record)).await?;
    }
    let rate = RECORDS as f64 / start.elapsed().as_secs_f64();
    println!("{name:12} {:14} {rate:8.0} records/s, one at a time", "read");
    Ok(())
}

fn record(n: u64) -> RecordRef {
    RecordRef {
        source: SourceId::new("characters").expect("a source"),
        key: RecordKey::new(format!("character-{n}")).expect("a key"),
    }
}

/// Bytes that do not compress, as packed data does not.
fn write(n: u64, version: u64, content: u8) -> Write {
    let mut state = n * 31 + u64::from(content) + 1;
    let data: Vec<u8> = (0..BYTES)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    Write::Full {
        record: record(n),
        version: Version(version),
        data: Bytes::from(data),
        hash: [content; 32],
        at: Timestamp(1_706_000_000_000 + version),
    }
}
