//! One visitor: what it does, and what it notes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tidegate_client::{
    Client, ClientError, JoinRoom, RedeemPass, RoomEvent, RoomStatus, RoomTicket, StreamClosed, StreamEnd,
    TicketCookie, TicketEnd, Waiting,
};
use tidegate_core::time::Timestamp;
use tidegate_store::{Clock, SystemClock};

use super::ledger::{End, Story};
use super::{PASS, ROOM, RUSH};

/// How long somebody is at least away, on the way into the shop, and inside; some steps more, not the same for all, or
/// people would come and go in waves.
const AWAY: Duration = Duration::from_millis(700);
const WALK: Duration = Duration::from_millis(100);
const STAY: Duration = Duration::from_millis(250);
const STEP: Duration = Duration::from_millis(90);

/// What all visitors share.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) waiting: AtomicU64,
    pub(super) inside: AtomicU64,
    pub(super) bought: AtomicU64,
    pub(super) away: AtomicU64,
    pub(super) left: AtomicU64,
}

/// What somebody does besides waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuditedCommand {
    Leave,
    DropOut,
    SecondTab,
    Nothing,
}

/// Of 24 people two leave, two lose their connection, and one opens a second tab.
fn command(number: u64) -> AuditedCommand {
    match number % 24 {
        5 | 17 => AuditedCommand::Leave,
        3 | 13 => AuditedCommand::DropOut,
        9 => AuditedCommand::SecondTab,
        _ => AuditedCommand::Nothing,
    }
}

/// Somebody who has a place, and was told of it.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) story: Story,
    pub(super) stream: Waiting,
    pub(super) first: RoomEvent,
}

fn now() -> Timestamp {
    SystemClock.now()
}

async fn next(stream: &mut Waiting) -> anyhow::Result<RoomEvent> {
    Ok(stream.next().await.context("a stream ended without a word")??)
}

fn cookie(stream: &Waiting) -> anyhow::Result<TicketCookie> {
    stream.cookie().cloned().context("a visitor got no cookie")
}

/// A place that is not worse than the one before.
fn kept(event: &RoomEvent, before: &RoomTicket) -> bool {
    match event {
        RoomEvent::Ticket(place) => place.position.is_some() && place.position <= before.position,
        RoomEvent::Granted(_) => true,
        _ => false,
    }
}

fn sold_out(event: &RoomEvent) -> bool {
    matches!(event, RoomEvent::Closed(closed) if closed.reason == StreamEnd::SoldOut)
}

fn less(count: &AtomicU64) {
    count.fetch_sub(1, Ordering::Relaxed);
}

