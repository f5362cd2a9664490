//! Dispenses tokens of the targets' budgets to every caller in this process: refresh workers and pushes alike.
//!
//! ```text
//!   acquire ─► queue of (target, priority) ─► taker: take(one for each waiter) ─► tokens, longest waiter first
//!                                              └─ limited: retries exactly when the store said
//! ```
//!
//! The taker takes only as many tokens as callers wait for, and hands each over at once. So a batch never exceeds
//! what callers can use while it is valid. Validity counts from before the call to the store, on a monotonic clock:
//! after a slow response or a stalled process, a token is void, never late. A caller without a call to make returns
//! its token, and the next waiter gets it while it is valid. While the store is unavailable, callers keep waiting:
//! nobody gets a token, and nobody gets an error.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::budget::LimitedBy;
use tidegate_core::ids::TargetId;
use tidegate_core::priority::Priority;
use tidegate_core::refresh::breaker::BreakerState;
use tidegate_core::refresh::config::BreakerConfig;
use tidegate_core::time::Millis;
use tidegate_store::refresh::{RefreshStore, TakeOutcome};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::token_counts::{TokenCounts, Tokens};
use crate::histogram::HistogramView;
use crate::refresh::counters::Counters;
use crate::refresh::guard::{Guard, Guarded};

/// Limit: callers in one line; further ones wait for a free place in it.
const LINE: usize = 4_096;
/// Limit: tokens in one call to the store.
const MOST: usize = 256;
/// Limit: how long the taker may miss that somebody lifted a hold.
const LONGEST_HOLD: Duration = Duration::from_secs(2);
/// Limit: the pause between two attempts while the store is unavailable.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The right to make one call immediately.
#[derive(Debug)]
#[must_use = "a token that is neither used nor given back is lost"]
pub struct Token {
    use_by: Instant,
    spare: Arc<Spare>,
}

impl Token {
    /// The latest moment for the call.
    pub fn use_by(&self) -> Instant {
        self.use_by
    }

    /// False once it is void: the caller needs another one.
    pub fn is_valid(&self) -> bool {
        Instant::now() <= self.use_by
    }

    /// The caller has no call to make: the next waiter in this process gets the token, while it is valid.
    pub fn give_back(self) {
        self.spare.add(self.use_by);
    }
}

/// Tokens of one line that callers returned.
#[derive(Debug, Default)]
struct Spare {
    tokens: Mutex<Vec<Instant>>,
    added: Notify,
}

impl Spare {
    fn add(&self, use_by: Instant) {
        self.tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(use_by);
        self.added.notify_one();
    }

    fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.tokens.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The result of acquiring a token.
#[derive(Debug)]
pub enum Acquired {
    Token(Token),
    /// The target is on hold, or its daily quota is used up, for longer than the caller wanted to wait.
    LongWait {
        wait: Millis,
        by: LimitedBy,
    },
    /// The service has ended.
    Closed,
}

#[derive(Debug)]
struct Waiter {
    /// Longest wait that the caller accepts; none = any.
    patience: Option<Millis>,
    reply: oneshot::Sender<Acquired>,
}

type Line = mpsc::Sender<Waiter>;

/// What this process took, and the health of the store it takes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensView {
    /// Lists the targets for which somebody asked.
    pub tokens: BTreeMap<TargetId, TokenCounts>,
    /// Tokens that arrived too late to use.
    pub late: u64,
    /// `redis_circuit_breaker_state`, and the duration of calls: `redis_command_duration_seconds`.
    pub store: BreakerState,
    pub store_calls: HistogramView,
}

/// Clones share the lines.
#[derive(Debug, Clone)]
pub struct TokenDispenser {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn RefreshStore>,
    guard: Arc<Guard>,
    counters: Arc<Counters>,
    lines: Mutex<HashMap<(TargetId, Priority), Line>>,
    tokens: Mutex<BTreeMap<TargetId, Arc<Tokens>>>,
    takers: TaskTracker,
    stop: CancellationToken,
}

impl TokenDispenser {
    pub(crate) fn new(store: Arc<dyn RefreshStore>, guard: Arc<Guard>, counters: Arc<Counters>) -> Self {
        let shared = Shared {
            store,
            guard,
            counters,
            lines: Mutex::default(),
            tokens: Mutex::default(),
            takers: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// For a process that calls targets but refreshes nothing.
    pub fn over(store: Arc<dyn RefreshStore>, breaker: BreakerConfig) -> Self {
        Self::new(store, Arc::new(Guard::new("the store", breaker)), Arc::default())
    }

    /// Waits for a token, however long it takes.
    pub async fn acquire(&self, target: &TargetId, priority: Priority) -> Acquired {
        self.wait(target, priority, None).await
    }

    /// Waits for a token, but not for a hold or a daily quota that lasts longer than `patience`.
    pub async fn acquire_within(&self, target: &TargetId, priority: Priority, patience: Millis) -> Acquired {
        self.wait(target, priority, Some(patience)).await
    }

    async fn wait(&self, target: &TargetId, priority: Priority, patience: Option<Millis>) -> Acquired {
        let (reply, answer) = oneshot::channel();
        let line = self.line(target, priority);
        if line.send(Waiter { patience, reply }).await.is_err() {
            return Acquired::Closed;
        }
        answer.await.unwrap_or(Acquired::Closed)
    }

    fn line(&self, target: &TargetId, priority: Priority) -> Line {
        let mut lines = self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let (line, waiters) = mpsc::channel(LINE);
            let taker = Taker {
                target: target.clone(),
                priority,
                store: self.shared.store.clone(),
                guard: self.shared.guard.clone(),
                counters: self.shared.counters.clone(),
                tokens: self.tokens(target),
                spare: Arc::default(),
                waiting: Vec::new(),
            };
            let stop = self.shared.stop.clone();
            self.shared.takers.spawn(async move {
                tokio::select! {
                    () = taker.run(waiters) => {}
                    () = stop.cancelled() => {}
                }
            });
            line
        };
        lines
            .entry((target.clone(), priority))
            .or_insert_with(make)
            .clone()
    }

    fn tokens(&self, target: &TargetId) -> Arc<Tokens> {
        let mut tokens = self.shared.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.entry(target.clone()).or_default().clone()
    }

    /// Never waits.
    pub fn view(&self) -> TokensView {
        let tokens = self.shared.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        TokensView {
            tokens: tokens
                .iter()
                .map(|(target, tokens)| (target.clone(), tokens.view()))
                .collect(),
            late: self.shared.counters.tokens_late.get(),
            store: self.shared.guard.state(),
            store_calls: self.shared.guard.durations(),
        }
    }

    /// Dismisses every waiter with `Closed`, and waits for the takers to end.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.takers.close();
        self.shared.takers.wait().await;
    }
}

