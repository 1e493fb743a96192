//! What the master asks the storage for, carried out on the real storage over the simulated disk: in order, each in its time, and
//! with what may go wrong. An answer may be lost, or come late or never; a request may take effect when nobody waits for it any
//! more, even after its process has ended.

use weir_coordinator::carry_out;
use weir_master::{Input, Store, StoreFailure, StoreFailureKind, Stored};
use weir_storage::{Manifest, ManifestKind};

use super::{Event, World};
use crate::coordinator::{Process, Request, Straggler};
use crate::ids::ProcessId;
use crate::scenario::Fault;

/// Times that a request is tried that the storage could not carry out at once.
const TRIES: u64 = 4;

/// Wait before the second try, in microseconds; before later ones twice, three times that.
const RETRY_US: u64 = 50_000;

/// How long what writes for a coordinator stands still at most, in microseconds: one of these.
const PAUSES_US: [u64; 3] = [200_000, 1_000_000, 5_000_000];

impl World {
    pub(crate) fn ask_storage(&mut self, id: ProcessId, request: Request) {
        if let Some(process) = self.coordinator.processes.get_mut(&id) {
            process.requests.push_back(request);
            self.next_request(id);
        }
    }

    /// Begins the next request, unless one is on its way that still counts.
    pub(crate) fn next_request(&mut self, id: ProcessId) {
        let now_us = self.now_us();
        let Some(process) = self.coordinator.processes.get_mut(&id) else { return };
        if process.storing_until_us.is_some_and(|until_us| now_us < until_us) {
            return;
        }
        let Some(request) = process.requests.pop_front() else {
            process.storing_until_us = None;
            return;
        };
        process.storing_until_us = Some(request.deadline_us);
        self.after_disk(0, Event::Storage(id, Box::new(request)));
    }

    fn after_disk(&mut self, delay_us: u64, event: Event) {
        let usual_us = self.disk_us();
        let delay_us = delay_us + self.random.delay_us(usual_us);
        self.after(delay_us, event);
    }

    /// A request is with the storage.
    pub(crate) fn store(&mut self, id: ProcessId, mut request: Request) {
        let now_us = self.now_us();
        let Some(process) = self.coordinator.processes.get(&id) else { return };
        let log = process.log.clone();
        let until_us = self.hangs_until_us;
        if until_us > now_us {
            // Nothing is heard of it before the storage answers again; the process goes on without it after its deadline.
            self.seen.hung += 1;
            self.at(request.deadline_us, Event::NextRequest(id));
            if self.random.percent(60) {
                self.at(until_us, Event::Straggler(Box::new(Straggler { log, what: request.what })));
            }
            return;
        }
        if self.pauses_now(id, &request) {
            return self.pause(id, request);
        }
        let answer = carry_out(&mut log.lock(), &request.what);
        if let Err(StoreFailure { kind: StoreFailureKind::Transient, .. }) = &answer
            && request.tries + 1 < TRIES
        {
            request.tries += 1;
            let delay_us = RETRY_US * request.tries;
            return self.after_disk(delay_us, Event::Storage(id, Box::new(request)));
        }
        let answer = match (&request.what, answer) {
            (Store::Complete { manifest, .. }, Ok(stored)) => {
                self.completed(manifest);
                if self.step_fault(Fault::CoordinatorCrash, 0) {
                    return;
                }
                if self.random.percent(self.scenario.uncertain_percent) {
                    self.never_heard_of(manifest);
                    Err(StoreFailure { kind: StoreFailureKind::Transient, reason: "no answer".to_owned() })
                } else {
                    Ok(stored)
                }
            }
            (_, answer) => answer,
        };
        if matches!((&request.what, &answer), (Store::Complete { .. }, Err(_))) {
            self.seen.manifest_failed += 1;
        }
        self.log(|| format!("coordinator {id}: the storage answers {:?}: {}", request.id, brief(&answer)));
        if let Ok(Some(stored)) = &answer {
            self.learn(stored);
        }
        let answered = !matches!(answer, Ok(None));
        if let Some(process) = self.coordinator.processes.get_mut(&id) {
            process.storing_until_us = None;
        }
        if answered {
            let request = request.id;
            let answer = answer.map(|stored| stored.unwrap_or(Stored::Newest(None)));
            self.tell_master(id, Input::Stored { request, answer });
        }
        self.next_request(id);
    }

