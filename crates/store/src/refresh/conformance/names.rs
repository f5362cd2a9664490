//! Names may contain any characters.

use tidegate_core::budget::BudgetConfig;
use tidegate_core::ids::MAX_ID_BYTES;
use tidegate_core::priority::Priority::High;
use tidegate_core::refresh::coalescer::{RequestOutcome, SettleOutcome};

use super::harness::*;

fn odd() -> Vec<String> {
    let mut names: Vec<String> = [
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "a}b",
        "a{b",
        "%7B",
        "%",
        "/",
        "a/b",
        ":",
        " ",
        "\n",
        "\u{0}",
        "ü",
        "메이플",
        "*",
        "a",
        "A",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(MAX_ID_BYTES));
    names.push("{".repeat(MAX_ID_BYTES));
    names.push("메".repeat(MAX_ID_BYTES / 3));
    names
}

pub async fn odd_names_are_records_of_their_own(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for name in odd() {
        for record in [named("character", &name), named(&name, "key")] {
            let outcome = h.request(&record, High).await;
            assert!(
                matches!(outcome, RequestOutcome::Published { .. }),
                "{record:?}: {outcome:?}"
            );
        }
    }
    for name in odd() {
        for record in [named("character", &name), named(&name, "key")] {
            let version = h.look(&record).await.expect("remembered").issued;
            assert!(h.confirm(&record, version).await, "{record:?}");
            assert_eq!(
                h.settle(&record, version, High).await,
                SettleOutcome::Settled,
                "{record:?}"
            );
        }
    }
}

pub async fn odd_names_are_targets_of_their_own(backend: &dyn Backend) {
    let h = Harness::with(backend, |settings| {
        settings.budgets.clear();
        for name in odd() {
            settings.budgets.insert(target(&name), BudgetConfig::default());
        }
    })
    .await;
    h.advance(60_000);
    for name in odd() {
        assert_eq!(tokens(h.take_of(&name, High, 100).await), 25, "{name:?}");
        assert_eq!(tokens(h.take_of(&name, High, 100).await), 0, "{name:?}");
    }
}

pub async fn source_and_key_do_not_run_together(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    for (one, other) in [
        (named("a/b", "c"), named("a", "b/c")),
        (named("a", "%2Fb"), named("a/", "b")),
        (named("a}", "b"), named("a", "}b")),
    ] {
        assert!(h.request(&one, High).await.to_send().is_some());
        assert_eq!(h.look(&other).await, None, "{other:?} is not {one:?}");
        assert!(h.request(&other, High).await.to_send().is_some());
    }
}
