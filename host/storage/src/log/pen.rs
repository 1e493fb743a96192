//! How one writer puts entries into a log that others write too: requests out, answers in. Pure.
//!
//! An operation begins with one of [`Pen::reload`], [`Pen::append`], [`Pen::settle`]; whoever drives it carries out each [`Ask`] and
//! gives its answer, until there is an [`Outcome`]. Requests whose answer is lost are told of by [`Pen::lost_answer`].
//!
//! - A number belongs to whoever's entry is put there first. Who reads an entry, or has put one that leads, looks for greater ones
//!   afterwards: without one, the number was never used before, because the greatest entry is never deleted.
//! - The leader's other entries need no such look: the next number is free, or holds the entry that deposed it, which stays.
//! - What is put and unknown is put again, byte by byte, before anything else is.

use std::sync::Arc;

use weir_model::Epoch;

use super::decision::{Decision, Writer};
use super::entry::{Entry, LOG_FORMAT};
use super::state::{JobState, Refusal};

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// Numbers of the entries beyond this one.
    List {
        /// This one.
        after: u64,
    },
    /// An entry.
    Get(u64),
    /// Writes an entry unless its number is taken.
    Put(Arc<Entry>),
}

/// What the store says.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// To [`Ask::List`], in any order.
    Listed(Vec<u64>),
    /// To [`Ask::Get`]; none if it is not there.
    Got(Option<Box<Entry>>),
    /// To [`Ask::Put`]: it was written.
    Written,
    /// To [`Ask::Put`]: the number is taken.
    Taken,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The log was read.
    Read,
    /// The entry counts.
    Won,
    /// Another entry was there first; the log was read again.
    Lost,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    Ask(Ask),
    Done(Outcome),
    /// The answer is none to what was asked: a bug.
    Confused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// The newest entry is looked for; then that is the outcome.
    Listing(Outcome),
    Getting(Outcome),
    Putting,
    /// The number is taken: by whom?
    Comparing,
    /// The entry leads and is there: is anything beyond it?
    Checking,
}

/// One writer of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pen {
    by: Writer,
    /// The newest entry it knows; 0: none.
    number: u64,
    /// The state after that.
    state: Arc<JobState>,
    /// What was put, and may be there or not.
    unsettled: Option<Arc<Entry>>,
    /// What it knows may not be the newest, or nothing that counts: the log is to be read.
    behind: bool,
    phase: Phase,
}

impl Pen {
    pub(crate) fn new(by: Writer) -> Pen {
        Pen { by, number: 0, state: Arc::default(), unsettled: None, behind: true, phase: Phase::Idle }
    }

    /// One that only reads.
    pub(crate) fn reader() -> Pen {
        Pen::new(Writer { epoch: Epoch { origin: [0; 16], count: 0 }, nonce: 0 })
    }

    pub(crate) fn by(&self) -> Writer {
        self.by
    }

    /// Whether the log is to be read before anything can be put.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Number of the newest entry it knows.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The state after that.
    pub(crate) fn state(&self) -> &Arc<JobState> {
        &self.state
    }

    /// Reads what others have written.
    pub(crate) fn reload(&mut self) -> Ask {
        self.list(Outcome::Read)
    }

    /// Puts an entry at the next number. Nothing may be unsettled, and the newest entry must be known.
    pub(crate) fn append(&mut self, decision: Decision) -> Result<Ask, Refusal> {
        if self.unsettled.is_some() {
            return Err(Refusal::Misuse("while another one is on its way"));
        }
        if self.behind {
            return Err(Refusal::Misuse("before the log was read"));
        }
        if let Some(refusal) = self.state.refusal(&self.by, &decision) {
            return Err(refusal);
        }
        let number = self.number.saturating_add(1);
        let state = self.state.after(number, self.by, &decision);
        let entry = Arc::new(Entry { format: LOG_FORMAT, number, by: self.by, decision, state });
        self.unsettled = Some(Arc::clone(&entry));
        Ok(self.put(entry))
    }