    /// A checkpoint that the storage says is there is durable, also if whoever wrote it was told that it is not.
    fn learn(&mut self, stored: &Stored) {
        let found = match stored {
            Stored::Begun(begun) => {
                self.seen.restored_rows += begun.from.as_ref().map_or(0, |from| rows_in_flight(from));
                begun.from.as_ref()
            }
            Stored::Led(led) => led.newest.as_ref(),
            Stored::Newest(newest) => newest.as_ref(),
            Stored::Claimed(_) | Stored::Completed(_) => None,
        };
        if let Some(manifest) = found {
            self.outside.durable(manifest.attempt, manifest.id());
        }
    }

    /// With some luck, what writes for a process stands still: one that workers know and that is about to complete a checkpoint.
    fn pauses_now(&mut self, id: ProcessId, request: &Request) -> bool {
        self.coordinator.current == Some(id)
            && matches!(request.what, Store::Complete { .. })
            && self.scenario.pause_percent > 0
            && self.random.percent(self.scenario.pause_percent)
    }

    /// What writes for a process stands still, before the first byte, and goes on when another one leads. Often that one cannot take over what
    /// runs, and often it ends before it has decided much.
    fn pause(&mut self, id: ProcessId, request: Request) {
        self.seen.paused += 1;
        self.second_coordinator();
        if self.random.percent(50) {
            let worker = self.random.below(self.workers.len() as u64) as usize;
            self.crash_worker(worker);
        }
        let length_us = self.random.pick(&PAUSES_US);
        let delay_us = self.random.below(length_us);
        if self.random.percent(50) {
            self.after(delay_us + self.disk_us(), Event::Fault(Fault::CoordinatorCrash));
        }
        self.after_disk(delay_us, Event::Storage(id, Box::new(request)));
    }

    /// A request takes effect that nobody waits for any more.
    pub(crate) fn straggle(&mut self, straggler: &Straggler) {
        let answer = carry_out(&mut straggler.log.lock(), &straggler.what);
        self.seen.stragglers += 1;
        self.log(|| format!("a request that nobody waits for: {}", brief(&answer)));
        if let (Store::Complete { manifest, .. }, Ok(_)) = (&straggler.what, &answer) {
            self.completed(manifest);
            self.seen.uncertain.push(manifest.id());
        }
    }

    /// A process is no more. What it had asked for last may still happen.
    pub(crate) fn outlives(&mut self, process: Process) {
        let Process { log, requests, .. } = process;
        if let Some(request) = requests.into_iter().next().filter(|_| self.random.percent(30)) {
            let delay_us = self.random.delay_us(300_000);
            self.after(delay_us, Event::Straggler(Box::new(Straggler { log, what: request.what })));
        }
    }

    /// A manifest is durable: from here on, and not before, its sinks may commit.
    fn completed(&mut self, manifest: &Manifest) {
        let rows = rows_in_flight(manifest);
        self.outside.durable(manifest.attempt, manifest.id());
        self.whole.push((manifest.id(), manifest.files.iter().map(|file| file.name.clone()).collect()));
        self.seen.stopped_with_rows += u64::from(rows > 0 && manifest.kind == ManifestKind::Stop);
        self.log(|| format!("the manifest of checkpoint {} is durable, {rows} rows in flight", manifest.checkpoint));
    }

    /// A manifest is durable, but no answer to its writing comes. The coordinator may end before another checkpoint is complete.
    fn never_heard_of(&mut self, manifest: &Manifest) {
        self.seen.uncertain.push(manifest.id());
        if self.random.percent(50) {
            let delay_us = self.random.below(20_000);
            self.after(delay_us, Event::Fault(Fault::CoordinatorCrash));
        }
    }
}

fn rows_in_flight(manifest: &Manifest) -> u64 {
    let subtasks = manifest.operators.values().flat_map(|of| &of.subtasks);
    subtasks.flat_map(|of| &of.in_flight).map(|of| of.rows).sum()
}

fn brief(answer: &Result<Option<Stored>, StoreFailure>) -> String {
    match answer {
        Ok(_) => "done".to_owned(),
        Err(failure) => format!("{:?}: {}", failure.kind, failure.reason),
    }
}
