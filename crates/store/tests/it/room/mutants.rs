//! The suite of waiting rooms catches mutants: each store has one fault and fails the case for it.
//!
//! Each fault sits between a case and the model, which passes the same case.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{
    Change, Control, ExtendParams, InsideOutcome, JoinOutcome, JoinParams, PromoteOutcome, ReapOutcome,
    ReapParams, RedeemOutcome, RedeemParams, RemoveOutcome, ResizeOutcome, ResizeParams, RoomView, Status,
    TicketView, TouchOutcome, TouchParams,
};
use tidegate_core::room::config::RoomConfig;
use tidegate_core::room::ticket::{End, Wave};
use tidegate_core::time::Millis;
use tidegate_store::StoreError;
use tidegate_store::room::conformance::{Backend, Guard, Opened, case, cases};
use tidegate_store::room::{ModelRoomStore, RoomNotifier, RoomStore};
use tidegate_testkit::conformance::catches;

type StoreResult<T> = Result<T, StoreError>;

/// What a wrong store does; everything else is right.
#[async_trait]
trait Fault: std::fmt::Debug + Send + Sync + 'static {
    /// Updates an existing room instead of leaving it as it is.
    const TAKES_OVER: bool = false;

    fn opened(_config: &mut RoomConfig) {}

    fn joined(_params: &mut JoinParams) {}

    async fn touch(
        right: &ModelRoomStore,
        room: &RoomId,
        touches: Vec<TouchParams>,
    ) -> StoreResult<Vec<TouchOutcome>> {
        right.touch(room, touches).await
    }

    async fn promote(right: &ModelRoomStore, room: &RoomId, max: u64) -> StoreResult<PromoteOutcome> {
        right.promote(room, max).await
    }

    async fn redeem(
        right: &ModelRoomStore,
        room: &RoomId,
        params: RedeemParams,
    ) -> StoreResult<RedeemOutcome> {
        right.redeem(room, params).await
    }

    async fn complete(
        right: &ModelRoomStore,
        room: &RoomId,
        person: &PersonId,
    ) -> StoreResult<InsideOutcome> {
        right.complete(room, person).await
    }

    async fn leave(right: &ModelRoomStore, room: &RoomId, person: &PersonId) -> StoreResult<InsideOutcome> {
        right.leave(room, person).await
    }

    fn reaped(_params: &mut ReapParams) {}

    fn resized(_params: &mut ResizeParams) {}

    fn looked(_views: &mut Vec<Option<TicketView>>) {}

    /// The store after a restart, if it is another one.
    fn restarted(_clock: Arc<ManualClock>) -> Option<ModelRoomStore> {
        None
    }

    fn signals(right: &ModelRoomStore) -> Arc<RoomNotifier> {
        right.signals()
    }
}

#[derive(Debug)]
struct Wrong<F> {
    right: Arc<ModelRoomStore>,
    fault: PhantomData<F>,
}

#[async_trait]
impl<F: Fault> RoomStore for Wrong<F> {
    async fn open(&self, room: &RoomId, mut config: RoomConfig) -> StoreResult<()> {
        F::opened(&mut config);
        self.right.open(room, config).await
    }

    async fn create(&self, room: &RoomId, config: RoomConfig, status: Status) -> StoreResult<bool> {
        if F::TAKES_OVER {
            self.right.open(room, config).await?;
            return Ok(false);
        }
        self.right.create(room, config, status).await
    }

    async fn remove(&self, room: &RoomId) -> StoreResult<RemoveOutcome> {
        self.right.remove(room).await
    }

    async fn rooms(&self) -> StoreResult<Vec<RoomId>> {
        self.right.rooms().await
    }

    async fn join(&self, room: &RoomId, mut joins: Vec<JoinParams>) -> StoreResult<Vec<JoinOutcome>> {
        joins.iter_mut().for_each(F::joined);
        self.right.join(room, joins).await
    }

    async fn touch(&self, room: &RoomId, touches: Vec<TouchParams>) -> StoreResult<Vec<TouchOutcome>> {
        F::touch(&self.right, room, touches).await
    }

    async fn promote(&self, room: &RoomId, max: u64) -> StoreResult<PromoteOutcome> {
        F::promote(&self.right, room, max).await
    }

    async fn redeem(&self, room: &RoomId, params: RedeemParams) -> StoreResult<RedeemOutcome> {
        F::redeem(&self.right, room, params).await
    }

