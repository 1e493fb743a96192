//! What an entry does to the state.

use weir_model::{Attempt, CheckpointId, Epoch};

use super::super::decision::{Decision, Writer};
use super::super::state::{FENCES_MAX, JobState, Refusal};
use super::{begun, completed, next_checkpoint, owner, writer};
use crate::ManifestKind;

/// Entries one after the other.
struct History {
    number: u64,
    state: JobState,
}

impl History {
    fn new() -> History {
        History { number: 0, state: JobState::default() }
    }

    fn decide(&mut self, by: Writer, decision: &Decision) {
        assert_eq!(self.state.refusal(&by, decision), None, "{decision:?}");
        self.number += 1;
        self.state = self.state.after(self.number, by, decision);
    }

    fn complete(&mut self, by: Writer, kind: ManifestKind) -> CheckpointId {
        let checkpoint = next_checkpoint(&self.state, by, kind);
        let id = checkpoint.id;
        self.decide(by, &Decision::Completed { checkpoint, forgets: Vec::new() });
        id
    }

    fn ids(&self) -> Vec<u64> {
        self.state.checkpoints.iter().map(|checkpoint| checkpoint.id.0).collect()
    }
}

/// A job with checkpoints 1 to 3, led by writer 1.
fn with_three() -> History {
    let mut history = History::new();
    history.decide(writer(1), &Decision::Claimed(owner()));
    history.decide(writer(1), &begun(&history.state));
    for _ in 0..3 {
        history.complete(writer(1), ManifestKind::Checkpoint);
    }
    history
}

#[test]
fn s84_what_is_newer_than_where_an_attempt_goes_on_from_is_void_and_taken_back_until_a_checkpoint_is_complete() {
    let mut history = with_three();
    let from = Some(CheckpointId(1));
    history.decide(writer(2), &Decision::Begun { attempt: Attempt(2), from, void: vec![CheckpointId(3)] });
    assert_eq!(history.ids(), [1], "2 is void too, although nobody has looked at it");
    assert!(history.state.takes_back);
    // Whoever begins after a crash takes it back once more.
    history.decide(writer(3), &begun(&history.state));
    assert!(history.state.takes_back);
    assert_eq!(
        history.complete(writer(3), ManifestKind::Checkpoint),
        CheckpointId(4),
        "numbers that were void are not used again"
    );
    assert!(!history.state.takes_back);
    assert_eq!(history.ids(), [1, 4]);
}

#[test]
fn an_attempt_that_goes_on_from_the_newest_takes_nothing_back() {
    let mut history = with_three();
    history.decide(writer(2), &begun(&history.state));
    assert!(!history.state.takes_back);
    history.decide(writer(2), &Decision::Begun { attempt: Attempt(3), from: Some(CheckpointId(3)), void: vec![CheckpointId(1)] });
    assert!(!history.state.takes_back, "an older one is gone, nothing was gone back");
    assert_eq!(history.ids(), [2, 3]);
}

#[test]
fn starting_over_leaves_the_numbers_and_has_output_taken_back() {
    let mut history = with_three();
    history.decide(writer(2), &Decision::StartedOver(owner()));
    assert!(history.ids().is_empty());
    assert!(history.state.takes_back);
    let refused = completed(&history.state, writer(1), 3);
    assert_eq!(history.state.refusal(&writer(1), &refused), Some(Refusal::Fenced), "who ran before completes nothing any more");
    history.decide(writer(2), &begun(&history.state));
    assert_eq!(history.state.attempt, Attempt(2));
    assert_eq!(history.complete(writer(2), ManifestKind::Checkpoint), CheckpointId(4));
}

#[test]
fn savepoints_are_not_counted_not_gone_on_from_and_not_void() {
    let mut history = with_three();
    history.complete(writer(1), ManifestKind::Savepoint);
    assert_eq!(history.state.newest().map(|newest| newest.id), Some(CheckpointId(3)));
    assert_eq!(history.state.beyond(1), [CheckpointId(1), CheckpointId(2)]);
    history.decide(writer(2), &Decision::Begun { attempt: Attempt(2), from: Some(CheckpointId(2)), void: Vec::new() });
    assert_eq!(history.ids(), [1, 2, 4]);
}

#[test]
fn who_may_decide_what() {
    let history = with_three();
    let state = &history.state;
    let next = completed(state, writer(1), 3);
    assert_eq!(state.refusal(&writer(1), &next), None);
    assert_eq!(state.refusal(&writer(2), &next), Some(Refusal::Fenced));
    assert_eq!(state.refusal(&writer(2), &begun(state)), None, "metadata that was lost does not lock a job");
    let of = |nonce: u64, count: u64| Writer { epoch: Epoch { origin: writer(1).epoch.origin, count }, nonce };
    assert_eq!(state.refusal(&of(7, 0), &begun(state)), Some(Refusal::Fenced), "an earlier life of the coordinator that leads");
    assert_eq!(state.refusal(&of(7, 2), &Decision::Led { attempt: Attempt(1) }), None);
    assert!(matches!(state.refusal(&of(7, 2), &Decision::Led { attempt: Attempt(2) }), Some(Refusal::Misuse(_))));
    let mut again = next_checkpoint(state, writer(1), ManifestKind::Checkpoint);
    again.id = CheckpointId(3);
    let again = Decision::Completed { checkpoint: again, forgets: Vec::new() };
    assert_eq!(state.refusal(&writer(1), &again), Some(Refusal::Exists));
}

#[test]
fn the_state_is_bounded() {
    let mut history = with_three();
    for _ in 0..2 * FENCES_MAX {
        history.decide(writer(2), &begun(&history.state));
        history.decide(writer(2), &completed(&history.state, writer(2), 3));
    }
    assert_eq!(history.state.fences.len(), FENCES_MAX);
    assert!(history.state.fences.is_sorted());
    assert_eq!(history.ids().len(), 3);
}
