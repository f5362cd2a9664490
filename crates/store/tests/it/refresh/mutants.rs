//! The suite of the refresh store catches mutants: each store has one fault and fails the case for it.
//!
//! Each fault sits between a case and the model, which passes the same case.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::budget::BudgetView;
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{Owner, RecordId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleOutcome, SettleParams,
};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::refresh::conformance::{Backend, Guard, Opened, case, cases};
use tidegate_store::refresh::{ModelRefreshStore, RefreshSettings, RefreshStore, TakeOutcome};
use tidegate_testkit::conformance::catches;

/// What a wrong store does to its calls and answers.
trait Fault: std::fmt::Debug + Default + Send + Sync + 'static {
    fn asked(_params: &mut RequestParams) {}
    fn requested(_outcome: &mut RequestOutcome) {}
    fn begun(_outcome: &mut BeginOutcome) {}
    fn abandoned(_outcome: &mut bool) {}
    fn ends(_params: &mut SettleParams) {}
    fn settled(_outcome: &mut SettleOutcome) {}
    fn took(_outcome: &mut TakeOutcome) {}
}

#[derive(Debug)]
struct Wrong<F> {
    inner: ModelRefreshStore,
    fault: PhantomData<F>,
}

type StoreResult<T> = Result<T, StoreError>;

#[async_trait]
impl<F: Fault> RefreshStore for Wrong<F> {
    async fn request(&self, mut asks: Vec<(RecordId, RequestParams)>) -> StoreResult<Vec<RequestOutcome>> {
        asks.iter_mut().for_each(|(_, params)| F::asked(params));
        let mut outcomes = self.inner.request(asks).await?;
        outcomes.iter_mut().for_each(F::requested);
        Ok(outcomes)
    }

    async fn confirm_sent(&self, sent: Vec<(RecordId, Version)>) -> StoreResult<Vec<bool>> {
        self.inner.confirm_sent(sent).await
    }

    async fn send_failed(&self, unsent: Vec<(RecordId, Version)>) -> StoreResult<Vec<bool>> {
        self.inner.send_failed(unsent).await
    }

    async fn begin(&self, begun: Vec<(RecordId, BeginParams)>) -> StoreResult<Vec<BeginOutcome>> {
        let mut outcomes = self.inner.begin(begun).await?;
        outcomes.iter_mut().for_each(F::begun);
        Ok(outcomes)
    }

    async fn extend(&self, claims: Vec<(RecordId, BeginParams)>) -> StoreResult<Vec<bool>> {
        self.inner.extend(claims).await
    }

    async fn abandon(&self, claims: Vec<(RecordId, Version, Owner)>) -> StoreResult<Vec<bool>> {
        let mut outcomes = self.inner.abandon(claims).await?;
        outcomes.iter_mut().for_each(F::abandoned);
        Ok(outcomes)
    }

    async fn settle(&self, mut settled: Vec<(RecordId, SettleParams)>) -> StoreResult<Vec<SettleOutcome>> {
        settled.iter_mut().for_each(|(_, params)| F::ends(params));
        let mut outcomes = self.inner.settle(settled).await?;
        outcomes.iter_mut().for_each(F::settled);
        Ok(outcomes)
    }

    async fn look(&self, records: Vec<RecordId>) -> StoreResult<Vec<Option<RecordState>>> {
        self.inner.look(records).await
    }

    async fn take(&self, target: &TargetId, priority: Priority, max_tokens: u64) -> StoreResult<TakeOutcome> {
        let mut outcome = self.inner.take(target, priority, max_tokens).await?;
        F::took(&mut outcome);
        Ok(outcome)
    }

    async fn hold(&self, target: &TargetId, until_in: Millis) -> StoreResult<Millis> {
        self.inner.hold(target, until_in).await
    }

    async fn lift(&self, target: &TargetId) -> StoreResult<bool> {
        self.inner.lift(target).await
    }

    async fn budget(&self, target: &TargetId) -> StoreResult<BudgetView> {
        self.inner.budget(target).await
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        self.inner.now().await
    }
}

#[derive(Debug, Default)]
struct Broken<F>(PhantomData<F>);

#[async_trait]
impl<F: Fault> Backend for Broken<F> {
    async fn open(&self, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        let store = Wrong::<F> {
            inner: ModelRefreshStore::new(settings, clock)?,
            fault: PhantomData,
        };
        Ok((Arc::new(store), Box::new(())))
    }

    async fn restart(&self, _: Guard, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        self.open(settings, clock).await
    }
}