    /// Puts again what was put and may be there or not, if there is something.
    pub(crate) fn settle(&mut self) -> Option<Ask> {
        let entry = self.unsettled.clone()?;
        Some(self.put(entry))
    }

    /// The request was not answered, or by an error. The operation is over.
    pub(crate) fn lost_answer(&mut self) {
        self.phase = Phase::Idle;
    }

    /// Goes on with an operation.
    pub(crate) fn answer(&mut self, answer: Answer) -> Next {
        match (std::mem::replace(&mut self.phase, Phase::Idle), answer) {
            (Phase::Listing(outcome), Answer::Listed(numbers)) => match numbers.into_iter().max() {
                Some(number) if number > self.number => {
                    self.phase = Phase::Getting(outcome);
                    Next::Ask(Ask::Get(number))
                }
                _ => {
                    self.behind = false;
                    Next::Done(outcome)
                }
            },
            // It may have been deleted after it was listed, and what was read may be a late put of somebody who has lost the number long
            // ago: it counts if it is the greatest still.
            (Phase::Getting(outcome), Answer::Got(Some(entry))) => {
                self.number = entry.number;
                self.state = Arc::new(entry.state);
                Next::Ask(self.list(outcome))
            }
            // There are newer ones, and it went meanwhile.
            (Phase::Getting(outcome), Answer::Got(None)) => Next::Ask(self.list(outcome)),
            (Phase::Putting, Answer::Written) => self.written(),
            (Phase::Putting, Answer::Taken) => match &self.unsettled {
                Some(entry) => {
                    self.phase = Phase::Comparing;
                    Next::Ask(Ask::Get(entry.number))
                }
                None => Next::Confused,
            },
            (Phase::Comparing, Answer::Got(found)) => {
                if found.is_some_and(|found| found.by == self.by) {
                    return self.written();
                }
                self.unsettled = None;
                Next::Ask(self.list(Outcome::Lost))
            }
            (Phase::Checking, Answer::Listed(numbers)) => match self.unsettled.take() {
                Some(entry) if numbers.is_empty() => self.won(&entry),
                // An old number, or another one leads since.
                Some(_) => Next::Ask(self.list(Outcome::Lost)),
                None => Next::Confused,
            },
            _ => Next::Confused,
        }
    }

    /// The entry is there.
    fn written(&mut self) -> Next {
        match self.unsettled.clone() {
            Some(entry) if entry.decision.leads() => {
                self.phase = Phase::Checking;
                Next::Ask(Ask::List { after: entry.number })
            }
            Some(entry) => self.won(&entry),
            None => Next::Confused,
        }
    }

    fn won(&mut self, entry: &Entry) -> Next {
        self.unsettled = None;
        self.number = entry.number;
        self.state = Arc::new(entry.state.clone());
        Next::Done(Outcome::Won)
    }

    fn put(&mut self, entry: Arc<Entry>) -> Ask {
        self.phase = Phase::Putting;
        Ask::Put(entry)
    }

    fn list(&mut self, outcome: Outcome) -> Ask {
        self.behind = true;
        self.phase = Phase::Listing(outcome);
        Ask::List { after: self.number }
    }
}

/// Numbers of entries that nobody needs: not among the newest `tail`, and no fences. Of `there`.
pub(crate) fn dispensable(newest: u64, tail: u64, state: &JobState, there: impl Iterator<Item = u64>) -> Vec<u64> {
    there.filter(|number| number.saturating_add(tail) <= newest && !state.fences.contains(number)).collect()
}

/// The newest entries that stay, for people who look, and so that a listing that is not a snapshot still sees one that is near
/// the newest.
pub(crate) const TAIL: u64 = 32;

/// Old entries are deleted so many at a time.
pub(crate) const DELETED_AT_ONCE: u64 = 32;
