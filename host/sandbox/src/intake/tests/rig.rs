//! Runs what intake gives out in a plain engine: no memory creator, nothing but calls.

use wasmtime::component::{Component, ComponentNamedList, Func, Instance, Lift, Linker, Lower};
use wasmtime::{Engine, Store};

use crate::intake::{Accessor, PreparedUpload, features};

/// A component of `testdata/intake`.
macro_rules! fixture {
    ($name:literal) => {
        wat::parse_str(include_str!(concat!("../../../testdata/intake/", $name, ".wat"))).unwrap()
    };
}
pub(super) use fixture;

/// Checks that both variants of `prepared` are valid, whatever is done with them later.
pub(super) fn validate(prepared: &PreparedUpload) {
    for bytes in [&prepared.init, &prepared.run] {
        wasmparser::Validator::new_with_features(features::accepted()).validate_all(bytes).unwrap();
    }
}

/// An instance of a component.
pub(super) struct Rig {
    store: Store<()>,
    instance: Instance,
    accessors: Vec<(Accessor, Func, Func)>,
}

impl Rig {
    /// Instantiates `bytes`; every import traps when called.
    pub(super) fn new(bytes: &[u8], accessors: &[Accessor]) -> Rig {
        let engine = Engine::default();
        let component = Component::new(&engine, bytes).unwrap();
        let mut linker = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = linker.instantiate(&mut store, &component).unwrap();
        let accessors = accessors.iter().map(|accessor| {
            let exported = instance.get_export_index(&mut store, None, &accessor.export).unwrap();
            let mut function = |name| {
                let index = instance.get_export_index(&mut store, Some(&exported), name).unwrap();
                instance.get_func(&mut store, index).unwrap()
            };
            (accessor.clone(), function("get"), function("set"))
        });
        let accessors = accessors.collect();
        Rig { store, instance, accessors }
    }

    pub(super) fn call<P, R>(&mut self, name: &str, parameters: P) -> R
    where
        P: ComponentNamedList + Lower,
        (R,): ComponentNamedList + Lift,
        R: 'static,
    {
        let function = self.instance.get_typed_func::<P, (R,)>(&mut self.store, name).unwrap();
        function.call(&mut self.store, parameters).unwrap().0
    }

    pub(super) fn run<P: ComponentNamedList + Lower>(&mut self, name: &str, parameters: P) -> wasmtime::Result<()> {
        let function = self.instance.get_typed_func::<P, ()>(&mut self.store, name).unwrap();
        function.call(&mut self.store, parameters)
    }

    pub(super) fn get(&mut self, accessor: usize, slot: u32) -> wasmtime::Result<u64> {
        let get = self.accessors[accessor].1.typed::<(u32,), (u64,)>(&self.store)?;
        Ok(get.call(&mut self.store, (slot,))?.0)
    }

    pub(super) fn set(&mut self, accessor: usize, slot: u32, value: u64) -> wasmtime::Result<()> {
        let set = self.accessors[accessor].2.typed::<(u32, u64), ()>(&self.store)?;
        set.call(&mut self.store, (slot, value))
    }

    /// Every slot of every accessor.
    pub(super) fn globals(&mut self) -> Vec<Vec<u64>> {
        let slots: Vec<u32> = self.accessors.iter().map(|(accessor, ..)| accessor.slots).collect();
        let read = |(accessor, slots): (usize, u32)| (0..slots).map(|slot| self.get(accessor, slot).unwrap()).collect();
        slots.into_iter().enumerate().map(read).collect()
    }

    pub(super) fn set_globals(&mut self, globals: &[Vec<u64>]) {
        for (accessor, slots) in globals.iter().enumerate() {
            for (slot, value) in (0u32..).zip(slots) {
                self.set(accessor, slot, *value).unwrap();
            }
        }
    }
}