    async fn reissue(&self, room: &RoomId, person: &PersonId) -> StoreResult<bool> {
        self.right.reissue(room, person).await
    }

    async fn extend(&self, room: &RoomId, params: ExtendParams) -> StoreResult<InsideOutcome> {
        self.right.extend(room, params).await
    }

    async fn complete(&self, room: &RoomId, person: &PersonId) -> StoreResult<InsideOutcome> {
        F::complete(&self.right, room, person).await
    }

    async fn leave(&self, room: &RoomId, person: &PersonId) -> StoreResult<InsideOutcome> {
        F::leave(&self.right, room, person).await
    }

    async fn reap(&self, room: &RoomId, mut params: ReapParams) -> StoreResult<ReapOutcome> {
        F::reaped(&mut params);
        self.right.reap(room, params).await
    }

    async fn resize(&self, room: &RoomId, mut params: ResizeParams) -> StoreResult<ResizeOutcome> {
        F::resized(&mut params);
        self.right.resize(room, params).await
    }

    async fn control(&self, room: &RoomId, control: Control) -> StoreResult<()> {
        self.right.control(room, control).await
    }

    async fn void(&self, room: &RoomId, through: Option<Wave>) -> StoreResult<Wave> {
        self.right.void(room, through).await
    }

    async fn look(&self, room: &RoomId, people: Vec<PersonId>) -> StoreResult<Vec<Option<TicketView>>> {
        let mut views = self.right.look(room, people).await?;
        F::looked(&mut views);
        Ok(views)
    }

    async fn overview(&self, room: &RoomId) -> StoreResult<RoomView> {
        self.right.overview(room).await
    }

    fn signals(&self) -> Arc<RoomNotifier> {
        F::signals(&self.right)
    }
}

#[derive(Debug)]
struct Broken<F>(PhantomData<F>);

fn wrong<F: Fault>(right: Arc<ModelRoomStore>) -> Opened {
    let store = Wrong::<F> {
        right: right.clone(),
        fault: PhantomData,
    };
    Ok((Arc::new(store), Box::new(right)))
}

#[async_trait]
impl<F: Fault> Backend for Broken<F> {
    async fn open(&self, clock: Arc<ManualClock>) -> Opened {
        wrong::<F>(Arc::new(ModelRoomStore::new(clock)))
    }

    async fn restart(&self, guard: Guard, clock: Arc<ManualClock>) -> Opened {
        let kept = *guard.downcast::<Arc<ModelRoomStore>>().expect("what open gave");
        wrong::<F>(F::restarted(clock).map_or(kept, Arc::new))
    }

