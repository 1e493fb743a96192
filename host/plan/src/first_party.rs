//! What is known of first-party operators by the names of their components, since contract 0.1 does not let a component say
//! which outputs it has. Owns that table; nothing here decides what a component may do.

use crate::job::{ComponentRef, OperatorSpec};

/// Name of the output for late rows, by convention.
pub(crate) const LATE: &str = "late";

/// Components that send late rows to output 1.
const LATE_AT_1: [&str; 3] = ["window", "distinct", "rate-alert"];

impl OperatorSpec {
    /// The output that late rows come out of: the one that the job file names `late`, or where it names none, the one that a
    /// first-party component is known to use.
    pub fn late_port(&self) -> Option<u32> {
        let named = self.outputs.iter().position(|name| name == LATE).map(|port| port as u32);
        named.or_else(|| (self.is_late_at_1() && self.outputs.len() < 2).then_some(1))
    }

    /// Whether its component is known to send late rows to output 1.
    pub(crate) fn is_late_at_1(&self) -> bool {
        matches!(&self.component, ComponentRef::Named { name, .. } if LATE_AT_1.contains(&name.as_str()))
    }
}
