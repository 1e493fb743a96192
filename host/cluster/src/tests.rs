//! A coordinator that dies between any two things it says, or before any of them has an effect, again and again; a disk that refuses, and
//! one that does not answer. Masters do as little as they can: they ask for slots, record an execution, and end when that is wished.

use std::collections::{BTreeMap, BTreeSet};

use weir_master::{Begun, Input as MasterInput, Notice, Outcome, Output as Says, Slots, Wish};
use weir_model::{Attempt, CheckpointId, Epoch};
use weir_protocol::access::Person;
use weir_protocol::api::{JobState, JobSubmission, Refusal};
use weir_protocol::{Command, Execution, Failure, FailureKind, JobSpec, Placement, Prepare, Register, Report, Running};

use super::*;

/// The same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}

fn submission(name: &str) -> JobSubmission {
    let text = format!(
        "[job]\nname = \"{name}\"\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\nid = \"out\"\nconnector = \"blackhole\"\n\
         input = \"in\"\n"
    );
    let spec = JobSpec { job_dir: "/jobs".to_owned(), ..JobSpec::new(&format!("{name}.toml"), &text) };
    JobSubmission { spec, fresh: false, allow_dropped_state: false }
}

/// What is on the disk.
#[derive(Default)]
struct Disk {
    jobs: BTreeMap<String, StoredJob>,
    events: BTreeMap<String, Vec<u64>>,
    /// Changes that it was given and has not answered.
    given: Vec<(ChangeId, Change)>,
    starts: u64,
}

impl Disk {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Job { name, record, begun, event } => {
                if let Some(event) = event {
                    let events = self.events.entry(name.clone()).or_default();
                    assert_eq!(event.number, events.last().copied().unwrap_or(0) + 1, "events of {name} have no gaps");
                    events.push(event.number);
                }
                let stored = self.jobs.entry(name).or_insert_with(|| StoredJob { record: *record.clone(), begun: None });
                stored.record = *record;
                match begun {
                    BegunChange::Kept => {}
                    BegunChange::Forgotten => stored.begun = None,
                    BegunChange::Is(begun) => stored.begun = Some(*begun),
                }
            }
            Change::Forget { name } => {
                self.jobs.remove(&name);
                self.events.remove(&name);
            }
            Change::Succeeds(_) => {}
        }
    }
}

/// A master that does as little as it can.
#[derive(Default)]
struct Master {
    wish: Option<Wish>,
    slots: Option<Slots>,
    recorded: bool,
}

/// The world around a machine.
struct World {
    machine: Machine,
    disk: Disk,
    masters: BTreeMap<String, Master>,
    now_ms: u64,
    next_request: u64,
    next_link: LinkId,
    attempts: u64,
    /// The worker's connection, and what runs there.
    link: Option<LinkId>,
    runs: BTreeSet<Execution>,
    asked: BTreeMap<RequestId, Ask>,
    /// Jobs that people were told are there, and those of which they were told that a wish is taken.
    submitted: BTreeSet<String>,
    wished: BTreeMap<String, Wish>,
    ends: usize,
}

fn settings(count: u64) -> Settings {
    Settings {
        cluster: "c".to_owned(),
        certificate_until_ms: 0,
        version: "1".to_owned(),
        default_storage: "memory:".to_owned(),
        epoch: Epoch { origin: [1; 16], count },
        succeeds: Vec::new(),
    }
}

impl World {
    fn new() -> World {
        let machine = Machine::new(settings(1), Now::default(), Vec::new(), &mut Vec::new());
        World {
            machine,
            disk: Disk { starts: 1, ..Disk::default() },
            masters: BTreeMap::new(),
            now_ms: 1_000,
            next_request: 0,
            next_link: 0,
            attempts: 0,
            link: None,
            runs: BTreeSet::new(),
            asked: BTreeMap::new(),
            submitted: BTreeSet::new(),
            wished: BTreeMap::new(),
            ends: 0,
        }
    }

