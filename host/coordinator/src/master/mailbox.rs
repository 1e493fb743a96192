//! The way to a master: an inbox that is bounded by count.
//!
//! A master never waits while it handles something, so little waits for it; but nothing else says how much workers say. What does not come from
//! workers (wishes, answers, the end of the process) is bounded by people and by what the master itself asks for, and always taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use weir_master::Input;
use weir_model::limits::MASTER_INPUTS_WAITING_MAX;

/// The way to a master. All clones lead to the same one.
#[derive(Clone, Debug)]
pub struct Mailbox {
    told: Sender<Input>,
    waiting: Arc<AtomicUsize>,
}

/// A master was not told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// As much waits for it as may. Whoever has said this must not go on as if it had been heard: it is to be lost.
    Full,
    /// It has ended.
    Gone,
}

/// What a master reads.
#[derive(Debug)]
pub(super) struct Inbox {
    told: Receiver<Input>,
    waiting: Arc<AtomicUsize>,
}

/// An empty inbox, and the way to it.
pub(super) fn mailbox() -> (Mailbox, Inbox) {
    #[allow(
        clippy::disallowed_methods,
        reason = "bounded by the count beside it: a channel of that size would take its memory at once"
    )]
    let (told, inbox) = channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Mailbox { told, waiting: waiting.clone() }, Inbox { told: inbox, waiting })
}

impl Mailbox {
    /// Tells the master something. Never waits.
    ///
    /// # Errors
    /// If it has ended; or a worker says this, and too much waits already.
    pub fn send(&self, input: Input) -> Result<(), SendFailure> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = match input {
            Input::Report { .. } if before >= MASTER_INPUTS_WAITING_MAX => Err(SendFailure::Full),
            input => self.told.send(input).map_err(|_| SendFailure::Gone),
        };
        if result.is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }
}

impl Inbox {
    /// The next input; `None` if there is none within that time. Waits for ever without one.
    ///
    /// # Errors
    /// If there is no way to it any more.
    pub(super) fn next(&self, within: Option<Duration>) -> Result<Option<Input>, RecvTimeoutError> {
        let next = match within {
            None => self.told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(within) => self.told.recv_timeout(within),
        };
        match next {
            Ok(input) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                Ok(Some(input))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(gone) => Err(gone),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_master::Wish;
    use weir_protocol::Report;

    use super::*;

    #[test]
    fn what_workers_say_is_bounded_and_what_people_wish_is_always_taken() {
        let (mailbox, inbox) = mailbox();
        let report = || Input::Report { worker: "a".into(), report: Box::new(Report::Heartbeat { progress: Vec::new() }) };
        for _ in 0..MASTER_INPUTS_WAITING_MAX {
            mailbox.send(report()).unwrap();
        }
        assert_eq!(mailbox.send(report()), Err(SendFailure::Full));
        mailbox.send(Input::Wish(Wish::Stop)).unwrap();
        assert!(inbox.next(None).unwrap().is_some() && inbox.next(None).unwrap().is_some());
        assert_eq!(mailbox.send(report()), Ok(()), "it has read two");
        assert_eq!(mailbox.send(report()), Err(SendFailure::Full));
        drop(inbox);
        assert_eq!(mailbox.send(Input::Wish(Wish::Stop)), Err(SendFailure::Gone));
    }
}
