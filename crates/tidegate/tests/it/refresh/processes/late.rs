//! What arrives late at the provider, and whose doing that is.
//!
//! A token is valid for 50 ms, from before it was asked for until the call is handed to the system for sending; a call
//! whose connection is not there by then is not sent. So in any second no more calls leave than the provider allows,
//! whatever stalls before that: the store, the process, the making of connections.
//!
//! Limit: what happens to a call that was sent is in nobody's hand who sends. A network, a proxy or the provider's own
//! system may take calls, hold them, and deliver them together with those that come later. What can be said is how many:
//! those that are on their way and not answered, which is at most what the processes work on at once
//! (`refresh.work.high_in_flight` and `low_in_flight`, in each). Who has such a network sets those low.

use super::fleet::{Behind, Fleet, assert_within, budget, small, turn};
use crate::support::served::until;

const CALLS: usize = 1_500;

/// Tokens that were handed out to HIGH, and calls that were made with them and have ended.
async fn tokens(fleet: &Fleet) -> (u64, u64) {
    let counters = fleet.overview(0).await["counters"].take();
    let of = |name: &str| counters[name]["high"].as_u64().unwrap();
    (of("tokensAcquired"), of("attempts"))
}

/// So many HIGH events are worked on at once, and nothing else is.
fn at_once(high: usize) -> String {
    budget("") + &format!("[refresh.prefetch]\ntick_ms = 3600000\n[refresh.work]\nhigh_in_flight = {high}\n")
}

fn keys(name: &str) -> Vec<String> {
    (0..CALLS).map(|n| format!("{name}{n}")).collect()
}

/// All connections are answered at the same time, long after they were wanted; nothing is sent on them that had its turn
/// before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_accepts_late_is_not_called_by_all_who_waited() {
    const WAITING: usize = 800;
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.accepting = false;
        settings.backlog = 1;
    });
    let fleet = Fleet::start(Behind::Embedded, 1, upstream, &at_once(WAITING)).await;
    fleet.ask_for_all(0, &keys("k")).await;
    until("all hands wait for connections", || async {
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
    let (report, (handed_out, made)) = (fleet.upstream.report(), tokens(&fleet).await);
    println!(
        "{WAITING} waited for a connection; {} of {handed_out} tokens were void before there was one; {} calls arrived, most \
         in a second {}, by second {:?}",
        handed_out - made,
        report.calls,
        report.max_in_second,
        report.seconds
    );
    assert!(
        handed_out - made >= WAITING as u64 / 2,
        "connections were not late"
    );
    assert_within(&report, 500, 450);
    fleet.stop().await;
}

/// Where calls are sent, and where they arrive. Those that are held arrive together, and with those that come then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_holds_calls_delivers_no_more_than_were_on_their_way() {
    const IN_FLIGHT: u32 = 150;
    let _turn = turn().await;
    let fleet = Fleet::start(Behind::Embedded, 1, small(|_| {}), &at_once(IN_FLIGHT as usize)).await;
    for (round, name) in [(1, "a"), (2, "b")] {
        fleet.hold(true);
        fleet.ask_for_all(0, &keys(name)).await;
        until("everything is on its way", || async {
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
    // Whatever stands still, whoever counts: what is on its way when a second begins, and what is sent in it.
    assert!(arrived <= 500 + IN_FLIGHT, "{arrived} in a second");
    fleet.stop().await;
}
