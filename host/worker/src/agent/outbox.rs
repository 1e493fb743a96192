//! What the worker reports, on its way into whatever connection there is.

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use weir_protocol::Report;

use crate::Reports;

/// Takes reports from every thread. Without a connection they go nowhere: the next registration says what runs and how far it
/// is, and a checkpoint whose acknowledgement is lost is given up by whoever takes the job over.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    current: Mutex<Option<UnboundedSender<Report>>>,
}

impl Outbox {
    /// A new connection: what is reported from now on is its to send. Called before the worker is asked what it runs, so that
    /// whatever happens is in one of the two, or in both.
    pub(super) fn connect(&self) -> UnboundedReceiver<Report> {
        #[allow(
            clippy::disallowed_methods,
            reason = "a task says a few words per checkpoint and must never wait for the network; a connection that does not \
                      take them is closed within seconds, and its queue goes with it"
        )]
        let (sender, reports) = tokio::sync::mpsc::unbounded_channel();
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
        let current = self.current.lock();
        if current.as_ref().is_none_or(|sender| sender.send(report).is_err()) {
            tracing::debug!("a report goes nowhere: there is no coordinator now");
        }
    }
}
