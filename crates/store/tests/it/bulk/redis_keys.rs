//! Keys as the servers of a Cluster see them: every key of a shard in one slot, and nothing left behind.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::*;
use tidegate_core::ids::{BatchId, GroupId, JobId, JobType, Owner};
use tidegate_core::limits::quota::Limit;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::bulk::{BulkStore, BulkStoreExt, RedisBulkOptions, RedisBulkStore};
use tidegate_testkit::servers::RedisCluster;

const GROUPS: usize = 12;

fn jobs(n: usize) -> Vec<NewJob> {
    (0..n)
        .map(|i| NewJob {
            id: JobId::new(format!("job-{i}")).unwrap(),
            kind: JobType::new("mail").unwrap(),
            priority: Priority::ALL[i % 3],
            payload: Bytes::from_static(b"hello"),
            run_at: (i % 7 == 3).then_some(Timestamp(1 << 50)),
            expires_at: (i % 5 == 4).then_some(Timestamp(1 << 50)),
            cost: 1,
        })
        .collect()
}

/// Every key under the prefix, with its slot.
fn keys(prefix: &str) -> Vec<(String, i64)> {
    let cluster = RedisCluster::shared();
    let mut found = Vec::new();
    for node in cluster.nodes() {
        for key in node.command(&["KEYS", &format!("{prefix}*")]).unwrap().texts() {
            let slot = node
                .command(&["CLUSTER", "KEYSLOT", &key])
                .unwrap()
                .int()
                .unwrap();
            found.push((key, slot));
        }
    }
    found
}

#[tokio::test]
async fn every_key_of_a_shard_is_in_one_slot() {
    let options = RedisBulkOptions {
        urls: RedisCluster::shared().urls(),
        shards: 3,
        prefix: "slots:".to_owned(),
        ..RedisBulkOptions::new("")
    };
    let store = RedisBulkStore::open(options).await.unwrap();
    let owner = Owner::new("worker").unwrap();
    for i in 0..GROUPS {
        let group = GroupId::new(format!("group {{{i}}}")).unwrap();
        let params = EnqueueParams {
            group: group.clone(),
            batch: Some(BatchId::new("spring").unwrap()),
            base_priority: None,
            jobs: jobs(20),
        };
        store.call(params).await.unwrap().unwrap();
        let limits = Some(GroupLimits {
            all: Limit::rate(3.0),
            queues: [(default_queue(), Limit::rate(2.0))].into(),
        });
        let configure = ConfigureGroupParams {
            group,
            base_priority: None,
            limits,
        };
        store.call(configure).await.unwrap().unwrap();
    }
    let admit = AdmitParams {
        queue: default_queue(),
        max: 10,
        ready_cap: 10,
    };
    store.call(admit).await.unwrap();
    let lease = LeaseParams {
        queue: default_queue(),
        max: 30,
        owner,
    };
    let leased = store.lease(lease).await.unwrap().jobs;
    assert!(leased.len() >= 20, "{} leased", leased.len());
    let outcomes = [
        JobOutcome::Completed {
            result: Bytes::from_static(b"fine"),
        },
        JobOutcome::Throttled {
            retry_after: None,
            scope: ThrottleScope::Queue,
        },
        JobOutcome::Failed { error: "no".into() },
        JobOutcome::Released,
    ];
    let answers = leased.iter().zip(outcomes.into_iter().cycle()).take(20);
    let answers = answers
        .map(|(job, outcome)| Settlement {
            lease: job.leased.lease,
            outcome,
            cost: None,
        })
        .collect();
    store.call(SettleParams { answers }).await.unwrap();
    store.call(SnapshotCongestionParams {}).await.unwrap();
    store.call(ReleaseDueParams { max: 100 }).await.unwrap();
    store.call(ExpireLeasesParams { max: 100 }).await.unwrap();
    let claim = ClaimAggregationParams {
        owner: Owner::new("aggregator").unwrap(),
        max: 10,
        claim_for: Millis(1_000),
    };
    store.call(claim).await.unwrap();

    let limits = ConfigureLimitsParams {
        global_rps: Set::To(5_000.0.into()),
        queues: vec![(default_queue(), SetQueueLimits::rate(Set::To(4_000.0.into())))],
        ..ConfigureLimitsParams::default()
    };
    store.call(limits).await.unwrap().unwrap();

    let mut slots: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for (key, slot) in keys("slots:") {
        let tag = key.strip_prefix("slots:{").and_then(|rest| rest.split_once('}'));
        let (tag, _) = tag.unwrap_or_else(|| panic!("{key} has no tag where it belongs"));
        slots.entry(tag.to_owned()).or_default().insert(slot);
    }
    assert_eq!(
        slots.keys().map(String::as_str).collect::<Vec<_>>(),
        ["0", "1", "2", "limit"]
    );
    assert!(slots.values().all(|slots| slots.len() == 1), "{slots:?}");

    let Ok(View::BulkStats(stats)) = store.call(Query::BulkStats).await.unwrap() else {
        panic!("statistics are answered with statistics");
    };
    assert_eq!(stats.groups_in_memory, GROUPS as u64);
    store.remove_all().await.unwrap();
    assert_eq!(keys("slots:"), [], "nothing is left behind");
}