/// Takes tokens for one line.
struct Taker {
    target: TargetId,
    priority: Priority,
    store: Arc<dyn RefreshStore>,
    guard: Arc<Guard>,
    counters: Arc<Counters>,
    tokens: Arc<Tokens>,
    spare: Arc<Spare>,
    /// Longest waiter first.
    waiting: Vec<Waiter>,
}

impl Taker {
    async fn run(mut self, mut waiters: mpsc::Receiver<Waiter>) {
        let mut failures: u32 = 0;
        loop {
            self.waiting.retain(|waiter| !waiter.reply.is_closed());
            let room = MOST - self.waiting.len();
            if self.waiting.is_empty() && waiters.recv_many(&mut self.waiting, room).await == 0 {
                return;
            }
            while self.waiting.len() < MOST
                && let Ok(waiter) = waiters.try_recv()
            {
                self.waiting.push(waiter);
            }
            self.hand_on();
            if self.waiting.is_empty() {
                continue;
            }
            let asked = Instant::now();
            let wanted = self.waiting.len() as u64;
            let take = self.store.take(&self.target, self.priority, wanted);
            let pause = match self.guard.call(take).await {
                Ok(TakeOutcome::Taken { tokens, valid_for }) => {
                    failures = 0;
                    self.hand_over(tokens, asked + Duration::from(valid_for));
                    continue;
                }
                Ok(TakeOutcome::Limited { wait, by }) => {
                    failures = 0;
                    self.counters.tokens_rejected.add(self.priority, 1);
                    self.tokens.refused(self.priority);
                    self.fail_impatient(wait, by);
                    Duration::from(wait.max(Millis(1))).min(LONGEST_HOLD)
                }
                Err(Guarded::Open { wait }) => wait,
                Err(Guarded::Failed(error)) => {
                    if failures == 0 {
                        tracing::warn!(%error, target = %self.target, "failed to take tokens; calls wait");
                    }
                    failures += 1;
                    (Duration::from_millis(20) * failures).min(LONGEST_PAUSE)
                }
            };
            // The taker asks for no further tokens before that time, but answers newcomers at once if the wait is too
            // long.
            self.pause(pause, &mut waiters).await;
        }
    }

    fn hand_over(&mut self, tokens: u64, use_by: Instant) {
        if Instant::now() > use_by {
            self.counters.tokens_late.add(tokens);
            return;
        }
        let handed = self.hand_out(tokens, use_by);
        self.counters.tokens_acquired.add(self.priority, handed);
        self.tokens.handed_out(self.priority, handed);
    }

    /// Hands returned tokens to waiters, unless they are void. The counters already include them.
    fn hand_on(&mut self) {
        for use_by in self.spare.take() {
            if Instant::now() > use_by || self.hand_out(1, use_by) == 0 {
                self.counters.tokens_late.add(1);
            }
        }
    }

    /// Serves the longest waiters first. Returns how many got a token.
    fn hand_out(&mut self, tokens: u64, use_by: Instant) -> u64 {
        let mut left = tokens;
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        while left > 0
            && let Some(waiter) = waiting.next()
        {
            let spare = self.spare.clone();
            // A waiter that has gone leaves its token to the next.
            if waiter
                .reply
                .send(Acquired::Token(Token { use_by, spare }))
                .is_ok()
            {
                left -= 1;
            }
        }
        self.waiting = waiting.collect();
        tokens - left
    }

    /// Dismisses the waiters that do not accept so long a wait. Waits for the rate are short, so everybody sits
    /// them out.
    fn fail_impatient(&mut self, wait: Millis, by: LimitedBy) {
        if !matches!(by, LimitedBy::Hold | LimitedBy::Day) {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        for waiter in waiting {
            match waiter.patience {
                Some(patience) if patience < wait => {
                    let _ = waiter.reply.send(Acquired::LongWait { wait, by });
                }
                _ => self.waiting.push(waiter),
            }
        }
    }

    /// A newcomer ends a long pause early: only the store can say why it has to wait. Meanwhile returned tokens go
    /// to waiters at once.
    async fn pause(&mut self, pause: Duration, waiters: &mut mpsc::Receiver<Waiter>) {
        const LONG: Duration = Duration::from_secs(1);
        let over = tokio::time::sleep(pause);
        tokio::pin!(over);
        loop {
            let newcomers = pause >= LONG && self.waiting.len() < MOST;
            let spare = self.spare.clone();
            tokio::select! {
                () = &mut over => return,
                () = spare.added.notified() => self.hand_on(),
                Some(waiter) = waiters.recv(), if newcomers => return self.waiting.push(waiter),
            }
        }
    }
}
