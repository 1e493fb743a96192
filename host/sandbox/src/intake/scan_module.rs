//! One core module: the globals that are state, and the instructions that would keep state elsewhere.

use std::collections::HashSet;

use wasmparser::{
    ConstExpr, ElementItems, ElementSectionReader, ExportSectionReader, ExternalKind, FunctionBody, GlobalType, KnownCustom,
    Name, NameSectionReader, Operator, Parser, Payload, TableInit, TypeRef, ValType,
};

use super::tree::{CapturedGlobal, Module, Number};
use super::{IntakeError, MemoryInfo, features};

/// Exports that instrumentation adds begin with this.
pub(super) const RESERVED_EXPORT: &str = "weir:global:";

/// Gathers what matters of a module, section by section. The sections have been validated.
pub(super) struct ModuleScan<'a> {
    id: usize,
    bytes: &'a [u8],
    module: Module,
    /// Module and name of each imported function.
    functions_imported: Vec<(&'a str, &'a str)>,
    /// Imported functions that something may call.
    used: HashSet<u32>,
    bodies: u32,
    globals: Vec<Global>,
}

struct Global {
    ty: GlobalType,
    is_imported: bool,
    /// Some instruction of the module sets it.
    is_set: bool,
    /// Another module may set it.
    is_exported: bool,
}

