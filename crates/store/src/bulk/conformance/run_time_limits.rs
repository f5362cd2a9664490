//! Rates changed at run time: they take effect at once, no window is overrun, and the history shows who did it.

use std::collections::BTreeMap;

use tidegate_core::bulk::views::*;
use tidegate_core::bulk::{
    AdmitParams, ConfigureLimitsParams, ExpireLeasesParams, LimitSetting, MAX_QUEUES_SET, QueueLimits,
    Refusal, Set, SetQueueLimits, Stop,
};
use tidegate_core::limits::quota::Quota;
use tidegate_core::time::Millis;

use super::harness::*;
use super::queues::mail_queue;

fn change(global_rps: Set<f64>, queues: &[(&str, Set<f64>)]) -> ConfigureLimitsParams {
    ConfigureLimitsParams {
        global_rps: global_rps.map(Quota::from),
        queues: queues
            .iter()
            .map(|&(name, rate)| (queue(name), SetQueueLimits::rate(rate.map(Quota::from))))
            .collect(),
        by: "Ada".to_owned(),
        why: "the downstream asked for it".to_owned(),
        ..ConfigureLimitsParams::default()
    }
}

async fn set(q: &Harness, params: ConfigureLimitsParams) {
    q.call(params)
        .await
        .unwrap_or_else(|refusal| panic!("changing the limits was refused: {refusal}"));
}

pub(super) async fn set_global(q: &Harness, rps: f64) {
    set(q, change(Set::To(rps), &[])).await;
}

async fn set_queue(q: &Harness, name: &str, rps: f64) {
    set(q, change(Set::Keep, &[(name, Set::To(rps))])).await;
}

async fn limits(q: &Harness) -> LimitsView {
    match q.view(Query::Limits).await {
        View::Limits(view) => view,
        other => panic!("limits were answered with {other:?}"),
    }
}

async fn queues(q: &Harness) -> BTreeMap<String, QueueView> {
    match q.view(Query::Queues).await {
        View::Queues(all) => all
            .into_iter()
            .map(|queue| (queue.id.to_string(), queue))
            .collect(),
        other => panic!("queues were answered with {other:?}"),
    }
}

pub async fn a_raised_limit_holds_at_once(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 5.0).await;
    q.enqueue_n("A", 10).await;
    q.enqueue_n("B", 10).await;
    assert_eq!(q.take(20).await.len(), 5);
    set_global(&q, 8.0).await;
    assert_eq!(q.take(20).await.len(), 3, "what the window has more");
    let stop = q.lease(20).await.stop;
    let until = START + Millis(1_000);
    assert_eq!(stop, Stop::Limited { until });
    q.next_window();
    assert_eq!(q.take(20).await.len(), 8);
}

pub async fn a_lowered_limit_holds_at_once(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 15).await;
    q.enqueue_n("B", 15).await;
    assert_eq!(q.take(6).await.len(), 6);
    set_global(&q, 4.0).await;
    assert!(q.take(20).await.is_empty(), "six of four have started");
    q.next_window();
    assert_eq!(q.take(20).await.len(), 4);
    set_global(&q, 5.0).await;
    assert_eq!(q.take(20).await.len(), 1);
}

pub async fn no_window_has_more_starts_than_the_largest_of_its_limits(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 6.0).await;
    q.enqueue_n("A", 100).await;
    q.enqueue_n("B", 100).await;
    for _ in 0..3 {
        let mut started = 0;
        for (rps, most) in [(6.0, 6), (2.0, 6), (9.0, 9), (1.0, 9), (7.0, 9), (9.0, 9)] {
            set_global(&q, rps).await;
            started += q.take(50).await.len();
            assert_eq!(started, most, "at {rps}");
        }
        q.next_window();
    }
    assert_eq!(q.stats().await.most_started_per_window, 9);
}

pub async fn what_ready_was_promised_waits_under_a_lower_limit(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 20).await;
    assert_eq!(q.admit(10, 20).await.admitted.len(), 10);
    set_global(&q, 3.0).await;
    assert_eq!(ids(&q.take(10).await), ["A-0", "A-1", "A-2"]);
    assert!(q.admit(10, 20).await.admitted.is_empty(), "ready has enough");
    q.next_window();
    assert!(q.admit(10, 20).await.admitted.is_empty());
    assert_eq!(ids(&q.take(10).await), ["A-3", "A-4", "A-5"]);
    assert_eq!(q.counts().await.ready, 4);
    set_global(&q, 10.0).await;
    assert_eq!(q.take(10).await.len(), 7, "all of ready, and the next ones");
}

