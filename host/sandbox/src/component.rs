//! A component that was taken in: compiled, linked, ready to be opened.

use std::sync::{Arc, OnceLock};

use wasmtime::component::{Component as Code, ComponentExportIndex, Instance as RawInstance, InstancePre};
use wasmtime::{AsContextMut, Store};
use weir_model::Digest;

use crate::bindings::{
    AdvanceFunc, DescribeFunc, FinishFunc, GetGlobalFunc, LoadFunc, OpenFunc, ProcessFunc, SaveFunc, SetGlobalFunc,
};
use crate::engine::SharedEngine;
use crate::error::SandboxError;
use crate::guest::Guest;
use crate::image::Globals;
use crate::intake::{Accessor, Inspection, PreparedUpload};
use crate::names;

/// What an operator may know about where it runs: the same for all its instances, unchanged by restore or rescale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorContext {
    /// The job's name.
    pub job: String,
    /// The operator's id in the job file.
    pub operator: String,
    /// `name@version` of the component, or whatever stands for it.
    pub component: String,
    /// The operator's configuration as JSON.
    pub config: String,
}

/// A component that was taken in. Cheap to clone.
#[derive(Clone)]
pub struct Component {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<SharedEngine>,
    digest: Digest,
    name: Option<String>,
    inspection: Inspection,
    accessors: Vec<Accessor>,
    run: Form,
    /// Compiled when the first template is made; never, if all templates are restored.
    init: OnceLock<Form>,
    init_bytes: Vec<u8>,
}

/// One of the two forms of a component, ready to be instantiated.
pub(crate) struct Form {
    pub(crate) pre: InstancePre<Guest>,
    exports: ExportIndices,
}

struct ExportIndices {
    describe: ComponentExportIndex,
    open: ComponentExportIndex,
    process: ComponentExportIndex,
    advance: ComponentExportIndex,
    finish: ComponentExportIndex,
    portable: Option<(ComponentExportIndex, ComponentExportIndex)>,
    accessors: Vec<AccessorIndices>,
}

struct AccessorIndices {
    get: ComponentExportIndex,
    set: ComponentExportIndex,
    slots: u32,
}

/// The functions of one instance, with their types checked.
pub(crate) struct Exports {
    pub(crate) describe: DescribeFunc,
    pub(crate) open: OpenFunc,
    pub(crate) process: ProcessFunc,
    pub(crate) advance: AdvanceFunc,
    pub(crate) finish: FinishFunc,
    pub(crate) portable: Option<(SaveFunc, LoadFunc)>,
    accessors: Vec<AccessorFuncs>,
}

/// The way to the mutable globals of one core instance.
pub(crate) struct AccessorFuncs {
    get: GetGlobalFunc,
    set: SetGlobalFunc,
    slots: u32,
}

impl Component {
    pub(crate) fn new(engine: Arc<SharedEngine>, prepared: PreparedUpload) -> Result<Component, SandboxError> {
        let PreparedUpload { digest, name, inspection, init, run, accessors } = prepared;
        let run = Form::compile(&engine, digest, &run, &accessors)?;
        let inner = Inner { engine, digest, name, inspection, accessors, run, init: OnceLock::new(), init_bytes: init };
        Ok(Component { inner: Arc::new(inner) })
    }

    /// SHA-256 of the uploaded bytes: the component's identity.
    pub fn digest(&self) -> Digest {
        self.inner.digest
    }

    /// `name@version`, if the upload carries it.
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// Whether its state can be saved as rows and loaded by another version of the code.
    pub fn is_portable(&self) -> bool {
        self.inner.run.exports.portable.is_some()
    }

    /// What the upload is made of.
    pub fn inspection(&self) -> &Inspection {
        &self.inner.inspection
    }

    pub(crate) fn engine(&self) -> &Arc<SharedEngine> {
        &self.inner.engine
    }

    /// The form whose instantiation runs no guest code.
    pub(crate) fn run(&self) -> &Form {
        &self.inner.run
    }

    /// The form whose instantiation runs the start-up code.
    pub(crate) fn init(&self) -> Result<&Form, SandboxError> {
        if let Some(form) = self.inner.init.get() {
            return Ok(form);
        }
        let form = Form::compile(&self.inner.engine, self.inner.digest, &self.inner.init_bytes, &self.inner.accessors)?;
        Ok(self.inner.init.get_or_init(|| form))
    }
}

impl Form {
    fn compile(engine: &SharedEngine, digest: Digest, bytes: &[u8], accessors: &[Accessor]) -> Result<Form, SandboxError> {
        let code = engine.compile(bytes).map_err(|reason| SandboxError::Compile { digest, reason })?;
        Form::new(engine, digest, &code, accessors)
    }