    fn now(&self) -> Now {
        Now { steady_ms: self.now_ms, wall_ms: 1_700_000_000_000 + self.now_ms }
    }

    /// Tells the machine something. It dies after so many of the things that it says, or not at all.
    fn tell(&mut self, input: Input, dies_after: Option<usize>) {
        let mut out = Vec::new();
        self.machine.handle(self.now(), input, &mut out);
        self.carry_out(out, dies_after);
    }

    fn carry_out(&mut self, out: Vec<Output>, dies_after: Option<usize>) {
        for (index, output) in out.into_iter().enumerate() {
            if dies_after == Some(index) {
                return self.restart();
            }
            match output {
                Output::Tell { command: Command::Cancel { execution, .. }, .. } => drop(self.runs.remove(&execution)),
                Output::Tell { link, command: Command::Welcome { keep, .. } } => {
                    self.link = Some(link);
                    self.runs.retain(|execution| keep.contains(execution));
                }
                Output::Tell { .. } | Output::News | Output::Log(_) => {}
                Output::Close { link, .. } => self.link = self.link.filter(|own| *own != link),
                Output::Write { id, change } => self.disk.given.push((id, *change)),
                Output::Start { job, master } => {
                    let adopted = master.adopted.is_some();
                    let master = Master { recorded: adopted, ..Master::default() };
                    assert!(self.masters.insert(job.clone(), master).is_none(), "job {job} has two masters");
                }
                Output::Inform { job, input } => self.inform(&job, *input),
                Output::Answer { request, answer } => self.answered(request, answer),
            }
        }
    }

    fn inform(&mut self, job: &str, input: MasterInput) {
        let Some(master) = self.masters.get_mut(job) else { panic!("job {job} has no master to be told {input:?}") };
        match input {
            MasterInput::Wish(wish) => master.wish = Some(wish),
            MasterInput::Slots(answer) => master.slots = answer.ok(),
            MasterInput::Recorded(result) => {
                if result.is_ok() {
                    assert!(self.disk.jobs[job].begun.is_some(), "an execution that begins is on the disk");
                    master.recorded = true;
                }
                let execution = self.disk.jobs[job].begun.as_ref().map(|begun| begun.prepare.execution.clone());
                self.runs.extend(execution.filter(|_| result.is_ok()));
            }
            MasterInput::WorkerLost { .. } => (master.slots, master.recorded) = (None, false),
            _ => {}
        }
    }

    fn answered(&mut self, request: RequestId, answer: Result<Receipt, Refusal>) {
        let ask = self.asked.remove(&request).expect("it was asked, and not answered before");
        match (ask, answer) {
            (Ask::Name(NameAsk::Submit(submission)), Ok(_)) => {
                let name = submission.spec.load().expect("a job file").name;
                assert!(self.disk.jobs.contains_key(&name), "a job that was taken is on the disk");
                self.wished.remove(&name);
                self.submitted.insert(name);
            }
            (Ask::Name(NameAsk::Remove(name)), Ok(_)) => self.forget(&name),
            (Ask::Job { name, ask }, Ok(_)) => {
                let desired = self.disk.jobs[&name].record.desired;
                let wish = match ask {
                    JobAsk::Cancel => Wish::Cancel,
                    JobAsk::Stop => Wish::Stop,
                    JobAsk::Rescale(_) => return,
                };
                assert!(desired != Intent::Run, "a wish that was taken is on the disk");
                self.wished.insert(name, wish);
            }
            (_, Err(_)) | (Ask::Name(NameAsk::Adopt(_)), Ok(_)) => {}
        }
    }

    fn forget(&mut self, name: &str) {
        self.submitted.remove(name);
        self.wished.remove(name);
    }

