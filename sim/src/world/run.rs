//! The event loop: what happens next, and how long it may go on.

use std::cmp::Reverse;

use super::{Event, World};
use crate::scenario::Scenario;

/// After the last fault and the last row, a job must end in this much virtual time.
const LIVENESS_US: u64 = 400_000_000;

/// Events beyond which a run is stuck without time passing.
const EVENTS_MAX: u64 = 6_000_000;

/// A cancelled job is over within this much virtual time, whatever the storage does.
const CANCEL_US: u64 = 60_000_000;

impl World {
    /// Runs the job to its end.
    ///
    /// # Errors
    /// If it does not come to an end.
    pub(crate) fn go(&mut self) -> Result<(), String> {
        let verbose = self.verbose;
        if verbose {
            let text = format!("{:#?}", Scenario { input: self.scenario.input.clone(), ..self.scenario.clone() });
            self.log(|| text);
        }
        for worker in 0..self.workers.len() {
            self.at(worker as u64, Event::WorkerStarts(worker));
        }
        self.at(5_000, Event::CoordinatorStarts);
        self.at(15_000, Event::Look);
        for (at_us, fault) in self.scenario.faults.clone() {
            self.at(at_us, Event::Fault(fault));
        }
        let last_fault_us = self.scenario.faults.last().map_or(0, |(at_us, _)| *at_us);
        let limit_us = last_fault_us.max(self.scenario.input_ends_us()) + LIVENESS_US;
        while !self.coordinator.is_over() {
            let Some(Reverse((at_us, number))) = self.times.pop() else {
                return Err(format!("nothing can happen any more: {}", self.coordinator.describe()));
            };
            let Some(event) = self.events.remove(&number) else { continue };
            if at_us > limit_us || self.trace.steps() > EVENTS_MAX {
                return Err(format!("the job does not end: {} at {at_us} us", self.coordinator.describe()));
            }
            self.now_us = at_us;
            self.clock.set(at_us);
            let [kind, a, b] = event.words();
            self.trace.note(&[at_us, kind, a, b]);
            self.happen(event);
            self.answer_calls();
            self.wake_all();
            self.check_deleted();
            if let Some(overdue) = self.wishes.overdue(at_us, last_fault_us) {
                return Err(format!("{overdue}: {}", self.coordinator.describe()));
            }
            if self.coordinator.ending_since_us.is_some_and(|since_us| at_us > since_us + CANCEL_US) {
                return Err(format!("a cancelled job is not over: {}", self.coordinator.describe()));
            }
        }
        self.seen.disk_failures = self.disk.failed();
        self.seen.taken_back = self.outside.taken_back();
        self.seen.commits_again = self.outside.commits_again();
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(id, number) => self.turn(id, number),
            Event::Step(process, step) => self.step(process, step),
            Event::WorkerTick(process) => self.tick_worker(process),
            Event::WireSend(key) => self.wire_send(key),
            Event::WireArrive(key) => self.wire_arrive(key),
            Event::WireReceive(key) => self.wire_receive(key),
            Event::WireAnnounce(key, barrier) => self.wire_announce(key, barrier),
            Event::PeerLost(process, peer, ear) => self.peer_lost(process, peer, &ear),
            Event::ToWorker(worker, session, command) => {
                if self.workers[worker].session == Some(session) {
                    self.hear(worker, *command);
                }
            }
            Event::ToCoordinator(worker, session, report) => {
                if self.knows_session(worker, session) {
                    self.reported(worker, session, *report);
                }
            }
            Event::SessionOver(worker, session) => self.session_over(worker, session),
            Event::Connect(worker) => self.connect(worker),
            Event::WorkerStarts(worker) => self.start_worker(worker),
            Event::CoordinatorStarts => self.start_coordinator(),
            Event::StrangerLeaves(id) => self.stranger_leaves(id),
            Event::ClusterTick(id) => self.tick_cluster(id),
            Event::Look => self.look(),
            Event::ToMaster(id, input) => self.tell_master(id, *input),
            Event::Tick(id, at_us) => self.tick(id, at_us),
            Event::Metadata(id, change_id, change) => self.write(id, change_id, *change),
            Event::Storage(id, request) => self.store(id, *request),
            Event::NextRequest(id) => self.next_request(id),
            Event::Straggler(straggler) => self.straggle(&straggler),
            Event::Fault(fault) => self.strike(fault),
            Event::Crash(worker) => self.crash_worker(worker),
            Event::DataLost(a, b) => self.break_data(a, b),
            Event::DiskHeals => self.disk.set_failing(0),
            Event::DiskFast => self.disk_slow = false,
        }
    }

    fn wake_all(&mut self) {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock());
            if woken.is_empty() {
                return;
            }
            woken.into_iter().for_each(|target| self.wake(target));
            self.answer_calls();
        }
    }
}
