//! What components say of themselves, as planning asks for it.

use std::sync::Arc;

use weir_model::Description;

use crate::job::ComponentRef;

/// Says what the component of an operator (its uid, and the component) says of itself. May be asked several times about one.
pub type Describe<'a> = &'a dyn Fn(&str, &ComponentRef) -> Result<Arc<Description>, DescriptionError>;

/// Nobody knows what a component says of itself. Becomes an error at `component` of its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptionError {
    /// Why: there is no such component, it is none, it cannot be described.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A description for operators that are no components: one input, one output, any configuration.
///
/// # Errors
/// Never.
pub fn plain(_uid: &str, _component: &ComponentRef) -> Result<Arc<Description>, DescriptionError> {
    Ok(Arc::new(Description::plain()))
}
