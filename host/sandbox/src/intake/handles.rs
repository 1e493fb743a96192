//! Handles of resources lie in tables of the host, where no snapshot sees them: nothing may ever make one.
//!
//! Canonical functions are taken by an allow-list, so what the component model gains is refused until somebody has looked at
//! it. Of resources one shape is taken, since stubs of WASI have it (componentize-qjs `--stub-wasi`): a `resource.new` that
//! is given to core modules of which none ever uses it. Nothing else makes handles, and the host gives none, so every handle
//! table stays empty, and what drops or reads a handle can only trap. Owns the way of these functions through the index
//! spaces of a component; never looks into code, which `scan_module` does.

use std::collections::HashMap;

use wasmparser::{CanonicalFunction, CanonicalOption, ComponentType, Export, ExternalKind, InstantiationArg};

use super::tree::Module;

/// What to do about a refusal.
pub(super) const HINT: &str = "a handle lies in a table of the host, which no snapshot holds: pass numbers or bytes instead of resources, and \
                               compose no components that share resources";

/// A `resource.new`, by its position among those of the component.
type Maker = usize;

/// What of one component could make handles. Indices are those of its index spaces; the validator has checked them. Errors
/// are the construct that is refused.
#[derive(Debug, Default)]
pub(super) struct Handles<'a> {
    /// Core functions, with what they make handles by.
    functions: Vec<Option<Maker>>,
    /// Core instances: what they offer that makes handles, by name.
    instances: Vec<HashMap<&'a str, Maker>>,
    /// Whether a module takes it and does not use it.
    is_placed: Vec<bool>,
    resources: usize,
}

impl<'a> Handles<'a> {
    /// The definition of a type.
    pub(super) fn component_type(&mut self, ty: &ComponentType<'_>) {
        self.resources += usize::from(matches!(ty, ComponentType::Resource { .. }));
    }

    /// A canonical function.
    pub(super) fn canonical(&mut self, function: &CanonicalFunction) -> Result<(), String> {
        match function {
            CanonicalFunction::Lift { core_func_index, options, .. } => {
                self.no_maker(*core_func_index)?;
                self.options(options)
            }
            CanonicalFunction::Lower { options, .. } => {
                self.functions.push(None);
                self.options(options)
            }
            CanonicalFunction::ResourceNew { .. } => {
                self.functions.push(Some(self.is_placed.len()));
                self.is_placed.push(false);
                Ok(())
            }
            CanonicalFunction::ResourceDrop { .. } | CanonicalFunction::ResourceRep { .. } => {
                self.functions.push(None);
                Ok(())
            }
            other => {
                let name = format!("{other:?}");
                let name = name.split([' ', '{', '(']).next().unwrap_or_default();
                Err(format!("the canonical function `{name}`, which neither lifts nor lowers,"))
            }
        }
    }

    fn options(&self, options: &[CanonicalOption]) -> Result<(), String> {
        options.iter().try_for_each(|option| match *option {
            CanonicalOption::Realloc(function) | CanonicalOption::PostReturn(function) | CanonicalOption::Callback(function) => {
                self.no_maker(function)
            }
            _ => Ok(()),
        })
    }

    fn no_maker(&self, function: u32) -> Result<(), String> {
        match self.maker(function) {
            Some(_) => Err("`resource.new`, which makes handles,".to_string()),
            None => Ok(()),
        }
    }

    fn maker(&self, function: u32) -> Option<Maker> {
        self.functions.get(function as usize).copied().flatten()
    }

    /// A core function that is taken out of a core instance.
    pub(super) fn alias(&mut self, instance: u32, name: &str) {
        self.functions.push(self.instances.get(instance as usize).and_then(|offered| offered.get(name)).copied());
    }

    /// A core instance that bundles what others have.
    pub(super) fn bundle(&mut self, exports: &[Export<'a>]) {
        let functions = exports.iter().filter(|export| export.kind == ExternalKind::Func);
        self.instances.push(functions.filter_map(|export| Some((export.name, self.maker(export.index)?))).collect());
    }

    /// A core instance made from a module. It hands on nothing: what a module exports counts as used.
    pub(super) fn instantiate(&mut self, module: &Module, args: &[InstantiationArg<'a>]) -> Result<(), String> {
        for arg in args {
            let Some(offered) = self.instances.get(arg.index as usize) else { continue };
            for (&name, &maker) in offered {
                if module.used_imports.contains(&(arg.name.to_string(), name.to_string())) {
                    return Err(format!("`resource.new`, which a core module uses as \"{}\" \"{name}\",", arg.name));
                }
                self.is_placed[maker] = true;
            }
        }
        self.instances.push(HashMap::new());
        Ok(())
    }

    /// At the end of the component: what is not part of a stub is refused, used or not.
    pub(super) fn finish(&self) -> Result<(), String> {
        if !self.is_placed.iter().all(|&placed| placed) {
            return Err("`resource.new`, which makes handles,".to_string());
        }
        // The resources of a stub have each their `resource.new`.
        if self.resources > self.is_placed.len() { Err("a resource type".to_string()) } else { Ok(()) }
    }
}