    fn restart_ends_connections(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Right;
impl Fault for Right {}

#[derive(Debug)]
struct LetsInOneTooMany;
impl Fault for LetsInOneTooMany {
    fn opened(config: &mut RoomConfig) {
        config.capacity.inside += 1;
    }
}

/// Changes the limits anew at every attempt.
fn one_more(request: u64) -> ResizeParams {
    ResizeParams {
        request,
        seats: None,
        inside: Some(Change::Add(1)),
        per_second: None,
        by: String::new(),
        why: String::new(),
    }
}

#[derive(Debug)]
struct GivesSlotsBackTwice;
#[async_trait]
impl Fault for GivesSlotsBackTwice {
    async fn leave(right: &ModelRoomStore, room: &RoomId, person: &PersonId) -> StoreResult<InsideOutcome> {
        let before = right.overview(room).await?;
        let outcome = right.leave(room, person).await?;
        let after = right.overview(room).await?;
        if before.counts == after.counts {
            right
                .resize(room, one_more(1_000 + before.changes.len() as u64))
                .await?;
        }
        Ok(outcome)
    }
}

#[derive(Debug)]
struct SellsSeatsAgain;
#[async_trait]
impl Fault for SellsSeatsAgain {
    async fn complete(
        right: &ModelRoomStore,
        room: &RoomId,
        person: &PersonId,
    ) -> StoreResult<InsideOutcome> {
        right.leave(room, person).await?;
        Ok(InsideOutcome::Ended(End::Completed))
    }
}

#[derive(Debug)]
struct ForgetsPlaces;
#[async_trait]
impl Fault for ForgetsPlaces {
    async fn touch(
        right: &ModelRoomStore,
        room: &RoomId,
        touches: Vec<TouchParams>,
    ) -> StoreResult<Vec<TouchOutcome>> {
        for gone in touches.iter().filter(|touch| !touch.present) {
            right.leave(room, &gone.person).await?;
        }
        right.touch(room, touches).await
    }
}

#[derive(Debug)]
struct HearsOldConnections;
#[async_trait]
impl Fault for HearsOldConnections {
    async fn touch(
        right: &ModelRoomStore,
        room: &RoomId,
        mut touches: Vec<TouchParams>,
    ) -> StoreResult<Vec<TouchOutcome>> {
        for touch in &mut touches {
            let views = right.look(room, vec![touch.person.clone()]).await?;
            if let Some(view) = &views[0] {
                touch.stream = view.ticket.stream;
            }
        }
        right.touch(room, touches).await
    }
}

#[derive(Debug)]
struct LosesPeopleAfterAnOutage;
impl Fault for LosesPeopleAfterAnOutage {
    fn reaped(params: &mut ReapParams) {
        params.absent_by = ReapParams::all(0).absent_by;
    }
}

#[derive(Debug)]
struct BelievesTheLast;
impl Fault for BelievesTheLast {
    const TAKES_OVER: bool = true;
}

#[derive(Debug)]
struct DrawsBackwards;
impl Fault for DrawsBackwards {
    fn joined(params: &mut JoinParams) {
        params.draw = (1 << 52) - 1 - params.draw;
    }
}

#[derive(Debug)]
struct TakesPassesTwice;
#[async_trait]
impl Fault for TakesPassesTwice {
    async fn redeem(
        right: &ModelRoomStore,
        room: &RoomId,
        params: RedeemParams,
    ) -> StoreResult<RedeemOutcome> {
        let until = right.overview(room).await?.now + Millis(900_000);
        match right.redeem(room, params).await? {
            RedeemOutcome::AlreadyRedeemed => Ok(RedeemOutcome::Inside { until }),
            other => Ok(other),
        }
    }
}

#[derive(Debug)]
struct TakesVoidPasses;
#[async_trait]
impl Fault for TakesVoidPasses {
    async fn redeem(
        right: &ModelRoomStore,
        room: &RoomId,
        mut params: RedeemParams,
    ) -> StoreResult<RedeemOutcome> {
        if right.reissue(room, &params.person).await? {
            params.wave = right.overview(room).await?.wave;
        }
        right.redeem(room, params).await
    }
}

#[derive(Debug)]
struct ChangesLimitsEveryTime;
impl Fault for ChangesLimitsEveryTime {
    fn resized(params: &mut ResizeParams) {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1 << 40);
        params.request = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct LetsInWithoutARate;
impl Fault for LetsInWithoutARate {
    fn opened(config: &mut RoomConfig) {
        config.capacity.per_second = 100_000;
    }
}

#[derive(Debug)]
struct HasNoGrace;
impl Fault for HasNoGrace {
    fn opened(config: &mut RoomConfig) {
        config.grace_ms = Millis(config.grace_ms.0.min(1));
    }
}

#[derive(Debug)]
struct CountsOneAhead;
impl Fault for CountsOneAhead {
    fn looked(views: &mut Vec<Option<TicketView>>) {
        views.iter_mut().flatten().for_each(|view| view.ahead += 1);
    }
}

#[derive(Debug)]
struct AnswersInAnyOrder;
impl Fault for AnswersInAnyOrder {
    fn looked(views: &mut Vec<Option<TicketView>>) {
        views.reverse();
    }
}

#[derive(Debug)]
struct ForgetsWhenItEnds;
impl Fault for ForgetsWhenItEnds {
    fn restarted(clock: Arc<ManualClock>) -> Option<ModelRoomStore> {
        Some(ModelRoomStore::new(clock))
    }
}

#[derive(Debug)]
struct IgnoresTheBound;
#[async_trait]
impl Fault for IgnoresTheBound {
    async fn promote(right: &ModelRoomStore, room: &RoomId, _max: u64) -> StoreResult<PromoteOutcome> {
        right.promote(room, 1_000_000).await
    }
}

#[derive(Debug)]
struct NeverNotifies;
impl Fault for NeverNotifies {
    fn signals(_: &ModelRoomStore) -> Arc<RoomNotifier> {
        Arc::default()
    }
}

/// The named case passes on the model and fails on the wrong store.
async fn caught<F: Fault>(name: &str) {
    catches(
        case(name),
        Arc::new(Broken::<Right>(PhantomData)),
        Arc::new(Broken::<F>(PhantomData)),
    )
    .await;
}

#[tokio::test]
async fn one_too_many_is_caught() {
    caught::<LetsInOneTooMany>("admission::people_are_let_in_in_order").await;
    caught::<LetsInOneTooMany>("admission::promoters_at_once_let_in_no_more_than_one").await;
}

#[tokio::test]
async fn a_slot_that_comes_back_twice_is_caught() {
    caught::<GivesSlotsBackTwice>("visits::a_slot_comes_back_once").await;
    caught::<GivesSlotsBackTwice>("visits::many_ends_at_once_are_one").await;
}

#[tokio::test]
async fn a_seat_that_is_sold_again_is_caught() {
    caught::<SellsSeatsAgain>("visits::a_seat_that_was_bought_does_not_come_back").await;
    caught::<SellsSeatsAgain>("admin::a_sold_out_room_says_so").await;
}

#[tokio::test]
async fn a_place_that_is_lost_at_once_is_caught() {
    caught::<ForgetsPlaces>("presence::an_absence_reported_at_once_loses_nothing").await;
    caught::<HasNoGrace>("presence::a_short_absence_loses_nothing").await;
}

#[tokio::test]
async fn old_connections_that_are_heard_are_caught() {
    caught::<HearsOldConnections>("presence::an_older_stream_says_nothing").await;
    caught::<HearsOldConnections>("presence::a_stream_of_an_earlier_ticket_says_nothing").await;
}

#[tokio::test]
async fn a_draw_in_another_order_is_caught() {
    caught::<DrawsBackwards>("draw::the_early_ones_are_drawn").await;
}

#[tokio::test]
async fn a_pass_that_is_taken_twice_is_caught() {
    caught::<TakesPassesTwice>("visits::a_pass_is_redeemed_once").await;
    caught::<TakesPassesTwice>("visits::many_redemptions_at_once_are_one").await;
}

#[tokio::test]
async fn a_void_pass_that_is_taken_is_caught() {
    caught::<TakesVoidPasses>("admin::a_void_pass_is_refused_and_another_one_given").await;
}

#[tokio::test]
async fn a_change_that_is_made_twice_is_caught() {
    caught::<ChangesLimitsEveryTime>("admin::limits_change_by_so_many_once").await;
    caught::<ChangesLimitsEveryTime>("admin::many_tries_of_one_change_are_one").await;
}

#[tokio::test]
async fn running_over_the_rate_is_caught() {
    caught::<LetsInWithoutARate>("admission::the_rate_holds_in_every_second").await;
}

#[tokio::test]
async fn positions_that_are_not_exact_are_caught() {
    caught::<CountsOneAhead>("queue::positions_are_exact_when_people_ahead_leave").await;
    caught::<CountsOneAhead>("queue::one_overview_has_everybodys_position").await;
}

#[tokio::test]
async fn answers_in_another_order_are_caught() {
    caught::<AnswersInAnyOrder>("queue::a_batch_answers_in_its_order").await;
}

#[tokio::test]
async fn a_store_that_forgets_is_caught() {
    caught::<ForgetsWhenItEnds>("restart::every_ticket_is_kept").await;
    caught::<ForgetsWhenItEnds>("restart::a_room_stays_the_same_room").await;
}

#[tokio::test]
async fn a_promotion_without_a_bound_is_caught() {
    caught::<IgnoresTheBound>("admission::a_promotion_has_a_bound").await;
}

#[tokio::test(start_paused = true)]
async fn signals_that_never_notify_are_caught() {
    caught::<NeverNotifies>("signals::a_promotion_signals_for_those_who_wait").await;
    caught::<NeverNotifies>("signals::a_newer_stream_signals_the_processes_with_an_older_one").await;
}

#[test]
fn every_case_has_a_name_of_its_own() {
    let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    let total = names.len();
    names.dedup();
    assert_eq!(names.len(), total);
}

#[tokio::test]
async fn a_store_that_loses_people_after_an_outage_is_caught() {
    caught::<LosesPeopleAfterAnOutage>("presence::slots_come_back_while_absent_people_are_spared").await;
}

#[tokio::test]
async fn a_store_that_makes_a_room_again_is_caught() {
    caught::<BelievesTheLast>("names::the_first_to_make_a_room_wins").await;
}
