//! How long a master waits for what.

use weir_model::limits::COMPILE_MS_MAX;

/// How long a master waits for what. All of these are about messages and answers, none about the job's own settings. In milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How often progress is told.
    pub progress_ms: u64,
    /// A step of a deployment that some worker has not finished after this long is told of; again after twice as long, and so on.
    /// Long ones are in order (a large component is compiled once), but nobody should have to guess what a job does that does not
    /// begin.
    pub slow_step_ms: u64,
    /// A step that takes longer than this ends the attempt: a worker that is alive and does not get on (a mount that hangs) must not
    /// keep a job down for ever where another has room for it. Longer than any compilation may take; a state that takes longer to
    /// read than this cannot be restored.
    pub step_ms_max: u64,
    /// The same for tasks that run and wait for their state: so long without any more of it. Longer than a store is tried again by its
    /// client; a single image that takes longer to read than this cannot be restored.
    pub restore_ms_max: u64,
    /// Tasks that take longer than this to end are told of.
    pub slow_end_ms: u64,
    /// Longest wait for the tasks of an execution to end. It is a courtesy: threads that end by themselves give their memory back
    /// before the next execution needs it, and their last counts are shown.
    ///
    /// Nothing depends on it, so it may be shorter than a guest call or a write takes. A worker that is lost and runs on is not
    /// waited for at all, and a task that stands still here can do no more than one there:
    /// - its attempt is over: what it reports is dropped by its number, and its channels are closed to the new one;
    /// - files of its checkpoints have its attempt in their names, and only its master writes manifests, which it does not for it;
    /// - its sinks' pending files do too. Those that the next execution does not commit are removed when it begins, later ones by
    ///   the one after it; without a manifest nobody commits them;
    /// - where it has yet to remove leftovers and take output back, it asks the job's log first whether it is still the newest, and
    ///   whatever it does after that answer leaves alone what newer attempts have written and shown;
    /// - a commit that it still carries out is of a checkpoint that is complete: the next execution makes the same one, or goes back
    ///   further and removes the pending file, which leaves nothing to commit.
    pub end_ms_max: u64,
    /// The same for attempt 0, which only opens operators: its number is used again, so nothing of it may be there by then. A guest
    /// call may run until its deadline.
    pub trial_end_ms_max: u64,
    /// Storage that has not answered after this long is told of; again after twice as long, and so on.
    pub slow_storage_ms: u64,
    /// A sink that has not made visible what a checkpoint holds this long after that was complete is told of; again after twice as long, and
    /// so on. It is waited for without a bound: what it shows is the job's result.
    pub slow_commit_ms: u64,
    /// Storage is not waited for longer than this while tasks run: a checkpoint whose manifest nobody knows of holds the next one
    /// up, and a stop. A request to a store over a network is given up by its client long before.
    pub store_ms_max: u64,
    /// The same where no task runs. An attempt that begins deletes what a crash has left, which may be many files; nothing waits
    /// for it but the job itself, and people are answered meanwhile.
    pub store_begin_ms_max: u64,
    /// A record that the coordinator's disk has not taken is tried again after this long; twice as long each time, up to the next
    /// limit.
    pub record_retry_ms: u64,
    /// See above.
    pub record_retry_ms_max: u64,
}

impl Limits {
    /// What production has.
    pub const DEFAULT: Limits = Limits {
        progress_ms: 500,
        slow_step_ms: 4_000,
        step_ms_max: 1_800_000,
        restore_ms_max: 600_000,
        slow_end_ms: 1_000,
        end_ms_max: 3_000,
        trial_end_ms_max: 15_000,
        slow_storage_ms: 5_000,
        slow_commit_ms: 5_000,
        store_ms_max: 60_000,
        store_begin_ms_max: 600_000,
        record_retry_ms: 500,
        record_retry_ms_max: 10_000,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

const _: () = {
    let limits = Limits::DEFAULT;
    assert!(limits.step_ms_max > COMPILE_MS_MAX);
    assert!(limits.slow_step_ms < limits.step_ms_max && limits.store_ms_max < limits.restore_ms_max);
    assert!(limits.slow_end_ms < limits.end_ms_max && limits.end_ms_max < limits.trial_end_ms_max);
    assert!(limits.slow_storage_ms < limits.store_ms_max && limits.store_ms_max < limits.store_begin_ms_max);
    assert!(limits.record_retry_ms < limits.record_retry_ms_max);
};
