//! Entry points for fuzzing: what a coordinator and other workers say.

use std::path::Path;

use weir_plan::Topology;
use weir_protocol::Prepare;

pub use crate::network::fuzz::{peer_message, peer_messages};

/// What can be done of a preparation without a disk: the job is read, its connectors' settings are checked, the tasks found that run on
/// worker `a`. Says what became of it.
pub fn prepare(message: &Prepare) -> String {
    let job = match message.spec.load() {
        Ok(job) => job.with_edges_apart(&message.edges_apart),
        Err(problems) => return problems.to_string(),
    };
    let topology = Topology::new(&job);
    let connectors = crate::check_connectors(&job, Path::new(&message.spec.job_dir)).is_ok();
    match crate::execution::tasks_here(&topology, &message.placement, "a") {
        Ok(tasks) => {
            let chains = tasks.iter().map(|task| topology.locate(*task).0).max();
            format!("connectors {connectors}, tasks {}", if chains.is_some() { "some" } else { "none" })
        }
        Err(trouble) => trouble.0.reason,
    }
}
