//! Who leads a worker, and whom it obeys. Pure.
//!
//! Any coordinator with a certificate of the cluster can be reached by a worker, also one that knows nothing of what the worker runs: one
//! on an empty or an older data folder, or on a test machine whose address is in the list. What runs belongs to the coordinator
//! that began it and to later lives of that one. So every command says whose it is, a registration says by whom the worker is led, and both
//! ends decide by the same rule, [`follows`].

use serde::{Deserialize, Serialize};
use weir_model::Epoch;

use crate::Command;

/// A command, with who gives it: what goes over the wire from a coordinator to a worker.
///
/// ```text
/// {"epoch": {"origin": 32 hexadecimal digits, "count": n}, "command": {..}}
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The coordinator. The same in all orders of one connection.
    pub epoch: Epoch,
    /// What is to be done.
    pub command: Command,
}

/// Whether a worker that runs what `led_by` began may obey `epoch`: a later life of the same coordinator, or one that a person has told
/// to take its place. `succeeds` names coordinators that are lost for good, each with the last life of it that was seen.
pub fn follows(led_by: Epoch, epoch: Epoch, succeeds: &[Epoch]) -> bool {
    epoch >= led_by || succeeds.iter().any(|lost| *lost >= led_by)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(origin: u8, count: u64) -> Epoch {
        Epoch { origin: [origin; 16], count }
    }

    #[test]
    fn s88_only_later_lives_of_the_same_coordinator_are_followed_and_those_a_person_has_named() {
        let led_by = epoch(1, 5);
        assert!(follows(led_by, epoch(1, 5), &[]) && follows(led_by, epoch(1, 6), &[]));
        assert!(!follows(led_by, epoch(1, 4), &[]), "an older life, or a folder from a backup");
        assert!(!follows(led_by, epoch(2, 9), &[]), "another coordinator");
        assert!(follows(led_by, epoch(2, 1), &[epoch(3, 1), epoch(1, 5)]));
        assert!(follows(led_by, epoch(1, 4), &[epoch(1, 5)]));
        assert!(!follows(led_by, epoch(2, 1), &[epoch(1, 4)]), "the one that was named lives on: a later life of it leads");
    }
}
