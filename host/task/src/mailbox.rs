//! How a worker speaks to a task that runs on another thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::report::Control;
use crate::signal::Wake;

/// How a worker speaks to a running task.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    mailbox: Sender<Control>,
    wake: Arc<dyn Wake>,
}

/// A mailbox and the handle that fills it; `wake` wakes whoever reads it.
pub(crate) fn mailbox(wake: Arc<dyn Wake>) -> (TaskHandle, Receiver<Control>) {
    #[allow(clippy::disallowed_methods, reason = "a worker says a few words per checkpoint and must never wait for a task")]
    let (mailbox, control) = channel();
    (TaskHandle { mailbox, wake }, control)
}

impl TaskHandle {
    /// Tells the task something. Without effect where the task is over.
    pub fn tell(&self, control: Control) {
        if self.mailbox.send(control).is_ok() {
            self.wake.wake();
        }
    }
}
