//! One visitor: what it does, and what it records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tidegate_client::{
    Client, ClientError, JoinRoom, RedeemPass, RoomEvent, RoomStatus, RoomTicket, StreamClosed, StreamEnd,
    TicketCookie, TicketEnd, Waiting,
};
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::time::Timestamp;

use super::visit_log::{End, VisitLog};
use super::{PASS, ROOM, RUSH};

/// Minimum times without connection, on the way into the shop, and inside. Visitors take some steps more, not all the
/// same number, or they would come and go in waves.
const DISCONNECTED: Duration = Duration::from_millis(700);
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
    pub(super) disconnected: AtomicU64,
    pub(super) left: AtomicU64,
}

/// What a visitor does besides waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Leave,
    Reconnect,
    SecondTab,
    Wait,
}

/// Of 24 people two leave, two lose their connection, and one opens a second tab.
fn behaviour(number: u64) -> Behaviour {
    match number % 24 {
        5 | 17 => Behaviour::Leave,
        3 | 13 => Behaviour::Reconnect,
        9 => Behaviour::SecondTab,
        _ => Behaviour::Wait,
    }
}

/// A visitor with a ticket, and its first event.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) log: VisitLog,
    pub(super) stream: Waiting,
    pub(super) first: RoomEvent,
}

fn now() -> Timestamp {
    SystemClock.now()
}

async fn next(stream: &mut Waiting) -> anyhow::Result<RoomEvent> {
    Ok(stream
        .next()
        .await
        .context("a stream ended without a final event")??)
}

fn cookie(stream: &Waiting) -> anyhow::Result<TicketCookie> {
    stream.cookie().cloned().context("a visitor got no cookie")
}

