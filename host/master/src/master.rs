//! The machine: what a job is doing, and what it does about whatever happens.
//!
//! Each phase has its own part (`deploy`, `run`, `ending`), which knows nothing of the others. What is here decides what follows
//! one, and what becomes of what people wish in each: whoever asks is answered in every phase, whatever the storage does.

use std::time::Duration;

use weir_checkpoint::restart::Restarts;
use weir_model::{Attempt, CheckpointId};
use weir_protocol::panics::bug;
use weir_protocol::{Command, Execution, Report, WorkerId};

use crate::answers::{Unfit, fit, may_help, unexpected};
use crate::deploy::{Built, Deploy};
use crate::deployed::{Deployed, Planned};
use crate::ended::Ended;
use crate::ending::{Ending, Remains};
use crate::limits::Limits;
use crate::phase::{Kind, Lead, Phase, Stage, There};
use crate::plan::{gone_on_from, planned, storage_of, strategy};
use crate::prospects::{Next, Prospects};
use crate::requests::{Requests, Unanswered};
use crate::run::{Around, Run};
use crate::{
    Adopted, BegunAttempt, Claimed, Input, JobError, Led, MasterJob, Notice, Now, Outcome, Output, Progress, RequestId, Shortage,
    Slots, Store, StoreFailure, Stored, Wish,
};

/// The master of one job. See the module's documentation.
pub struct Master {
    settings: MasterJob,
    limits: Limits,
    /// The job with the parallelism it has.
    plan: Planned,
    /// Where its checkpoints are.
    storage: String,
    now: Now,
    stage: Stage,
    phase: Phase,
    /// The phase's kind, also while it is taken apart.
    kind: Kind,
    prospects: Prospects,
    /// The execution that was begun last, and its workers.
    begun: Option<(Execution, Vec<WorkerId>)>,
    unanswered: Unanswered,
    requests: Requests,
}

impl Master {
    /// A master. Its first input, whatever it is, sets it going.
    ///
    /// # Errors
    /// If the job file cannot be read.
    pub fn new(settings: MasterJob, limits: Limits) -> Result<Master, JobError> {
        let plan = planned(&settings.spec, None).map_err(JobError::JobFile)?;
        let storage = storage_of(&plan, &settings.default_storage);
        Ok(Master {
            stage: if settings.fresh { Stage::Trial } else { Stage::Claim },
            prospects: Prospects::new(settings.patient, Restarts::new(strategy(&plan.job.restart))),
            requests: Requests::new(format!("the checkpoint storage {storage} of job {}", plan.job.name)),
            settings,
            limits,
            plan,
            storage,
            now: Now { steady_ms: 0, wall_ms: 0, random: 0 },
            phase: Phase::New,
            kind: Kind::New,
            begun: None,
            unanswered: Unanswered::default(),
        })
    }

    /// Name of the job.
    pub fn job(&self) -> &str {
        &self.plan.job.name
    }

    /// URL of the place of its checkpoints.
    pub fn storage(&self) -> &str {
        &self.storage
    }