    /// The coordinator dies. What it had given to the disk is there up to any point.
    fn restart(&mut self) {
        let lost = self.disk.given.len() / 2;
        let given = std::mem::take(&mut self.disk.given);
        let kept = given.len() - lost;
        given.into_iter().take(kept).for_each(|(_, change)| self.disk.apply(change));
        self.masters.clear();
        // What was asked for may be done although nobody was told so.
        for ask in std::mem::take(&mut self.asked).into_values() {
            match ask {
                Ask::Name(NameAsk::Submit(submission)) => {
                    self.wished.remove(&submission.spec.load().expect("a job file").name);
                }
                Ask::Name(NameAsk::Remove(name)) => self.forget(&name),
                _ => {}
            }
        }
        self.link = None;
        self.disk.starts += 1;
        self.ends += 1;
        let mut out = Vec::new();
        let stored = self.disk.jobs.values().cloned().collect();
        self.machine = Machine::new(settings(self.disk.starts), self.now(), stored, &mut out);
        self.carry_out(out, None);
        for name in &self.submitted {
            assert!(self.disk.jobs.contains_key(name), "job {name} was taken, and is gone");
        }
        for (name, wish) in &self.wished {
            let record = &self.disk.jobs[name].record;
            let master = self.masters.get(name).map(|master| master.wish);
            let waits = self.machine.state.takeovers.contains_key(name);
            assert!(record.desired != Intent::Run, "the wish {wish:?} of job {name} is forgotten");
            assert!(master.is_none_or(|told| told.is_some()) || waits, "the master of job {name} was not told of {wish:?}");
        }
    }

    fn ask(&mut self, ask: Ask, dies_after: Option<usize>) {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.asked.insert(request, ask.clone());
        self.tell(Input::Asked { request, by: Person::Token("tests".to_owned()), ask }, dies_after);
    }

    /// The disk answers what it was given first; it takes it, or refuses.
    fn disk_answers(&mut self, takes: bool, dies_after: Option<usize>) {
        if self.disk.given.is_empty() {
            return;
        }
        let (change, what) = self.disk.given.remove(0);
        let result = if takes { Ok(()) } else { Err(WriteFailure("no space".to_owned())) };
        if takes {
            self.disk.apply(what);
        }
        self.tell(Input::Written { change, result }, dies_after);
    }

    /// A master takes its next step.
    fn master_acts(&mut self, name: &str, dies_after: Option<usize>) {
        let Some(master) = self.masters.get(name) else { return };
        let says = match (master.wish, &master.slots, master.recorded) {
            (Some(Wish::Stop | Wish::Cancel), ..) => Says::Over(Box::new(Ok(Outcome::Cancelled))),
            (_, None, false) => Says::Reserve { slots: 1 },
            (_, Some(slots), false) => {
                self.attempts += 1;
                let execution = Execution { job: name.to_owned(), attempt: Attempt(self.attempts) };
                let tasks = vec![0; slots.slots.len()];
                let prepare = Prepare {
                    execution,
                    spec: submission(name).spec,
                    placement: Placement { workers: slots.workers.clone(), tasks },
                    storage: "memory:".to_owned(),
                    restore: None,
                    first_checkpoint: CheckpointId(1),
                    edges_apart: Vec::new(),
                    retract_after: None,
                };
                Says::Record(Box::new(Begun { prepare, templates: Vec::new() }))
            }
            (.., true) => Says::Notice(Notice::Started { attempt: Attempt(self.attempts), from: None }),
        };
        if matches!(says, Says::Over(_)) {
            self.masters.remove(name);
            self.runs.retain(|execution| execution.job != name);
        }
        self.tell(Input::Says { job: name.to_owned(), says }, dies_after);
    }

