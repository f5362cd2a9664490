//! The servers and the proxy that other tests rely on work as documented.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_testkit::servers::{Client, Proxy, RedisCluster, RedisOptions, RedisServer, Reply};

/// For an answer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// For no answer.
const SHORT: Duration = Duration::from_millis(200);

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

fn pong() -> Reply {
    Reply::Simple("PONG".to_owned())
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_durable_server_keeps_its_keys_through_a_kill() {
    let mut server = RedisServer::start(RedisOptions::durable()).unwrap();
    let (url, folder) = (server.url(), server.folder().to_owned());
    assert_eq!(server.command(&["PING"]).unwrap(), pong());
    assert!(server.command(&["SET", "kept", "yes"]).unwrap().is_ok());
    server.kill().unwrap();
    server.command(&["PING"]).unwrap_err();
    server.kill().unwrap();
    server.pause().unwrap_err();

    server.restart().unwrap();
    assert_eq!(server.url(), url);
    assert_eq!(server.command(&["GET", "kept"]).unwrap(), bulk("yes"));

    server.restart().unwrap();
    assert_eq!(server.command(&["GET", "kept"]).unwrap(), bulk("yes"));

    let port = server.port();
    drop(server);
    assert!(!folder.exists());
    Client::connect(port, LIMIT).unwrap_err();
}

#[test]
fn a_server_without_persistence_forgets() {
    let mut server = RedisServer::start(RedisOptions::default()).unwrap();
    assert!(server.command(&["SET", "kept", "no"]).unwrap().is_ok());
    server.restart().unwrap();
    assert!(server.command(&["GET", "kept"]).unwrap().is_nil());
}

#[test]
fn a_paused_server_answers_when_it_is_resumed() {
    let mut server = RedisServer::start(RedisOptions::default()).unwrap();
    for _ in 0..3 {
        server.pause().unwrap();
        let mut client = Client::connect(server.port(), LIMIT).unwrap();
        client.limit(SHORT).unwrap();
        client.command(&["PING"]).unwrap_err();
        server.resume().unwrap();
        assert_eq!(server.command(&["PING"]).unwrap(), pong());
    }
    server.pause().unwrap();
}

#[test]
fn options_reach_the_server_and_bad_ones_are_reported() {
    let args = |words: [&str; 2]| RedisOptions {
        args: words.map(str::to_owned).to_vec(),
        ..RedisOptions::default()
    };
    let server = RedisServer::start(args(["--maxmemory", "10mb"])).unwrap();
    let reply = server.command(&["CONFIG", "GET", "maxmemory"]).unwrap();
    assert_eq!(reply.texts(), ["maxmemory", "10485760"]);

    let error = RedisServer::start(args(["--no-such-option", "1"])).unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn many_servers_start_at_once() {
    let starts: Vec<_> = (0..6)
        .map(|_| thread::spawn(|| RedisServer::start(RedisOptions::default()).unwrap()))
        .collect();
    let servers: Vec<RedisServer> = starts.into_iter().map(|start| start.join().unwrap()).collect();
    for server in &servers {
        // The threads that started them are gone.
        assert_eq!(server.command(&["DBSIZE"]).unwrap(), Reply::Int(0));
        assert!(server.command(&["SET", "mine", "1"]).unwrap().is_ok());
    }
}

#[test]
fn the_client_reads_every_kind_of_reply() {
    let server = RedisServer::shared();
    let mut client = server.client().unwrap();
    let mut ask = |words: &[&str]| client.command(words).unwrap();
    assert_eq!(ask(&["SADD", "kinds", "a", "b"]), Reply::Int(2));
    assert_eq!(ask(&["SORT", "kinds", "ALPHA"]).texts(), ["a", "b"]);
    assert_eq!(ask(&["GET", "kinds:none"]), Reply::Bulk(None));
    assert_eq!(
        ask(&["SET", "kinds:lines", "a\r\nb"]),
        Reply::Simple("OK".to_owned())
    );
    assert_eq!(ask(&["GET", "kinds:lines"]), bulk("a\r\nb"));
    assert!(matches!(ask(&["GET", "kinds"]), Reply::Error(text) if text.starts_with("WRONGTYPE")));
    let nested = Reply::Array(vec![Reply::Int(1), Reply::Array(vec![])]);
    assert_eq!(ask(&["EVAL", "return {1, {}}", "0"]), nested);
    assert!(
        ask(&["MEMORY", "USAGE", "kinds"])
            .int()
            .is_some_and(|bytes| bytes > 0)
    );
    assert_eq!(RedisServer::shared().port(), server.port());
}

#[test]
fn a_cluster_serves_every_slot_and_survives_a_kill() {
    let mut cluster = RedisCluster::start_with(3, RedisOptions::durable()).unwrap();
    assert_eq!(cluster.urls().len(), 3);
    let mut owners = Vec::new();
    for number in 0..30 {
        let key = format!("key:{number}");
        let owner = cluster.owner(&key).unwrap();
        assert!(owner.command(&["SET", &key, "1"]).unwrap().is_ok());
        owners.push(owner.port());
        let other = cluster.nodes().iter().find(|node| node.port() != owner.port());
        let refused = other.unwrap().command(&["GET", &key]).unwrap();
        assert!(matches!(refused, Reply::Error(text) if text.starts_with("MOVED")));
    }
    assert!(cluster.nodes().iter().all(|node| owners.contains(&node.port())));

    cluster.kill(1).unwrap();
    cluster.restart(1).unwrap();
    for number in 0..30 {
        let key = format!("key:{number}");
        assert_eq!(
            cluster.owner(&key).unwrap().command(&["GET", &key]).unwrap(),
            bulk("1")
        );
    }
}

#[test]
fn the_shared_cluster_is_one_for_all() {
    let first = thread::spawn(|| RedisCluster::shared().urls()).join().unwrap();
    assert_eq!(RedisCluster::shared().urls(), first);
    let owner = RedisCluster::shared().owner("{shared}").unwrap();
    assert!(owner.command(&["SET", "{shared}", "1"]).unwrap().is_ok());
}

#[test]
fn the_proxy_forwards_cuts_and_refuses() {
    let server = RedisServer::shared();
    let proxy = Proxy::start(server.port()).unwrap();
    let connect = || Client::connect(proxy.port(), LIMIT);
    let mut client = connect().unwrap();
    let long = "x".repeat(1_000_000);
    assert!(client.command(&["SET", "proxy:long", &long]).unwrap().is_ok());
    assert_eq!(client.command(&["GET", "proxy:long"]).unwrap(), bulk(&long));

    proxy.cut();
    client.command(&["PING"]).unwrap_err();
    let mut client = connect().unwrap();
    assert_eq!(client.command(&["PING"]).unwrap(), pong());

    proxy.refuse(true);
    let refused = connect().and_then(|mut client| client.command(&["PING"]));
    refused.unwrap_err();
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    proxy.refuse(false);
    assert_eq!(connect().unwrap().command(&["PING"]).unwrap(), pong());

    drop(client);
    wait_until("connections that end with their clients", || {
        proxy.connections() == 0
    });
}

#[test]
fn a_stalled_proxy_holds_everything_back() {
    let server = RedisServer::shared();
    let proxy = Proxy::start(server.port()).unwrap();
    let mut old = Client::connect(proxy.port(), LIMIT).unwrap();
    assert_eq!(old.command(&["PING"]).unwrap(), pong());
    proxy.stall(true);
    old.send(&["SET", "stall:old", "1"]).unwrap();
    let mut new = Client::connect(proxy.port(), LIMIT).unwrap();
    new.limit(SHORT).unwrap();
    new.command(&["SET", "stall:new", "1"]).unwrap_err();
    let held = server.command(&["EXISTS", "stall:old", "stall:new"]).unwrap();
    assert_eq!(held, Reply::Int(0));
    proxy.stall(false);
    assert!(old.reply().unwrap().is_ok());

    proxy.stall(true);
    old.send(&["SET", "stall:cut", "1"]).unwrap();
    proxy.cut();
    old.reply().unwrap_err();
    assert!(server.command(&["GET", "stall:cut"]).unwrap().is_nil());
}

#[test]
fn a_dropped_reply_is_one_of_a_command_that_ran() {
    let server = RedisServer::shared();
    let proxy = Proxy::start(server.port()).unwrap();
    let mut client = Client::connect(proxy.port(), LIMIT).unwrap();
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    proxy.drop_next_reply();
    client.command(&["INCR", "dropped"]).unwrap_err();
    assert_eq!(proxy.dropped_replies(), 1);
    assert_eq!(server.command(&["GET", "dropped"]).unwrap(), bulk("1"));

    let mut client = Client::connect(proxy.port(), LIMIT).unwrap();
    assert_eq!(client.command(&["INCR", "dropped"]).unwrap(), Reply::Int(2));
    assert_eq!(proxy.dropped_replies(), 1);
}

#[test]
fn a_proxy_without_a_server_closes_and_finds_it_again() {
    let mut server = RedisServer::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let ask = || Client::connect(proxy.port(), LIMIT).and_then(|mut client| client.command(&["PING"]));
    server.kill().unwrap();
    ask().unwrap_err();
    server.restart().unwrap();
    assert_eq!(ask().unwrap(), pong());
}

/// Set in a test process that starts servers, prints their ports, and waits to be killed.
const VICTIM: &str = "TIDEGATE_SERVERS_VICTIM";

#[test]
fn no_server_survives_a_killed_test() {
    if std::env::var_os(VICTIM).is_some() {
        let own = RedisServer::start(RedisOptions::default()).unwrap();
        println!("\nport={}\nport={}", own.port(), RedisServer::shared().port());
        loop {
            thread::park();
        }
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "servers::redis::no_server_survives_a_killed_test",
            "--nocapture",
        ])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let ports = lines.map_while(Result::ok).filter_map(|line| {
        let (_, port) = line.split_once("port=")?;
        port.parse::<u16>().ok()
    });
    let ports: Vec<u16> = ports.take(2).collect();
    let alive = |port: &u16| Client::connect(*port, LIMIT).is_ok();
    assert_eq!(ports.len(), 2);
    assert!(ports.iter().all(alive));
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the end of the servers", || !ports.iter().any(alive));
}