impl<'a> ModuleScan<'a> {
    pub(super) fn new(id: usize, bytes: &'a [u8]) -> ModuleScan<'a> {
        ModuleScan {
            id,
            bytes,
            module: Module::default(),
            functions_imported: Vec::new(),
            used: HashSet::new(),
            bodies: 0,
            globals: Vec::new(),
        }
    }

    pub(super) fn section(&mut self, payload: &Payload<'a>) -> Result<(), IntakeError> {
        self.read(payload).map_err(|error| match error {
            Problem::Malformed(error) => features::explain(&error),
            Problem::Refused(error) => error,
        })
    }

    fn read(&mut self, payload: &Payload<'a>) -> Result<(), Problem> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    let import = import?;
                    match import.ty {
                        TypeRef::Func(_) | TypeRef::FuncExact(_) => self.functions_imported.push((import.module, import.name)),
                        TypeRef::Global(ty) => self.global(ty, true),
                        _ => {}
                    }
                }
            }
            Payload::GlobalSection(section) => {
                for global in section.clone() {
                    let global = global?;
                    self.global(global.ty, false);
                    self.expression(&global.init_expr)?;
                }
            }
            Payload::MemorySection(section) => {
                for memory in section.clone() {
                    let memory = memory?;
                    self.module.memories.push(MemoryInfo { initial_pages: memory.initial, maximum_pages: memory.maximum });
                }
            }
            Payload::TableSection(section) => {
                for table in section.clone() {
                    let table = table?;
                    self.module.tables.push(table.ty.initial);
                    if let TableInit::Expr(expression) = &table.init {
                        self.expression(expression)?;
                    }
                }
            }
            Payload::ExportSection(section) => self.exports(section.clone())?,
            Payload::StartSection { func, .. } => self.uses(*func),
            Payload::ElementSection(section) => self.elements(section.clone())?,
            _ => {}
        }
        Ok(())
    }

    fn exports(&mut self, section: ExportSectionReader<'_>) -> Result<(), Problem> {
        for export in section {
            let export = export?;
            if export.name.starts_with(RESERVED_EXPORT) {
                return Err(Problem::Refused(IntakeError::Refused {
                    construct: format!("the export \"{}\", a name reserved for weir,", export.name),
                    location: format!("core module {}", self.id),
                    hint: "upload the component as the toolchain made it, before weir instrumented it".to_string(),
                }));
            }
            if export.kind == ExternalKind::Func {
                self.uses(export.index);
            }
            if export.kind == ExternalKind::Global
                && let Some(global) = self.globals.get_mut(export.index as usize)
            {
                global.is_exported = true;
            }
        }
        Ok(())
    }

    fn elements(&mut self, section: ElementSectionReader<'_>) -> Result<(), Problem> {
        for element in section {
            match element?.items {
                ElementItems::Functions(functions) => {
                    for function in functions {
                        self.uses(function?);
                    }
                }
                ElementItems::Expressions(_, expressions) => {
                    for expression in expressions {
                        self.expression(&expression?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Something may call this function.
    fn uses(&mut self, function: u32) {
        if (function as usize) < self.functions_imported.len() {
            self.used.insert(function);
        }
    }

    fn expression(&mut self, expression: &ConstExpr<'_>) -> Result<(), wasmparser::Error> {
        let mut operators = expression.get_operators_reader();
        while !operators.eof() {
            if let Operator::RefFunc { function_index } = operators.read()? {
                self.uses(function_index);
            }
        }
        Ok(())
    }

    fn global(&mut self, ty: GlobalType, is_imported: bool) {
        self.globals.push(Global { ty, is_imported, is_set: false, is_exported: false });
    }

    /// Looks at the next function's instructions.
    pub(super) fn body(&mut self, body: &FunctionBody<'_>) -> Result<(), IntakeError> {
        let function = self.functions_imported.len() as u32 + self.bodies;
        self.bodies += 1;
        let mut operators = body.get_operators_reader().map_err(|error| features::explain(&error))?;
        while !operators.eof() {
            let instruction = match operators.read().map_err(|error| features::explain(&error))? {
                Operator::GlobalSet { global_index } => {
                    let Some(global) = self.globals.get_mut(global_index as usize) else { continue };
                    global.is_set = true;
                    if number(global.ty.content_type).is_some() {
                        continue;
                    }
                    return Err(self.refused(
                        function,
                        &format!("`global.set` of global {global_index}, which holds a reference,"),
                        "a snapshot holds numbers only: keep an index into a table that does not change instead",
                    ));
                }
                Operator::Call { function_index }
                | Operator::ReturnCall { function_index }
                | Operator::RefFunc { function_index } => {
                    self.uses(function_index);
                    continue;
                }
                Operator::DataDrop { .. } => {
                    return Err(self.refused(
                        function,
                        "`data.drop`",
                        "a snapshot does not hold which segments were dropped: leave the segment, or make it an active one",
                    ));
                }
                Operator::TableSet { .. } => "table.set",
                Operator::TableGrow { .. } => "table.grow",
                Operator::TableFill { .. } => "table.fill",
                Operator::TableCopy { .. } => "table.copy",
                Operator::TableInit { .. } => "table.init",
                _ => continue,
            };
            return Err(self.refused(
                function,
                &format!("`{instruction}`"),
                "a snapshot holds memories and globals, not tables, so tables must keep what their element segments say: \
                 link statically (no dlopen), or use a toolchain that leaves tables alone",
            ));
        }
        Ok(())
    }

    fn refused(&self, function: u32, construct: &str, hint: &str) -> IntakeError {
        let name = function_name(self.bytes, function).map(|name| format!(" ({name})")).unwrap_or_default();
        IntakeError::Refused {
            construct: construct.to_string(),
            location: format!("function {function}{name} of core module {}", self.id),
            hint: hint.to_string(),
        }
    }

    /// A defined mutable global is state if something may set it: an instruction here, or a module it is exported to.
    pub(super) fn finish(mut self) -> (usize, Module) {
        for (index, global) in (0u32..).zip(&self.globals) {
            if global.is_imported || !global.ty.mutable {
                continue;
            }
            self.module.mutable_defined += 1;
            if let (true, Some(ty)) = (global.is_set || global.is_exported, number(global.ty.content_type)) {
                self.module.captured.push(CapturedGlobal { index, ty });
            }
        }
        let name = |&function: &u32| {
            let (module, name) = self.functions_imported[function as usize];
            (module.to_string(), name.to_string())
        };
        self.module.used_imports = self.used.iter().map(name).collect();
        (self.id, self.module)
    }
}

enum Problem {
    Malformed(wasmparser::Error),
    Refused(IntakeError),
}

impl From<wasmparser::Error> for Problem {
    fn from(error: wasmparser::Error) -> Problem {
        Problem::Malformed(error)
    }
}

fn number(ty: ValType) -> Option<Number> {
    match ty {
        ValType::I32 => Some(Number::I32),
        ValType::I64 => Some(Number::I64),
        ValType::F32 => Some(Number::F32),
        ValType::F64 => Some(Number::F64),
        ValType::V128 => Some(Number::V128),
        ValType::Ref(_) => None,
    }
}

/// Name of a function from the module's name section, if it has one that can be read.
fn function_name(module: &[u8], function: u32) -> Option<String> {
    for payload in Parser::new(0).parse_all(module) {
        let Payload::CustomSection(section) = payload.ok()? else { continue };
        let KnownCustom::Name(names) = section.as_known() else { continue };
        return find_name(names, function);
    }
    None
}

fn find_name(names: NameSectionReader<'_>, function: u32) -> Option<String> {
    for name in names {
        let Name::Function(map) = name.ok()? else { continue };
        let naming = map.into_iter().flatten().find(|naming| naming.index == function)?;
        return Some(naming.name.chars().take(200).collect());
    }
    None
}