#[derive(Debug, Default)]
struct Right;
impl Fault for Right {}

#[derive(Debug, Default)]
struct SendsForEveryReader;
impl Fault for SendsForEveryReader {
    fn requested(outcome: &mut RequestOutcome) {
        if let RequestOutcome::AlreadyProcessing { version } = *outcome {
            *outcome = RequestOutcome::Published { version };
        }
    }
}

#[derive(Debug, Default)]
struct IgnoresWhenReadersLooked;
impl Fault for IgnoresWhenReadersLooked {
    fn asked(params: &mut RequestParams) {
        params.read_at = Timestamp(u64::MAX);
    }
}

#[derive(Debug, Default)]
struct LetsEverybodyFetch;
impl Fault for LetsEverybodyFetch {
    fn begun(outcome: &mut BeginOutcome) {
        if matches!(outcome, BeginOutcome::Busy { .. }) {
            *outcome = BeginOutcome::Go;
        }
    }
}

#[derive(Debug, Default)]
struct SettlesForAll;
impl Fault for SettlesForAll {
    fn settled(outcome: &mut SettleOutcome) {
        *outcome = SettleOutcome::Settled;
    }
}

#[derive(Debug, Default)]
struct GivesBackForAll;
impl Fault for GivesBackForAll {
    fn abandoned(outcome: &mut bool) {
        *outcome = true;
    }
}

/// Does not compare versions: ends any event in flight.
#[derive(Debug, Default)]
struct EndsWhateverIsThere;
impl Fault for EndsWhateverIsThere {
    fn ends(params: &mut SettleParams) {
        // Later than any version of a case.
        params.version = Version(params.version.0 + (1 << 40));
    }
}

#[derive(Debug, Default)]
struct HandsOutTwice;
impl Fault for HandsOutTwice {
    fn took(outcome: &mut TakeOutcome) {
        if let TakeOutcome::Taken { tokens, .. } = outcome {
            *tokens *= 2;
        }
    }
}

#[derive(Debug, Default)]
struct WaitsTooLong;
impl Fault for WaitsTooLong {
    fn took(outcome: &mut TakeOutcome) {
        if let TakeOutcome::Limited { wait, .. } = outcome {
            *wait = Millis(wait.0 + 1);
        }
    }
}

/// The named case passes on the model and fails on the wrong store.
async fn caught<F: Fault>(name: &str) {
    catches(
        case(name),
        Arc::new(Broken::<Right>::default()),
        Arc::new(Broken::<F>::default()),
    )
    .await;
}

#[tokio::test]
async fn an_event_for_every_reader_is_caught() {
    caught::<SendsForEveryReader>("requests::a_herd_of_ten_thousand_is_one_event").await;
    caught::<SendsForEveryReader>("requests::published_upgraded_and_already_processing").await;
}

#[tokio::test]
async fn a_late_reader_that_is_not_absorbed_is_caught() {
    caught::<IgnoresWhenReadersLooked>("requests::a_late_reader_is_absorbed").await;
}

#[tokio::test]
async fn two_workers_on_one_record_are_caught() {
    caught::<LetsEverybodyFetch>("workers::one_worker_fetches_and_others_are_busy").await;
}

#[tokio::test]
async fn an_end_answered_to_all_is_caught() {
    caught::<SettlesForAll>("workers::one_of_many_callers_ends_an_event").await;
    caught::<SettlesForAll>("workers::only_one_settle_succeeds").await;
    caught::<GivesBackForAll>("workers::one_of_many_callers_ends_an_event").await;
    caught::<GivesBackForAll>("workers::an_abandoned_claim_is_free_at_once").await;
}

#[tokio::test]
async fn an_end_of_what_came_later_is_caught() {
    caught::<EndsWhateverIsThere>("workers::a_stale_version_ends_nothing_that_came_after_it").await;
    caught::<GivesBackForAll>("workers::a_stale_version_ends_nothing_that_came_after_it").await;
}

#[tokio::test]
async fn running_over_the_rate_is_caught() {
    caught::<HandsOutTwice>("budgets::no_second_is_overrun").await;
    caught::<HandsOutTwice>("budgets::nothing_is_known_so_nothing_is_granted_for_a_second").await;
}

#[tokio::test]
async fn a_wait_that_is_not_exact_is_caught() {
    caught::<WaitsTooLong>("budgets::a_wait_is_exact").await;
}

#[test]
fn every_case_has_a_name_of_its_own() {
    let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    let total = names.len();
    names.dedup();
    assert_eq!(names.len(), total);
}
