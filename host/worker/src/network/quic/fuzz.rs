//! Entry point for fuzzing: what another worker says beside the data, with its handling. It says it to a worker that expects one channel
//! of one execution from it.

use std::sync::{Arc, LazyLock};

use tokio::runtime::{Builder, Runtime};
use weir_channel::Limits;
use weir_model::Attempt;
use weir_protocol::{Envelope, Execution, PeerMessage, WorkerAddress, decode, encode};
use weir_task::{Gate, Signal};

use super::ends::Executions;
use crate::{Inbound, RoomWake};

/// Nothing runs on it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));

fn execution() -> Execution {
    Execution { job: "j".to_owned(), attempt: Attempt(3) }
}

/// Hears a message, given as it comes or as the JSON of one. Says what became of it.
pub fn peer_message(bytes: &[u8]) -> String {
    let framed = serde_json::from_slice::<serde_json::Value>(bytes).map(|value| encode(&value, &[]));
    let Ok(Envelope { message, .. }) = decode::<PeerMessage>(framed.as_deref().unwrap_or(bytes)) else {
        return "unreadable".to_owned();
    };
    let PeerMessage::Announce { execution: said, channel, checkpoint } = message;
    let (executions, mut gate) = (Executions::default(), Gate::new(Arc::new(Signal::default())));
    let room = Arc::new(RoomWake::default());
    let sender = gate.connect(room.clone(), Limits::default());
    let from = WorkerAddress { worker: "a".to_owned(), address: String::new() };
    let inbound = Inbound { channel: 7, from, sender, announcer: gate.announcer(), gate_channel: 0, room };
    let ends = executions.enter(&execution(), Arc::new(|_| {}), RUNTIME.handle());
    ends.expect(vec![inbound]).expect("one channel");
    let Some(ends) = executions.find(&said) else { return "no such execution".to_owned() };
    match ends.announce(channel, "a", checkpoint) {
        Ok(()) => format!("announced {}", gate.take_announcements().len()),
        Err(reason) => reason,
    }
}

/// Messages to begin with, as JSON.
pub fn peer_messages() -> Vec<Vec<u8>> {
    let announce = |channel| PeerMessage::Announce { execution: execution(), channel, checkpoint: weir_model::CheckpointId(4) };
    [announce(7), announce(8)].iter().filter_map(|message| serde_json::to_vec(message).ok()).collect()
}
