//! Session windows: rows of a key with less than `gap` between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_sdk::memory::{self, NoRoom};
use weir_sdk::prelude::*;

use crate::config::{LATE, Plan, Shape};
use crate::totals::{Results, Totals, count_rounded};

/// Rows of a key with less than the gap between them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(bound = "T: Totals")]
struct Session<T> {
    start: Timestamp,
    /// Time of the last row plus the gap.
    end: Timestamp,
    /// Whether its result has been sent; it is kept for late rows only.
    sent: bool,
    totals: T,
}

/// The sessions of a key, in order of time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "T: Totals")]
struct OfKey<T> {
    sessions: Vec<Session<T>>,
    /// When to look at the key again: no later than the next event of any of its sessions.
    due: Timestamp,
}

/// What is kept: the sessions of each key, and when to look at which key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "T: Totals")]
pub(crate) struct Sessions<T> {
    keys: KeyMap<OfKey<T>>,
    /// Holds each key at its `due`. A session that grows need not move: its key is looked at too early, and put back.
    /// Entries whose time is not their key's `due` are left from before and mean nothing.
    queue: BinaryHeap<Reverse<(Timestamp, Vec<u8>)>>,
    /// The input has ended.
    ended: bool,
    /// Up to here rows were read before an end of the input, after which more came. Rows of that time are late.
    closed_until: Timestamp,
}

impl<T> Default for Sessions<T> {
    fn default() -> Sessions<T> {
        Sessions { keys: KeyMap::default(), queue: BinaryHeap::new(), ended: false, closed_until: Timestamp::MIN }
    }
}

impl<T: Totals> Sessions<T> {
    /// Takes in the rows of a call.
    pub(crate) fn process(&mut self, plan: &Plan, rows: BatchRef<'_>, out: &mut Outputs) -> Result<(), Error> {
        let Shape::Session { gap } = plan.shape else { unreachable!("panes are not kept in sessions") };
        let mut rounded = 0;
        for row in rows.rows(0) {
            const FAR: Timestamp = Timestamp::MAX / 4;
            if !(-FAR..FAR).contains(&row.timestamp()) {
                out.reject(row.index(), format_args!("time {} is out of range", row.timestamp()));
                continue;
            }
            match T::part(plan, &row, &mut rounded) {
                Ok(part) => {
                    if let Err(no_room) = self.add(plan, gap, &row, part, out) {
                        out.reject(row.index(), no_room);
                    }
                }
                Err(error) => out.reject(row.index(), error),
            }
        }
        count_rounded(rounded);
        Ok(())
    }

    fn add(&mut self, plan: &Plan, gap: i64, row: &Row<'_>, part: T::Part, out: &mut Outputs) -> Result<(), NoRoom> {
        let mut session = Session { start: row.timestamp(), end: row.timestamp() + gap, sent: false, totals: T::default() };
        session.totals.add(part);
        let sessions = self.keys.get(row.key()).map_or(&[][..], |key| key.sessions.as_slice());
        // Those that touch the row: it may close the gap between two.
        let from = sessions.partition_point(|other| other.end <= session.start);
        let to = sessions.partition_point(|other| other.start < session.end);
        for other in &sessions[from..to] {
            session.start = session.start.min(other.start);
            session.end = session.end.max(other.end);
            session.totals.merge(&other.totals);
        }
        if session.end.saturating_add(plan.lateness) <= out.watermark() || row.timestamp() <= self.closed_until {
            out.to(LATE).forward(*row);
            return Ok(());
        }
        // A session more, its key, and its place in the queue. Nothing has changed yet.
        if from == to {
            memory::reserve(row.key().len() * 2 + 4 * size_of::<Session<T>>())?;
        }
        if self.queue.len() == self.queue.capacity() {
            memory::reserve(self.queue.len().max(4) * 2 * size_of::<Reverse<(Timestamp, Vec<u8>)>>())?;
            self.queue.try_reserve(1).map_err(|_| NoRoom)?;
        }
        let key = self.keys.try_get_or_insert_with(row.key(), || OfKey { sessions: Vec::new(), due: Timestamp::MAX })?;
        if session.end <= out.watermark() {
            session.sent = true;
            Results::of(session.start, session.end).send(plan, row.key(), &session.totals, out.to(0));
        }
        let next = next_event(plan, &session);
        key.sessions.splice(from..to, [session]);
        if next < key.due {
            key.due = next;
            self.queue.push(Reverse((next, row.key().to_vec())));
        }
        Ok(())
    }

    /// Event time has reached `watermark`: sends the sessions that end by then, forgets those that take no more rows.
    pub(crate) fn advance(&mut self, plan: &Plan, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let ended = std::mem::replace(&mut self.ended, watermark == Timestamp::MAX);
        if ended && !self.ended {
            self.closed_until = watermark;
        }
        while let Some(Reverse((time, _))) = self.queue.peek()
            && *time <= watermark
            && let Some(Reverse((time, name))) = self.queue.pop()
        {
            let Some(key) = self.keys.get_mut(&name).filter(|key| key.due == time) else { continue };
            for session in key.sessions.iter_mut().filter(|session| !session.sent && session.end <= watermark) {
                session.sent = true;
                Results::of(session.start, session.end).send(plan, &name, &session.totals, out.to(0));
            }
            key.sessions.retain(|session| session.end.saturating_add(plan.lateness) > watermark);
            match key.sessions.iter().map(|session| next_event(plan, session)).min() {
                Some(next) => {
                    key.due = next;
                    self.queue.push(Reverse((next, name)));
                }
                None => drop(self.keys.remove(&name)),
            }
        }
        Ok(())
    }
}

/// When a session must be looked at: to be sent, then to be forgotten.
fn next_event<T>(plan: &Plan, session: &Session<T>) -> Timestamp {
    if session.sent { session.end.saturating_add(plan.lateness) } else { session.end }
}
