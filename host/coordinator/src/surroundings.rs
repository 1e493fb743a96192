//! What the master of a job needs from the process around it. A cluster's coordinator has it, and so has `weir run`.

use weir_master::{Begun, Notice, Shortage, Slots};
use weir_model::Epoch;
use weir_protocol::Command;
use weir_storage::{JobStorage, StorageError};

/// What a master needs. No call waits for another process or a disk, but where it says so.
pub trait Surroundings: Send + Sync {
    /// Takes slots for a job, all or none. Slots that it held before are given back first; workers that are lost have none.
    ///
    /// # Errors
    /// If there are not enough. The master is told [`weir_master::Input::SlotsChanged`] when there may be more.
    fn reserve(&self, job: &str, slots: u32) -> Result<Slots, Shortage>;

    /// Gives the slots of a job back.
    fn release(&self, job: &str);

    /// Tells a worker something. To one that is lost it goes nowhere.
    fn send(&self, job: &str, worker: &str, command: Command);

    /// Who this coordinator is, among all that a job may have.
    fn epoch(&self) -> Epoch;

    /// Opens the place of a job's checkpoints. May take as long as the storage does.
    ///
    /// # Errors
    /// If it cannot be used.
    fn storage(&self, url: &str, job: &str) -> Result<JobStorage, StorageError>;

    /// Records durably that an execution is about to begin. The answer where it is known at once; otherwise the master is told
    /// [`weir_master::Input::Recorded`], whenever the disk has taken it or has not.
    fn record(&self, job: &str, begun: Box<Begun>) -> Option<Result<(), String>>;

    /// Something that people may want to see.
    fn notice(&self, job: &str, notice: Notice);
}
