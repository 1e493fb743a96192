//! Masters of jobs in this process: a thread for each that drives its machine ([`weir_master::Master`]), and one that carries out what
//! that asks the job's storage for.

mod job_thread;
mod mailbox;
mod store;
mod storekeeper;

pub use job_thread::JobThread;
pub use mailbox::{Mailbox, SendFailure};
pub use store::carry_out;

#[cfg(test)]
mod tests;
