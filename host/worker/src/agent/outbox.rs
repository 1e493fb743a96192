//! What the worker reports, on its way into whatever connection there is.

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use weir_model::limits::REPORTS_WAITING_MAX;
use weir_protocol::Report;

use crate::Reports;

/// Takes reports from every thread. Without a connection they go nowhere: the next registration says what runs and how far it
/// is, and a checkpoint whose acknowledgement is lost is given up by whoever takes the job over.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    current: Mutex<Option<Sender<Report>>>,
}

impl Outbox {
    /// A new connection: what is reported from now on is its to send. Called before the worker is asked what it runs, so that
    /// whatever happens is in one of the two, or in both.
    pub(super) fn connect(&self) -> Receiver<Report> {
        let (sender, reports) = channel(REPORTS_WAITING_MAX);
        *self.current.lock() = Some(sender);
        reports
    }

    /// There is no connection any more.
    pub(super) fn disconnect(&self) {
        *self.current.lock() = None;
    }
}

impl Reports for Outbox {
    fn report(&self, report: Report) {
        let mut current = self.current.lock();
        let Some(sender) = &*current else {
            tracing::debug!("a report goes nowhere: there is no coordinator now");
            return;
        };
        match sender.try_send(report) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                // What was said would have a gap: the connection ends, and the next registration says how far everything is.
                tracing::warn!("{REPORTS_WAITING_MAX} reports wait for the connection to the coordinator: it is given up");
                *current = None;
            }
            Err(TrySendError::Closed(_)) => tracing::debug!("a report goes nowhere: its connection has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_model::Digest;

    use super::*;

    #[test]
    fn a_connection_that_does_not_take_reports_ends_and_the_next_one_begins_without_a_gap() {
        let outbox = Outbox::default();
        let report = || Report::Need { digest: Digest([0; 32]) };
        let mut first = outbox.connect();
        (0..=REPORTS_WAITING_MAX).for_each(|_| outbox.report(report()));
        let taken = std::iter::from_fn(|| first.blocking_recv()).count();
        assert_eq!(taken, REPORTS_WAITING_MAX, "then it has ended");
        let mut second = outbox.connect();
        outbox.report(report());
        assert!(second.try_recv().is_ok());
    }
}
