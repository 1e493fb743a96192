//! Which coordinator leads what runs here.

use parking_lot::Mutex;
use weir_model::Epoch;
use weir_protocol::{Running, follows};

/// The coordinator that this worker has obeyed last. It counts as long as anything runs that was begun under it: a worker that runs
/// nothing joins whom it finds.
#[derive(Debug, Default)]
pub(super) struct Allegiance(Mutex<Option<Epoch>>);

/// The coordinator at the other end is not the one that leads what runs here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OtherLeader {
    /// The one that leads.
    pub(super) led_by: Epoch,
    /// The one that was found.
    pub(super) found: Epoch,
}

impl std::fmt::Display for OtherLeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "it is coordinator {}, and what runs here was begun by coordinator {}; it is not obeyed, tasks go on. If that one is \
             lost for good: `weir cluster adopt {}` at this one",
            self.found,
            self.led_by,
            self.led_by.origin_short()
        )
    }
}

impl Allegiance {
    /// The coordinator that leads these; none where nothing runs but what has failed.
    pub(super) fn of(&self, running: &[Running]) -> Option<Epoch> {
        if running.iter().all(|running| running.failure.is_some()) { None } else { *self.0.lock() }
    }

    /// Obeys a coordinator from now on, unless another leads: `led_by`, as the registration said, and none can have come since.
    pub(super) fn join(&self, led_by: Option<Epoch>, found: Epoch, succeeds: &[Epoch]) -> Result<(), OtherLeader> {
        match led_by {
            Some(led_by) if !follows(led_by, found, succeeds) => Err(OtherLeader { led_by, found }),
            _ => {
                *self.0.lock() = Some(found);
                Ok(())
            }
        }
    }
}
