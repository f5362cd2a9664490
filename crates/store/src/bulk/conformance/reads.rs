//! What cases read: counts, views of groups, batches and jobs, and pages of results.

use std::collections::BTreeSet;

use tidegate_core::bulk::Refusal;
use tidegate_core::bulk::views::*;

use super::harness::*;
use crate::bulk::{FoundJob, JobDetails};

impl Harness {
    pub async fn view(&self, query: Query) -> View {
        let view = self.call(query.clone()).await;
        view.unwrap_or_else(|refusal| panic!("{query:?} was refused: {refusal}"))
    }

    pub async fn stats(&self) -> BulkStats {
        match self.view(Query::BulkStats).await {
            View::BulkStats(stats) => stats,
            other => panic!("statistics were answered with {other:?}"),
        }
    }

    pub async fn counts(&self) -> StateCounts {
        self.stats().await.counts
    }

    pub async fn group(&self, name: &str) -> GroupView {
        match self.view(Query::Group(group(name))).await {
            View::Group(view) => view,
            other => panic!("a group was answered with {other:?}"),
        }
    }

    pub async fn batch(&self, group_name: &str, name: &str) -> BatchView {
        match self.view(Query::Batch(group(group_name), batch(name))).await {
            View::Batch(view) => view,
            other => panic!("a batch was answered with {other:?}"),
        }
    }

    /// The first batch of a group, for cases that leave its name to the store.
    pub async fn first_batch(&self, group: &str) -> BatchView {
        let name = self.group(group).await.batches[0].clone();
        self.batch(group, name.as_str()).await
    }

    pub async fn limit(&self, name: &str) -> LimitStatus {
        match self.view(Query::LimitStatus(group(name))).await {
            View::LimitStatus(status) => status,
            other => panic!("a limit was answered with {other:?}"),
        }
    }

    pub async fn congestion(&self, name: &str) -> CongestionState {
        match self.view(Query::Congestion(group(name))).await {
            View::Congestion(state) => state,
            other => panic!("congestion was answered with {other:?}"),
        }
    }

    pub async fn find_job(&self, group_name: &str, id: &str) -> Result<JobDetails, Refusal> {
        self.store
            .job(&group(group_name), &job_id(id))
            .await
            .unwrap_or_else(|error| panic!("the store failed: {error}"))
    }

    pub async fn job(&self, group: &str, id: &str) -> JobDetails {
        let found = self.find_job(group, id).await;
        found.unwrap_or_else(|refusal| panic!("job {group}/{id} is not there: {refusal}"))
    }

    /// One page of dead jobs.
    pub async fn dead_page(&self, filter: &DeadFilter, after: Option<Cursor>, max: u32) -> Page<FoundJob> {
        self.store
            .dead(filter, after, max)
            .await
            .unwrap_or_else(|error| panic!("the store failed: {error}"))
    }

    /// All matching dead jobs, page by page; none occurs twice.
    pub async fn dead(&self, filter: &DeadFilter, max: u32) -> Vec<FoundJob> {
        let (mut all, mut after) = (Vec::new(), None);
        let mut seen = BTreeSet::new();
        loop {
            let page = self.dead_page(filter, after, max).await;
            let len = page.items.len();
            assert!(len <= max.max(1) as usize, "{len} on a page of {max}");
            for dead in page.items {
                let seq = dead.details.view.seq;
                assert!(seen.insert(seq), "{seq:?} is shown twice");
                all.push(dead);
            }
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    }

    pub async fn results(
        &self,
        group_name: &str,
        batch_name: &str,
        after: Option<Cursor>,
        max: u32,
    ) -> Page<JobDetails> {
        self.store
            .results(&group(group_name), &batch(batch_name), after, max)
            .await
            .unwrap_or_else(|error| panic!("the store failed: {error}"))
            .unwrap_or_else(|refusal| panic!("results of {group_name}/{batch_name} were refused: {refusal}"))
    }
}
