//! One job: what is remembered of it, what is seen of it now, and the way to its master.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;

use parking_lot::{Condvar, Mutex};
use weir_protocol::api::{CheckpointStatus, JobEvent, JobState};

use super::Inner;
use super::chronicle::Entry;
use super::{kinds, views};
use crate::metadata::{Change, Counts, JobRecord, MetadataError, StoredJob};
use crate::{Input, Progress, Shortage};

/// Heartbeats that a master is told between two signs of life of its own. It drains its inbox all the time but while it
/// waits for the disk; what tasks report then is bounded by their number, heartbeats would not be.
const HEARTBEATS_AHEAD_MAX: u32 = 4_096;

/// A job.
pub(crate) struct Job {
    name: String,
    way: Mutex<Way>,
    heartbeats: AtomicU32,
    pub(super) book: Mutex<Book>,
    /// Something in the book has changed.
    news: Condvar,
}

/// The way to a job's master.
enum Way {
    /// It was over before this coordinator could start one.
    Nobody,
    /// It has none yet: it will be told this. Bounded by what its tasks and people say within the wait for its workers.
    Later(Vec<Input>),
    /// It has one, which may be over.
    Master(Sender<Input>),
}

/// What is written about a job.
pub(super) struct Book {
    /// As it is on disk.
    pub(super) record: JobRecord,
    /// How far it is, as its master said last; where it is over, how far it was.
    pub(super) counts: Option<Counts>,
    /// Rows read per second, as its master said last.
    pub(super) rows_per_second: f64,
    /// The checkpoint completed last.
    pub(super) checkpoint: Option<CheckpointStatus>,
    /// Set until the first checkpoint of an attempt was told.
    pub(super) checkpoint_is_news: bool,
    /// The shortage that was told last.
    pub(super) shortage: Option<Shortage>,
    /// Another job has its name now, or none.
    pub(super) gone: bool,
}

impl StoredJob {
    /// Name of the job; none where its file cannot be read any more, which nothing but another version of weir can cause.
    pub(super) fn name(&self) -> Option<String> {
        match self.record.spec.load() {
            Ok(job) => Some(job.name),
            Err(problems) => {
                tracing::error!(file = self.record.spec.file, %problems, "a job that was accepted before cannot be read");
                None
            }
        }
    }
}

impl Job {
    pub(super) fn new(name: &str, record: JobRecord) -> Job {
        let way = if record.state.is_over() { Way::Nobody } else { Way::Later(Vec::new()) };
        let book = Book {
            counts: record.counts.clone(),
            rows_per_second: 0.0,
            checkpoint: record.checkpoint.clone(),
            record,
            checkpoint_is_news: true,
            shortage: None,
            gone: false,
        };
        Job {
            name: name.to_owned(),
            way: Mutex::new(way),
            heartbeats: AtomicU32::new(0),
            book: Mutex::new(book),
            news: Condvar::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Tells its master something; nobody where it is over.
    pub(super) fn tell(&self, told: Input) {
        match &mut *self.way.lock() {
            Way::Nobody => {}
            Way::Later(before) => before.push(told),
            Way::Master(inbox) => drop(inbox.send(told)),
        }
    }

    /// It is over without a master.
    pub(super) fn has_nobody(&self) {
        *self.way.lock() = Way::Nobody;
    }

    /// Its master is there. False if it has one already, which stays.
    pub(super) fn has_master(&self, inbox: Sender<Input>) -> bool {
        let mut way = self.way.lock();
        let Way::Later(before) = &mut *way else { return false };
        before.drain(..).for_each(|told| drop(inbox.send(told)));
        *way = Way::Master(inbox);
        true
    }

    /// Tells its master a heartbeat, unless that has many of them to look at already.
    pub(super) fn tell_heartbeat(&self, told: Input) {
        let Way::Master(inbox) = &*self.way.lock() else { return };
        if self.heartbeats.fetch_add(1, Ordering::Relaxed) < HEARTBEATS_AHEAD_MAX {
            let _ = inbox.send(told);
        }
    }

    /// The master gives a sign of life.
    pub(super) fn master_is_alive(&self) {
        self.heartbeats.store(0, Ordering::Relaxed);
    }

    /// Wakes those who wait for events.
    pub(super) fn wake(&self) {
        let _book = self.book.lock();
        self.news.notify_all();
    }

    /// Waits for news until a deadline; false when that has passed.
    pub(super) fn wait(&self, book: &mut parking_lot::MutexGuard<'_, Book>, deadline: std::time::Instant) -> bool {
        !self.news.wait_until(book, deadline).timed_out()
    }

    /// Changes the record durably, with what happened. The record in memory changes only when that on disk has.
    pub(super) fn write(
        &self,
        inner: &Inner,
        edit: impl FnOnce(&mut JobRecord),
        entry: Option<Entry>,
        begun: Option<&crate::Begun>,
    ) -> Result<(), MetadataError> {
        let mut book = self.book.lock();
        let mut record = book.record.clone();
        edit(&mut record);
        let event = entry.and_then(|entry| happen(&mut record, entry, inner.now().wall_ms));
        inner.metadata.put(&self.name, &record, &Change { begun, forget_begun: false, event: event.as_ref() })?;
        book.record = record;
        self.news.notify_all();
        Ok(())
    }
}

impl Book {
    /// Its master says how far it is.
    pub(super) fn hear(&mut self, progress: &Progress) {
        (self.counts, self.rows_per_second) = (Some(views::counts(progress)), progress.rows_per_second);
    }
}

/// Puts what happened into the record; gives the event, if it is one.
pub(super) fn happen(record: &mut JobRecord, entry: Entry, now_ms: u64) -> Option<JobEvent> {
    if let Some((state, reason)) = entry.state {
        if record.state != state {
            record.since_ms = now_ms;
        }
        (record.state, record.reason) = (state, reason);
    }
    let (level, kind, message) = entry.event?;
    record.last_event += 1;
    Some(JobEvent { number: record.last_event, at_ms: now_ms, level, kind: kind.to_owned(), message })
}

impl Inner {
    /// Notes what happened. Where the disk does not take it, the state is right in memory until the process ends, and what
    /// is on disk leads the next coordinator to the same end.
    pub(super) fn note(&self, job: &Job, entry: Entry) {
        self.note_and(job, entry, |_| {});
    }

    /// The same, with another change of the record.
    pub(super) fn note_and(&self, job: &Job, entry: Entry, edit: impl Fn(&mut JobRecord)) {
        let state = entry.state.clone();
        if let Err(error) = job.write(self, &edit, Some(entry), None) {
            tracing::error!(job = job.name(), %error, "an event of a job is lost");
            let mut book = job.book.lock();
            edit(&mut book.record);
            if let Some((state, reason)) = state {
                (book.record.state, book.record.reason) = (state, reason);
            }
        }
    }

    /// Notes that the job has a new coordinator. Its state stays: its tasks may run.
    pub(super) fn coordinator_restarted(&self, job: &Job, message: &str) {
        let state: JobState = job.book.lock().record.state;
        let event = (weir_protocol::api::EventLevel::Info, kinds::COORDINATOR_RESTARTED, message.to_owned());
        self.note(job, Entry { state: Some((state, Some(message.to_owned()))), event: Some(event) });
    }
}
