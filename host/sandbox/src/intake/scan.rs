//! Validates an upload and finds in one walk what matters for state, refusing what cannot be snapshotted.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding, ExternalKind,
    FuncValidatorAllocations, Instance, KnownCustom, Parser, Payload, ProducersSectionReader, ValidPayload, Validator,
};

use wasmparser::types::TypesRef;

use super::handles::{self, Handles};
use super::scan_module::ModuleScan;
use super::tree::{Counts, NestedItem, Node, Step, Tree};
use super::{IntakeError, Tool, features};

/// Entries of producers sections that are kept.
const TOOLS_MAX: usize = 64;

/// Validates `bytes`, which passed `structure::outline`, and describes its parts. A core module on its own gives a tree
/// without components.
pub(super) fn scan(bytes: &[u8]) -> Result<Tree, IntakeError> {
    let mut parser = Parser::new(0);
    parser.set_features(features::accepted());
    let mut walk = Walk::default();
    let mut validator = Validator::new_with_features(features::accepted());
    let mut allocations = FuncValidatorAllocations::default();
    for payload in parser.parse_all(bytes) {
        let payload = payload.map_err(|error| features::explain(&error))?;
        match validator.payload(&payload).map_err(|error| features::explain(&error))? {
            ValidPayload::Ok | ValidPayload::Parser(_) => walk.payload(&payload, bytes)?,
            ValidPayload::Func(function, body) => {
                let mut function = function.into_validator(std::mem::take(&mut allocations));
                function.validate(&body).map_err(|error| features::explain(&error))?;
                allocations = function.into_allocations();
                walk.module()?.body(&body)?;
            }
            ValidPayload::End(types) => walk.end(types.as_ref())?,
        }
    }
    Ok(walk.tree)
}

#[derive(Default)]
struct Walk<'a> {
    tree: Tree,
    /// Components that have begun and not ended, outermost first.
    open: Vec<Frame<'a>>,
    /// The core module that has begun and not ended. Core modules do not nest.
    module: Option<ModuleScan<'a>>,
    /// Where the module to come lies in the file, for messages that name its functions.
    module_bytes: Option<&'a [u8]>,
}

/// The index spaces of a component that lead to code.
struct Frame<'a> {
    id: usize,
    modules: Vec<Definition>,
    components: Vec<Definition>,
    core_instances: u32,
    instances: u32,
    handles: Handles<'a>,
}

/// What an index of the module or component index space stands for.
#[derive(Clone, Copy)]
struct Definition {
    id: usize,
    /// It was re-exported under a type of its own, which hides the exports that instrumentation adds.
    is_narrowed: bool,
}

impl Definition {
    fn new(id: usize) -> Definition {
        Definition { id, is_narrowed: false }
    }
}

