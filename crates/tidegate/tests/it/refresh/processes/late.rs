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

use tidegate_testkit::servers::Proxy;
use tidegate_upstream::Upstream;

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

fn keys() -> Vec<String> {
    (0..CALLS).map(|n| format!("k{n}")).collect()
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
    fleet.ask_for_all(0, &keys()).await;
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

/// The far end of a network that holds what it was given, and the near end of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_holds_calls_delivers_no_more_than_were_on_their_way() {
    const IN_FLIGHT: usize = 150;
    let _turn = turn().await;
    let upstream = Upstream::start(small(|_| {})).unwrap();
    let network = Proxy::start(upstream.address().port()).unwrap();
    let url = format!("http://127.0.0.1:{}", network.port());
    let fleet = Fleet::start_before(Behind::Embedded, 1, upstream, &url, &at_once(IN_FLIGHT)).await;
    fleet.ask_for_all(0, &keys()).await;
    let mut held = Vec::new();
    for wanted in [200, 700] {
        fleet.calls_reach(wanted).await;
        let before = fleet.upstream.report().calls;
        network.stall(true);
        until("everything is on its way", || async {
            network.sent() - fleet.upstream.report().calls >= IN_FLIGHT as u64
        })
        .await;
        held.push(network.sent() - before);
        network.stall(false);
    }
    fleet.calls_reach(CALLS as u64).await;
    let report = fleet.upstream.report();
    println!(
        "{held:?} calls held and delivered at once: most in a second {} where they are sent, {} where they arrive",
        network.most_sent_in_second(),
        report.max_in_second
    );
    let sent = network.most_sent_in_second() as u32;
    assert!(
        sent <= report.most_allowed(500, 450),
        "{sent} were sent in a second"
    );
    let most = report.most_allowed(500 + IN_FLIGHT as u32, 450);
    assert!(
        report.max_in_second <= most,
        "{} in a second",
        report.max_in_second
    );
    fleet.stop().await;
}
