//! The log in a folder of this machine.
//!
//! ```text
//!   append ─┬─> queue ─> writer thread: one write, one sync ─> visible ─> replies
//!   commit ─┘                                                     │
//!   next, read, lag <──────────── records read from disk <────────┘
//! ```
//!
//! Consumers in this process share the partitions; no other process can open the folder. Memory holds only where
//! partitions begin and end, so no operation searches or scans tombstones.

mod codec;
mod consumer;
mod disk;
mod fjall_disk;
mod folder;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_store::{Clock, SystemClock};
use tokio::sync::{Notify, oneshot};

use self::consumer::{EmbeddedConsumer, delivered};
use self::disk::{Disk, DiskError, Op, Place, Span};
use self::fjall_disk::FjallDisk;
use self::state::State;
use self::writer::{Reply, Request, Writer, lock};
use crate::capacity::Capacity;
use crate::settings::check_some_name;
use crate::{
    ConsumeParams, Consumer, Delivered, Lag, Log, LogError, LogSettings, PartitionLag, Position, Record,
    Topic,
};

/// Limit: requests that wait for the writer. The settings bound the records.
const MAX_REQUESTS: usize = 4_096;
/// Limit: bytes in one read, except for a single larger record.
const MAX_READ_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Created if it is missing. If it lies within the store's data folder, open the store first: the store rejects a
    /// folder with content it does not know.
    pub folder: PathBuf,
    pub settings: LogSettings,
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedOptions {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            settings: LogSettings::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// State that the log, its writer and its consumers share.
#[derive(Debug)]
struct Shared {
    settings: LogSettings,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    poison: OnceLock<LogError>,
    /// Signal changes of a topic: records, owners, pauses.
    signals: [Notify; Topic::ALL.len()],
    /// None once the log is closed.
    writer: Mutex<Option<SyncSender<Request>>>,
    room: Capacity,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn signal(&self, topic: Topic) -> &Notify {
        &self.signals[topic as usize]
    }

    fn healthy(&self) -> Result<(), LogError> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Healthy, and not closed.
    fn open(&self) -> Result<(), LogError> {
        self.healthy()?;
        lock(&self.writer).as_ref().map(drop).ok_or(LogError::Closed)
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        Topic::ALL.into_iter().flat_map(|topic| {
            (0..self.settings.partitions(topic)).map(move |partition| Place { topic, partition })
        })
    }

    fn place(&self, topic: Topic, partition: u32) -> Result<Place, LogError> {
        if partition < self.settings.partitions(topic) {
            return Ok(Place { topic, partition });
        }
        Err(LogError::Config(format!(
            "{topic} has {} partitions, so there is no partition {partition}",
            self.settings.partitions(topic)
        )))
    }

    fn send(&self, request: Request) -> Result<(), LogError> {
        self.healthy()?;
        let writer = lock(&self.writer);
        let writer = writer.as_ref().ok_or(LogError::Closed)?;
        writer.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => LogError::Full,
            TrySendError::Disconnected(_) => LogError::Closed,
        })
    }

    /// Sends a request and waits for its reply.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, LogError> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply))?;
        answer.await.unwrap_or(Err(LogError::Closed))
    }

    /// Reads on a blocking thread: a read may have to wait for the disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Disk) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, LogError> {
        self.open()?;
        let disk = self.disk.clone();
        match tokio::task::spawn_blocking(move || read(&*disk)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(LogError::Corrupt(error.to_string())),
            Err(error) => Err(LogError::Corrupt(format!("a read failed: {error}"))),
        }
    }
}

/// The log in a folder. Dropping it ends it like [`close`](Log::close), but nobody waits for that.
#[derive(Debug)]
pub struct EmbeddedLog {
    shared: Arc<Shared>,
}

impl EmbeddedLog {
    pub fn open(options: EmbeddedOptions) -> Result<Self, LogError> {
        let EmbeddedOptions {
            folder,
            settings,
            clock,
        } = options;
        settings.validate()?;
        folder::prepare(&folder)?;
        Self::on(Arc::new(FjallDisk::open(&folder)?), settings, clock)
    }

