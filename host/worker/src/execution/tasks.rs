//! The threads of an execution's tasks.

use std::sync::Arc;
use std::thread::JoinHandle;

use weir_model::TaskId;
use weir_protocol::Failure;
use weir_protocol::panics::caught;
use weir_task::{Control, Task, TaskError, TaskHandle};

use super::deploy::Built;
use super::voice::{Voice, permanent, transient};
use crate::network::{Network, OnLost};

/// The running tasks. Dropped, they are ended and waited for.
pub(super) struct Tasks {
    tasks: Vec<(TaskId, TaskHandle, Option<JoinHandle<()>>)>,
}

impl Tasks {
    /// Connects the sending ends of channels and starts a thread for each task.
    pub(super) fn start(built: Built, voice: &Arc<Voice>, network: Option<&dyn Network>) -> Result<Tasks, Failure> {
        let count = built.tasks.len();
        let mut started = Tasks { tasks: Vec::new() };
        for (task, handle) in built.tasks {
            let (id, name) = (task.id(), task.name().to_owned());
            let voice = voice.clone();
            match std::thread::Builder::new().name(name.clone()).spawn(move || run(task, &voice)) {
                Ok(thread) => started.tasks.push((id, handle, Some(thread))),
                Err(error) => {
                    let reason = format!(
                        "cannot start thread {} of {count}, for task {name}: {error}; lower the job's parallelism, or raise the \
                         system's limit on threads (ulimit -u)",
                        started.tasks.len() + 1
                    );
                    return Err(permanent(reason));
                }
            }
        }
        if let Some(network) = network.filter(|_| !built.outbound.is_empty())
            && let Err(reason) = network.connect(voice.execution(), built.outbound, on_lost(voice))
        {
            return Err(transient(reason));
        }
        Ok(started)
    }

    /// Tells every task what `control` says for it.
    pub(super) fn tell(&self, mut control: impl FnMut(TaskId) -> Control) {
        self.tasks.iter().for_each(|(id, task, _)| task.tell(control(*id)));
    }

    /// Ends all threads, and waits for them.
    pub(super) fn end(self) {
        drop(self);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.tell(|_| Control::Cancel);
        for (task, _, thread) in &mut self.tasks {
            if thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!(%task, "a task panicked while it was stopped; this is a bug in weir");
            }
        }
    }
}

/// What a lost peer means for an execution.
pub(super) fn on_lost(voice: &Arc<Voice>) -> OnLost {
    let voice = voice.clone();
    Arc::new(move |lost| {
        let kind = weir_protocol::FailureKind::PeerLost;
        let reason = format!("the connection to worker {} is lost: {}", lost.worker, lost.reason);
        voice.failed(Failure { kind, uid: None, reason });
    })
}

fn run(task: Task, voice: &Voice) {
    let name = task.name().to_owned();
    if let Err(message) = caught(|| task.run()) {
        voice.failed(transient(TaskError::Panicked { task: name, message }.to_string()));
    }
}
