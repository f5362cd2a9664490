//! Databases that do not respond, do not exist, or are unsuitable: which errors a caller may retry.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_snapshots::mysql::{self, MySqlOptions};
use tidegate_snapshots::postgres::{self, PostgresOptions};
use tidegate_snapshots::sqlite::{self, SqliteOptions};
use tidegate_snapshots::*;
use tidegate_testkit::servers::{MariaDbServer, PostgresServer, Proxy, SqlOptions};

fn record() -> RecordRef {
    RecordRef {
        source: SourceId::new("characters").expect("a name"),
        key: RecordKey::new("1").expect("a name"),
    }
}

fn hasty() -> SnapshotsOptions {
    SnapshotsOptions {
        timeouts: Timeouts {
            read: Millis(500),
            write: Millis(1_000),
            ..Timeouts::default()
        },
        ..SnapshotsOptions::default()
    }
}

/// Longer than any machine needs for one step.
const PATIENCE: Duration = Duration::from_secs(180);

/// Repeats a read until the database is available again.
async fn comes_back(snapshots: &dyn Snapshots) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match snapshots.read(&[record()]).await {
            Ok(_) => return,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        assert!(Instant::now() < deadline, "the database does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// No call waits longer than its timeout.
async fn is_reported_in_time(snapshots: &dyn Snapshots) {
    for _ in 0..3 {
        let start = Instant::now();
        let error = snapshots.read(&[record()]).await.expect_err("no answer");
        assert!(matches!(error, SnapshotsError::Timeout { .. }), "{error}");
        assert!(error.is_retryable());
        // 500 ms, and much patience with a busy machine: an unbounded call would never end.
        assert!(start.elapsed() < PATIENCE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_does_not_answer_is_reported_in_time_and_comes_back() {
    let mut server = PostgresServer::start(SqlOptions::default()).expect("a server");
    let options = PostgresOptions {
        snapshots: hasty(),
        ..PostgresOptions::new(server.create_database("d").expect("a database"))
    };
    let snapshots = postgres::open(options).expect("a pool");
    snapshots.migrate().await.expect("the schema is made");
    comes_back(&snapshots).await;
    server.pause().expect("paused");
    is_reported_in_time(&snapshots).await;
    server.resume().expect("resumed");
    comes_back(&snapshots).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mariadb_that_does_not_answer_is_reported_in_time_and_comes_back() {
    let mut server = MariaDbServer::start(SqlOptions::default()).expect("a server");
    let options = MySqlOptions {
        snapshots: hasty(),
        ..MySqlOptions::new(server.create_database("d").expect("a database"))
    };
    let snapshots = mysql::open(options).expect("a pool");
    snapshots.migrate().await.expect("the schema is made");
    comes_back(&snapshots).await;
    server.pause().expect("paused");
    is_reported_in_time(&snapshots).await;
    server.resume().expect("resumed");
    comes_back(&snapshots).await;
}

/// One connection, to a machine that loses its power at any moment: its slot in the pool is free again in time.
async fn outlasts_silence(snapshots: &dyn Snapshots, proxy: &Proxy) {
    for round in 0..3 {
        let reads = async { while snapshots.read(&[record()]).await.is_ok() {} };
        let silence = async {
            tokio::time::sleep(Duration::from_micros(3_000 + 700 * round)).await;
            proxy.silence_open();
        };
        tokio::join!(reads, silence);
        comes_back(snapshots).await;
        // Also for an interrupted transaction.
        proxy.silence_open();
        let seen = [(record(), Timestamp(1))];
        let error = snapshots.mark_active(&seen).await.expect_err("no answer");
        assert!(error.is_retryable(), "{error}");
        comes_back(snapshots).await;
    }
}

fn alone() -> SnapshotsOptions {
    SnapshotsOptions {
        connections: 1,
        ..hasty()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_postgres_that_went_silent_held_the_pool() {
    let server = PostgresServer::start(SqlOptions::default()).expect("a server");
    let url = server.create_database("d").expect("a database");
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let url = url.replace(&server.port().to_string(), &proxy.port().to_string());
    let options = PostgresOptions {
        snapshots: alone(),
        ..PostgresOptions::new(url)
    };
    let snapshots = postgres::open(options).expect("a pool");
    snapshots.migrate().await.expect("the schema is made");
    outlasts_silence(&snapshots, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_mariadb_that_went_silent_held_the_pool() {
    let server = MariaDbServer::start(SqlOptions::default()).expect("a server");
    let url = server.create_database("d").expect("a database");
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let url = url.replace(&server.port().to_string(), &proxy.port().to_string());
    let options = MySqlOptions {
        snapshots: alone(),
        ..MySqlOptions::new(url)
    };
    let snapshots = mysql::open(options).expect("a pool");
    snapshots.migrate().await.expect("the schema is made");
    outlasts_silence(&snapshots, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_may_come() {
    // Bound, but nobody listens: the port stays reserved while this exists.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(any).expect("a port");
    let port = socket.local_addr().expect("a port").port();
    let postgres = PostgresOptions {
        snapshots: hasty(),
        ..PostgresOptions::new(format!("postgres://me:secret@127.0.0.1:{port}/d"))
    };
    let mysql = MySqlOptions {
        snapshots: hasty(),
        ..MySqlOptions::new(format!("mysql://me:secret@127.0.0.1:{port}/d"))
    };
    let opened = [
        postgres::open(postgres).expect("a pool"),
        mysql::open(mysql).expect("a pool"),
    ];
    for snapshots in opened {
        let error = snapshots.check().await.expect_err("nobody is there");
        assert!(error.is_retryable(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&port.to_string()) && !text.contains("secret"),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_on_its_server_is_no_matter_of_time() {
    let postgres = postgres::open(PostgresOptions::new(PostgresServer::shared().url_of("nowhere")));
    let mysql = mysql::open(MySqlOptions::new(MariaDbServer::shared().url_of("nowhere")));
    for snapshots in [postgres.expect("a pool"), mysql.expect("a pool")] {
        let error = snapshots.check().await.expect_err("no such database");
        assert!(matches!(error, SnapshotsError::Rejected { .. }), "{error}");
        assert!(error.to_string().contains("nowhere") && !error.is_retryable());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_that_a_server_does_not_have_is_no_matter_of_time() {
    let url = format!("{}?sslmode=require", PostgresServer::shared().url());
    let snapshots = postgres::open(PostgresOptions::new(url)).expect("a pool");
    let error = snapshots.check().await.expect_err("no TLS there");
    assert!(
        !error.is_retryable() && error.to_string().contains("TLS"),
        "{error}"
    );
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_its_secrets() {
    for url in ["http://me:secret@host/d", "::secret", "mysql://me:secret@host"] {
        let error = mysql::open(MySqlOptions::new(url)).expect_err("no URL of a database");
        assert!(matches!(error, SnapshotsError::Invalid(_)), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let error = postgres::open(PostgresOptions::new("::secret")).expect_err("no URL");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_no_matter_of_time() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("notes.txt");
    std::fs::write(
        &file,
        "not a database, but long enough to be taken for one: ".repeat(100),
    )
    .expect("a file");
    let error = sqlite::open(SqliteOptions::new(&file))
        .await
        .expect_err("no database");
    assert!(matches!(error, SnapshotsError::Rejected { .. }), "{error}");
    assert!(error.to_string().contains("notes.txt"));
    let missing = folder.path().join("missing").join("snapshots.db");
    let error = sqlite::open(SqliteOptions::new(missing))
        .await
        .expect_err("no folder");
    assert!(error.to_string().contains("missing"), "{error}");
}

/// Two processes on one file take turns; one that waits too long may retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_file_that_another_process_holds_is_busy_for_now() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("snapshots.db");
    let options = SqliteOptions {
        snapshots: hasty(),
        ..SqliteOptions::new(&file)
    };
    let snapshots = sqlite::open(options).await.expect("the file opens");
    snapshots.migrate().await.expect("the schema is made");
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{}", file.display()))
        .await
        .expect("a pool");
    let other = pool.begin_with("BEGIN IMMEDIATE").await.expect("the lock");
    let seen = [(record(), tidegate_core::time::Timestamp(1))];
    let error = snapshots.mark_active(&seen).await.expect_err("it is busy");
    assert!(error.is_retryable(), "{error}");
    // Readers do not wait: this returns while the other still holds the lock.
    comes_back(&snapshots).await;
    other.rollback().await.expect("the lock is free");
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = snapshots.mark_active(&seen).await {
        assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
    }
}