    pub(crate) fn new(engine: &SharedEngine, digest: Digest, code: &Code, accessors: &[Accessor]) -> Result<Form, SandboxError> {
        let contract = |reason: String| SandboxError::Contract { digest, reason };
        let exports = ExportIndices::of(code, accessors).map_err(contract)?;
        let pre = engine.linker.instantiate_pre(code).map_err(|error| contract(format!("{error:#}")))?;
        Ok(Form { pre, exports })
    }

    /// Finds the functions of a new instance and checks their types.
    pub(crate) fn exports(&self, store: &mut Store<Guest>, instance: &RawInstance) -> wasmtime::Result<Exports> {
        let indices = &self.exports;
        Ok(Exports {
            describe: instance.get_typed_func(store.as_context_mut(), indices.describe)?,
            open: instance.get_typed_func(store.as_context_mut(), indices.open)?,
            process: instance.get_typed_func(store.as_context_mut(), indices.process)?,
            advance: instance.get_typed_func(store.as_context_mut(), indices.advance)?,
            finish: instance.get_typed_func(store.as_context_mut(), indices.finish)?,
            portable: match indices.portable {
                Some((save, load)) => Some((
                    instance.get_typed_func(store.as_context_mut(), save)?,
                    instance.get_typed_func(store.as_context_mut(), load)?,
                )),
                None => None,
            },
            accessors: indices
                .accessors
                .iter()
                .map(|&AccessorIndices { get, set, slots }| {
                    Ok(AccessorFuncs {
                        get: instance.get_typed_func(store.as_context_mut(), get)?,
                        set: instance.get_typed_func(store.as_context_mut(), set)?,
                        slots,
                    })
                })
                .collect::<wasmtime::Result<_>>()?,
        })
    }
}

impl ExportIndices {
    fn of(code: &Code, accessors: &[Accessor]) -> Result<ExportIndices, String> {
        let interface = |name: &str| code.get_export_index(None, name);
        let function = |interface: &ComponentExportIndex, interface_name: &str, name: &str| {
            code.get_export_index(Some(interface), name).ok_or_else(|| format!("it exports {interface_name} without {name}"))
        };
        let lifecycle = interface(names::LIFECYCLE).ok_or_else(|| format!("it does not export {}", names::LIFECYCLE))?;
        let portable = match interface(names::PORTABLE) {
            Some(portable) => {
                Some((function(&portable, names::PORTABLE, "save")?, function(&portable, names::PORTABLE, "load")?))
            }
            None => None,
        };
        Ok(ExportIndices {
            describe: function(&lifecycle, names::LIFECYCLE, "describe")?,
            open: function(&lifecycle, names::LIFECYCLE, "open")?,
            process: function(&lifecycle, names::LIFECYCLE, "process")?,
            advance: function(&lifecycle, names::LIFECYCLE, "advance")?,
            finish: function(&lifecycle, names::LIFECYCLE, "finish")?,
            portable,
            accessors: accessors
                .iter()
                .map(|accessor| {
                    let name = &accessor.export;
                    let instance = interface(name).ok_or_else(|| format!("the accessor {name} is missing; this is a bug"))?;
                    let (get, set) = (function(&instance, name, "get")?, function(&instance, name, "set")?);
                    Ok(AccessorIndices { get, set, slots: accessor.slots })
                })
                .collect::<Result<_, String>>()?,
        })
    }
}

impl Exports {
    /// The values of all mutable globals.
    pub(crate) fn read_globals(&self, store: &mut Store<Guest>) -> wasmtime::Result<Globals> {
        self.accessors.iter().map(|accessor| accessor.read(store)).collect()
    }

    /// Sets all mutable globals.
    ///
    /// # Errors
    /// If these are not as many as there are, or the guest traps.
    pub(crate) fn write_globals(&self, store: &mut Store<Guest>, globals: &Globals) -> wasmtime::Result<()> {
        if !self.accessors.iter().map(|accessor| accessor.slots as usize).eq(globals.iter().map(Vec::len)) {
            return Err(wasmtime::Error::msg("its globals are not those of its image"));
        }
        self.accessors.iter().zip(globals).try_for_each(|(accessor, values)| accessor.write(store, values))
    }
}

impl AccessorFuncs {
    /// All values, in slot order.
    fn read(&self, store: &mut Store<Guest>) -> wasmtime::Result<Vec<u64>> {
        (0..self.slots).map(|slot| Ok(self.get.call(store.as_context_mut(), (slot,))?.0)).collect()
    }

    fn write(&self, store: &mut Store<Guest>, values: &[u64]) -> wasmtime::Result<()> {
        (0..self.slots).zip(values).try_for_each(|(slot, &value)| self.set.call(store.as_context_mut(), (slot, value)))
    }
}
