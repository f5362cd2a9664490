//! The database servers that other tests rely on work as documented.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tidegate_testkit::servers::{MariaDbServer, PostgresServer, SqlOptions};

/// For no answer.
const SHORT: Duration = Duration::from_millis(500);
/// For an answer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Both servers have the same methods, but no trait: nothing else needs one.
macro_rules! suite {
    ($module:ident, $server:ty) => {
        mod $module {
            use super::*;

            fn ask(server: &$server, statement: &str) -> String {
                server.execute("tide", statement).unwrap().trim().to_owned()
            }

            #[test]
            fn committed_rows_survive_stop_and_kill() {
                let mut server = <$server>::start(SqlOptions::default()).unwrap();
                let (folder, port) = (server.folder().to_owned(), server.port());
                let url = server.create_database("tide").unwrap();
                assert!(url.ends_with(&format!("127.0.0.1:{port}/tide")), "{url}");
                assert_eq!(server.url_of("tide"), url);
                ask(&server, "CREATE TABLE marks (mark INT PRIMARY KEY)");
                ask(&server, "INSERT INTO marks VALUES (1)");
                server
                    .execute("tide", "INSERT INTO marks VALUES (1)")
                    .unwrap_err();

                server.stop().unwrap();
                server.execute("tide", "SELECT 1").unwrap_err();
                server.stop().unwrap();
                server.pause().unwrap_err();
                server.restart().unwrap();
                ask(&server, "INSERT INTO marks VALUES (2)");

                server.kill().unwrap();
                server.execute("tide", "SELECT 1").unwrap_err();
                server.restart().unwrap();
                assert_eq!(server.port(), port);
                assert_eq!(ask(&server, "SELECT mark FROM marks ORDER BY mark"), "1\n2");

                drop(server);
                assert!(!folder.exists());
                TcpStream::connect(("127.0.0.1", port)).unwrap_err();
            }

            #[test]
            fn a_paused_server_answers_when_it_is_resumed() {
                let options = SqlOptions {
                    fsync: false,
                    ..SqlOptions::default()
                };
                let mut server = <$server>::start(options).unwrap();
                server.create_database("tide").unwrap();
                thread::scope(|scope| {
                    let (answer, answers) = channel();
                    server.pause().unwrap();
                    let (port, url) = (server.port(), server.url());
                    scope.spawn(move || answer.send(knock(port, &url)).unwrap());
                    assert_eq!(answers.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
                    server.resume().unwrap();
                    assert_eq!(answers.recv_timeout(LIMIT), Ok(1));
                });
                assert_eq!(ask(&server, "SELECT 7"), "7");
                server.pause().unwrap();
            }
        }
    };
}

suite!(postgres, PostgresServer);
suite!(mariadb, MariaDbServer);

#[test]
fn a_pause_stops_clients_that_are_being_served() {
    let mut server = PostgresServer::start(SqlOptions::default()).unwrap();
    let url = server.url();
    let mut psql = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (answer, answers) = channel();
    let lines = BufReader::new(psql.stdout.take().unwrap()).lines();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| answer.send(line)));
    let mut input = psql.stdin.take().unwrap();
    let mut ask = |statement: &str| writeln!(input, "{statement};").unwrap();
    ask("SELECT 1");
    assert_eq!(answers.recv_timeout(LIMIT).unwrap(), "1");
    server.pause().unwrap();
    ask("SELECT 2");
    assert_eq!(answers.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
    server.resume().unwrap();
    assert_eq!(answers.recv_timeout(LIMIT).unwrap(), "2");

    server.kill().unwrap();
    ask("SELECT 3");
    assert_eq!(answers.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected));
    drop(input);
    assert!(!psql.wait().unwrap().success());
}

/// Opens a connection, and returns how many bytes of an answer arrive, up to one.
fn knock(port: u16, url: &str) -> usize {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    if url.starts_with("postgres") {
        // Asks whether the server would encrypt; the answer is one byte. MariaDB speaks first.
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    }
    stream.read(&mut [0]).unwrap()
}
