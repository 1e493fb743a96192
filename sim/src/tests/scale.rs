//! What a checkpoint costs the coordinator.

use crate::scale::measure;

#[test]
fn a_checkpoint_costs_the_coordinator_no_more_than_in_proportion_to_subtasks() {
    let measured = [250, 500, 1_000].map(|workers| measure(workers, 20, 2));
    for of in &measured {
        eprintln!("{of:?}");
    }
    let [few, _, many] = measured.map(|of| of.per_checkpoint.as_secs_f64() / of.subtasks as f64);
    // Four times the subtasks at the same cost for each; a machine that is busy or a cache that is small may triple it.
    assert!(many < few * 3.0, "{few:.2e} s a subtask at 5,000, {many:.2e} s at 20,000");
}
