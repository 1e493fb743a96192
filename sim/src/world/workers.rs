//! The lives of workers: their processes, their connections to the coordinator, and what they say and hear.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::limits::HEARTBEAT_INTERVAL_MS;
use weir_protocol::{Command, Report};
use weir_task::InstanceFactory;
use weir_worker::WorkerOptions;

use super::{Event, World};
use crate::connectors::SimConnectors;
use crate::coordinator::epoch;
use crate::executor::{Calls, SimExecutor};
use crate::ids::{ProcessOf, name_of};
use crate::network::SimNetwork;
use crate::operators::{Factory, Kind};
use crate::oracle::is_exactly_once;
use crate::scenario::UIDS;
use crate::worker::{NoComponents, SANDBOX, SimStorages};

/// How often a worker looks at its own bounds, and says that it is alive, in microseconds.
const TICK_US: u64 = 1_000 * HEARTBEAT_INTERVAL_MS;

impl World {
    fn operators(&self) -> BTreeMap<String, Arc<dyn InstanceFactory>> {
        let factory = |uid: &str| {
            let kind = match uid {
                "map" => Kind::Map(self.scenario.fan),
                "all" => Kind::All,
                _ => Kind::Count,
            };
            let (clock, outside) = (self.clock.clone(), self.outside.clone());
            let may_repeat = !is_exactly_once(&self.scenario);
            let factory = Factory { uid: uid.to_owned(), kind, row_us: self.scenario.operator_us, may_repeat, clock, outside };
            (uid.to_owned(), Arc::new(factory) as Arc<dyn InstanceFactory>)
        };
        UIDS.into_iter().map(factory).collect()
    }

    pub(crate) fn start_worker(&mut self, worker: usize) {
        let process = ProcessOf { worker, incarnation: self.workers[worker].incarnation + 1 };
        let calls = Calls { process, asked: self.asked.clone() };
        let options = WorkerOptions {
            name: name_of(worker).as_str().into(),
            sandbox: SANDBOX.clone(),
            components: Arc::new(NoComponents),
            connectors: Arc::new(SimConnectors {
                input: self.input.clone(),
                clock: self.clock.clone(),
                outside: self.outside.clone(),
                disk: self.disk.clone(),
                chunk: self.scenario.chunk,
                row_us: self.scenario.sink_us,
                mutation: self.mutation,
            }),
            storages: Arc::new(SimStorages(self.disk.clone())),
            native: self.operators(),
            network: Some(Arc::new(SimNetwork { calls: calls.clone() })),
            reports: Arc::new(calls.clone()),
            executor: Arc::new(SimExecutor {
                calls,
                clock: self.clock.clone(),
                woken: self.woken.clone(),
                numbers: self.actor_numbers.clone(),
                lanes: self.scenario.lanes,
            }),
            congested_bytes: self.scenario.congested_bytes,
        };
        let of = &mut self.workers[worker];
        (of.alive, of.incarnation, of.stuck_until_us) = (true, process.incarnation, 0);
        of.process = Some(weir_worker::Worker::new(options));
        self.connect_soon(worker, 1_000);
        self.after(TICK_US, Event::WorkerTick(process));
    }

    pub(crate) fn tick_worker(&mut self, process: ProcessOf) {
        if !self.is_alive(process) {
            return;
        }
        if let Some(of) = self.workers[process.worker].process.clone() {
            of.tick();
            self.say(process.worker, Report::Heartbeat { progress: of.progress() });
        }
        self.after(TICK_US, Event::WorkerTick(process));
    }

    pub(crate) fn connect_soon(&mut self, worker: usize, delay_us: u64) {
        if !std::mem::replace(&mut self.workers[worker].connecting, true) {
            let delay_us = self.random.delay_us(delay_us);
            self.after(delay_us, Event::Connect(worker));
        }
    }

    pub(crate) fn connect(&mut self, worker: usize) {
        self.workers[worker].connecting = false;
        if !self.workers[worker].alive || self.workers[worker].session.is_some() {
            return;
        }
        let found = self.found_by_worker().filter(|_| !self.is_blocked_with_coordinator(worker));
        let Some(id) = found else { return self.connect_soon(worker, 50_000) };
        let session = self.new_session();
        let of = &mut self.workers[worker];
        // From here on reports are this connection's; what was reported before shows in what runs.
        of.session = Some(session);
        let running = of.process.as_ref().map_or_else(Vec::new, weir_worker::Worker::running);
        self.joins(id, worker, session, running);
    }

    /// The worker's process ends, with all that it had not made durable.
    pub(crate) fn crash_worker(&mut self, worker: usize) {
        if !std::mem::replace(&mut self.workers[worker].alive, false) {
            return;
        }
        self.seen.worker_crashes += 1;
        self.seen.crashes_restoring += u64::from(self.seen.is_restoring);
        self.drop_actors(worker);
        self.drop_wires(worker, None);
        let of = &mut self.workers[worker];
        of.process = None;
        let session = of.session.take();
        // At once where the connection is closed, else when heartbeats stay away.
        let delay_us = self.random.pick(&[500, 500, 2_000_000]);
        if let Some(session) = session {
            self.after(delay_us, Event::SessionOver(worker, session));
        }
        let delay_us = self.random.delay_us(400_000);
        self.after(delay_us, Event::WorkerStarts(worker));
    }

    /// A worker stands still for a time in whatever it does with storage or files.
    pub(crate) fn stick(&mut self, worker: usize) {
        let length_us = self.random.pick(&[500_000, 8_000_000, 60_000_000]);
        let length_us = 1 + self.random.below(length_us);
        self.seen.stuck += 1;
        self.workers[worker].stuck_until_us = self.now_us() + length_us;
    }

    /// Until when what a worker does with storage or files stands still.
    pub(crate) fn hangs_until(&self, worker: usize) -> Option<u64> {
        let until_us = self.workers[worker].stuck_until_us.max(self.hangs_until_us);
        (until_us > self.now_us()).then_some(until_us)
    }

    /// What the worker says to the coordinator.
    pub(crate) fn say(&mut self, worker: usize, report: Report) {
        self.note_report(&report);
        let Some(session) = self.workers[worker].session else { return };
        self.send_to_coordinator(worker, session, report, 0);
    }

    fn note_report(&mut self, report: &Report) {
        match report {
            Report::Acknowledged { acknowledgement, .. } => {
                self.seen.in_flight_rows += acknowledgement.in_flight.iter().map(|of| of.rows).sum::<u64>();
                self.seen.merges += u64::from(acknowledgement.merged_bytes > 0);
            }
            Report::Declined { .. } => self.seen.declined += 1,
            Report::PersistFailed { .. } => self.seen.persist_failed += 1,
            Report::Failed { failure, execution } => {
                self.log(|| format!("{execution} failed: {:?}: {}", failure.kind, failure.reason));
            }
            _ => {}
        }
    }

    /// Hears a command.
    pub(crate) fn hear(&mut self, worker: usize, command: Command) {
        let Some(process) = self.workers[worker].process.clone() else { return };
        match command {
            Command::Welcome { keep, .. } => {
                let (welcomed_by, led_by) = (self.workers[worker].joined.map(epoch), self.workers[worker].led_by);
                let of_stranger = welcomed_by.is_some_and(|by| led_by.is_some_and(|led_by| by.origin != led_by.origin));
                if of_stranger && !process.running().is_empty() {
                    self.outside.complain(format!("worker {worker} runs something, and another coordinator takes it in"));
                }
                self.workers[worker].led_by = welcomed_by;
                process.keep_only(&keep);
            }
            command => process.command(command),
        }
    }
}