pub async fn a_queue_gets_another_rate(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        mail_queue(c, Some(3.0));
    })
    .await;
    q.enqueue("A", of_kind("mail", jobs("A", 50))).await;
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 3);
    set_queue(&q, "mail", 5.0).await;
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 2);
    set_queue(&q, "mail", 2.0).await;
    assert!(q.lease_in("mail", 20).await.jobs.is_empty());
    q.next_window();
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 2);
    set(&q, change(Set::Keep, &[("mail", Set::Reset)])).await;
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 1, "three, as configured");
    let limits = limits(&q).await;
    let rates: Vec<_> = limits
        .changes
        .iter()
        .map(|change| {
            let queue = change.queue.as_ref().map(ToString::to_string);
            (queue, change.from.clone(), change.to.clone())
        })
        .collect();
    let mail = |from: &str, to: &str| {
        let text = |text: &str| Some(text.to_owned());
        (text("mail"), text(from), text(to))
    };
    assert_eq!(
        rates,
        [mail("3/s", "5/s"), mail("5/s", "2/s"), mail("2/s", "3/s")]
    );
    assert_eq!(limits.queues, []);
}

pub async fn a_queue_without_a_rate_follows_the_whole_system(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 4.0.into();
        mail_queue(c, None);
    })
    .await;
    q.enqueue("A", of_kind("mail", jobs("A", 50))).await;
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 4);
    set_global(&q, 9.0).await;
    assert_eq!(q.lease_in("mail", 20).await.jobs.len(), 5);
    assert_eq!(queues(&q).await["mail"].configured_rps, 9.0);
    set_queue(&q, "mail", 2.5).await;
    set_global(&q, 20.0).await;
    let mail = &queues(&q).await["mail"];
    assert_eq!(
        (mail.configured_rps, mail.rps),
        (2.5, 2.5),
        "it has one of its own"
    );
}

pub async fn a_queue_that_nobody_has_heard_of_may_have_a_rate(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        mail_queue(c, None);
    })
    .await;
    set(
        &q,
        change(Set::Keep, &[("mail", Set::To(2.0)), ("later", Set::To(1.5))]),
    )
    .await;
    q.enqueue("A", of_kind("mail", jobs("A", 10))).await;
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 2);
    let all = queues(&q).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["later", "mail"]);
    assert_eq!(all["later"].rps, 1.5);
    let rate = |name: &str, rps| {
        let limits = QueueLimits {
            rate: Some(Quota::from(rps)),
            ..QueueLimits::default()
        };
        (queue(name), limits)
    };
    assert_eq!(limits(&q).await.queues, [rate("later", 1.5), rate("mail", 2.0)]);
}

pub async fn a_rate_that_was_cut_stays_cut(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 100.0.into();
        c.congestion.adaptive = true;
    })
    .await;
    q.enqueue_n("A", 50).await;
    let started = q.take_all(21).await;
    q.settle_all(&started[..20], done()).await;
    q.settle(&started[20], throttled()).await;
    let cut = queues(&q).await["default"].rps;
    if q.shards > 1 {
        // The other shards are as fast as before.
        return;
    }
    assert!(cut < 20.0, "{cut}");
    set_queue(&q, "default", 200.0).await;
    let default = &queues(&q).await["default"];
    assert_eq!((default.configured_rps, default.rps), (200.0, cut));
    assert_eq!(default.last_cut_at, Some(START));
    set_queue(&q, "default", 3.0).await;
    let default = &queues(&q).await["default"];
    assert_eq!((default.configured_rps, default.rps), (3.0, 3.0));
}

pub async fn looking_at_queues_changes_nothing(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 100.0.into();
        mail_queue(c, Some(7.0));
    })
    .await;
    assert_eq!(queues(&q).await.keys().collect::<Vec<_>>(), ["mail"]);
    q.enqueue_n("A", 10).await;
    q.enqueue_n("B", 10).await;
    q.admit(4, 10).await;
    q.take_all(2).await;
    let all = queues(&q).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["default", "mail"]);
    let expected = QueueView {
        id: queue("default"),
        configured_rps: 100.0,
        rps: 100.0,
        running: 2,
        max_running: None,
        started: 2,
        ready: 2,
        groups_waiting: 2,
        last_cut_at: None,
        held_until: None,
    };
    assert_eq!(all["default"], expected);
    assert_eq!((all["mail"].configured_rps, all["mail"].rps), (7.0, 7.0));
    assert_eq!(queues(&q).await, all);
    q.next_window();
    assert_eq!(queues(&q).await["default"].started, 0);
}

