//! Jobs listed over the whole store, with filters.

use std::collections::BTreeSet;

use tidegate_core::bulk::listing::{MAX_INSPECTIONS, MAX_PAGE};
use tidegate_core::bulk::views::{Cursor, JobFilter, Page};
use tidegate_core::bulk::{JobState, NewJob};
use tidegate_core::time::Millis;

use super::harness::*;
use crate::bulk::FoundJob;

impl Harness {
    async fn jobs_page(&self, filter: &JobFilter, after: Option<Cursor>, max: u32) -> Page<FoundJob> {
        self.store
            .jobs(filter, after, max)
            .await
            .unwrap_or_else(|error| panic!("the store failed: {error}"))
    }

    /// All matching jobs, page by page; none occurs twice.
    async fn listed(&self, filter: &JobFilter, max: u32) -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), None);
        let mut seen = BTreeSet::new();
        loop {
            let page = self.jobs_page(filter, after, max).await;
            assert!(page.items.len() <= max as usize, "{}", page.items.len());
            for found in page.items {
                assert!(
                    seen.insert(found.details.view.seq),
                    "{:?} is shown twice",
                    found.details.id
                );
                all.push(found.details.id.to_string());
            }
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

fn of_group(name: &str) -> JobFilter {
    JobFilter {
        group: Some(group(name)),
        ..JobFilter::default()
    }
}

fn in_state(state: JobState) -> JobFilter {
    JobFilter {
        state: Some(state),
        ..JobFilter::default()
    }
}

pub async fn jobs_are_listed_in_the_order_of_arrival(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    assert_eq!(q.listed(&JobFilter::default(), 10).await, Vec::<String>::new());
    q.enqueue_to("A", "one", jobs("A", 5)).await;
    q.enqueue_to("A", "two", vec![job("x"), job("y")]).await;
    q.enqueue_to("A", "one", vec![job("late")]).await;
    for max in [1, 2, 3, 100] {
        assert_eq!(
            q.listed(&of_group("A"), max).await,
            ["A-0", "A-1", "A-2", "A-3", "A-4", "late", "x", "y"]
        );
    }
    let found = q.jobs_page(&of_group("A"), None, 1).await.items.remove(0);
    assert_eq!(found.group, group("A"));
    assert_eq!(found.details, q.job("A", "A-0").await);
}

pub async fn every_group_is_listed(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for name in ["A", "B", "C", "D"] {
        q.enqueue_n(name, 2).await;
    }
    let all = ["A-0", "A-1", "B-0", "B-1", "C-0", "C-1", "D-0", "D-1"];
    for max in [1, 3, 100] {
        assert_eq!(sorted(q.listed(&JobFilter::default(), max).await), all);
    }
    assert_eq!(q.listed(&of_group("nobody"), 10).await, Vec::<String>::new());
}

pub async fn a_filter_chooses_jobs(backend: &dyn Backend) {
    let q = Harness::with(backend, |config| {
        let mail = config.job_types.entry(kind("mail")).or_default();
        mail.queue = Some(queue("post"));
    })
    .await;
    q.enqueue_to("A", "one", of_kind("mail", vec![job("a"), job("b")]))
        .await;
    q.advance(10_000);
    q.enqueue_to("A", "two", vec![job("c")]).await;
    let later = NewJob {
        run_at: Some(q.now() + Millis(60_000)),
        ..job("d")
    };
    q.enqueue_to("B", "one", vec![later]).await;
    let running = q.lease_in("post", 1).await.jobs;
    let default = JobFilter::default;
    for (filter, expected) in [
        (of_group("A"), &["a", "b", "c"][..]),
        (
            JobFilter {
                batch: Some(batch("two")),
                ..of_group("A")
            },
            &["c"],
        ),
        (
            JobFilter {
                batch: Some(batch("three")),
                ..of_group("A")
            },
            &[],
        ),
        (
            JobFilter {
                queue: Some(queue("post")),
                ..default()
            },
            &["a", "b"],
        ),
        (
            JobFilter {
                kind: Some(kind("test")),
                ..default()
            },
            &["c", "d"],
        ),
        (in_state(JobState::Delayed), &["d"]),
        (in_state(JobState::Running), &[running[0].id.as_str()]),
        (in_state(JobState::Dead), &[]),
        (
            JobFilter {
                created_after: Some(START + Millis(10_000)),
                ..default()
            },
            &["c", "d"],
        ),
        (
            JobFilter {
                created_before: Some(START + Millis(10_000)),
                ..default()
            },
            &["a", "b"],
        ),
        (
            JobFilter {
                created_after: Some(START + Millis(10_000)),
                state: Some(JobState::Waiting),
                ..default()
            },
            &["c"],
        ),
    ] {
        for max in [1, 100] {
            assert_eq!(sorted(q.listed(&filter, max).await), expected, "{filter:?}");
        }
    }
}

pub async fn a_listing_goes_on_although_jobs_are_gone(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "one", jobs("A", 6)).await;
    let first = q.jobs_page(&of_group("A"), None, 3).await;
    assert_eq!(first.items.len(), 3);
    // The last listed job, and those around it, are dropped; others take their places in memory.
    let jobs = q.take_all(4).await;
    q.settle_all(&jobs, failed("no")).await;
    for id in ["A-1", "A-2", "A-3"] {
        q.purge("A", id).await.expect("it is dead");
    }
    q.enqueue_to("A", "one", vec![job("x"), job("y"), job("z")]).await;
    let mut rest = Vec::new();
    let mut after = first.next;
    while after.is_some() {
        let page = q.jobs_page(&of_group("A"), after, 2).await;
        rest.extend(page.items.into_iter().map(|found| found.details.id.to_string()));
        after = page.next;
    }
    assert_eq!(rest, ["A-4", "A-5", "x", "y", "z"]);
}

pub async fn a_listing_inspects_a_bounded_number_of_jobs(backend: &dyn Backend) {
    let q = Harness::with(backend, |config| config.limits.max_enqueue_batch = 100_000).await;
    let many = MAX_INSPECTIONS as usize + 500;
    q.enqueue("A", jobs("A", many)).await;
    let later = NewJob {
        run_at: Some(q.now() + Millis(60_000)),
        ..job("last")
    };
    q.enqueue("A", vec![later]).await;
    let delayed = in_state(JobState::Delayed);
    let first = q.jobs_page(&delayed, None, 10).await;
    assert!(first.next.is_some() && first.items.is_empty(), "it stops in time");
    assert_eq!(q.listed(&delayed, 10).await, ["last"]);
    let page = q.jobs_page(&of_group("A"), None, u32::MAX).await;
    assert!(page.items.len() <= MAX_PAGE as usize);
}
