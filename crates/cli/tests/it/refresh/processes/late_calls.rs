//! Calls that arrive late at the provider, and who can prevent that.
//!
//! A token is valid for 50 ms, from before its request until the call is handed to the system for sending. A call
//! that has no connection by then is not sent. So no more calls leave in any second than the provider allows,
//! whatever stalls before that: the store, the process, the opening of connections.
//!
//! Limit: the sender cannot control a call that was sent. A network, a proxy or the provider's own system may hold
//! calls, and deliver them together with later ones. Their number is bounded by the calls in flight, which are at most
//! what the processes work on at once (`refresh.work.high_in_flight` and `low_in_flight`, in each). With such a
//! network, set those low.

use super::fleet::{Backends, Fleet, assert_within, budget, small, turn};
use crate::support::served::until;

const CALLS: usize = 1_500;

/// Tokens acquired for HIGH, and calls that were made with them and have ended.
async fn tokens(fleet: &Fleet) -> (u64, u64) {
    let counters = fleet.overview(0).await["counters"].take();
    let of = |name: &str| counters[name]["high"].as_u64().unwrap();
    (of("tokensAcquired"), of("attempts"))
}

/// Settings for this many concurrent HIGH refreshes, and nothing else.
fn at_once(high: usize) -> String {
    budget("") + &format!("[refresh.prefetch]\ntick_ms = 3600000\n[refresh.work]\nhigh_in_flight = {high}\n")
}

fn keys(name: &str) -> Vec<String> {
    (0..CALLS).map(|n| format!("{name}{n}")).collect()
}

/// The provider accepts all connections at the same time, long after they were requested. A call whose token has
/// expired by then is not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_accepts_late_is_not_called_with_expired_tokens() {
    const WAITING: usize = 800;
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.accepting = false;
        settings.backlog = 1;
    });
    let fleet = Fleet::start(Backends::Embedded, 1, upstream, &at_once(WAITING)).await;
    fleet.read_until_queued(0, &keys("k")).await;
    until("all workers wait for connections", || async {
        tokens(&fleet).await.0 >= WAITING as u64
    })
    .await;
    assert_eq!(fleet.upstream.report().calls, 0);
    fleet.upstream.set(|settings| settings.accepting = true).unwrap();
    fleet.calls_reach(CALLS as u64).await;
    until("all have ended", || async {
        tokens(&fleet).await.1 >= CALLS as u64
    })
    .await;
    let (report, (acquired, made)) = (fleet.upstream.report(), tokens(&fleet).await);
    println!(
        "{WAITING} waited for a connection; {} of {acquired} tokens expired before there was one; {} calls arrived, \
         most in a second {}, by second {:?}",
        acquired - made,
        report.calls,
        report.max_in_second,
        report.seconds
    );
    assert!(acquired - made >= WAITING as u64 / 2, "connections were not late");
    assert_within(&report, 500, 450);
    fleet.stop().await;
}

/// Counts calls where they are sent and where they arrive. Held calls arrive together, and with later ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_holds_calls_delivers_no_more_than_were_on_their_way() {
    const IN_FLIGHT: u32 = 150;
    let _turn = turn().await;
    let fleet = Fleet::start(Backends::Embedded, 1, small(|_| {}), &at_once(IN_FLIGHT as usize)).await;
    for (round, name) in [(1, "a"), (2, "b")] {
        fleet.hold(true);
        fleet.read_until_queued(0, &keys(name)).await;
        until("all calls are in flight", || async {
            fleet.held() >= u64::from(IN_FLIGHT)
        })
        .await;
        assert_eq!(fleet.held(), u64::from(IN_FLIGHT));
        fleet.hold(false);
        fleet.calls_reach(round * CALLS as u64).await;
    }
    let report = fleet.upstream.report();
    let (sent, arrived) = (report.busiest_sent.most(), report.max_in_second);
    println!(
        "{IN_FLIGHT} calls held and delivered at once, twice: most in a second {sent} where they are sent, {arrived} where \
         they arrive"
    );
    let most = report.busiest_sent.most_allowed(500, 450);
    assert!(
        sent <= most,
        "{sent} were sent in a second, not {most}: {:?}",
        report.busiest_sent
    );
    // At most the calls in flight when a second begins, and those sent in it.
    assert!(arrived <= 500 + IN_FLIGHT, "{arrived} in a second");
    fleet.stop().await;
}