/// Whether the position is not worse than before.
fn kept(event: &RoomEvent, before: &RoomTicket) -> bool {
    match event {
        RoomEvent::Ticket(ticket) => ticket.position.is_some() && ticket.position <= before.position,
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
            disconnected: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    async fn open(&self, cookie: Option<&TicketCookie>) -> Result<Waiting, ClientError> {
        self.client.wait_in_room(ROOM, &JoinRoom::default(), cookie).await
    }

    /// Joins. While the doors are closed the first position is the order of joining; later, visitors join one after the
    /// other.
    pub(super) async fn join(&self, number: u64, late: bool) -> anyhow::Result<Arrived> {
        let mut stream = self.open(None).await?;
        let first = next(&mut stream).await?;
        let rank = match &first {
            RoomEvent::Ticket(ticket) if !late => ticket.position.context("a ticket without a position")?,
            _ => RUSH + number,
        };
        more(&self.waiting);
        Ok(Arrived {
            log: VisitLog::new(number, late, rank),
            stream,
            first,
        })
    }

    /// Waits, behaves as its number says, and enters or leaves.
    pub(super) async fn visit(
        &self,
        log: &mut VisitLog,
        stream: Waiting,
        first: RoomEvent,
    ) -> anyhow::Result<()> {
        let (mut stream, mut event) = (stream, first);
        let mut behaviour = behaviour(log.number);
        // Not all after the same number of events.
        let mut patience = log.number / 24 % 3;
        // The first event of an early visitor may be from before the doors were closed.
        let mut doors = log.late;
        loop {
            match event {
                RoomEvent::Ticket(ticket) => {
                    log.record_eta(&ticket);
                    let open = doors && ticket.room_status == RoomStatus::Open;
                    match (behaviour, open.then_some(patience)) {
                        (Behaviour::Wait, _) | (_, None) => {}
                        (_, Some(1..)) => patience -= 1,
                        (Behaviour::Leave, _) => {
                            // After its last event it may have been let in without hearing of it.
                            log.gone = Some(Timestamp(ticket.at.0));
                            log.slot_until = Some(now());
                            self.client.leave_room(ROOM, &cookie(&stream)?).await?;
                            behaviour = Behaviour::Wait;
                        }
                        (Behaviour::Reconnect, _) => {
                            behaviour = Behaviour::Wait;
                            (stream, event) = self.reconnect(log, stream, &ticket).await?;
                            continue;
                        }
                        (Behaviour::SecondTab, _) => {
                            behaviour = Behaviour::Wait;
                            (stream, event) = self.second_tab(log, stream, &ticket).await?;
                            continue;
                        }
                    }
                }
                RoomEvent::Granted(ticket) => {
                    log.let_in(&ticket, now()).context("let in without a pass")?;
                    if log.gone.is_none() {
                        drop(stream);
                        return self.enter(log, ticket).await;
                    }
                    // It was let in at the moment in which it left.
                }
                RoomEvent::Closed(closed) => {
                    self.record_end(log, &closed);
                    return Ok(());
                }
                // Another stream has the ticket.
                _ => return Ok(()),
            }
            event = next(&mut stream).await?;
            doors = true;
        }
    }

    /// Loses the connection, and reconnects with the cookie.
    async fn reconnect(
        &self,
        log: &mut VisitLog,
        stream: Waiting,
        before: &RoomTicket,
    ) -> anyhow::Result<(Waiting, RoomEvent)> {
        let (cookie, from) = (cookie(&stream)?, now());
        drop(stream);
        more(&self.disconnected);
        tokio::time::sleep(DISCONNECTED + STEP * (log.number % 7) as u32).await;
        let mut stream = self.open(Some(&cookie)).await?;
        let event = next(&mut stream).await?;
        less(&self.disconnected);
        log.disconnected = Some((from, now()));
        // When the seats are sold out, there is no ticket to keep.
        log.kept = (!sold_out(&event)).then(|| kept(&event, before));
        Ok((stream, event))
    }

    /// Opens a second tab, which takes over.
    async fn second_tab(
        &self,
        log: &mut VisitLog,
        mut first: Waiting,
        before: &RoomTicket,
    ) -> anyhow::Result<(Waiting, RoomEvent)> {
        let mut second = self.open(Some(&cookie(&first)?)).await?;
        let event = next(&mut second).await?;
        let mut superseded = false;
        while let Some(event) = first.next().await {
            superseded |= event? == RoomEvent::Superseded;
        }
        log.took_over = (!sold_out(&event)).then(|| superseded && kept(&event, before));
        Ok((second, event))
    }

    /// Redeems the pass, stays, and completes the visit.
    async fn enter(&self, log: &mut VisitLog, ticket: RoomTicket) -> anyhow::Result<()> {
        let pass = ticket.pass.context("let in without a pass")?;
        let pass = RedeemPass {
            pass: pass.token,
            session: Some(format!("visit-{}", log.number)),
            duration_ms: None,
        };
        less(&self.waiting);
        more(&self.inside);
        tokio::time::sleep(WALK + STEP * (log.number % 3) as u32).await;
        let mut bought = false;
        if taken(self.client.redeem_pass(ROOM, &pass).await)?.is_some() {
            tokio::time::sleep(STAY + STEP * (log.number * 8 % 21) as u32).await;
            // From here on somebody else may have the slot.
            log.slot_until = Some(now());
            let visit = taken(self.client.complete_visit(ROOM, &pass).await)?;
            bought = visit.is_some_and(|visit| visit.end == Some(TicketEnd::Completed));
        }
        less(&self.inside);
        log.end = match bought {
            true => End::Bought,
            false => End::Refused,
        };
        if bought {
            more(&self.bought);
        }
        Ok(())
    }

    fn record_end(&self, log: &mut VisitLog, closed: &StreamClosed) {
        less(&self.waiting);
        log.end = match (closed.reason, closed.end) {
            (StreamEnd::SoldOut, _) => End::SoldOut,
            (StreamEnd::Ended, Some(TicketEnd::Left)) => End::Left,
            _ => End::Lost,
        };
        if log.end == End::Left {
            more(&self.left);
        }
        log.gone = log.gone.or_else(|| Some(now()));
    }
}

/// The shop's answer; none if the pass was refused.
fn taken<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(visit) => Ok(Some(visit)),
        Err(ClientError::Problem(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl VisitLog {
    /// Records the admission by the store's clock: `PASS` before the pass expires.
    fn let_in(&mut self, ticket: &RoomTicket, notified: Timestamp) -> Option<()> {
        let until = ticket.pass.as_ref()?.expires_at;
        self.granted = Some(Timestamp(until.0) - PASS);
        self.notified = Some(notified);
        Some(())
    }

    fn record_eta(&mut self, ticket: &RoomTicket) {
        self.etas
            .extend(ticket.eta.map(|eta| (Timestamp(ticket.at.0), eta)));
    }
}