/// A store whose queue `mail` runs at most three jobs at once. A store with several shards refuses that.
async fn three_at_once(backend: &dyn Backend) -> Option<Harness> {
    let opened = Harness::try_with(backend, |c| {
        mail_queue(c, None);
        c.queues.entry(queue("mail")).or_default().max_running = Some(3);
    })
    .await;
    match opened {
        Ok(store) if backend.shards() == 1 => Some(store),
        Err(refused) if backend.shards() > 1 => {
            let refused = refused.to_string();
            assert!(refused.contains("only a store with one shard"), "{refused}");
            None
        }
        Ok(_) => panic!("nobody counts the running jobs of all shards"),
        Err(error) => panic!("the store does not open: {error}"),
    }
}

pub async fn a_queue_runs_at_most_so_many_jobs(backend: &dyn Backend) {
    let Some(q) = three_at_once(backend).await else {
        return;
    };
    q.enqueue("A", of_kind("mail", jobs("A", 20))).await;
    q.enqueue("B", of_kind("mail", jobs("B", 20))).await;
    q.enqueue_n("C", 1).await;
    let first = q.lease_in("mail", 10).await;
    assert_eq!((first.jobs.len(), first.stop), (3, Stop::Busy));
    assert_eq!(q.take(10).await.len(), 1, "other queues are free");
    q.next_window();
    assert_eq!(q.lease_in("mail", 10).await.stop, Stop::Busy);
    q.settle(&first.jobs[0], done()).await;
    let next = q.lease_in("mail", 10).await;
    assert_eq!((next.jobs.len(), next.stop), (1, Stop::Busy));

    let of_mail = |most| ConfigureLimitsParams {
        queues: vec![(queue("mail"), SetQueueLimits::max_running(most))],
        ..change(Set::Keep, &[])
    };
    set(&q, of_mail(Set::To(5))).await;
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 2);
    set(&q, of_mail(Set::To(1))).await;
    q.settle(&first.jobs[1], done()).await;
    assert_eq!(q.lease_in("mail", 10).await.stop, Stop::Busy, "four run, one may");
    let view = limits(&q).await;
    let one = QueueLimits {
        max_running: Some(1),
        ..QueueLimits::default()
    };
    assert_eq!(view.queues, [(queue("mail"), one)]);
    let seen: Vec<_> = view
        .changes
        .into_iter()
        .map(|c| (c.setting, c.from, c.to))
        .collect();
    let most = LimitSetting::MaxRunning;
    let number = |n: u32| Some(n.to_string());
    assert_eq!(seen, [(most, number(3), number(5)), (most, number(5), number(1))]);
    let mail = &queues(&q).await["mail"];
    assert_eq!((mail.running, mail.max_running), (4, Some(1)));
    set(&q, of_mail(Set::Reset)).await;
    assert_eq!(limits(&q).await.queues, []);
    // Leases that run out free their places, too.
    q.advance(3_600_000);
    q.call(ExpireLeasesParams { max: 100 }).await;
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 3);
}

pub async fn ready_jobs_count_as_running_soon(backend: &dyn Backend) {
    let Some(q) = three_at_once(backend).await else {
        return;
    };
    q.enqueue("A", of_kind("mail", jobs("A", 20))).await;
    let one = q.lease_in("mail", 1).await.jobs;
    let params = AdmitParams {
        queue: queue("mail"),
        max: 10,
        ready_cap: 10,
    };
    assert_eq!(q.call(params.clone()).await.admitted.len(), 2);
    assert!(q.call(params.clone()).await.admitted.is_empty());
    assert_eq!(q.lease_in("mail", 10).await.jobs.len(), 2);
    q.settle(&one[0], done()).await;
    assert_eq!(q.call(params).await.admitted.len(), 1);
}

pub async fn a_reset_goes_back_to_the_configuration(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 5.0).await;
    q.enqueue_n("A", 30).await;
    set_global(&q, 2.0).await;
    assert_eq!(q.take(20).await.len(), 2);
    set(&q, change(Set::Reset, &[])).await;
    assert_eq!(q.take(20).await.len(), 3);
    let limits = limits(&q).await;
    let five = Quota::from(5.0);
    assert_eq!((limits.global_rps, limits.configured_global_rps), (five, five));
    assert_eq!((limits.limit_per_window, limits.window_ms), (5, Millis(1_000)));
}

