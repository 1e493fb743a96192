//! What an operator says of itself: its ports, for job files and for people. The schema of its configuration and what becomes of its
//! state are added where it becomes a component.

/// What an operator is. The same whatever its configuration.
///
/// ```
/// use weir_sdk::Description;
///
/// let window = Description::new("Counts rows over windows of event time")
///     .input("rows", "What is counted")
///     .keyed_output("main", "A count for each key and window")
///     .output("late", "Rows that came too late, as they are");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub(crate) doc: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) pure: bool,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) doc: String,
}

/// An output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) keeps_key: bool,
}

/// What becomes of an operator's state; `export!` says it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Nothing it remembers matters.
    None,
    /// It is in checkpoints.
    Memory,
    /// It can also be saved as rows, of this version.
    Portable(u32),
}

impl Description {
    /// One line on what the operator is for. Unless others are named, it has one input, `in`, and one output, `main`.
    pub fn new(doc: &str) -> Description {
        Description { doc: doc.to_owned(), inputs: Vec::new(), outputs: Vec::new(), pure: false }
    }

    /// Adds an input, with one line about it. [`Row::input`](crate::Row::input) counts them in this order, from 0. Names are of lower-case letters,
    /// digits and `_`.
    #[must_use]
    pub fn input(mut self, name: &str, doc: &str) -> Description {
        self.inputs.push(Input { name: name.to_owned(), doc: doc.to_owned() });
        self
    }

    /// Adds an output, with one line about it. [`Outputs::to`](crate::Outputs::to) counts them in this order, from 0, which is the main one.
    #[must_use]
    pub fn output(mut self, name: &str, doc: &str) -> Description {
        self.outputs.push(Output { name: name.to_owned(), doc: doc.to_owned(), keeps_key: false });
        self
    }

    /// Adds an output whose rows all have a key that the instance was given. The host checks it, and may rely on it.
    #[must_use]
    pub fn keyed_output(mut self, name: &str, doc: &str) -> Description {
        self.outputs.push(Output { name: name.to_owned(), doc: doc.to_owned(), keeps_key: true });
        self
    }

    /// What is emitted for a row depends on nothing but the row and the configuration.
    #[must_use]
    pub fn pure(mut self) -> Description {
        self.pure = true;
        self
    }

    /// With the ports that it has unless others are named.
    pub(crate) fn complete(mut self) -> Description {
        if self.inputs.is_empty() {
            self = self.input("in", "");
        }
        if self.outputs.is_empty() {
            self = self.output("main", "");
        }
        self
    }
}

impl Default for Description {
    fn default() -> Description {
        Description::new("")
    }
}
