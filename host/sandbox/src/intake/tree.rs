//! The parts of a component that matter for state: which modules it defines, which it instantiates, in what order.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;
use weir_model::limits;

use super::IntakeError;
use super::structure::at_most;

/// A component and everything nested in it. Ids are positions in these lists, in the order in which definitions start.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
    /// The first is the outermost.
    pub(super) components: Vec<Node>,
    /// Names of the outermost component's imports, in order, with whether each is an instance.
    pub(super) imports: Vec<(String, bool)>,
    /// Likewise its exports.
    pub(super) exports: Vec<(String, bool)>,
    pub(super) toolchain: BTreeSet<Tool>,
}

/// A core module.
#[derive(Debug, Default, Clone)]
pub(super) struct Module {
    pub(super) captured: Vec<CapturedGlobal>,
    pub(super) mutable_defined: u32,
    /// Defined, not imported.
    pub(super) memories: Vec<MemoryInfo>,
    /// Initial elements of each table it defines.
    pub(super) tables: Vec<u64>,
    /// Module and name of the imported functions that something may call.
    pub(super) used_imports: HashSet<(String, String)>,
}

/// A mutable global that is part of the memory image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CapturedGlobal {
    /// Its index in its module.
    pub(super) index: u32,
    pub(super) ty: Number,
}

/// The type of a captured global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Number {
    I32,
    I64,
    F32,
    F64,
    V128,
}

impl Number {
    /// Slots of 64 bits.
    pub(super) fn slots(self) -> u32 {
        if self == Number::V128 { 2 } else { 1 }
    }
}

impl Module {
    /// Slots of 64 bits its captured globals take.
    pub(super) fn slots(&self) -> u32 {
        self.captured.iter().map(|global| global.ty.slots()).sum()
    }
}

/// A definition inside a component, in the order of its sections.
#[derive(Debug, Clone, Copy)]
pub(super) enum NestedItem {
    Module(usize),
    Component(usize),
}

/// Something a component does when it is instantiated, in order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Makes core instance `instance` from a module.
    Core { instance: u32, module: usize },
    /// Makes component instance `instance` from a component.
    Child { instance: u32, component: usize },
}

/// How many items the index spaces that instrumentation appends to hold.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) modules: u32,
    pub(super) core_instances: u32,
    pub(super) core_functions: u32,
    pub(super) types: u32,
    pub(super) functions: u32,
    pub(super) instances: u32,
}

/// A component in the tree.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) nested: Vec<NestedItem>,
    pub(super) steps: Vec<Step>,
    pub(super) counts: Counts,
    /// Slots of each accessor that instrumentation gives it: first those of its own core instances, then its children's.
    pub(super) accessors: Vec<u32>,
    /// What one instance of it holds, nested instances included.
    pub(super) totals: Totals,
}

/// What one instance holds.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Totals {
    pub(super) component_instances: u64,
    pub(super) core_instances: u64,
    pub(super) memories: u64,
    pub(super) tables: u64,
    /// Of all tables together.
    pub(super) table_elements: u64,
    pub(super) mutable_defined: u64,
    pub(super) globals_captured: u64,
    /// 64 bits each.
    pub(super) global_slots: u64,
}

/// A linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
    /// Size at instantiation, in pages of 64 KiB.
    pub initial_pages: u64,
    /// Size it may grow to; none means the limit of the instance.
    pub maximum_pages: Option<u64>,
}

/// One entry of a producers section.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Tool {
    /// `language`, `processed-by` or `sdk`.
    pub role: String,
    /// Name of the language or tool.
    pub name: String,
    /// Its version, as it says.
    pub version: String,
}

impl Tree {
    /// Fills in what follows from the steps of component `id`, whose children are finished. Bounds are checked at each
    /// level, as a component instantiated many times at each of several levels would multiply beyond any memory.
    pub(super) fn finish(&mut self, id: usize) -> Result<(), IntakeError> {
        let mut totals = Totals { component_instances: 1, ..Totals::default() };
        let mut accessors = Vec::new();
        for step in &self.components[id].steps {
            if let Step::Core { module, .. } = *step {
                let module = &self.modules[module];
                totals.core_instances += 1;
                totals.memories += module.memories.len() as u64;
                totals.tables += module.tables.len() as u64;
                totals.table_elements = module.tables.iter().fold(totals.table_elements, |sum, &table| sum.saturating_add(table));
                totals.mutable_defined += u64::from(module.mutable_defined);
                totals.globals_captured += module.captured.len() as u64;
                totals.global_slots += u64::from(module.slots());
                if !module.captured.is_empty() {
                    accessors.push(module.slots());
                }
                check(&totals)?;
            }
        }
        for step in &self.components[id].steps {
            if let Step::Child { component, .. } = *step {
                let child = &self.components[component];
                totals.add(&child.totals);
                check(&totals)?;
                accessors.extend_from_slice(&child.accessors);
            }
        }
        self.components[id].totals = totals;
        self.components[id].accessors = accessors;
        Ok(())
    }

    /// Memories of one instance of component `id`, in the order in which they are made.
    pub(super) fn memories(&self, id: usize) -> Vec<MemoryInfo> {
        let mut memories = Vec::new();
        for step in &self.components[id].steps {
            match *step {
                Step::Core { module, .. } => memories.extend_from_slice(&self.modules[module].memories),
                Step::Child { component, .. } if self.components[component].totals.memories > 0 => {
                    memories.extend(self.memories(component));
                }
                Step::Child { .. } => {}
            }
        }
        memories
    }
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.component_instances += other.component_instances;
        self.core_instances += other.core_instances;
        self.memories += other.memories;
        self.tables += other.tables;
        self.table_elements += other.table_elements;
        self.mutable_defined += other.mutable_defined;
        self.globals_captured += other.globals_captured;
        self.global_slots += other.global_slots;
    }
}

fn check(totals: &Totals) -> Result<(), IntakeError> {
    const FEWER: &str = "link the operator's libraries statically, or split the operator in two";
    at_most("the number of core instances", totals.core_instances, limits::CORE_INSTANCES_MAX as u64, FEWER)?;
    at_most("the number of component instances", totals.component_instances, limits::COMPONENT_INSTANCES_MAX as u64, FEWER)?;
    at_most("the number of linear memories", totals.memories, limits::MEMORIES_MAX as u64, FEWER)?;
    at_most("the number of tables", totals.tables, limits::TABLES_MAX as u64, FEWER)?;
    at_most(
        "the number of elements of all tables",
        totals.table_elements,
        limits::TABLE_ELEMENTS_MAX as u64,
        "use fewer function pointers",
    )?;
    at_most(
        "the number of mutable globals in a snapshot (a v128 counts twice)",
        totals.global_slots,
        limits::GLOBALS_MAX as u64,
        "keep state in linear memory",
    )
}
