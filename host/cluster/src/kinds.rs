//! The words of [`weir_protocol::api::JobEvent::kind`]: every kind of event there is.

/// The job was submitted.
pub const SUBMITTED: &str = "submitted";
/// A job that was over was submitted again, and goes on from its last checkpoint (or starts over, if that was asked for).
pub const RESUBMITTED: &str = "resubmitted";
/// There are not enough free slots. Said again when the numbers change.
pub const WAITING: &str = "waiting";
/// A worker that would offer slots while the job waits for some may not join.
pub const WORKER_REFUSED: &str = "worker-refused";
/// A worker that would offer slots while the job waits for some follows another coordinator, whose jobs it runs, and does not join.
pub const WORKER_LED_ELSEWHERE: &str = "worker-led-elsewhere";
/// An attempt begins: its tasks are being built.
pub const DEPLOYING: &str = "deploying";
/// The job had finished, and goes on because its sources have more to read.
pub const MORE_INPUT: &str = "more-input";
/// Something that was asked of the job waits until its tasks, which run, have all their state.
pub const RESTORING: &str = "restoring";
/// Its tasks have all their state.
pub const RESTORED: &str = "restored";
/// Its tasks run.
pub const RUNNING: &str = "running";
/// The first checkpoint of an attempt is complete. Later ones are shown with the job, not as events.
pub const CHECKPOINT: &str = "checkpoint";
/// A checkpoint failed.
pub const CHECKPOINT_FAILED: &str = "checkpoint-failed";
/// A checkpoint could not be restored; an older one is tried.
pub const FELL_BACK: &str = "fell-back";
/// Rows do not go the normal way, in a way that points to a setting or loses them. Once for each vertex and kind of them.
pub const ODD_ROWS: &str = "odd-rows";
/// A worker with tasks of the job is gone.
pub const WORKER_LOST: &str = "worker-lost";
/// A worker said something of tasks that are not its own, or that cannot be true, and was not heard with that. Said once for each
/// attempt and worker; what else the worker says is only counted.
pub const REPORT_REFUSED: &str = "report-refused";
/// The certificate of a worker of the job, or of the coordinator, ends within 30 days. Said once a day.
pub const CERTIFICATE_EXPIRES: &str = "certificate-expires";
/// A step of the start of an attempt takes long on some workers, which are named. Said again after twice as long, and so on.
pub const SLOW_STEP: &str = "slow-step";
/// Tasks of an attempt that is over have not ended on some workers, which are named. Said again when they are waited for no
/// longer: the job goes on without them, or is over.
pub const SLOW_END: &str = "slow-end";
/// The checkpoint storage does not answer; what is waited for is named. Said again after twice as long, and so on.
pub const SLOW_STORAGE: &str = "slow-storage";
/// Sinks, which are named, have not made visible what a complete checkpoint holds. Said again after twice as long, and so on.
pub const SLOW_COMMIT: &str = "slow-commit";
/// The coordinator's own disk does not take the record of an attempt, whose tasks are built and start once it does.
pub const NOT_RECORDED: &str = "not-recorded";
/// The job failed and starts again.
pub const RESTARTING: &str = "restarting";
/// The coordinator was started again; it waits for the job's workers.
pub const COORDINATOR_RESTARTED: &str = "coordinator-restarted";
/// The execution goes on under the new coordinator.
pub const TAKEN_OVER: &str = "taken-over";
/// The execution could not go on under the new coordinator; a new attempt begins.
pub const NOT_TAKEN_OVER: &str = "not-taken-over";
/// A person asked for another parallelism.
pub const RESCALE_REQUESTED: &str = "rescale-requested";
/// The job goes on with another parallelism.
pub const RESCALING: &str = "rescaling";
/// Another parallelism cannot be had; the job goes on as it was.
pub const RESCALE_REFUSED: &str = "rescale-refused";
/// A person asked for the job to stop.
pub const STOP_REQUESTED: &str = "stop-requested";
/// Its sources have stopped; the last checkpoint is being taken.
pub const STOPPING: &str = "stopping";
/// It has stopped with a last checkpoint.
pub const STOPPED: &str = "stopped";
/// A person asked for the job to end without a last checkpoint.
pub const CANCEL_REQUESTED: &str = "cancel-requested";
/// It was ended without a last checkpoint.
pub const CANCELLED: &str = "cancelled";
/// All its input is processed.
pub const FINISHED: &str = "finished";
/// It failed for good.
pub const FAILED: &str = "failed";

/// Of the cluster: somebody pushed a component.
pub const COMPONENT_PUSHED: &str = "component-pushed";
/// Of the cluster: somebody removed the name of a component.
pub const COMPONENT_REMOVED: &str = "component-removed";
/// Of the cluster: somebody had this coordinator take the place of one that is lost.
pub const COORDINATOR_ADOPTED: &str = "coordinator-adopted";
/// Of the cluster: somebody removed a job that was over, with its events.
pub const JOB_REMOVED: &str = "job-removed";
/// Of the cluster: a token counts from now on.
pub const TOKEN_CREATED: &str = "token-created";
/// Of the cluster: a token counts no longer.
pub const TOKEN_REVOKED: &str = "token-revoked";
