//! Operators that run natively instead of their component: for measuring what the sandbox costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_task::InstanceFactory;

/// Native operators by uid. Empty in `weir`.
pub type Native = BTreeMap<String, Arc<dyn InstanceFactory>>;