pub async fn it_is_known_who_changed_a_limit(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    assert_eq!(limits(&q).await.changes, []);
    set_global(&q, 12.5).await;
    q.advance(250);
    // Nothing that does not exist yet.
    set_global(&q, 12.5).await;
    set(&q, change(Set::Keep, &[("default", Set::Reset)])).await;
    let both = change(Set::To(0.1 * 200.0), &[("default", Set::To(7.0))]);
    set(&q, both).await;
    let change = |at: u64, of: Option<&str>, from: &str, to: &str| LimitChange {
        at: START + Millis(at),
        by: "Ada".to_owned(),
        why: "the downstream asked for it".to_owned(),
        queue: of.map(queue),
        setting: LimitSetting::Rate,
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
    };
    let view = limits(&q).await;
    assert_eq!(
        view.changes,
        [
            change(0, None, "10/s", "12.5/s"),
            change(250, None, "12.5/s", "20/s"),
            change(250, Some("default"), "12.5/s", "7/s"),
        ]
    );
    assert_eq!((view.global_rps, view.limit_per_window), (20.0.into(), 20));
    for i in 0..110 {
        set_global(&q, f64::from(i) + 1.3).await;
    }
    let changes = limits(&q).await.changes;
    assert_eq!(changes.len(), 100, "the latest ones");
    assert_eq!(changes[99].to.as_deref(), Some("110.3/s"));
    assert_eq!(changes[0].to.as_deref(), Some("11.3/s"));
}

pub async fn a_rate_that_cannot_work_is_refused(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.rate_limit_window_sec = 0.5;
    })
    .await;
    let before = limits(&q).await;
    let refused = |params: ConfigureLimitsParams| {
        let q = &q;
        async move { q.call(params).await.expect_err("it is refused").to_string() }
    };
    for (rps, text) in [
        (
            f64::NAN,
            "global_rps = NaN/s: it must be from 0.00001/s to 1000000000/s",
        ),
        (-1.0, "global_rps = -1/s: it must be from 0.00001"),
        (2e9, "global_rps = 2000000000/s: it must be from 0.00001/s to"),
        (0.0, "global_rps = 0/s: it must be from 0.00001"),
    ] {
        let said = refused(change(Set::To(rps), &[])).await;
        assert!(said.contains(text), "{said:?} should contain {text:?}");
    }
    let of_queue = change(Set::To(5.0), &[("mail", Set::To(0.0))]);
    let said = refused(of_queue).await;
    assert!(
        said.contains("queue \"mail\" = 0/s: it must be from 0.00001"),
        "{said}"
    );
    let twice = change(Set::Keep, &[("mail", Set::To(1.0)), ("mail", Set::Reset)]);
    let said = refused(twice).await;
    assert!(said.contains("queue \"mail\" is named twice"), "{said}");
    let long = ConfigureLimitsParams {
        by: "é".repeat(129),
        ..change(Set::To(5.0), &[])
    };
    let said = refused(long).await;
    assert!(
        said.contains("by has 258 bytes; at most 256 are allowed"),
        "{said}"
    );
    let names: Vec<String> = (0..=MAX_QUEUES_SET).map(|i| format!("queue-{i}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), Set::To(1.0))).collect();
    let answer = q.call(change(Set::Keep, &many)).await;
    assert!(
        matches!(answer, Err(Refusal::TooManyQueues { max: 256 })),
        "{answer:?}"
    );
    assert_eq!(limits(&q).await, before, "nothing was changed");
    let empty = ConfigureLimitsParams {
        by: String::new(),
        why: "x".repeat(256),
        ..change(Set::To(2.0), &[])
    };
    set(&q, empty).await;
    assert_eq!(limits(&q).await.limit_per_window, 1);
}

pub async fn a_strict_share_rises_with_the_limit(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.backpressure.global_rps = 10.0.into();
        c.backpressure.strict_share = true;
    })
    .await;
    q.enqueue_n("A", 30).await;
    q.enqueue_sleeper("B").await;
    assert_eq!(q.take(20).await.len(), 5);
    assert!(q.take(20).await.is_empty());
    set_global(&q, 16.0).await;
    assert_eq!(q.take(20).await.len(), 3, "eight of sixteen");
}

pub async fn answers_follow_the_limit_in_effect(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 10.0).await;
    q.enqueue_n("A", 40).await;
    q.enqueue_sleeper("B").await;
    set_global(&q, 20.0).await;
    let status = q.limit("A").await;
    assert_eq!((status.global_limit, status.per_group_limit), (20, 10));
    assert_eq!(q.stats().await.limit_per_window, 20);
    assert_eq!(q.congestion("A").await.rate_limit_speed, 10);
}

pub async fn a_raised_limit_signals_for_work(backend: &dyn Backend) {
    let q = Harness::at_rate(backend, 2.0).await;
    q.enqueue_n("A", 5).await;
    q.take_all(2).await;
    let signals = q.store.notifier();
    let mut work = Box::pin(signals.work.notified());
    work.as_mut().enable();
    set_global(&q, 3.0).await;
    assert!(work.as_mut().enable(), "one more may start");
    let mut work = Box::pin(signals.work.notified());
    work.as_mut().enable();
    set_queue(&q, "default", 4.0).await;
    assert!(work.as_mut().enable(), "a queue's rate signals as well");
}