    /// The worker connects, with everything that runs there.
    fn worker_comes(&mut self, dies_after: Option<usize>) {
        self.next_link += 1;
        let running = self.runs.iter().map(|execution| Running {
            execution: execution.clone(),
            tasks: vec![weir_model::TaskId(0)],
            started: true,
            restored: Vec::new(),
            finished: Vec::new(),
            committed: Vec::new(),
            last_checkpoint: CheckpointId(0),
            failure: None,
        });
        let register = Register {
            version: "1".to_owned(),
            slots: 2,
            data_address: "w:1".to_owned(),
            clock_ms: self.now().wall_ms,
            running: running.collect(),
            led_by: Some(settings(self.disk.starts).epoch),
        };
        let hello = Hello { name: "w".into(), incarnation: 1, from: "w:2".to_owned() };
        let link = self.next_link;
        self.tell(Input::Register { link, hello, register: Box::new(register) }, dies_after);
    }

    fn step(&mut self, random: &mut Random) {
        let name = ["a", "b", "c"][random.below(3)];
        let dies_after = (random.below(12) == 0).then(|| random.below(4));
        match random.below(14) {
            0 | 1 => self.ask(Ask::Name(NameAsk::Submit(Box::new(submission(name)))), dies_after),
            2 => self.ask(Ask::Name(NameAsk::Remove(name.to_owned())), dies_after),
            3 => {
                let ask = [JobAsk::Stop, JobAsk::Cancel][random.below(2)];
                self.ask(Ask::Job { name: name.to_owned(), ask }, dies_after);
            }
            4 | 5 => self.worker_comes(dies_after),
            6 => {
                if let Some(link) = self.link.take() {
                    self.tell(Input::Closed { link, reason: "it broke".to_owned() }, dies_after);
                }
            }
            7..=9 => self.disk_answers(random.below(8) > 0, dies_after),
            10..=12 => self.master_acts(name, dies_after),
            _ => {
                self.now_ms += 50;
                self.tell(Input::Tick { certificate_until_ms: 0 }, dies_after);
            }
        }
    }
}

