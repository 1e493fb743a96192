//! The core module that reads and writes another core instance's mutable globals.
//!
//! It imports the globals that instrumentation exports and has `get(slot: i32) -> i64` and `set(slot: i32, value: i64)`.
//! Floats travel as their bits, so that NaN payloads survive. A slot that does not exist traps.

use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalType, ImportSection,
    InstructionSink, Module, TypeSection, ValType,
};

use super::scan_module::RESERVED_EXPORT;
use super::tree::{CapturedGlobal, Number};

/// Name under which the accessor module imports the instance that holds the globals.
pub(super) const IMPORT: &str = "globals";

/// Name of the export that instrumentation adds for the `position`th captured global of a module.
pub(super) fn export_name(position: usize) -> String {
    format!("{RESERVED_EXPORT}{position}")
}

/// The accessor module for a module's captured globals.
pub(super) fn module(captured: &[CapturedGlobal]) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I64]);
    types.ty().function([ValType::I32, ValType::I64], []);

    let mut imports = ImportSection::new();
    for (position, global) in captured.iter().enumerate() {
        let ty = GlobalType { val_type: value_type(global.ty), mutable: true, shared: false };
        imports.import(IMPORT, &export_name(position), EntityType::Global(ty));
    }

    let mut functions = FunctionSection::new();
    functions.function(0);
    functions.function(1);

    let mut exports = ExportSection::new();
    exports.export("get", ExportKind::Func, 0);
    exports.export("set", ExportKind::Func, 1);

    let slots = slots(captured);
    let mut code = CodeSection::new();
    code.function(&switch(&slots, |slot, out| get(*slot, out)));
    code.function(&switch(&slots, |slot, out| set(*slot, out)));

    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);
    module.finish()
}

/// 64 bits of a global.
#[derive(Clone, Copy)]
struct Slot {
    global: u32,
    ty: Number,
    /// Which half of a v128.
    lane: u8,
}

fn slots(captured: &[CapturedGlobal]) -> Vec<Slot> {
    let lanes = |ty: Number| if ty == Number::V128 { 0..2 } else { 0..1 };
    (0u32..)
        .zip(captured)
        .flat_map(|(global, captured)| lanes(captured.ty).map(move |lane| Slot { global, ty: captured.ty, lane }))
        .collect()
}

/// A function whose first parameter chooses what it does. Each case is in a block of its own, the first innermost:
/// `br_table` jumps to the end of the case's block, after which the case's code follows.
fn switch(slots: &[Slot], case: impl Fn(&Slot, &mut InstructionSink<'_>)) -> Function {
    let mut function = Function::new([]);
    let mut out = function.instructions();
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    for _ in 0..=slots.len() {
        out.block(BlockType::Empty);
    }
    out.local_get(0).br_table((0..count).collect::<Vec<u32>>(), count).end();
    for slot in slots {
        case(slot, &mut out);
        out.return_().end();
    }
    out.unreachable().end();
    function
}

fn get(slot: Slot, out: &mut InstructionSink<'_>) {
    out.global_get(slot.global);
    match slot.ty {
        Number::I32 => out.i64_extend_i32_u(),
        Number::I64 => out,
        Number::F32 => out.i32_reinterpret_f32().i64_extend_i32_u(),
        Number::F64 => out.i64_reinterpret_f64(),
        Number::V128 => out.i64x2_extract_lane(slot.lane),
    };
}

fn set(slot: Slot, out: &mut InstructionSink<'_>) {
    match slot.ty {
        Number::I32 => out.local_get(1).i32_wrap_i64(),
        Number::I64 => out.local_get(1),
        Number::F32 => out.local_get(1).i32_wrap_i64().f32_reinterpret_i32(),
        Number::F64 => out.local_get(1).f64_reinterpret_i64(),
        Number::V128 => out.global_get(slot.global).local_get(1).i64x2_replace_lane(slot.lane),
    };
    out.global_set(slot.global);
}

fn value_type(ty: Number) -> ValType {
    match ty {
        Number::I32 => ValType::I32,
        Number::I64 => ValType::I64,
        Number::F32 => ValType::F32,
        Number::F64 => ValType::F64,
        Number::V128 => ValType::V128,
    }
}
