//! Runs the `redis-cli` and Kafka commands of `docs/refresh.md` exactly as documented.

use std::process::Command;

use tidegate_testkit::servers::RedisCluster;

use super::fleet::{Backends, Fleet, budget, small, turn};
use crate::support::served::until;

/// The lines after `$ ` that begin with one of these programs.
fn commands(programs: &[&str]) -> Vec<Vec<String>> {
    let text = include_str!("../../../../../../docs/refresh.md");
    let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
    let words = lines.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    words
        .filter(|words| programs.contains(&words[0].as_str()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_documentation_show_what_it_says() {
    let _turn = turn().await;
    let fleet = Fleet::start(Backends::Kafka, 1, small(|_| {}), &budget("")).await;
    let fresh = || async { fleet.read(0, "anna").await.0["freshness"] == "FRESH" };
    until("a fresh record", fresh).await;

    let port = fleet.servers.redis.as_ref().unwrap().port();
    // Only a Cluster has slots.
    let cluster = RedisCluster::start(3).unwrap();
    let run = |words: &[String]| {
        let port = if words[1] == "CLUSTER" {
            cluster.nodes()[0].port()
        } else {
            port
        };
        let output = Command::new(&words[0])
            .args(["-p", &port.to_string()])
            .args(&words[1..])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && !text.contains("ERR"),
            "{words:?}: {text}"
        );
        text
    };
    let found = commands(&["redis-cli"]);
    let slots: Vec<String> = found
        .iter()
        .filter(|words| words[1] == "CLUSTER")
        .map(|words| run(words))
        .collect();
    assert_eq!(slots.len(), 4);
    assert_eq!((&slots[0], &slots[2]), (&slots[1], &slots[3]));
    for words in found.iter().filter(|words| words[1] != "CLUSTER") {
        let text = run(words);
        let wanted = if words[1] == "HGETALL" { "day" } else { "tidegate" };
        assert!(text.contains(wanted), "{words:?} does not print {wanted}: {text}");
    }
    let key = "bulk-action:refresh:upd:{character/anna}".to_owned();
    assert_eq!(run(&["redis-cli".into(), "EXISTS".into(), key]).trim(), "1");

    let kafka = fleet.servers.kafka.as_ref().unwrap();
    let found = commands(&["kafka-topics.sh", "kafka-consumer-groups.sh"]);
    assert_eq!(found.len(), 5);
    for words in found {
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let text = kafka.command(&words[0], &args).unwrap();
        let wanted: &[&str] = match args.as_slice() {
            ["--list"] => &["update-priority-high", "update-priority-low", "update-dlq"],
            ["--describe", "--topic", "update-dlq"] => &["PartitionCount: 12", "retention.ms=604800000"],
            ["--describe", "--topic", _] => &["PartitionCount: 24", "retention.ms=86400000"],
            _ => &["LAG", "update-priority-"],
        };
        for part in wanted {
            assert!(text.contains(part), "{words:?} does not print {part}: {text}");
        }
    }
    fleet.stop().await;
}
