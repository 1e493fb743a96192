//! A job that had finished and is run again: it goes on where its sources have more to read, and is over where they have not.

use weir_model::{Timestamp, WATERMARK_START};
use weir_protocol::Command;
use weir_protocol::manifest::event_time_max;
use weir_storage::Manifest;

use super::deploy::{Answer, Deployed};
use super::{Ended, Master};
use crate::Notice;

impl Master {
    /// Asks the sources, once the job is prepared on all its workers. Where none has more, sinks commit what the final checkpoint
    /// holds, in case that was not done, and the execution is over.
    pub(super) fn go_on_after_end(&mut self, deployed: &mut Deployed, manifest: &Manifest) -> Result<(), Ended> {
        self.step(deployed, Answer::Looked, |execution| Command::Look { execution })?;
        let said = |more: bool| {
            // Workers that each run subtasks of a source each say the same.
            let mut said: Vec<_> =
                deployed.looked.iter().filter(|one| one.more == more).map(|one| (one.uid.clone(), one.what.clone())).collect();
            said.sort();
            said.dedup();
            said
        };
        let (found, looked_at) = (said(true), said(false));
        if found.is_empty() {
            self.step(deployed, Answer::Built, |execution| Command::Commit { execution })?;
            return Err(Ended::AlreadyFinished { checkpoint: manifest.id(), at_ms: manifest.completed_at_ms, looked_at });
        }
        let vertices = 0..deployed.job.vertices.len();
        let greatest = vertices.map(|vertex| event_time_max(&deployed.job, manifest, vertex)).max();
        let event_time_max: Option<Timestamp> = greatest.filter(|&greatest| greatest > WATERMARK_START);
        self.notice(&deployed.job, &Notice::MoreInput { checkpoint: manifest.id(), found, event_time_max });
        Ok(())
    }
}
