//! The Kafka broker that other tests rely on works as documented.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_testkit::servers::{KafkaOptions, KafkaServer};

/// For an answer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// For no answer.
const SHORT: Duration = Duration::from_millis(500);

/// How many kinds of requests the broker supports (ApiVersions 0).
fn kinds_of_requests(address: &str, limit: Duration) -> std::io::Result<u32> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(limit))?;
    // Length, kind 18, version 0, number 7, no name of the client.
    stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xFF, 0xFF])?;
    // Length, number, error, count.
    let mut answer = [0; 14];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer[4..10], [0, 0, 0, 7, 0, 0]);
    Ok(u32::from_be_bytes([
        answer[10], answer[11], answer[12], answer[13],
    ]))
}

#[test]
fn a_broker_keeps_its_topics_through_stop_and_kill() {
    let mut server = KafkaServer::start(KafkaOptions::default()).unwrap();
    let (address, folder) = (server.brokers(), server.folder().to_owned());
    assert!(kinds_of_requests(&address, LIMIT).unwrap() > 30);
    assert!(server.topics().unwrap().is_empty());
    server.create_topic("jobs", 3).unwrap();
    let twice = server.create_topic("jobs", 3).unwrap_err();
    assert!(twice.to_string().contains("already exists"), "{twice}");

    server.stop().unwrap();
    kinds_of_requests(&address, SHORT).unwrap_err();
    server.stop().unwrap();
    server.pause().unwrap_err();
    server.restart().unwrap();
    assert_eq!(server.brokers(), address);
    server.create_topic("results", 1).unwrap();

    server.kill().unwrap();
    kinds_of_requests(&address, SHORT).unwrap_err();
    server.restart().unwrap();
    let topics: Vec<_> = server.topics().unwrap().into_iter().collect();
    assert_eq!(topics, [("jobs".to_owned(), 3), ("results".to_owned(), 1)]);

    drop(server);
    assert!(!folder.exists());
    kinds_of_requests(&address, SHORT).unwrap_err();
}

#[test]
fn a_wrong_setting_is_reported() {
    let settings = vec![("num.partitions".to_owned(), "x".to_owned())];
    let options = KafkaOptions {
        settings,
        ..KafkaOptions::default()
    };
    let error = KafkaServer::start(options).unwrap_err();
    assert!(error.to_string().contains("num.partitions"), "{error}");
}

#[test]
fn a_broker_that_is_paused_or_cut_off_answers_later() {
    let options = KafkaOptions {
        behind_proxy: true,
        ..KafkaOptions::default()
    };
    let mut server = KafkaServer::start(options).unwrap();
    let address = server.brokers();
    kinds_of_requests(&address, LIMIT).unwrap();
    server.pause().unwrap();
    kinds_of_requests(&address, SHORT).unwrap_err();
    server.resume().unwrap();
    kinds_of_requests(&address, LIMIT).unwrap();

    server.proxy().unwrap().refuse(true);
    kinds_of_requests(&address, SHORT).unwrap_err();
    server.create_topic("by-the-side", 1).unwrap();
    server.proxy().unwrap().refuse(false);
    kinds_of_requests(&address, LIMIT).unwrap();
}
