//! What a component says of itself: `lifecycle.describe`, called on an instance that is used for nothing else, and checked.
//!
//! Owns every rule for a description. A component may lie in it or give no end of it: what one may hand over is bounded by the call,
//! and who reads what a child of this process has found checks it again.

use std::sync::Arc;

use wasmtime::component::Component as Code;
use weir_model::limits::{
    DESCRIBE_CPU_S_MAX, DESCRIBE_MEMORY_BYTES_MAX, DESCRIPTION_BYTES_MAX, PORT_NAME_BYTES_MAX, PORTS_MAX, SCRATCH_BYTES_MAX,
};
use weir_model::{Description, Digest, InputPort, OutputPort, Scratch, StateKind};

use crate::bindings::{DescriptionOut, LogLevel, StateOut};
use crate::component::Form;
use crate::engine::SharedEngine;
use crate::error::{Refusal, SandboxError, Trap};
use crate::guest::{Guest, Phase};
use crate::intake::Inspection;
use crate::limits::{InstanceLimits, Limiter};
use crate::parts::Parts;
use crate::reports::{HostEvents, Reports};

/// Bytes of a page of linear memory, as WebAssembly counts.
const WASM_PAGE_BYTES: u32 = 64 << 10;

/// Makes an instance of the form that runs start-up code, and asks it. `code` says what it is within bounds of time, memory and size; what
/// it says is not checked any further.
///
/// # Errors
/// That it traps, exceeds a bound, or does not fit the contract, in words for its author.
pub(crate) fn ask(engine: &SharedEngine, code: &Code) -> Result<Description, String> {
    // Whoever asked knows which component it is, and says so.
    let nameless = |error: SandboxError| match error {
        SandboxError::Contract { reason, .. } => format!("it does not fit the contract: {reason}"),
        SandboxError::Instantiate { reason, .. } => format!("it cannot be instantiated: {reason}"),
        SandboxError::Start { trap, .. } => format!("it does not start: {trap}"),
        error => error.to_string(),
    };
    let digest = Digest([0; 32]);
    let limits = InstanceLimits {
        memory_bytes: DESCRIBE_MEMORY_BYTES_MAX / 2,
        memory_total_bytes: None,
        call_deadline: std::time::Duration::from_secs(DESCRIBE_CPU_S_MAX),
    };
    let form = Form::new(engine, digest, code, &[]).map_err(nameless)?;
    let charge = engine.memory.operator(None).take(0)?;
    let limiter = Limiter::new(limits.memory_bytes, charge, true);
    let guest = Guest::new(limiter, Reports::new(Arc::new(Deaf)), Arc::new(Description::plain()));
    let Parts { mut store, exports, .. } = Parts::new(engine, digest, &form, &limits, guest, None).map_err(nameless)?;
    store.data_mut().begin(Phase::Quiet);
    store.set_epoch_deadline(engine.deadline_epochs(limits.call_deadline));
    let described = exports.describe.call(&mut store, ()).and_then(|(out,)| taken(out));
    described.map_err(|error| format!("describe: {}", Trap::of(&error, limits.call_deadline).after(store.data().limiter.met())))
}

/// Hears nothing of what a component logs while it describes itself.
struct Deaf;

impl HostEvents for Deaf {
    fn log(&self, _level: LogLevel, _message: &str) {}
    fn count(&self, _counter: &str, _delta: u64) {}
    fn gauge(&self, _gauge: &str, _value: f64) {}
}

/// Takes what a guest has said, unless there is more of it than there may be.
fn taken(out: DescriptionOut) -> wasmtime::Result<Description> {
    for (count, what) in [(out.inputs.len(), "inputs"), (out.outputs.len(), "outputs")] {
        if count > PORTS_MAX {
            return Err(Refusal::limit(format!("its description has {count} {what}, more than the limit of {PORTS_MAX}")));
        }
    }
    let description = Description {
        doc: out.doc,
        inputs: out.inputs.into_iter().map(|port| InputPort { name: port.name, doc: port.doc }).collect(),
        outputs: out
            .outputs
            .into_iter()
            .map(|port| OutputPort { name: port.name, doc: port.doc, keeps_key: port.keeps_key })
            .collect(),
        config: out.config,
        state: match out.state {
            StateOut::None => StateKind::None,
            StateOut::Memory => StateKind::Memory,
            StateOut::Portable(version) => StateKind::Portable(version),
        },
        uses_store: out.uses_store,
        uses_timers: out.uses_timers,
        pure: out.pure,
        scratch: out.scratch.map(|scratch| Scratch { offset: scratch.offset, len: scratch.len }),
    };
    check_length(&description).map_err(Refusal::limit)?;
    Ok(description)
}

