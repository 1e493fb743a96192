//! What a component says of itself (`lifecycle.describe` in the WIT): kept with its digest, used by the planner, shown to people.
//!
//! Owns the shape only. What a component sent is checked where it is called, in the sandbox.

use serde::{Deserialize, Serialize};

/// What an operator is. The same whatever its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// What it is for, one line.
    pub doc: String,
    /// Its inputs; `process` counts them in this order.
    pub inputs: Vec<InputPort>,
    /// Its outputs; ports count in this order. The first is the main one.
    pub outputs: Vec<OutputPort>,
    /// JSON Schema of its configuration, as text; `true` if anything goes.
    pub config: String,
    /// What becomes of its state.
    pub state: StateKind,
    /// It imports `store`.
    pub uses_store: bool,
    /// It imports `timers`.
    pub uses_timers: bool,
    /// What it emits for a row depends on nothing but the row and the configuration.
    pub pure: bool,
    /// Memory whose content matters within a call only.
    pub scratch: Option<Scratch>,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputPort {
    /// Its name in job files.
    pub name: String,
    /// One line for people.
    pub doc: String,
}

/// An output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPort {
    /// Its name in job files.
    pub name: String,
    /// One line for people.
    pub doc: String,
    /// Every row of it has a key that the instance was given.
    pub keeps_key: bool,
}

/// What becomes of an operator's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateKind {
    /// It keeps none.
    None,
    /// Its memory, which fits this very component only.
    Memory,
    /// Its memory, and rows of this version that other versions of the code can load.
    Portable(u32),
}

/// A piece of an operator's only memory that holds no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scratch {
    /// Where it starts: a whole number of pages of 64 KiB.
    pub offset: u32,
    /// How long it is: likewise.
    pub len: u32,
}

/// What a port, or the rest of a description, takes beside its texts.
const PORT_BYTES: usize = 64;

impl Description {
    /// One input `in`, one output `main`, any configuration, state in memory: for operators that are no components (tests, native ones).
    pub fn plain() -> Description {
        Description {
            doc: String::new(),
            inputs: vec![InputPort { name: "in".to_owned(), doc: String::new() }],
            outputs: vec![OutputPort { name: "main".to_owned(), doc: String::new(), keeps_key: false }],
            config: "true".to_owned(),
            state: StateKind::Memory,
            uses_store: false,
            uses_timers: false,
            pure: false,
            scratch: None,
        }
    }

    /// About how many bytes it takes in a message.
    pub fn bytes_len(&self) -> usize {
        let inputs = self.inputs.iter().map(|port| port.name.len() + port.doc.len() + PORT_BYTES);
        let outputs = self.outputs.iter().map(|port| port.name.len() + port.doc.len() + PORT_BYTES);
        self.doc.len() + self.config.len() + inputs.chain(outputs).sum::<usize>() + PORT_BYTES
    }

    /// Number of an input.
    pub fn input(&self, name: &str) -> Option<u32> {
        self.inputs.iter().position(|port| port.name == name).map(|index| index as u32)
    }

    /// Number of an output.
    pub fn output(&self, name: &str) -> Option<u32> {
        self.outputs.iter().position(|port| port.name == name).map(|index| index as u32)
    }
}