fn more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Stage {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            waiting: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            bought: AtomicU64::new(0),
            away: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    async fn open(&self, cookie: Option<&TicketCookie>) -> Result<Waiting, ClientError> {
        self.client.wait_in_room(ROOM, &JoinRoom::default(), cookie).await
    }

    /// Takes a place. While the doors are shut the first position is the order in which people came; later they come
    /// one after the other.
    pub(super) async fn come(&self, number: u64, late: bool) -> anyhow::Result<Arrived> {
        let mut stream = self.open(None).await?;
        let first = next(&mut stream).await?;
        let rank = match &first {
            RoomEvent::Ticket(place) if !late => place.position.context("a place without a position")?,
            _ => RUSH + number,
        };
        more(&self.waiting);
        Ok(Arrived {
            story: Story::new(number, late, rank),
            stream,
            first,
        })
    }

    /// Waits, does what it does, and goes in or goes away.
    pub(super) async fn live(
        &self,
        story: &mut Story,
        stream: Waiting,
        first: RoomEvent,
    ) -> anyhow::Result<()> {
        let (mut stream, mut told) = (stream, first);
        let mut command = command(story.number);
        // Not all at the same moment.
        let mut patience = story.number / 24 % 3;
        // The first word of somebody who came before the doors opened may be from before they were shut.
        let mut doors = story.late;
        loop {
            match told {
                RoomEvent::Ticket(place) => {
                    story.shown(&place);
                    let open = doors && place.room_status == RoomStatus::Open;
                    match (command, open.then_some(patience)) {
                        (AuditedCommand::Nothing, _) | (_, None) => {}
                        (_, Some(1..)) => patience -= 1,
                        (AuditedCommand::Leave, _) => {
                            // After its last word it may have been let in without hearing of it any more.
                            story.gone = Some(Timestamp(place.at.0));
                            story.slot_until = Some(now());
                            self.client.leave_room(ROOM, &cookie(&stream)?).await?;
                            command = AuditedCommand::Nothing;
                        }
                        (AuditedCommand::DropOut, _) => {
                            command = AuditedCommand::Nothing;
                            (stream, told) = self.drop_out(story, stream, &place).await?;
                            continue;
                        }
                        (AuditedCommand::SecondTab, _) => {
                            command = AuditedCommand::Nothing;
                            (stream, told) = self.second_tab(story, stream, &place).await?;
                            continue;
                        }
                    }
                }
                RoomEvent::Granted(place) => {
                    story.let_in(&place, now()).context("let in without a pass")?;
                    if story.gone.is_none() {
                        drop(stream);
                        return self.enter(story, place).await;
                    }
                    // It was let in at the moment in which it left.
                }
                RoomEvent::Closed(closed) => {
                    self.goes(story, &closed);
                    return Ok(());
                }
                // Somebody else has the cookie.
                _ => return Ok(()),
            }
            told = next(&mut stream).await?;
            doors = true;
        }
    }

    /// Loses the connection, and comes back with the cookie.
    async fn drop_out(
        &self,
        story: &mut Story,
        stream: Waiting,
        before: &RoomTicket,
    ) -> anyhow::Result<(Waiting, RoomEvent)> {
        let (cookie, from) = (cookie(&stream)?, now());
        drop(stream);
        more(&self.away);
        tokio::time::sleep(AWAY + STEP * (story.number % 7) as u32).await;
        let mut stream = self.open(Some(&cookie)).await?;
        let told = next(&mut stream).await?;
        less(&self.away);
        story.away = Some((from, now()));
        // When everything is sold nobody has a place to come back to.
        story.kept = (!sold_out(&told)).then(|| kept(&told, before));
        Ok((stream, told))
    }

    /// Opens a second tab, which takes over.
    async fn second_tab(
        &self,
        story: &mut Story,
        mut first: Waiting,
        before: &RoomTicket,
    ) -> anyhow::Result<(Waiting, RoomEvent)> {
        let mut second = self.open(Some(&cookie(&first)?)).await?;
        let told = next(&mut second).await?;
        let mut heard = false;
        while let Some(event) = first.next().await {
            heard |= event? == RoomEvent::Superseded;
        }
        story.took_over = (!sold_out(&told)).then(|| heard && kept(&told, before));
        Ok((second, told))
    }

    /// Redeems the pass, stays, and has bought.
    async fn enter(&self, story: &mut Story, place: RoomTicket) -> anyhow::Result<()> {
        let pass = place.pass.context("let in without a pass")?;
        let pass = RedeemPass {
            pass: pass.token,
            session: Some(format!("visit-{}", story.number)),
            for_ms: None,
        };
        less(&self.waiting);
        more(&self.inside);
        tokio::time::sleep(WALK + STEP * (story.number % 3) as u32).await;
        let mut bought = false;
        if taken(self.client.redeem_pass(ROOM, &pass).await)?.is_some() {
            tokio::time::sleep(STAY + STEP * (story.number * 8 % 21) as u32).await;
            // From here on somebody else may have the slot.
            story.slot_until = Some(now());
            let visit = taken(self.client.complete_visit(ROOM, &pass).await)?;
            bought = visit.is_some_and(|visit| visit.end == Some(TicketEnd::Completed));
        }
        less(&self.inside);
        story.end = match bought {
            true => End::Bought,
            false => End::Refused,
        };
        if bought {
            more(&self.bought);
        }
        Ok(())
    }

    fn goes(&self, story: &mut Story, closed: &StreamClosed) {
        less(&self.waiting);
        story.end = match (closed.reason, closed.end) {
            (StreamEnd::SoldOut, _) => End::SoldOut,
            (StreamEnd::Ended, Some(TicketEnd::Left)) => End::Left,
            _ => End::Lost,
        };
        if story.end == End::Left {
            more(&self.left);
        }
        story.gone = story.gone.or_else(|| Some(now()));
    }
}

/// What the shop was answered; none if the pass was refused.
fn taken<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(visit) => Ok(Some(visit)),
        Err(ClientError::Problem(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Story {
    /// Let in, by the store's clock: so long before the end of the pass.
    fn let_in(&mut self, place: &RoomTicket, heard: Timestamp) -> Option<()> {
        let until = place.pass.as_ref()?.expires_at;
        self.granted = Some(Timestamp(until.0) - PASS);
        self.heard = Some(heard);
        Some(())
    }

    fn shown(&mut self, place: &RoomTicket) {
        self.etas
            .extend(place.eta.map(|eta| (Timestamp(place.at.0), eta)));
    }
}
