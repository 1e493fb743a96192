//! Each place where a job can be, and the way there.

use weir_protocol::FailureKind;

use super::bench::{Bench, Settings, adopted};
use crate::{Input, Output, Shortage, Wish};

/// Where a job is: its phase, and what is waited for in it. Nobody has answered what was said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Whose the state is.
    Claim,
    /// Whether a wished parallelism fits.
    Fit,
    Slots,
    Backoff,
    Begin,
    Lead,
    TrialSlots,
    Trial,
    Prepare,
    Restore,
    Build,
    Record,
    Run,
    /// A manifest is being written.
    Writing,
    /// Whether a wished parallelism fits, while tasks run.
    RunFit,
    /// Its tasks end after a failure.
    Ending,
    /// Its tasks end because it goes on with another parallelism.
    Rescaling,
}

pub(super) const ALL: [At; 17] = [
    At::Claim,
    At::Fit,
    At::Slots,
    At::Backoff,
    At::Begin,
    At::Lead,
    At::TrialSlots,
    At::Trial,
    At::Prepare,
    At::Restore,
    At::Build,
    At::Record,
    At::Run,
    At::Writing,
    At::RunFit,
    At::Ending,
    At::Rescaling,
];

impl At {
    /// Whether a request to the storage is waited for.
    pub(super) fn asks(self) -> bool {
        matches!(self, At::Claim | At::Fit | At::Begin | At::Lead | At::Writing | At::RunFit)
    }

    /// Whether an execution is there that was made for this, or is led.
    pub(super) fn has_workers(self) -> bool {
        !matches!(self, At::Claim | At::Fit | At::Slots | At::Backoff | At::TrialSlots)
    }
}

fn claimed() -> Bench {
    let mut bench = Bench::new(Settings::default());
    bench.store();
    bench
}

fn begun() -> Bench {
    let mut bench = claimed();
    bench.answer();
    bench.store();
    bench
}

/// Runs, with a complete checkpoint.
pub(super) fn running() -> Bench {
    let mut bench = Bench::new(Settings::default());
    bench.settle();
    bench.pass(1_000);
    bench.settle();
    assert_eq!(bench.complete.len(), 1, "{:#?}", bench.log);
    bench
}

fn shortage() -> Output {
    Output::Reserve { slots: 2 }
}

/// Refuses the slots that were asked for.
fn no_slots(bench: &mut Bench) {
    assert_eq!(format!("{:?}", bench.said.pop_back()), format!("{:?}", Some(shortage())));
    bench.tell(Input::Slots(Err(Shortage { needed: 2, free: 0, ahead: 0, workers: 0 })));
}

/// A job that is there.
pub(super) fn reach(at: At) -> Bench {
    match at {
        At::Claim => Bench::new(Settings::default()),
        At::Fit => {
            let mut bench = claimed();
            no_slots(&mut bench);
            bench.wish(Wish::Rescale(1));
            bench
        }
        At::Slots => {
            let mut bench = claimed();
            no_slots(&mut bench);
            bench
        }
        At::Backoff => {
            let mut bench = running();
            bench.fail(FailureKind::Transient);
            bench.work();
            bench
        }
        At::Begin => {
            let mut bench = claimed();
            bench.answer();
            bench
        }
        At::Lead => Bench::new(Settings { adopted: Some(adopted(7, 6)), ..Settings::default() }),
        At::TrialSlots => {
            let mut bench = Bench::new(Settings { fresh: true, ..Settings::default() });
            no_slots(&mut bench);
            bench
        }
        At::Trial => {
            let mut bench = Bench::new(Settings { fresh: true, ..Settings::default() });
            bench.answer();
            bench
        }
        At::Prepare => begun(),
        At::Restore => {
            let mut bench = begun();
            bench.work();
            bench
        }
        At::Build => {
            let mut bench = begun();
            bench.work();
            bench.work();
            bench
        }
        At::Record => {
            let mut bench = begun();
            (0..3).for_each(|_| bench.work());
            bench
        }
        At::Run => running(),
        At::Writing => {
            let mut bench = running();
            bench.pass(1_000);
            bench.work();
            bench
        }
        At::RunFit => {
            let mut bench = running();
            bench.wish(Wish::Rescale(1));
            bench
        }
        At::Ending => {
            let mut bench = running();
            bench.fail(FailureKind::Transient);
            bench
        }
        At::Rescaling => {
            let mut bench = running();
            bench.wish(Wish::Rescale(1));
            bench.store();
            bench.pass(1_000);
            bench.work();
            bench.store();
            bench
        }
    }
}

#[test]
fn every_place_is_reached() {
    for at in ALL {
        let bench = reach(at);
        assert_eq!(bench.end(), "not at all", "{at:?}");
        assert_eq!(bench.asked.iter().any(|(_, what)| super::is_answered(what)), at.asks(), "{at:?}: {:?}", bench.asked);
        let last = bench.log.last().unwrap();
        let says = match at {
            At::Claim => "Store { request: RequestId(1), what: Claim",
            At::Fit | At::RunFit => "what: Newest",
            At::Slots | At::TrialSlots => "Waiting",
            At::Backoff => "Restarting",
            At::Begin => "what: Begin",
            At::Lead => "what: Lead",
            At::Trial => "Prepare(Prepare { execution: Execution { job: \"j\", attempt: Attempt(0) }",
            At::Prepare => "Prepare(Prepare { execution: Execution { job: \"j\", attempt: Attempt(1) }",
            At::Restore => "command: Restore",
            At::Build => "command: Build",
            At::Record => "Record(",
            At::Run => "Completed",
            At::Writing => "what: Complete {",
            At::Ending => "Ending",
            At::Rescaling => "Cancel",
        };
        let recent = &bench.log[bench.log.len().saturating_sub(6)..];
        assert!(recent.iter().any(|said| said.contains(says)), "{at:?}: {last}");
    }
}
