//! What a run came across.

use weir_model::CheckpointId;

/// What a run came across; a simulation in which nothing happens proves nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sightings {
    /// Executions that began.
    pub attempts: u64,
    /// Crashes of workers.
    pub worker_crashes: u64,
    /// Crashes of the coordinator.
    pub coordinator_crashes: u64,
    /// Executions that a new coordinator took over.
    pub taken_over: u64,
    /// Checkpoints that were completed, and when.
    pub completed: Vec<(u64, CheckpointId)>,
    /// Of these, those with rows in flight.
    pub completed_with_rows: u64,
    /// Manifests that became durable when nobody waited for them any more.
    pub completed_unheard: u64,
    /// Checkpoints that were given up.
    pub aborted: u64,
    /// Checkpoints that a task declined.
    pub declined: u64,
    /// Snapshots that could not be stored.
    pub persist_failed: u64,
    /// Manifests that could not be written.
    pub manifest_failed: u64,
    /// Barriers that were announced to another worker.
    pub announced: u64,
    /// Checkpoints that went on unaligned after a time.
    pub unaligned_late: u64,
    /// Rows in flight that were stored, and of these, those that a restore had brought.
    pub in_flight_rows: u64,
    /// See above.
    pub again_rows: u64,
    /// Rows in flight that were restored.
    pub restored_rows: u64,
    /// Changes of the parallelism.
    pub rescaled: u64,
    /// Of these, those that somebody asked for while the job ran.
    pub wished_rescales: u64,
    /// Stops.
    pub stopped: u64,
    /// Stops whose last checkpoint has rows in flight.
    pub stopped_with_rows: u64,
    /// Jobs that were asked to stop and ended without a last checkpoint.
    pub stopped_between: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Chains of captures of which a part was merged.
    pub merges: u64,
    /// Manifests that are there although their checkpoint was given up.
    pub uncertain: Vec<CheckpointId>,
    /// Of these, those that were announced as complete in the end.
    pub announced_late: u64,
    /// Requests to the storage that took effect when nobody waited for them.
    pub stragglers: u64,
    /// Requests that were not answered before the storage healed.
    pub hung: u64,
    /// Times that somebody was told of a slow storage.
    pub slow_storage: u64,
    /// Times that somebody was told of a slow step.
    pub slow_steps: u64,
    /// Times that a worker stood still.
    pub stuck: u64,
    /// Checkpoints of which a file was lost.
    pub damaged: u64,
    /// Checkpoints that could not be restored.
    pub fell_back: u64,
    /// Times that a worker found damage while its tasks ran.
    pub damage_found_late: u64,
    /// Workers that were killed while tasks ran that had not all of their state.
    pub crashes_restoring: u64,
    /// Things that were wished and had to wait until all state was restored.
    pub waited_for_restore: u64,
    /// Whether tasks run that have not all of their state, as far as people were told.
    pub is_restoring: bool,
    /// Committables that were taken back.
    pub taken_back: u64,
    /// Processes that took the place of a coordinator that went on.
    pub second_coordinators: u64,
    /// Of these, those that took it from one whose writing stood still before a checkpoint was complete.
    pub paused: u64,
    /// Coordinators of another origin.
    pub strangers: u64,
    /// Workers that met one and stayed with their own.
    pub stayed: u64,
    /// Partitions of the network.
    pub partitions: u64,
    /// Requests to the disk that failed.
    pub disk_failures: u64,
    /// Committables that were committed again.
    pub commits_again: u64,
}
