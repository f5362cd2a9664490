//! A purge whose reply was lost happens once, and its retry reports success.

use bytes::Bytes;
use tidegate_core::bulk::*;
use tidegate_core::ids::{GroupId, JobId, JobType, Owner};
use tidegate_store::bulk::{BulkStore, BulkStoreExt, RedisBulkOptions, RedisBulkStore};
use tidegate_testkit::servers::{Proxy, RedisServer};

async fn purge(store: &RedisBulkStore, job: &JobId) -> Result<(), Refusal> {
    let params = PurgeParams {
        group: GroupId::new("A").unwrap(),
        job: job.clone(),
    };
    store.call(params).await.unwrap()
}

#[tokio::test]
async fn a_purge_whose_answer_got_lost_is_not_refused() {
    let proxy = Proxy::start(RedisServer::shared().port()).unwrap();
    let store = RedisBulkStore::open(RedisBulkOptions {
        prefix: "purge:".to_owned(),
        ..RedisBulkOptions::new(proxy.url())
    })
    .await
    .unwrap();
    let id = JobId::new("letter").unwrap();
    let enqueue = EnqueueParams {
        group: GroupId::new("A").unwrap(),
        batch: None,
        base_priority: None,
        jobs: vec![NewJob {
            id: id.clone(),
            kind: JobType::new("mail").unwrap(),
            priority: Priority::Normal,
            payload: Bytes::new(),
            run_at: None,
            expires_at: None,
            cost: 1,
        }],
    };
    store.call(enqueue).await.unwrap().unwrap();
    let params = LeaseParams {
        queue: default_queue(),
        max: 1,
        owner: Owner::new("worker").unwrap(),
    };
    let leased = store.lease(params).await.unwrap().jobs.remove(0);
    let answers = vec![Settlement {
        lease: leased.leased.lease,
        outcome: JobOutcome::Failed { error: "no".into() },
        cost: None,
    }];
    store.call(SettleParams { answers }).await.unwrap();

    proxy.drop_next_reply();
    assert_eq!(purge(&store, &id).await, Ok(()));
    assert_eq!(proxy.dropped_replies(), 1);
    let again = purge(&store, &id).await;
    assert!(
        matches!(again, Err(Refusal::UnknownJob { .. })),
        "another call: {again:?}"
    );
}