impl<'a> Walk<'a> {
    fn payload(&mut self, payload: &Payload<'a>, bytes: &'a [u8]) -> Result<(), IntakeError> {
        match payload {
            Payload::Version { encoding, .. } => self.begin(*encoding, bytes),
            Payload::CustomSection(section) => {
                if let KnownCustom::Producers(producers) = section.as_known() {
                    self.producers(producers);
                }
                Ok(())
            }
            _ if self.module.is_some() => self.module()?.section(payload),
            Payload::ModuleSection { unchecked_range, .. } => {
                self.module_bytes = bytes.get(unchecked_range.clone());
                Ok(())
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    let import = import.map_err(|error| features::explain(&error))?;
                    self.import(import.name.name, &import.ty)?;
                }
                Ok(())
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export.map_err(|error| features::explain(&error))?;
                    if self.open.len() == 1 {
                        self.tree.exports.push((export.name.name.to_string(), export.kind == ComponentExternalKind::Instance));
                    }
                    self.export(export.kind, export.index, export.ty.is_some())?;
                }
                Ok(())
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.alias(&alias.map_err(|error| features::explain(&error))?)?;
                }
                Ok(())
            }
            Payload::ComponentTypeSection(section) => {
                for ty in section.clone() {
                    let ty = ty.map_err(|error| features::explain(&error))?;
                    self.frame()?.handles.component_type(&ty);
                }
                Ok(())
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section.clone() {
                    let function = function.map_err(|error| features::explain(&error))?;
                    let checked = self.frame()?.handles.canonical(&function);
                    checked.map_err(|construct| self.refused(construct, handles::HINT))?;
                }
                Ok(())
            }
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    self.core_instance(&instance.map_err(|error| features::explain(&error))?)?;
                }
                Ok(())
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    self.component_instance(&instance.map_err(|error| features::explain(&error))?)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, encoding: Encoding, bytes: &'a [u8]) -> Result<(), IntakeError> {
        match encoding {
            Encoding::Module => {
                let id = self.tree.modules.len();
                self.tree.modules.push(super::tree::Module::default());
                if let Some(frame) = self.open.last() {
                    self.tree.components[frame.id].nested.push(NestedItem::Module(id));
                }
                self.module = Some(ModuleScan::new(id, self.module_bytes.take().unwrap_or(bytes)));
            }
            Encoding::Component => {
                let id = self.tree.components.len();
                self.tree.components.push(Node::default());
                if let Some(frame) = self.open.last() {
                    self.tree.components[frame.id].nested.push(NestedItem::Component(id));
                }
                self.open.push(Frame {
                    id,
                    modules: Vec::new(),
                    components: Vec::new(),
                    core_instances: 0,
                    instances: 0,
                    handles: Handles::default(),
                });
            }
        }
        Ok(())
    }

    fn end(&mut self, types: TypesRef<'_>) -> Result<(), IntakeError> {
        if let Some(module) = self.module.take() {
            let (id, module) = module.finish();
            self.tree.modules[id] = module;
            if let Some(frame) = self.open.last_mut() {
                frame.modules.push(Definition::new(id));
            }
            return Ok(());
        }
        let checked = self.frame()?.handles.finish();
        checked.map_err(|construct| self.refused(construct, handles::HINT))?;
        let frame = self.open.pop().ok_or_else(unbalanced)?;
        let counts = Counts {
            modules: types.module_count(),
            core_instances: types.core_instance_count(),
            core_functions: types.function_count(),
            types: types.component_type_count(),
            functions: types.component_function_count(),
            instances: types.component_instance_count(),
        };
        // The index of an instance is taken from our own count; if it went wrong, the wrong memory would be captured.
        if (counts.core_instances, counts.instances) != (frame.core_instances, frame.instances) {
            return Err(unbalanced());
        }
        self.tree.components[frame.id].counts = counts;
        self.tree.finish(frame.id)?;
        if let Some(parent) = self.open.last_mut() {
            parent.components.push(Definition::new(frame.id));
        }
        Ok(())
    }

    fn import(&mut self, name: &str, ty: &ComponentTypeRef) -> Result<(), IntakeError> {
        match ty {
            ComponentTypeRef::Module(_) => Err(self.refused(format!("the imported core module \"{name}\""), DEFINE_WHERE_USED)),
            ComponentTypeRef::Component(_) => Err(self.refused(format!("the imported component \"{name}\""), DEFINE_WHERE_USED)),
            ComponentTypeRef::Instance(_) => {
                self.frame()?.instances += 1;
                self.top_level_import(name, true);
                Ok(())
            }
            _ => {
                self.top_level_import(name, false);
                Ok(())
            }
        }
    }

    fn top_level_import(&mut self, name: &str, is_instance: bool) {
        if self.open.len() == 1 {
            self.tree.imports.push((name.to_string(), is_instance));
        }
    }

    /// An export adds an index that stands for the same thing.
    fn export(&mut self, kind: ComponentExternalKind, index: u32, is_narrowed: bool) -> Result<(), IntakeError> {
        let frame = self.frame()?;
        let space = match kind {
            ComponentExternalKind::Module => &mut frame.modules,
            ComponentExternalKind::Component => &mut frame.components,
            ComponentExternalKind::Instance => {
                frame.instances += 1;
                return Ok(());
            }
            _ => return Ok(()),
        };
        let definition = space.get(index as usize).copied().ok_or_else(unbalanced)?;
        space.push(Definition { id: definition.id, is_narrowed: definition.is_narrowed || is_narrowed });
        Ok(())
    }

    fn alias(&mut self, alias: &ComponentAlias<'a>) -> Result<(), IntakeError> {
        match *alias {
            ComponentAlias::InstanceExport { kind, name, .. } => match kind {
                ComponentExternalKind::Module => {
                    Err(self.refused(format!("the core module \"{name}\" taken from an instance"), DEFINE_WHERE_USED))
                }
                ComponentExternalKind::Component => {
                    Err(self.refused(format!("the component \"{name}\" taken from an instance"), DEFINE_WHERE_USED))
                }
                ComponentExternalKind::Instance => {
                    self.frame()?.instances += 1;
                    Ok(())
                }
                _ => Ok(()),
            },
            ComponentAlias::Outer { kind, count, index } => {
                let outer = self.open.len().checked_sub(1 + count as usize).ok_or_else(unbalanced)?;
                let outer = &self.open[outer];
                match kind {
                    ComponentOuterAliasKind::CoreModule => {
                        let definition = outer.modules.get(index as usize).copied().ok_or_else(unbalanced)?;
                        self.frame()?.modules.push(definition);
                    }
                    ComponentOuterAliasKind::Component => {
                        let definition = outer.components.get(index as usize).copied().ok_or_else(unbalanced)?;
                        self.frame()?.components.push(definition);
                    }
                    _ => {}
                }
                Ok(())
            }
            ComponentAlias::CoreInstanceExport { kind: ExternalKind::Func, instance_index, name } => {
                self.frame()?.handles.alias(instance_index, name);
                Ok(())
            }
            ComponentAlias::CoreInstanceExport { .. } => Ok(()),
        }
    }

    fn core_instance(&mut self, instance: &Instance<'a>) -> Result<(), IntakeError> {
        let frame = self.open.last_mut().ok_or_else(unbalanced)?;
        let index = frame.core_instances;
        frame.core_instances += 1;
        let (module_index, args) = match instance {
            Instance::Instantiate { module_index, args } => (module_index, args),
            // An instance made from exports of others has no globals of its own.
            Instance::FromExports(exports) => {
                frame.handles.bundle(exports);
                return Ok(());
            }
        };
        let definition = frame.modules.get(*module_index as usize).copied().ok_or_else(unbalanced)?;
        if definition.is_narrowed && !self.tree.modules[definition.id].captured.is_empty() {
            return Err(
                self.refused(format!("core module {} instantiated under an exported type", definition.id), DEFINE_WHERE_USED)
            );
        }
        self.tree.components[frame.id].steps.push(Step::Core { instance: index, module: definition.id });
        let checked = frame.handles.instantiate(&self.tree.modules[definition.id], args);
        checked.map_err(|construct| self.refused(construct, handles::HINT))
    }

    fn component_instance(&mut self, instance: &ComponentInstance<'_>) -> Result<(), IntakeError> {
        let frame = self.open.last_mut().ok_or_else(unbalanced)?;
        let index = frame.instances;
        frame.instances += 1;
        let ComponentInstance::Instantiate { component_index, .. } = instance else { return Ok(()) };
        let definition = frame.components.get(*component_index as usize).copied().ok_or_else(unbalanced)?;
        if definition.is_narrowed && !self.tree.components[definition.id].accessors.is_empty() {
            return Err(
                self.refused(format!("component {} instantiated under an exported type", definition.id), DEFINE_WHERE_USED)
            );
        }
        self.tree.components[frame.id].steps.push(Step::Child { instance: index, component: definition.id });
        Ok(())
    }

    /// Producers are hearsay: what cannot be read is left out.
    fn producers(&mut self, section: ProducersSectionReader<'a>) {
        for field in section.into_iter().flatten() {
            for value in field.values.into_iter().flatten() {
                if self.tree.toolchain.len() >= TOOLS_MAX {
                    return;
                }
                let shorten = |text: &str| text.chars().take(100).collect::<String>();
                self.tree.toolchain.insert(Tool {
                    role: field.name.to_string(),
                    name: shorten(value.name),
                    version: shorten(value.version),
                });
            }
        }
    }

    fn module(&mut self) -> Result<&mut ModuleScan<'a>, IntakeError> {
        self.module.as_mut().ok_or_else(unbalanced)
    }

    fn frame(&mut self) -> Result<&mut Frame<'a>, IntakeError> {
        self.open.last_mut().ok_or_else(unbalanced)
    }

    fn refused(&self, construct: String, hint: &str) -> IntakeError {
        let location = match self.open.last() {
            Some(frame) if self.open.len() > 1 => format!("nested component {}", frame.id),
            _ => "the component".to_string(),
        };
        IntakeError::Refused { construct, location, hint: hint.to_string() }
    }
}

const DEFINE_WHERE_USED: &str =
    "code must be part of the upload to be snapshotted: define it in the component that instantiates it";

/// The validator accepted what our own walk could not follow.
fn unbalanced() -> IntakeError {
    IntakeError::Internal { message: "the component's index spaces could not be followed".to_string() }
}