    fn on(disk: Arc<dyn Disk>, settings: LogSettings, clock: Arc<dyn Clock>) -> Result<Self, LogError> {
        let corrupt = |error: DiskError| LogError::Corrupt(error.to_string());
        let loaded = disk.load().map_err(corrupt)?;
        let mut layout = Vec::new();
        for topic in Topic::ALL {
            let configured = settings.partitions(topic);
            match loaded.layout.iter().find(|(known, _)| *known == topic) {
                None => layout.push(Op::Layout(topic, configured)),
                Some((_, found)) if *found == configured => {}
                Some((_, found)) => {
                    return Err(LogError::Layout {
                        topic: settings.name(topic),
                        configured,
                        found: *found,
                    });
                }
            }
        }
        if !layout.is_empty() {
            disk.write(layout).and_then(|()| disk.sync()).map_err(corrupt)?;
        }
        let (writer, requests) = sync_channel(MAX_REQUESTS);
        let shared = Arc::new(Shared {
            state: Mutex::new(State::from_disk(&settings, loaded)?),
            room: Capacity::new(settings.max_queued),
            settings,
            clock,
            disk,
            poison: OnceLock::new(),
            signals: Default::default(),
            writer: Mutex::new(Some(writer)),
        });
        let thread = Writer::new(shared.clone());
        std::thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || thread.run(requests))
            .map_err(|error| LogError::Config(format!("no thread for the log: {error}")))?;
        Ok(Self { shared })
    }

    async fn append_all(&self, records: Vec<Record>) -> Result<Vec<Position>, LogError> {
        let shared = &self.shared;
        // The writer returns the capacity once the records are written, even if nobody waits for them any more.
        let taken = shared.room.take(records.len())?;
        let (reply, answer) = oneshot::channel();
        shared.send(Request::Append(records, taken, reply))?;
        let limit = shared.settings.send_timeout;
        match tokio::time::timeout(Duration::from(limit), answer).await {
            Ok(answer) => answer.unwrap_or(Err(LogError::Closed)),
            Err(_) => Err(LogError::Timeout(limit.0)),
        }
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    fn settings(&self) -> &LogSettings {
        &self.shared.settings
    }

    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>> {
        let mut answers: Vec<Result<(), LogError>> = records.iter().map(Record::check).collect();
        let fine: Vec<Record> = (records.into_iter().zip(&answers))
            .filter_map(|(record, answer)| answer.is_ok().then_some(record))
            .collect();
        let appended = if fine.is_empty() {
            Ok(Vec::new())
        } else {
            self.append_all(fine).await
        };
        let mut positions = appended.as_ref().map(|positions| positions.iter()).ok();
        let position = |answer: Result<(), LogError>| {
            answer?;
            match &mut positions {
                Some(positions) => positions.next().copied().ok_or(LogError::Closed),
                None => Err(appended.clone().err().unwrap_or(LogError::Closed)),
            }
        };
        answers.drain(..).map(position).collect()
    }

    async fn consume(&self, params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError> {
        check_some_name("the group", &params.group)?;
        self.shared.open()?;
        Ok(Box::new(EmbeddedConsumer::join(self.shared.clone(), params)))
    }

    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError> {
        check_some_name("the group", group)?;
        let mut partitions: Vec<PartitionLag> = {
            let state = self.shared.state();
            (0..self.shared.settings.partitions(topic))
                .map(|partition| {
                    let place = Place { topic, partition };
                    let head = state.head(place).unwrap_or_default();
                    PartitionLag {
                        partition,
                        start: head.start,
                        end: head.end,
                        committed: state.mark(place, group),
                        oldest: None,
                    }
                })
                .collect()
        };
        let fill = move |disk: &dyn Disk| {
            for lag in partitions.iter_mut().filter(|lag| lag.records() > 0) {
                let partition = lag.partition;
                lag.oldest = disk.appended_at(Place { topic, partition }, lag.next())?;
            }
            Ok(Lag { partitions })
        };
        self.shared.on_disk(fill).await
    }

    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError> {
        let place = self.shared.place(topic, from.partition)?;
        let head = self.shared.state().head(place).unwrap_or_default();
        let begin = from.offset.max(head.start);
        let span = Span {
            place,
            offsets: begin..head.end.min(begin.saturating_add(max as u64)).max(begin),
            max_bytes: MAX_READ_BYTES,
        };
        let found = self.shared.on_disk(move |disk| disk.read(&span)).await?;
        let partition = from.partition;
        Ok(found
            .into_iter()
            .map(|stored| delivered(partition, stored))
            .collect())
    }

    async fn check(&self) -> Result<(), LogError> {
        // `open` compared the layout, and nobody else can have changed it since.
        self.shared.open()
    }

    async fn close(&self) {
        let Some(writer) = lock(&self.shared.writer).take() else {
            return;
        };
        let (reply, done) = oneshot::channel();
        let sent = tokio::task::spawn_blocking(move || writer.send(Request::Close(reply))).await;
        if sent.is_ok() {
            let _ = done.await;
        }
        for topic in Topic::ALL {
            self.shared.signal(topic).notify_waiters();
        }
    }
}

impl Drop for EmbeddedLog {
    fn drop(&mut self) {
        // The writer ends when its queue is empty and nobody can add to it.
        lock(&self.shared.writer).take();
    }
}