    /// Whether the job has ended; [`Output::Over`] was said.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Takes in what has happened, and appends what is to be done.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.now = Now { steady_ms: now.steady_ms.max(self.now.steady_ms), ..now };
        let said = out.len();
        if matches!(self.phase, Phase::New) {
            self.begin(out);
        }
        match input {
            Input::Report { worker, report } => self.reported(worker, *report, out),
            Input::WorkerLost { worker, reason } => self.lost(&worker, &reason, out),
            Input::SlotsChanged => self.slots_changed(out),
            Input::Slots(answer) => self.slots(answer, out),
            Input::Wish(Wish::Stop) => self.stop(out),
            Input::Wish(Wish::Cancel) => self.cancel(out),
            Input::Wish(Wish::Rescale(parallelism)) => self.rescale(parallelism, out),
            // The one place where late answers are dropped.
            Input::Stored { request, answer } if self.requests.answered(request) => self.stored(request, answer, out),
            Input::Stored { .. } | Input::Tick => {}
            Input::Recorded(answer) => self.recorded(answer, out),
            Input::Leave => self.leave(out),
        }
        self.tick(out);
        self.invariants();
        // Not before: whoever drives this carries out nothing of an input that ends in a panic.
        self.unanswered.count(&out[said..]);
    }

    /// When [`Input::Tick`] is due next; none while only another input can change anything.
    pub fn deadline_ms(&self) -> Option<u64> {
        let of_phase_ms = match &self.phase {
            Phase::New => Some(0),
            Phase::Backoff { until_ms } => Some(*until_ms),
            Phase::Deploy(deploy) => deploy.deadline_ms(&self.limits),
            Phase::Run(run) => Some(run.deadline_ms(&self.limits)),
            Phase::End(ending) => Some(ending.deadline_ms(&self.limits)),
            _ => None,
        };
        of_phase_ms.into_iter().chain(self.requests.deadline_ms()).min()
    }

    /// [`Master::handle`] has panicked. All that the execution was known by is gone with it: it is ended, and another begins with what
    /// is stored, as the restart strategy says.
    pub fn recover(&mut self, now: Now, panic: &str, out: &mut Vec<Output>) {
        if self.is_over() {
            return;
        }
        self.now = Now { steady_ms: now.steady_ms.max(self.now.steady_ms), ..now };
        self.cancel_begun(out);
        self.requests.forget();
        (self.phase, self.kind) = (Phase::New, Kind::End);
        self.follow(Ended::Failed(bug("its master", panic)), out);
    }

    /// Whoever drives it cannot go on. The tasks of its execution, which nobody leads any more, are ended.
    pub fn abandon(&mut self, out: &mut Vec<Output>) {
        self.requests.forget();
        self.cancel_begun(out);
        (self.phase, self.kind) = (Phase::Over, Kind::Over);
    }

    fn cancel_begun(&mut self, out: &mut Vec<Output>) {
        if let Some((execution, workers)) = self.begun.take() {
            let cancel = || Command::Cancel { execution: execution.clone(), finish: false };
            out.extend(workers.into_iter().map(|worker| Output::Send { worker, command: cancel() }));
        }
    }

    // Phases.

    fn set_phase(&mut self, phase: Phase) {
        let kind = phase.kind();
        assert!(self.kind.leads_to(kind), "{kind:?} after {:?}", self.kind);
        (self.phase, self.kind) = (phase, kind);
    }

    fn ask(&mut self, what: Store, out: &mut Vec<Output>) -> RequestId {
        self.requests.forget();
        self.requests.ask(self.now.steady_ms, &self.limits, what, out)
    }

    fn begin(&mut self, out: &mut Vec<Output>) {
        match self.settings.adopted.take() {
            Some(adopted) => self.lead(adopted, out),
            None => self.go_on(out),
        }
    }

    /// Does what comes next where nothing of the job runs, unless somebody wants it to end.
    fn go_on(&mut self, out: &mut Vec<Output>) {
        if let Some(outcome) = self.prospects.wished_end() {
            return self.over(Ok(outcome), out);
        }
        match (self.stage, self.prospects.wishes.rescale) {
            (Stage::Claim, _) => {
                let (origin, key_groups) = (self.settings.spec.file.clone(), self.plan.job.key_groups);
                let what = Store::Claim { origin, key_groups, fresh: self.settings.fresh, wall_ms: self.now.wall_ms };
                let request = self.ask(what, out);
                self.set_phase(Phase::Claim { request });
            }
            (Stage::Execution, Some(parallelism)) => match planned(&self.settings.spec, Some(parallelism)) {
                Ok(wanted) => {
                    let request = self.ask(Store::Newest, out);
                    self.set_phase(Phase::Fit { request, wanted: Box::new(wanted) });
                }
                Err(problems) => {
                    self.rescale_refused(parallelism, problems.to_string(), out);
                    self.reserve(out);
                }
            },
            (Stage::Trial | Stage::Execution, _) => self.reserve(out),
        }
    }

    fn reserve(&mut self, out: &mut Vec<Output>) {
        self.requests.forget();
        self.set_phase(Phase::Slots { said: None });
        self.slots_changed(out);
    }

    fn slots_changed(&mut self, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Slots { .. }) {
            out.push(Output::Reserve { slots: self.plan.job.slots() });
        }
    }

    fn slots(&mut self, answer: Result<Slots, Shortage>, out: &mut Vec<Output>) {
        let is_last = self.unanswered.slots();
        let Phase::Slots { said } = &mut self.phase else { return };
        match answer {
            _ if !is_last => {}
            Err(shortage) if *said == Some(shortage) => {}
            Err(shortage) => {
                *said = Some(shortage);
                out.push(Output::Notice(Notice::Waiting(shortage)));
            }
            Ok(slots) if self.stage == Stage::Trial => {
                let deployed = Deployed::on_slots(self.plan.clone(), Attempt(0), &slots);
                let prepare = deployed.prepare(&self.storage, None, CheckpointId(0));
                self.deploy(Deploy::begin(deployed, prepare, None, self.now.steady_ms, &self.limits, out));
            }
            Ok(slots) => {
                let request = self.ask(Store::Begin { void: self.prospects.void.clone() }, out);
                self.set_phase(Phase::Begin { request, slots });
            }
        }
    }

    fn deploy(&mut self, deploy: Deploy) {
        let deployed = &deploy.deployed;
        self.begun = Some((deployed.id.clone(), deployed.alive.iter().cloned().collect()));
        self.set_phase(Phase::Deploy(Box::new(deploy)));
    }

    fn stored(&mut self, request: RequestId, answer: Result<Stored, StoreFailure>, out: &mut Vec<Output>) {
        if let Phase::Run(_) = &self.phase {
            return self.run_stored(request, answer, out);
        }
        assert_eq!(self.phase.request(), Some(request), "requests are forgotten with the phase that has asked");
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Claim { .. } => self.claimed(answer, out),
            Phase::Fit { wanted, .. } => self.fitted(*wanted, answer, out),
            Phase::Begin { slots, .. } => self.attempt_begun(&slots, answer, out),
            Phase::Lead(lead) => self.led(*lead, answer, out),
            phase => unreachable!("an answer in phase {:?}", phase.kind()),
        }
    }

    fn claimed(&mut self, answer: Result<Stored, StoreFailure>, out: &mut Vec<Output>) {
        match answer {
            Ok(Stored::Claimed(Claimed::Ours)) => {
                self.stage = Stage::Execution;
                self.settings.fresh = false;
                self.go_on(out);
            }
            Ok(Stored::Claimed(Claimed::Others { origin })) => {
                let (job, file) = (&self.plan.job.name, &self.settings.spec.file);
                let error = JobError::Refused(format!(
                    "cannot run job `{job}` of {file}: its state belongs to {origin}; run this one under another name (--set job.name=NAME). \
                     If it is the same job, moved, or that one is not needed any more: --fresh forgets that job's state"
                ));
                self.over(Err(error), out);
            }
            Ok(other) => self.over(Err(unexpected(&other)), out),
            // The storage is down before the first execution: nothing was begun, and nothing is lost by trying again.
            Err(failure) if self.settings.patient && may_help(&failure) => {
                let next = self.prospects.after_failure(failure.reason, self.now);
                self.do_next(next, out);
            }
            Err(failure) => self.over(Err(JobError::Storage(failure)), out),
        }
    }

    /// Whether the state can be divided as is wanted. Where the storage cannot be asked, the wish stays.
    fn fitted(&mut self, wanted: Planned, answer: Result<Stored, StoreFailure>, out: &mut Vec<Output>) {
        match fit(&wanted, self.settings.allow_dropped_state, answer) {
            Ok(()) => self.rescaled(wanted, out),
            Err(Unfit::Refused(reason)) => self.rescale_refused(wanted.job.parallelism, reason, out),
            Err(Unfit::Unknown(_)) => {}
        }
        self.reserve(out);
    }

    fn rescaled(&mut self, wanted: Planned, out: &mut Vec<Output>) {
        self.prospects.wishes.rescale = None;
        let (from, to) = (self.plan.job.parallelism, wanted.job.parallelism);
        self.plan = wanted;
        if from != to {
            out.push(Output::Notice(Notice::Rescaling { from, to }));
        }
    }

    fn rescale_refused(&mut self, parallelism: u32, reason: String, out: &mut Vec<Output>) {
        self.prospects.wishes.rescale = None;
        out.push(Output::Notice(Notice::RescaleRefused { parallelism, reason }));
    }

    fn attempt_begun(&mut self, slots: &Slots, answer: Result<Stored, StoreFailure>, out: &mut Vec<Output>) {
        let begun = match answer {
            Ok(Stored::Begun(begun)) => *begun,
            Ok(other) => return self.over(Err(unexpected(&other)), out),
            Err(failure) => return self.follow(failure.into(), out),
        };
        let BegunAttempt { attempt, from, skipped, first_checkpoint, retract_after } = begun;
        for unusable in skipped {
            out.push(Output::Notice(Notice::FellBack { checkpoint: unusable.checkpoint, reason: unusable.reason }));
        }
        self.prospects.void.clear();
        self.prospects.has_checkpoint = from.is_some();
        let allow_dropped_state = self.settings.allow_dropped_state;
        let (plan, apart) = match gone_on_from(self.plan.clone(), allow_dropped_state, from.as_deref()) {
            Ok(plan) => plan,
            Err(error) => return self.follow(Ended::Refused(error), out),
        };
        let deployed = Deployed::on_slots(plan, attempt, slots);
        let mut prepare = deployed.prepare(&self.storage, from.as_ref().map(|manifest| manifest.id()), first_checkpoint);
        (prepare.edges_apart, prepare.retract_after) = (apart, retract_after);
        self.deploy(Deploy::begin(deployed, prepare, from, self.now.steady_ms, &self.limits, out));
    }

    fn lead(&mut self, adopted: Adopted, out: &mut Vec<Output>) {
        self.stage = Stage::Execution;
        let prepare = &adopted.begun.prepare;
        let job = match prepare.spec.load() {
            Ok(job) => job.with_edges_apart(&prepare.edges_apart),
            Err(problems) => return self.over(Err(JobError::JobFile(problems)), out),
        };
        let mut deployed = Deployed::prepared(prepare, job);
        deployed.templates = adopted.begun.templates.iter().cloned().collect();
        self.begun = Some((deployed.id.clone(), deployed.alive.iter().cloned().collect()));
        let request = self.ask(Store::Lead { attempt: deployed.id.attempt }, out);
        self.set_phase(Phase::Lead(Box::new(Lead { request, adopted, deployed, later: Vec::new() })));
    }

    fn led(&mut self, lead: Lead, answer: Result<Stored, StoreFailure>, out: &mut Vec<Output>) {
        let attempt = lead.deployed.id.attempt;
        let failed = match answer {
            Ok(Stored::Led(led)) if led.newest_attempt == attempt => return self.take_over(lead, *led, out),
            Ok(Stored::Led(led)) => format!(
                "attempt {attempt} cannot be taken over: attempt {} of the job has begun since, and what this one completes would not count",
                led.newest_attempt
            ),
            Ok(other) => unexpected(&other).to_string(),
            // Whether its last checkpoint is complete is not known, so it can neither be announced nor given up. A new attempt
            // settles it.
            Err(failure) => format!("attempt {attempt} cannot be taken over: {failure}"),
        };
        self.end(lead.deployed, Some(Ended::Failed(failed)), None, out);
    }

    /// Goes on with an execution whose tasks all run.
    fn take_over(&mut self, lead: Lead, led: Led, out: &mut Vec<Output>) {
        let Lead { adopted, deployed, later, .. } = lead;
        out.push(Output::Notice(Notice::TakenOver { attempt: deployed.id.attempt }));
        self.prospects.has_checkpoint = led.newest.is_some();
        let first_checkpoint = led.next_checkpoint.max(CheckpointId(adopted.last_checkpoint().0 + 1));
        let run = Run::new(deployed, adopted.begun.prepare.restore, first_checkpoint, self.now.steady_ms, &self.limits);
        self.set_phase(Phase::Run(Box::new(run)));
        self.on_run(out, |run, around| run.adopt(&adopted, led.newest, around));
        if self.prospects.wishes.stop_running {
            self.on_run(out, Run::stop);
        }
        self.rescale_run(out);
        for (worker, report) in later {
            self.reported(worker, report, out);
        }
    }

    // What happens.

    fn reported(&mut self, worker: WorkerId, report: Report, out: &mut Vec<Output>) {
        let (now_ms, limits) = (self.now.steady_ms, self.limits);
        let is_of = |deployed: &Deployed| report.execution().is_none_or(|execution| *execution == deployed.id);
        match &mut self.phase {
            Phase::Lead(lead) if is_of(&lead.deployed) && !matches!(report, Report::Heartbeat { .. }) => {
                lead.later.push((worker, report));
            }
            Phase::Deploy(deploy) if is_of(&deploy.deployed) => {
                let built = deploy.report(&worker, report, now_ms, &limits, out);
                self.built(built, out);
            }
            Phase::Run(run) if is_of(&run.deployed) => self.on_run(out, |run, around| run.report(&worker, report, around)),
            Phase::End(ending) if is_of(ending.deployed()) => {
                ending.report(&worker, report);
                self.ended_everywhere(out);
            }
            // Of an execution that is over, or where none is; how far tasks are, before they are led.
            _ => {}
        }
    }

    fn recorded(&mut self, answer: Result<(), String>, out: &mut Vec<Output>) {
        let (now_ms, limits) = (self.now.steady_ms, self.limits);
        let is_last = self.unanswered.record();
        // An answer that comes after somebody has ended its execution changes nothing.
        if let Phase::Deploy(deploy) = &mut self.phase
            && is_last
        {
            let built = deploy.recorded(answer, now_ms, &limits, out);
            self.built(built, out);
        }
    }

    fn built(&mut self, built: Option<Built>, out: &mut Vec<Output>) {
        match built {
            None => {}
            Some(Built::Started) => {
                let Phase::Deploy(deploy) = std::mem::replace(&mut self.phase, Phase::New) else { return };
                let (from, first_checkpoint) = (deploy.from(), deploy.first_checkpoint());
                let run = Run::new(deploy.deployed, from, first_checkpoint, self.now.steady_ms, &self.limits);
                self.set_phase(Phase::Run(Box::new(run)));
                self.rescale_run(out);
            }
            Some(Built::Tried) => self.end_deployed(None, out),
            Some(Built::Ended(ended)) => self.end_deployed(Some(ended), out),
        }
    }

    fn lost(&mut self, worker: &WorkerId, reason: &str, out: &mut Vec<Output>) {
        let was_there = match &mut self.phase {
            Phase::Begin { slots, .. } => slots.workers.iter().any(|address| address.worker == **worker),
            Phase::Lead(lead) => lead.deployed.alive.remove(worker),
            Phase::Deploy(deploy) => deploy.deployed.alive.remove(worker),
            Phase::Run(run) => run.deployed.alive.remove(worker),
            Phase::End(ending) => {
                ending.lost(worker);
                return self.ended_everywhere(out);
            }
            // Nothing of the job is there; slots are given by who knows which workers are.
            Phase::New | Phase::Claim { .. } | Phase::Fit { .. } | Phase::Slots { .. } | Phase::Backoff { .. } | Phase::Over => {
                false
            }
        };
        if was_there {
            out.push(Output::Notice(Notice::WorkerLost { worker: worker.to_string(), reason: reason.to_owned() }));
            self.fail(format!("worker {worker} is lost: {reason}"), out);
        }
    }

    /// What is there of an execution has failed.
    fn fail(&mut self, reason: String, out: &mut Vec<Output>) {
        let ended = Ended::Failed(reason);
        match self.phase {
            Phase::Begin { .. } => self.follow(ended, out),
            _ => self.end_deployed(Some(ended), out),
        }
    }

    fn tick(&mut self, out: &mut Vec<Output>) {
        let (now_ms, limits) = (self.now.steady_ms, self.limits);
        while let Some((request, failure)) = self.requests.tick(now_ms, out) {
            self.stored(request, Err(failure), out);
        }
        match &mut self.phase {
            Phase::Backoff { until_ms } if *until_ms <= now_ms => self.go_on(out),
            Phase::Deploy(deploy) => {
                let built = deploy.tick(now_ms, &limits, out);
                self.built(built, out);
            }
            Phase::Run(run) => {
                if let Some(progress) = run.progress(now_ms, &limits) {
                    self.tell_of_odd_rows(&progress, false, out);
                    out.push(Output::Notice(Notice::Progress(progress)));
                }
                self.on_run(out, Run::tick);
            }
            Phase::End(ending) => {
                ending.tick(now_ms, &limits, out);
                self.ended_everywhere(out);
            }
            // What these wait for has no time of its own, but for requests to the storage.
            _ => {}
        }
    }

    // A running execution.

    fn on_run(&mut self, out: &mut Vec<Output>, what: impl FnOnce(&mut Run, &mut Around<'_>) -> Option<Ended>) {
        let Phase::Run(run) = &mut self.phase else { return };
        let mut around = Around { now: self.now, limits: &self.limits, requests: &mut self.requests, out };
        if let Some(ended) = what(run, &mut around) {
            self.end_deployed(Some(ended), out);
        }
    }

    fn run_stored(&mut self, request: RequestId, answer: Result<Stored, StoreFailure>, out: &mut Vec<Output>) {
        let Phase::Run(run) = &self.phase else { return };
        let Some(wanted) = run.asked_for(request) else {
            self.prospects.has_checkpoint |= matches!(answer, Ok(Stored::Completed(_)));
            return self.on_run(out, |run, around| run.written(request, answer, around));
        };
        let fits = fit(wanted, self.settings.allow_dropped_state, answer);
        let (may, parallelism) = (fits.is_ok(), wanted.job.parallelism);
        if let Err(Unfit::Refused(reason) | Unfit::Unknown(reason)) = fits {
            self.rescale_refused(parallelism, reason, out);
        }
        self.on_run(out, |run, around| run.may_rescale(may, around));
    }

    /// Wants another parallelism of tasks that run, if any is wished.
    fn rescale_run(&mut self, out: &mut Vec<Output>) {
        let (Phase::Run(run), Some(parallelism)) = (&mut self.phase, self.prospects.wishes.rescale) else { return };
        let mut around = Around { now: self.now, limits: &self.limits, requests: &mut self.requests, out };
        let asked = match planned(&self.settings.spec, Some(parallelism)) {
            Ok(wanted) => run.rescale(wanted, &mut around),
            Err(problems) => Err(problems.to_string()),
        };
        if let Err(reason) = asked {
            self.rescale_refused(parallelism, reason, out);
        }
    }

    fn tell_of_odd_rows(&mut self, progress: &Progress, is_last: bool, out: &mut Vec<Output>) {
        let messages = self.prospects.odd.look(&self.plan.job, &progress.vertices, is_last);
        out.extend(messages.into_iter().map(|message| Output::Notice(Notice::OddRows { message })));
    }

    // The end of an execution.

    /// Ends the execution that is there.
    fn end_deployed(&mut self, why: Option<Ended>, out: &mut Vec<Output>) {
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Lead(lead) => self.end(lead.deployed, why, None, out),
            Phase::Deploy(deploy) => self.end(deploy.deployed, why, None, out),
            Phase::Run(run) => {
                let (deployed, counts) = run.into_parts();
                self.end(deployed, why, Some(counts), out);
            }
            phase => unreachable!("nothing to end in phase {:?}", phase.kind()),
        }
    }

    fn end(&mut self, deployed: Deployed, why: Option<Ended>, counts: Option<Counts>, out: &mut Vec<Output>) {
        self.requests.forget();
        let ending = Ending::begin(deployed, why, counts, self.now.steady_ms, &self.limits, out);
        self.set_phase(Phase::End(Box::new(ending)));
        self.ended_everywhere(out);
    }

    fn ended_everywhere(&mut self, out: &mut Vec<Output>) {
        if !matches!(&self.phase, Phase::End(ending) if ending.is_over()) {
            return;
        }
        let Phase::End(ending) = std::mem::replace(&mut self.phase, Phase::New) else { return };
        self.begun = None;
        let Remains { why, progress, .. } = ending.remains(self.now.steady_ms);
        if let Some(progress) = progress {
            self.tell_of_odd_rows(&progress, true, out);
            self.prospects.last = Some(progress);
        }
        match (self.stage, why) {
            (Stage::Trial, Some(ended)) => {
                let next = self.prospects.after_trial(ended, self.now);
                self.do_next(next, out);
            }
            // Operators were only to be opened, and were.
            (_, None) => {
                self.stage = Stage::Claim;
                self.go_on(out);
            }
            (_, Some(ended)) => self.follow(ended, out),
        }
    }

    /// Decides what follows the end of an execution, or of an attempt to begin one.
    fn follow(&mut self, ended: Ended, out: &mut Vec<Output>) {
        if let Ended::Damaged { checkpoint, reason } = &ended {
            out.push(Output::Notice(Notice::FellBack { checkpoint: *checkpoint, reason: reason.clone() }));
        }
        let next = self.prospects.after(ended, self.now);
        self.do_next(next, out);
    }

    fn do_next(&mut self, next: Next, out: &mut Vec<Output>) {
        match next {
            Next::Over(end) => self.over(end, out),
            Next::GoOn => self.go_on(out),
            Next::Wait { reason, ms } => {
                out.push(Output::Notice(Notice::Restarting { reason, delay: Duration::from_millis(ms) }));
                self.requests.forget();
                self.set_phase(Phase::Backoff { until_ms: self.now.steady_ms.saturating_add(ms) });
            }
        }
    }

    fn over(&mut self, end: Result<Outcome, JobError>, out: &mut Vec<Output>) {
        self.requests.forget();
        out.push(Output::Release);
        out.push(Output::Over(Box::new(end)));
        self.set_phase(Phase::Over);
    }

    // What people wish, phase by phase.

    fn stop(&mut self, out: &mut Vec<Output>) {
        match self.kind.there() {
            There::Nothing => {
                self.prospects.wishes.stop = true;
                self.go_on(out);
            }
            There::Built => self.end_deployed(Some(Ended::StoppedBefore), out),
            // Its tasks run: they take a last checkpoint as soon as it is led.
            There::Unled => self.prospects.wishes.stop_running = true,
            There::Running => {
                (self.prospects.wishes.stop_running, self.prospects.wishes.rescale) = (true, None);
                self.on_run(out, Run::stop);
            }
            // Wanted of what follows, if anything does.
            There::Ending => self.prospects.wishes.stop = true,
            There::Over => {}
        }
    }

    fn cancel(&mut self, out: &mut Vec<Output>) {
        self.prospects.wishes.cancel = true;
        match self.kind.there() {
            There::Nothing => self.go_on(out),
            There::Unled | There::Built | There::Running => self.end_deployed(Some(Ended::Cancelled), out),
            There::Ending | There::Over => {}
        }
    }

    fn rescale(&mut self, parallelism: u32, out: &mut Vec<Output>) {
        if self.prospects.wishes.stop_running {
            return self.rescale_refused(parallelism, "the job is about to end".to_owned(), out);
        }
        self.prospects.wishes.rescale = Some(parallelism);
        match (self.kind, self.stage) {
            // With another parallelism there may be enough slots. Nothing of the state is divided before it is forgotten.
            (Kind::Slots, Stage::Trial) => {
                match planned(&self.settings.spec, Some(parallelism)) {
                    Ok(wanted) => self.rescaled(wanted, out),
                    Err(problems) => self.rescale_refused(parallelism, problems.to_string(), out),
                }
                self.reserve(out);
            }
            // What was asked for before counts no more.
            (Kind::Slots | Kind::Fit, _) => self.go_on(out),
            (Kind::Run, _) => self.rescale_run(out),
            // Wanted of what follows.
            (Kind::New | Kind::Claim | Kind::Backoff | Kind::Begin | Kind::Lead | Kind::Deploy | Kind::End | Kind::Over, _) => {}
        }
    }

    fn leave(&mut self, out: &mut Vec<Output>) {
        self.prospects.wishes.leave = true;
        match &mut self.phase {
            // Its tasks have not begun, and nobody is there any more who would start them.
            Phase::Deploy(deploy) => {
                deploy.deployed.tell_all(|execution| Command::Cancel { execution, finish: false }, out);
                self.over(Ok(Outcome::Left), out);
            }
            // The job is over, and what it did counts: that is said, whoever still ends a thread.
            Phase::End(ending) if ending.ends_job() => {
                ending.give_up();
                self.ended_everywhere(out);
            }
            Phase::Over => {}
            // Tasks that run go on; whoever comes next takes them over.
            _ => self.over(Ok(Outcome::Left), out),
        }
    }

    /// What must hold between any two inputs. Checked in production too: a master that is wrong about itself ends its execution and
    /// begins another, which is better than what it would do otherwise.
    fn invariants(&self) {
        assert_eq!(self.phase.kind(), self.kind, "the phase was taken apart and not put together");
        if let Some(request) = self.phase.request() {
            assert!(self.requests.awaits(request), "phase {:?} waits for an answer that nobody gives", self.kind);
        }
        match &self.phase {
            Phase::Run(run) => run.invariants(&self.requests),
            Phase::Over => assert!(self.requests.deadline_ms().is_none(), "the storage is waited for after the end"),
            Phase::New => unreachable!("the first input sets it going"),
            _ => {}
        }
        // A restart may be due at once; whatever else is due was done, or nothing would ever come of it.
        let is_due = self.deadline_ms().is_some_and(|deadline_ms| deadline_ms <= self.now.steady_ms);
        assert!(!is_due || self.kind == Kind::Backoff, "what is due in phase {:?} changes nothing", self.kind);
        assert!(
            !(self.prospects.wishes.cancel && matches!(self.phase, Phase::Run(_) | Phase::Deploy(_))),
            "a cancel is not done"
        );
        assert!(self.begun.is_some() || !matches!(self.phase, Phase::Run(_) | Phase::Deploy(_) | Phase::Lead(_)));
    }
}

type Counts = (crate::meters::Meters, crate::meters::CheckpointCounts);