/// Checks what a component says of itself, and that it fits the component.
///
/// # Errors
/// What is wrong, in words for its author.
pub(crate) fn check(description: &Description, inspection: &Inspection) -> Result<(), String> {
    check_texts(description)?;
    check_names("input", description.inputs.iter().map(|port| &port.name))?;
    check_names("output", description.outputs.iter().map(|port| &port.name))?;
    weir_plan::ConfigSchema::parse(&description.config)
        .map_err(|why| format!("the JSON Schema of its configuration cannot be used: {why}"))?;
    match (matches!(description.state, StateKind::Portable(_)), inspection.is_portable) {
        (true, false) => {
            return Err(format!("it says that its state is portable, and does not export {}", crate::names::PORTABLE));
        }
        (false, true) => {
            return Err(format!("it exports {}, and does not say that its state is portable", crate::names::PORTABLE));
        }
        _ => {}
    }
    for (says, what) in [(description.uses_store, "store"), (description.uses_timers, "timers")] {
        if says {
            return Err(format!("it says that it uses {what}, which it does not import; the host does not provide it for now"));
        }
    }
    check_scratch(description, inspection)
}

/// Names and texts of all ports.
fn port_texts(description: &Description) -> impl Iterator<Item = (&String, &String)> {
    let inputs = description.inputs.iter().map(|port| (&port.name, &port.doc));
    inputs.chain(description.outputs.iter().map(|port| (&port.name, &port.doc)))
}

fn check_length(description: &Description) -> Result<(), String> {
    let ports: usize = port_texts(description).map(|(name, doc)| name.len() + doc.len()).sum();
    let bytes = description.doc.len() + description.config.len() + ports;
    if bytes > DESCRIPTION_BYTES_MAX {
        return Err(format!("its description has {bytes} bytes of text, more than the limit of {DESCRIPTION_BYTES_MAX}"));
    }
    Ok(())
}

fn check_texts(description: &Description) -> Result<(), String> {
    check_length(description)?;
    for doc in std::iter::once(&description.doc).chain(port_texts(description).map(|(_, doc)| doc)) {
        if doc.chars().any(char::is_control) {
            return Err(format!("{doc:?} is no line of text: it has control characters"));
        }
    }
    Ok(())
}

fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > PORT_NAME_BYTES_MAX || !name.chars().all(known) {
            return Err(format!(
                "{name:?} cannot be the name of an {what}: 1 to {PORT_NAME_BYTES_MAX} lower-case letters, digits, `_`"
            ));
        }
        if seen.contains(&name.as_str()) {
            return Err(format!("two {what}s are called `{name}`"));
        }
        seen.push(name);
    }
    match seen.len() {
        0 if what == "input" => Err("it has no input, so nothing would ever call it".to_string()),
        count if count > PORTS_MAX => Err(format!("it has {count} {what}s, more than the limit of {PORTS_MAX}")),
        _ => Ok(()),
    }
}

/// Checks that scratch lies in the only memory that a component has.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_scratch(description: &Description, inspection: &Inspection) -> Result<(), String> {
    let Some(Scratch { offset, len }) = description.scratch else { return Ok(()) };
    let [memory] = &*inspection.memories else {
        let memories = inspection.memories.len();
        return Err(format!("it names scratch, and has {memories} memories; only a component with exactly one may"));
    };
    let wrong = |why: String| Err(format!("its scratch of {len} bytes from byte {offset} cannot be: {why}"));
    if len == 0 || !offset.is_multiple_of(WASM_PAGE_BYTES) || !len.is_multiple_of(WASM_PAGE_BYTES) {
        return wrong(format!("it has to be whole pages of {WASM_PAGE_BYTES} bytes"));
    }
    if len as usize > SCRATCH_BYTES_MAX {
        return wrong(format!("at most {SCRATCH_BYTES_MAX} bytes may be scratch"));
    }
    let size = memory.initial_pages * u64::from(WASM_PAGE_BYTES);
    if u64::from(offset) + u64::from(len) > size {
        return wrong(format!("it reaches beyond the {size} bytes with which the memory starts"));
    }
    Ok(())
}
