//! Scenario tests: a hand-written operator (`guest.wat`) taken in, run, captured and restored for real.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench;
mod boundary;
mod calls;
mod describe;
mod describing;
mod hostile;
mod restore;
mod shares;
mod tracking;
mod twins;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use weir_model::{Batch, CheckpointId, Description, InputPort, OutputPort};

use crate::{
    Component, EmittedRows, HostEvents, Instance, InstanceLimits, LogLevel, OperatorContext, Sandbox, SandboxOptions, Template,
    Tracking,
};

const CONTRACT: &str = include_str!("../../../../wit/weir.wit");
const WORLD: &str = "package weir:test;
world plain {
  include weir:operator/operator@0.2.0;
}
world portable {
  include weir:operator/operator@0.2.0;
  import weir:operator/state-writer@0.2.0;
  export weir:operator/portable@0.2.0;
}";

/// What `process` of the guest does for each input.
mod op {
    pub(super) const POKE: u32 = 0;
    pub(super) const GROW: u32 = 1;
    pub(super) const LOOP: u32 = 2;
    pub(super) const RECURSE: u32 = 3;
    pub(super) const FLOOD: u32 = 4;
    pub(super) const LOGS: u32 = 5;
    pub(super) const HUGE_STRING: u32 = 6;
    pub(super) const HUGE_LIST: u32 = 7;
    pub(super) const HUGE_EMIT: u32 = 8;
    pub(super) const UNEVEN: u32 = 9;
    pub(super) const ECHO: u32 = 10;
    pub(super) const UNREACHABLE: u32 = 11;
    pub(super) const FAIL: u32 = 12;
    pub(super) const REJECT: u32 = 13;
    pub(super) const METRICS: u32 = 14;
    pub(super) const FILL: u32 = 15;
    pub(super) const STEP: u32 = 16;
    pub(super) const AMPLIFY: u32 = 17;
    pub(super) const TEXT: u32 = 18;
    pub(super) const NAME: u32 = 19;
    pub(super) const EMIT_AND_REJECT: u32 = 20;
}

/// A component from a core module in text form.
fn component(module: &str) -> Vec<u8> {
    component_of(module, "portable")
}

/// A component of one of the worlds.
fn component_of(module: &str, world: &str) -> Vec<u8> {
    let mut resolve = wit_parser::Resolve::default();
    resolve.push_source("weir.wit", CONTRACT).unwrap();
    let package = resolve.push_source("test.wit", WORLD).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let mut module = wat::parse_str(module).unwrap();
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8).unwrap();
    wit_component::ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

static GUEST: LazyLock<Vec<u8>> = LazyLock::new(|| component(include_str!("guest.wat")));

static KERNEL: LazyLock<Option<(Sandbox, Component)>> = LazyLock::new(|| {
    let options = SandboxOptions { tracking: Tracking::Kernel, ..SandboxOptions::default() };
    let sandbox = Sandbox::new(options).inspect_err(|error| println!("{error}")).ok()?;
    let component = sandbox.take_in(&GUEST).unwrap();
    Some((sandbox, component))
});

static HASH: LazyLock<(Sandbox, Component)> = LazyLock::new(|| {
    let sandbox = Sandbox::new(SandboxOptions { tracking: Tracking::Hash, ..SandboxOptions::default() }).unwrap();
    let component = sandbox.take_in(&GUEST).unwrap();
    (sandbox, component)
});

/// The guest under each tracker that works here. Hashing works everywhere.
fn guests() -> impl Iterator<Item = &'static Component> {
    KERNEL.as_ref().into_iter().chain(Some(&*HASH)).map(|(_, component)| component)
}

/// Keeps what operators report.
#[derive(Default)]
struct Events {
    lines: Mutex<Vec<(LogLevel, String)>>,
    counts: Mutex<Vec<String>>,
    sums: Mutex<BTreeMap<String, u64>>,
}

impl HostEvents for Events {
    fn log(&self, level: LogLevel, message: &str) {
        self.lines.lock().unwrap().push((level, message.to_string()));
    }
    fn count(&self, counter: &str, delta: u64) {
        self.counts.lock().unwrap().push(counter.to_string());
        *self.sums.lock().unwrap().entry(counter.to_string()).or_default() += delta;
    }
    fn gauge(&self, _gauge: &str, _value: f64) {}
}

fn context(config: &str) -> OperatorContext {
    let text = str::to_string;
    OperatorContext { job: text("job"), operator: text("op"), component: text("guest@1"), config: text(config) }
}

/// What the guests of these tests are. `guest.wat` does something else for each input, and has more of them than a component can describe.
fn described() -> Description {
    let input = |number| InputPort { name: format!("in{number}"), doc: String::new() };
    let output = |number| OutputPort { name: format!("out{number}"), doc: String::new(), keeps_key: false };
    Description { inputs: (0..24).map(input).collect(), outputs: (0..4).map(output).collect(), ..Description::plain() }
}

/// The same with so many inputs.
fn described_with(inputs: usize) -> Description {
    let mut description = described();
    description.inputs.truncate(inputs);
    description
}

fn template(component: &Component) -> Template {
    template_of(component, 24)
}

fn template_of(component: &Component, inputs: usize) -> Template {
    let description = described_with(inputs);
    Template::open(component, &description, &context("{}"), &InstanceLimits::default(), Arc::new(Events::default())).unwrap()
}

/// Limits for guests that misbehave.
fn tight() -> InstanceLimits {
    InstanceLimits { memory_bytes: 8 << 20, memory_total_bytes: None, call_deadline: Duration::from_secs(2) }
}

/// Rows with these timestamps and 8-byte values.
fn rows(rows: &[(i64, u64)]) -> Batch {
    let mut batch = Batch::default();
    rows.iter().for_each(|&(timestamp, value)| batch.push(timestamp, b"", &value.to_le_bytes()));
    batch
}

fn run(instance: &mut Instance, op: u32, batch: &Batch) -> EmittedRows {
    let mut emitted = EmittedRows::new();
    let rejected = instance.process(op, batch.view(), &mut emitted).unwrap();
    assert!(rejected.is_empty());
    emitted
}

fn poke(instance: &mut Instance, address: usize, value: u64) {
    run(instance, op::POKE, &rows(&[(address as i64, value)]));
}

fn grow(instance: &mut Instance, pages: i64) {
    run(instance, op::GROW, &rows(&[(pages, 0)]));
}

/// Runs the machine of the guest; gives its state.
fn step(instance: &mut Instance, values: &[i64]) -> i64 {
    let batch = rows(&values.iter().map(|&value| (value, 0)).collect::<Vec<_>>());
    let emitted = run(instance, op::STEP, &batch);
    emitted.entries().next().unwrap().1.timestamps[0]
}

/// The whole memory of an instance.
#[allow(unsafe_code, reason = "reads a guest's memory")]
fn memory(instance: &Instance) -> Vec<u8> {
    // SAFETY: the instance is borrowed and not in a call.
    unsafe { instance.region(0).bytes() }.to_vec()
}

fn capture(instance: &mut Instance, checkpoint: u64) -> Vec<u8> {
    instance.capture(CheckpointId(checkpoint)).unwrap().encode()
}

fn restore(template: &Template, chain: &[Vec<u8>]) -> Instance {
    Instance::restore(template, &chain.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

/// Numbers that look random and are the same every time (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