#[test]
fn whenever_the_coordinator_dies_what_people_were_told_holds_and_no_job_has_two_masters() {
    let (mut ends, mut taken, mut over) = (0, 0, 0);
    for seed in 1..=150u64 {
        let (mut world, mut random) = (World::new(), Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for _ in 0..300 {
            world.step(&mut random);
        }
        ends += world.ends;
        taken += world.submitted.len();
        over += world.disk.jobs.values().filter(|job| job.record.state.is_over()).count();
    }
    assert!(ends > 300 && taken > 80 && over > 30, "{ends} ends, {taken} jobs, {over} of them over");
}

/// A world with a worker and a job that runs.
fn running() -> World {
    let mut world = World::new();
    world.worker_comes(None);
    world.ask(Ask::Name(NameAsk::Submit(Box::new(submission("a")))), None);
    for _ in 0..6 {
        world.disk_answers(true, None);
        world.master_acts("a", None);
    }
    while !world.disk.given.is_empty() {
        world.disk_answers(true, None);
    }
    assert_eq!(world.machine.jobs()[0].state, JobState::Running);
    world
}

#[test]
fn a_disk_that_does_not_answer_holds_what_is_to_be_written_and_nothing_else() {
    let mut world = running();
    world.ask(Ask::Job { name: "a".to_owned(), ask: JobAsk::Stop }, None);
    world.ask(Ask::Name(NameAsk::Submit(Box::new(submission("b")))), None);
    assert_eq!((world.disk.given.len(), world.asked.len()), (2, 2));
    for _ in 0..100 {
        world.now_ms += 50;
        world.tell(Input::Tick { certificate_until_ms: 0 }, None);
        world.worker_comes(None);
        world.master_acts("a", None);
    }
    assert_eq!(world.machine.workers().len(), 1);
    assert_eq!(world.masters["a"].wish, None, "nobody acts on what is not written");
    while !world.disk.given.is_empty() {
        world.disk_answers(true, None);
    }
    assert!(world.asked.is_empty());
    assert_eq!((world.masters["a"].wish, world.masters.len()), (Some(Wish::Stop), 2));
}

#[test]
fn a_disk_that_refuses_refuses_what_was_asked_for_and_the_record_of_an_execution() {
    let mut world = World::new();
    world.worker_comes(None);
    world.ask(Ask::Name(NameAsk::Submit(Box::new(submission("a")))), None);
    world.disk_answers(false, None);
    assert!(world.asked.is_empty() && world.machine.jobs().is_empty());
    let mut world = running();
    world.masters.get_mut("a").unwrap().recorded = false;
    world.master_acts("a", None);
    world.disk_answers(false, None);
    assert!(!world.masters["a"].recorded);
    world.ask(Ask::Job { name: "a".to_owned(), ask: JobAsk::Cancel }, None);
    world.disk_answers(false, None);
    assert!(world.asked.is_empty());
    assert_eq!((world.masters["a"].wish, world.machine.jobs()[0].state), (None, JobState::Running));
}

#[test]
fn a_worker_that_says_more_than_is_kept_is_lost_and_its_job_learns_it() {
    let mut world = running();
    world.tell(Input::Unheard { worker: "w".into(), reason: "it says too much".to_owned() }, None);
    assert_eq!(world.link, None, "its connection is closed");
    assert!(!world.machine.workers()[0].alive);
    assert!(!world.masters["a"].recorded, "its master knows");
    // While a job waits for its other workers, what one says is kept up to a bound.
    let begun = world.disk.jobs["a"].begun.clone().unwrap();
    let mut world = running();
    world.restart();
    world.worker_comes(None);
    let execution = begun.prepare.execution;
    let job = world.machine.state.jobs.get_mut("a").unwrap();
    job.way = job::Way::Later((0..job::WAITING_MAX).map(|_| MasterInput::SlotsChanged).collect());
    let failure = Failure { kind: FailureKind::Transient, uid: None, reason: String::new() };
    let report = Report::Failed { execution, failure };
    world.tell(Input::Report { link: world.link.unwrap(), report: Box::new(report) }, None);
    assert_eq!(world.link, None);
}

#[test]
fn changes_of_one_job_are_given_to_the_disk_one_after_the_other_and_in_their_order() {
    let mut world = running();
    for checkpoint in 1..=20 {
        let reason = "x".to_owned();
        let notice = Notice::CheckpointFailed { checkpoint: CheckpointId(checkpoint), reason };
        world.tell(Input::Says { job: "a".to_owned(), says: Says::Notice(notice) }, None);
        assert_eq!(world.disk.given.len(), 1);
    }
    let before = world.disk.events["a"].len();
    while !world.disk.given.is_empty() {
        world.disk_answers(true, None);
    }
    assert_eq!(world.disk.events["a"].len(), before + 20);
}

#[test]
fn events_that_a_disk_does_not_take_are_bounded_and_the_end_of_a_job_is_not_lost_among_them() {
    let mut world = running();
    for checkpoint in 0..2 * job::CHANGES_WAITING_MAX as u64 {
        let notice = Notice::CheckpointFailed { checkpoint: CheckpointId(checkpoint), reason: "x".to_owned() };
        world.tell(Input::Says { job: "a".to_owned(), says: Says::Notice(notice) }, None);
    }
    world.ask(Ask::Job { name: "a".to_owned(), ask: JobAsk::Stop }, None);
    assert!(world.asked.is_empty(), "it was refused");
    world.masters.get_mut("a").unwrap().wish = Some(Wish::Cancel);
    world.master_acts("a", None);
    assert_eq!(world.machine.state.jobs["a"].waiting.len(), job::CHANGES_WAITING_MAX + 1);
    while !world.disk.given.is_empty() {
        world.disk_answers(true, None);
    }
    assert_eq!(world.machine.jobs()[0].state, JobState::Cancelled);
}

#[test]
fn another_parallelism_that_is_refused_takes_no_later_wish_with_it() {
    let mut world = running();
    let refused = |parallelism| {
        let notice = Notice::RescaleRefused { parallelism, reason: "x".to_owned() };
        Input::Says { job: "a".to_owned(), says: Says::Notice(notice) }
    };
    for parallelism in [2, 1, 2] {
        world.ask(Ask::Job { name: "a".to_owned(), ask: JobAsk::Rescale(parallelism) }, None);
        world.disk_answers(true, None);
    }
    assert!(world.asked.is_empty());
    world.tell(refused(1), None);
    world.disk_answers(true, None);
    assert_eq!(world.disk.jobs["a"].record.rescale, Some(2));
    world.tell(refused(2), None);
    world.disk_answers(true, None);
    assert_eq!(world.disk.jobs["a"].record.rescale, None);
}

#[test]
fn what_is_said_late_of_a_job_that_is_over_neither_undoes_its_removal_nor_its_submission() {
    let asks = [NameAsk::Remove("a".to_owned()), NameAsk::Submit(Box::new(submission("a")))];
    for (ask, is_there) in asks.into_iter().zip([false, true]) {
        let mut world = running();
        world.masters.get_mut("a").unwrap().wish = Some(Wish::Cancel);
        world.master_acts("a", None);
        world.disk_answers(true, None);
        world.ask(Ask::Name(ask), None);
        let late = chronicle::Entry::event(weir_protocol::api::EventLevel::Error, kinds::REPORT_REFUSED, "x".to_owned());
        let (now, mut out) = (world.now(), Vec::new());
        world.machine.state.note(now, "a", late, job::Edit::Nothing, &mut out);
        world.carry_out(out, None);
        while !world.disk.given.is_empty() {
            world.disk_answers(true, None);
        }
        assert!(world.asked.is_empty());
        let state = world.disk.jobs.get("a").map(|job| job.record.state);
        assert_eq!(state, is_there.then_some(JobState::Waiting));
    }
}

#[test]
fn slots_of_an_execution_that_may_go_on_are_held_while_a_worker_that_was_back_is_away_again() {
    let mut world = running();
    let begun = world.disk.jobs.get_mut("a").unwrap().begun.as_mut().unwrap();
    begun.prepare.spec.overrides.push(("job.parallelism".to_owned(), "2".to_owned()));
    let mut other = begun.prepare.placement.workers[0].clone();
    other.worker = "v".to_owned();
    begun.prepare.placement.workers.push(other);
    begun.prepare.placement.tasks = vec![0, 1];
    world.restart();
    let used = |world: &World| ["w", "v"].map(|worker| world.machine.state.schedule.used(worker));
    assert_eq!(used(&world), [1, 1]);
    world.worker_comes(None);
    let link = world.link.take().unwrap();
    world.tell(Input::Closed { link, reason: "it broke".to_owned() }, None);
    assert!(world.machine.state.takeovers.contains_key("a"), "it is waited for");
    assert_eq!(used(&world), [1, 1]);
}

#[test]
fn a_component_is_needed_from_when_its_job_is_asked_for() {
    let mut world = running();
    let pinned = |name: &str, byte| {
        let mut submission = submission(name);
        let pin = weir_protocol::ComponentPin {
            digest: weir_model::Digest([byte; 32]),
            name: "x@1".to_owned(),
            description: weir_model::Description::plain(),
        };
        submission.spec.components.insert("x".to_owned(), pin);
        Ask::Name(NameAsk::Submit(Box::new(submission)))
    };
    world.ask(pinned("b", 1), None);
    world.ask(pinned("c", 2), None);
    assert_eq!(world.disk.given.len(), 1, "one waits for the other");
    let needs = |world: &World| [1, 2, 3].map(|byte| world.machine.needs(weir_model::Digest([byte; 32])));
    assert_eq!(needs(&world), [true, true, false]);
    world.disk_answers(true, None);
    world.disk_answers(false, None);
    assert_eq!(needs(&world), [true, false, false], "the disk did not take the other");
}
