//! Drains a store, and records everything that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_core::bulk::views::{DeadFilter, Query, View};
use tidegate_core::bulk::*;
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{GroupId, Owner};
use tidegate_core::time::Millis;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, FoundJob};

use super::content::{Batch, Content, Job};
use super::rich::{batch, done, group, lease, queues, settle};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Account {
    /// In the order of their starts.
    pub(crate) started: Vec<Job>,
    /// How often each batch was claimed for aggregation, with its counts.
    pub(crate) folded: BTreeMap<Batch, (u32, BatchCounts)>,
}

impl Account {
    pub(crate) fn runs(&self) -> BTreeMap<&Job, u32> {
        let mut runs = BTreeMap::new();
        for job in &self.started {
            *runs.entry(job).or_default() += 1;
        }
        runs
    }
}

async fn resume(store: &dyn BulkStore, content: &Content) {
    for (id, record) in &content.groups {
        if record.paused {
            let scope = Scope::Group(group(id));
            store.call(ResumeParams { scope }).await.unwrap().unwrap();
        }
    }
    for ((of, id), record) in &content.batches {
        if record.paused {
            let scope = Scope::Batch(group(of), batch(id));
            store.call(ResumeParams { scope }).await.unwrap().unwrap();
        }
    }
}

async fn seal_all(store: &dyn BulkStore, content: &Content) {
    for ((of, id), record) in &content.batches {
        if !record.sealed {
            super::rich::seal(store, of, id).await;
        }
    }
}

async fn watch(store: &dyn BulkStore, account: &mut Account) {
    let claims = store
        .call(ClaimAggregationParams {
            owner: Owner::new("aggregator").unwrap(),
            max: 100,
            claim_for: Millis(1_000_000),
        })
        .await
        .unwrap();
    for claim in claims {
        let name = (claim.group.as_str().to_owned(), claim.batch.as_str().to_owned());
        let entry = account.folded.entry(name).or_default();
        *entry = (entry.0 + 1, claim.counts);
        if claim.finished.is_none() {
            let finish = FinishAggregationParams {
                group: claim.group.clone(),
                batch: claim.batch.clone(),
                claim: claim.claim,
                summary: Ok("folded".into()),
            };
            store.call(finish).await.unwrap().unwrap();
        }
        let confirm = ConfirmCompletionParams {
            group: claim.group,
            batch: claim.batch,
        };
        store.call(confirm).await.unwrap().unwrap();
    }
}

/// 100 s pass, second by second; what is paused resumes after 20.
pub(crate) async fn drain(store: &dyn BulkStore, clock: &Arc<ManualClock>, content: &Content) -> Account {
    let mut account = Account::default();
    for second in 0..100 {
        clock.advance(Millis(1_000));
        store.call(ReleaseDueParams { max: 1_000 }).await.unwrap();
        store.call(ExpireLeasesParams { max: 1_000 }).await.unwrap();
        if second == 20 {
            resume(store, content).await;
            seal_all(store, content).await;
        }
        for queue in queues() {
            for job in lease(store, &queue, 7).await {
                let name = (job.leased.group.as_str().to_owned(), job.id.as_str().to_owned());
                let payload = &content.jobs[&name].1.payload;
                assert_eq!(&job.payload, payload, "{name:?}");
                let settled = settle(store, job.leased.lease, done("drained")).await;
                assert!(
                    matches!(settled, Settled::Completed { .. }),
                    "{name:?}: {settled:?}"
                );
                account.started.push(name);
            }
        }
        watch(store, &mut account).await;
    }
    account
}

pub(crate) async fn counts(store: &dyn BulkStore, name: &Batch) -> BatchCounts {
    let query = Query::Batch(group(&name.0), batch(&name.1));
    match store.call(query).await.unwrap().unwrap() {
        View::Batch(view) => view.counts,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn states(store: &dyn BulkStore, of: &GroupId) -> views::GroupView {
    match store.call(Query::Group(of.clone())).await.unwrap().unwrap() {
        View::Group(view) => view,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn stats(store: &dyn BulkStore) -> views::BulkStats {
    match store.call(Query::BulkStats).await.unwrap().unwrap() {
        View::BulkStats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn congestion(store: &dyn BulkStore, of: &GroupId) -> views::CongestionState {
    match store.call(Query::Congestion(of.clone())).await.unwrap().unwrap() {
        View::Congestion(state) => state,
        other => panic!("{other:?}"),
    }
}

/// Every dead job that is listed.
pub(crate) async fn dead(store: &dyn BulkStore) -> BTreeSet<Job> {
    let (mut all, mut after) = (BTreeSet::new(), None);
    loop {
        let page = store.dead(&DeadFilter::default(), after, 3).await.unwrap();
        let name = |dead: FoundJob| (dead.group.to_string(), dead.details.id.to_string());
        all.extend(page.items.into_iter().map(name));
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}
