//! What a run is about, drawn from its seed: the job, its input, what goes wrong and when.

use std::collections::BTreeMap;
use std::fmt::Write;

use weir_model::push_header;

use crate::random::{Random, mix};

/// Of so many rows one has no key, and one has headers.
const NO_KEY_EVERY: u64 = 16;
const HEADERS_EVERY: u64 = 5;

/// What kind of run a seed makes. The numbers are those of the acceptance scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Kills at any moment; one parallelism.
    S20Kills,
    /// The parallelism changes at restarts and when somebody asks, on every exchange.
    S21Rescale,
    /// A keyed operator with a broadcast input, rescaled with rows in flight on both edges.
    S22Broadcast,
    /// Everything.
    S23Anything,
    /// Slow sinks, unaligned checkpoints one after the other, and restores: rows in flight are captured again.
    S24InFlightAgain,
    /// Rows larger than a frame and than a stream's window.
    S25LargeRows,
    /// A source that idles next to busy ones.
    S28Idle,
    /// One key has nine rows of ten.
    S29Skew,
    /// Rows may come twice, none may be lost.
    AtLeastOnce,
    /// Manifests that are written and nobody knows, so that their checkpoints are given up; and coordinators that crash then.
    S80Uncertain,
    /// What was stored is lost or cannot be read for a time, and everything is killed then: jobs go back to an older checkpoint.
    S84Damage,
    /// Storage that never answers, workers that stand still, and people who want something meanwhile.
    S86Hang,
    /// Coordinators that go on while another has taken their place.
    S88Second,
}

impl Profile {
    /// All kinds.
    pub const ALL: [Profile; 13] = [
        Profile::S20Kills,
        Profile::S21Rescale,
        Profile::S22Broadcast,
        Profile::S23Anything,
        Profile::S24InFlightAgain,
        Profile::S25LargeRows,
        Profile::S28Idle,
        Profile::S29Skew,
        Profile::AtLeastOnce,
        Profile::S80Uncertain,
        Profile::S84Damage,
        Profile::S86Hang,
        Profile::S88Second,
    ];

    /// The test that runs seeds of this kind, as far as it takes to name it.
    pub fn test(self) -> &'static str {
        match self {
            Profile::S20Kills => "s20_output",
            Profile::S21Rescale => "s21_output",
            Profile::S22Broadcast => "s22_no",
            Profile::S23Anything => "s23_output",
            Profile::S24InFlightAgain => "s24_rows",
            Profile::S25LargeRows => "s25_rows",
            Profile::S28Idle => "s28_an",
            Profile::S29Skew => "s29_one",
            Profile::AtLeastOnce => "at_least",
            Profile::S80Uncertain => "s80_a_checkpoint",
            Profile::S84Damage => "s84_output",
            Profile::S86Hang => "s86_output",
            Profile::S88Second => "s88_output",
        }
    }
}

/// Something that is wrong on purpose in what surrounds the machines, to see that it is found. What is wrong in the machines
/// themselves is for `cargo xtask sim --guards`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A restored source starts one row too far on.
    SkipRow,
    /// A sink loses what it had prepared for a checkpoint when the next one comes.
    ForgetPrepared,
}

/// The graph of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// a -> hash count -> out
    Hash,
    /// a -> rebalance map -> hash count -> out
    Rebalance,
    /// a, b -> forward map -> hash count -> out
    UnionForward,
    /// a, b -> hash count -> out, and a second sink behind `a`
    UnionHash,
    /// a -> hash, b -> broadcast: join -> out
    TwoInput,
    /// a -> map (where the parallelism agrees in the same task) -> hash count -> out; b -> broadcast all -> out2
    Broadcast,
    /// a -> map -> hash count -> hash count2 -> out
    Deep,
}

const SHAPES: [Shape; 7] =
    [Shape::Hash, Shape::Rebalance, Shape::UnionForward, Shape::UnionHash, Shape::TwoInput, Shape::Broadcast, Shape::Deep];

pub(crate) const UIDS: [&str; 9] = ["a", "b", "map", "count", "count2", "join", "all", "out", "out2"];

/// Greatest parallelism of a vertex.
pub(crate) const PARALLELISM_MAX: u64 = 7;

/// How long the checkpoints of a job may take whose owner has seen it fail again and again.
const PATIENT_TIMEOUT_MS: u64 = 120_000;

/// A job file, as far as it differs from others of the same job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edition {
    /// That of the job.
    parallelism: u32,
    /// Those that vertices have of their own.
    own: BTreeMap<&'static str, Option<u32>>,
    /// Checkpoints get time, and may fail.
    pub(crate) patient: bool,
}

/// When barriers overtake rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `unaligned_after` in ms; none: never.
    ExactlyOnce(Option<u64>),
    AtLeastOnce,
}

/// Rows of one split of a source, and when they are there.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) rows: u32,
    pub(crate) start_us: u64,
    pub(crate) period_us: u64,
    /// From this row on everything comes so much later.
    pub(crate) pause: Option<(u32, u64)>,
}

impl Split {
    /// When a row is there.
    pub(crate) fn at_us(&self, row: u32) -> u64 {
        let pause = self.pause.filter(|(from, _)| row >= *from).map_or(0, |(_, us)| us);
        self.start_us + u64::from(row) * self.period_us + pause
    }
}

/// Identifies a row: source, split, row, copy.
pub(crate) type RowId = [u8; 7];

/// Bytes of a value before its body: the id, and a number that counting operators write.
pub(crate) const VALUE_HEAD: usize = 11;

/// Marks what an operator says at its end.
pub(crate) const DIGEST: u8 = 0xEE;

/// The input of a job: the same in every attempt.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) seed: u64,
    /// By source.
    pub(crate) sources: Vec<Vec<Split>>,
    pub(crate) keys: u64,
    /// One key has nine rows of ten.
    pub(crate) skewed: bool,
    /// Of a thousand rows, those that are large.
    pub(crate) large_permille: u64,
}

impl Input {
    pub(crate) fn id(source: usize, split: usize, row: u32) -> RowId {
        let row = row.to_le_bytes();
        [source as u8, split as u8, row[0], row[1], row[2], row[3], 0]
    }

    fn hash(&self, id: &RowId) -> u64 {
        let mut word = [0; 8];
        word[..6].copy_from_slice(&id[..6]);
        mix(self.seed ^ u64::from_le_bytes(word))
    }

    /// The key of a row. Some have none.
    pub(crate) fn key(&self, id: &RowId) -> Option<Vec<u8>> {
        let hash = self.hash(id);
        if (hash >> 48).is_multiple_of(NO_KEY_EVERY) {
            return None;
        }
        let key = if self.skewed && !hash.is_multiple_of(10) { 0 } else { (hash >> 8) % self.keys };
        Some(format!("k{key}").into_bytes())
    }

    /// The headers of a row. Few have some.
    pub(crate) fn headers(&self, id: &RowId) -> Vec<u8> {
        let hash = self.hash(id);
        let mut headers = Vec::new();
        if (hash >> 40).is_multiple_of(HEADERS_EVERY) {
            push_header(&mut headers, b"row", &id[..6]);
            push_header(&mut headers, b"", &hash.to_le_bytes()[..(hash % 8) as usize]);
        }
        headers
    }

    fn body_len(&self, id: &RowId) -> usize {
        let hash = mix(self.hash(id));
        if hash % 1_000 >= self.large_permille {
            return (hash >> 32) as usize % 24;
        }
        // A little more than a frame takes, a stream's window or two, and in between.
        match (hash >> 16) % 4 {
            0 => (2 << 20) + 77,
            1 => (1 << 20) + 1,
            2 => 300_000,
            _ => 66_000,
        }
    }

    /// The value of a row, as the source gives it.
    pub(crate) fn value(&self, id: &RowId) -> Vec<u8> {
        let (start, len) = (self.hash(id), self.body_len(id));
        let mut value = Vec::with_capacity(VALUE_HEAD + len);
        value.extend_from_slice(id);
        value.extend_from_slice(&[0; VALUE_HEAD - 7]);
        value.extend((0..len as u64).map(|at| start.wrapping_add(at.wrapping_mul(37)) as u8));
        value
    }

    /// Whether what came out is whole, whatever copy of the row it is.
    pub(crate) fn is_whole(&self, id: &RowId, value: &[u8]) -> bool {
        value[VALUE_HEAD..] == self.value(id)[VALUE_HEAD..]
    }
}

/// What happens to the processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    WorkerCrash,
    CoordinatorCrash,
    /// The connection between two workers breaks.
    DataLost,
    /// The connection between a worker and the coordinator breaks.
    ControlLost,
    /// Packets go nowhere for a time, in one direction or both.
    Partition,
    /// Requests to the disk fail for a time.
    DiskFails,
    /// Everything that is written takes long for a time.
    DiskSlow,
    /// Somebody stops the job, and starts it again.
    Stop,
    /// Somebody cancels the job, and starts it again.
    Cancel,
    /// Somebody asks for another parallelism.
    Rescale,
    /// Nothing is heard of the storage for a time.
    Hang,
    /// A worker stands still for a time in whatever it does with storage or files.
    WorkerStuck,
    /// Another coordinator takes the place of one that goes on.
    SecondCoordinator,
    /// A coordinator of another origin can be found as well, for a time.
    Stranger,
    /// Some reads find nothing where something is.
    DamageOnce,
    /// A file of the newest checkpoint is lost, and all processes end.
    DamageForGood,
}

/// Everything about a run that is decided before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) shape: Shape,
    pub(crate) mode: Mode,
    pub(crate) input: Input,
    pub(crate) key_groups: u16,
    pub(crate) workers: usize,
    pub(crate) interval_ms: Option<u64>,
    pub(crate) min_pause_ms: u64,
    pub(crate) timeout_ms: u64,
    pub(crate) tolerable_failures: u32,
    pub(crate) idle_after_ms: Option<u64>,
    /// The parallelism changes: when somebody asks, and when a job is started again.
    pub(crate) rescales: bool,
    pub(crate) sink_exchange: &'static str,
    /// The edges that may be: operators run in the task of what they read.
    pub(crate) near: &'static str,
    /// Checkpoints that are kept.
    pub(crate) retained: u32,
    /// Slots of a worker.
    pub(crate) slots: u32,
    /// Lanes that share the snapshots of an execution on a worker.
    pub(crate) lanes: usize,
    /// Captured bytes that may wait before captures that can wait are put off.
    pub(crate) congested_bytes: usize,
    /// How often `map` gives each row.
    pub(crate) fan: u8,
    /// What a row costs.
    pub(crate) operator_us: u64,
    pub(crate) sink_us: u64,
    /// What writing costs, usually.
    pub(crate) disk_us: u64,
    pub(crate) network_us: u64,
    pub(crate) window_bytes: usize,
    /// Rows that a source gives at once, at most.
    pub(crate) chunk: usize,
    /// When, in order of time.
    pub(crate) faults: Vec<(u64, Fault)>,
    /// Of a hundred manifests that are written, those of which nobody hears.
    pub(crate) uncertain_percent: u64,
    /// Of a hundred manifests, those before which the coordinator stands still while another takes its place.
    pub(crate) pause_percent: u64,
    /// Faults that strike at certain steps instead of certain times, at most.
    pub(crate) step_faults: u32,
}

const UNALIGNED: [Mode; 5] = [
    Mode::ExactlyOnce(Some(0)),
    Mode::ExactlyOnce(Some(0)),
    Mode::ExactlyOnce(Some(15)),
    Mode::ExactlyOnce(Some(60)),
    Mode::ExactlyOnce(None),
];

impl Scenario {
    pub(crate) fn new(seed: u64, profile: Profile) -> Scenario {
        let mut random = Random::new(seed);
        let shape = match profile {
            Profile::S22Broadcast => Shape::TwoInput,
            Profile::S28Idle => random.pick(&[Shape::UnionHash, Shape::UnionForward]),
            Profile::S29Skew => random.pick(&[Shape::Hash, Shape::UnionHash, Shape::Deep]),
            _ => random.pick(&SHAPES),
        };
        let mode = match profile {
            Profile::AtLeastOnce => Mode::AtLeastOnce,
            Profile::S21Rescale | Profile::S22Broadcast => random.pick(&UNALIGNED[..4]),
            Profile::S24InFlightAgain => random.pick(&UNALIGNED[..3]),
            _ => random.pick(&UNALIGNED),
        };
        let slow = profile == Profile::S24InFlightAgain || random.percent(40);
        let large = profile == Profile::S25LargeRows;
        let input = input(&mut random, profile, shape);
        let rescales = match profile {
            Profile::S20Kills | Profile::S25LargeRows | Profile::S28Idle => false,
            Profile::S21Rescale | Profile::S22Broadcast | Profile::S24InFlightAgain => true,
            _ => random.percent(50),
        };
        let mut scenario = Scenario {
            shape,
            mode,
            input,
            key_groups: random.between(7, 24) as u16,
            workers: random.pick(&[1, 2, 2, 3, 3, 4]),
            interval_ms: (!random.percent(8) || profile == Profile::S28Idle).then(|| random.pick(&[10, 25, 40, 80, 150])),
            min_pause_ms: random.pick(&[0, 0, 5, 50]),
            timeout_ms: random.pick(&[60, 300, 2_000, 10_000]),
            tolerable_failures: random.pick(&[0, 1, 3, 1_000]),
            idle_after_ms: (profile == Profile::S28Idle || random.percent(40)).then(|| random.pick(&[60, 200])),
            rescales,
            sink_exchange: random.pick(&["forward", "rebalance", "hash"]),
            near: random.pick(&["forward", "rebalance"]),
            retained: random.pick(&[1, 2, 2, 3]),
            slots: PARALLELISM_MAX as u32,
            lanes: random.pick(&[1, 2, 4]),
            congested_bytes: random.pick(&[0, 200, 128 << 20]),
            fan: random.pick(&[1, 1, 2]),
            operator_us: random.pick(&[20, 100, 400, 1_500]),
            sink_us: if slow { random.pick(&[2_000, 4_000, 8_000]) } else { random.pick(&[20, 200]) },
            disk_us: random.pick(&[50, 500, 3_000, 10_000]),
            network_us: random.pick(&[20, 300, 2_000, 10_000]),
            window_bytes: random.pick(&[1, 500, 4_000, 64_000]),
            chunk: random.pick(&[1, 3, 8, 30]),
            uncertain_percent: 0,
            pause_percent: 0,
            faults: Vec::new(),
            step_faults: random.pick(&[0, 0, 1, 2, 4]),
        };
        // Where one worker is lost, the others may not be enough.
        let least = PARALLELISM_MAX.div_ceil(scenario.workers as u64);
        scenario.slots = random.between(least, PARALLELISM_MAX) as u32;
        if large {
            scenario.operator_us = 100;
            scenario.sink_us = 100;
            scenario.window_bytes = 1 << 20;
        }
        if profile == Profile::S28Idle {
            scenario.step_faults = 0;
            scenario.timeout_ms = 10_000;
            scenario.sink_us = 100;
            scenario.operator_us = 100;
        }
        if profile == Profile::S80Uncertain {
            scenario.uncertain_percent = 15;
            scenario.tolerable_failures = 1_000;
            scenario.timeout_ms = 10_000;
            scenario.interval_ms = Some(random.pick(&[10, 25, 40]));
        }
        if profile == Profile::S88Second {
            scenario.pause_percent = random.pick(&[0, 3, 10]);
        }
        if profile == Profile::S84Damage {
            scenario.retained = 3;
            scenario.timeout_ms = 10_000;
            scenario.interval_ms = Some(random.pick(&[10, 25, 40]));
        }
        scenario.faults = faults(&mut random, profile, &scenario);
        scenario
    }

    /// When the last row is there.
    pub(crate) fn input_ends_us(&self) -> u64 {
        let splits = self.input.sources.iter().flatten();
        splits.filter(|split| split.rows > 0).map(|split| split.at_us(split.rows - 1)).max().unwrap_or(0)
    }

    /// The job as somebody writes it down next.
    pub(crate) fn edition(&self, random: &mut Random) -> Edition {
        let mut own = BTreeMap::new();
        for uid in UIDS {
            // Most have that of the job, so that a rescale changes them.
            let parallelism = (!random.percent(60)).then(|| random.between(1, PARALLELISM_MAX) as u32);
            own.insert(uid, parallelism);
        }
        // Those that forward to each other have the same.
        for (with, like) in self.tied() {
            let parallelism = own[like];
            own.insert(with, parallelism);
        }
        Edition { parallelism: random.between(1, PARALLELISM_MAX) as u32, own, patient: false }
    }

    /// Vertices with the parallelism of another one, which comes before them in any chain of these.
    fn tied(&self) -> Vec<(&'static str, &'static str)> {
        let mut tied = Vec::new();
        if self.shape == Shape::UnionForward {
            tied.extend([("b", "a"), ("map", "a")]);
        }
        if self.near == "forward" {
            tied.extend([("map", "a"), ("out2", "all")]);
        }
        if self.sink_exchange == "forward" {
            tied.push(("out", self.last()));
        }
        tied
    }

    fn last(&self) -> &'static str {
        match self.shape {
            Shape::TwoInput => "join",
            Shape::Deep => "count2",
            _ => "count",
        }
    }

    /// The job file.
    pub(crate) fn job_file(&self, edition: &Edition) -> String {
        let Edition { parallelism, own, patient } = edition;
        let key_groups = self.key_groups;
        let mut text =
            format!("[job]\nname = \"sim\"\nparallelism = {parallelism}\nkey_groups = {key_groups}\non_error = \"fail\"\n");
        let (timeout_ms, failures) =
            if *patient { (PATIENT_TIMEOUT_MS, 1_000) } else { (self.timeout_ms, self.tolerable_failures) };
        let interval = self.interval_ms.map_or("off".to_owned(), |ms| format!("{ms}ms"));
        let (mode, unaligned_after) = match self.mode {
            Mode::AtLeastOnce => ("at-least-once", String::new()),
            Mode::ExactlyOnce(None) => ("exactly-once", "unaligned_after = \"never\"\n".to_owned()),
            Mode::ExactlyOnce(Some(ms)) => ("exactly-once", format!("unaligned_after = \"{ms}ms\"\n")),
        };
        let _ = write!(
            text,
            "[job.checkpoint]\ninterval = \"{interval}\"\nmin_pause = \"{}ms\"\ntimeout = \"{timeout_ms}ms\"\n\
             tolerable_failures = {failures}\nretained = {}\nmode = \"{mode}\"\n{unaligned_after}\
             [job.restart]\nstrategy = \"exponential\"\ninitial = \"20ms\"\nmax = \"500ms\"\nmultiplier = 2.0\nreset_after = \"5s\"\n\
             jitter = 0.2\n",
            self.min_pause_ms, self.retained
        );
        let parallelism = |uid: &str| own[uid].map_or(String::new(), |own| format!("parallelism = {own}\n"));
        let idle = self.idle_after_ms.map_or(String::new(), |ms| format!(", idle_after = \"{ms}ms\""));
        let mut source = |uid: &str| {
            let parallelism = parallelism(uid);
            let _ = write!(
                text,
                "[[source]]\nid = \"{uid}\"\nconnector = \"sim\"\nof = \"{uid}\"\n{parallelism}\
                 watermark = {{ delay = \"20ms\"{idle}, max_ahead = \"off\" }}\n"
            );
        };
        source("a");
        if matches!(self.shape, Shape::UnionForward | Shape::UnionHash | Shape::TwoInput | Shape::Broadcast) {
            source("b");
        }
        let mut operator = |uid: &str, input: &str| {
            let parallelism = parallelism(uid);
            let _ = write!(text, "[[operator]]\nid = \"{uid}\"\ncomponent = \"sim-{uid}@1.0.0\"\n{parallelism}{input}\n");
        };
        let from = |from: &str, exchange: &str| format!("input = {{ from = {from}, exchange = \"{exchange}\" }}");
        let mut second = None;
        match self.shape {
            Shape::Hash => operator("count", &from("\"a\"", "hash")),
            Shape::Rebalance => {
                operator("map", &from("\"a\"", "rebalance"));
                operator("count", &from("\"map\"", "hash"));
            }
            Shape::UnionForward => {
                operator("map", &from("[\"a\", \"b\"]", "forward"));
                operator("count", &from("\"map\"", "hash"));
            }
            Shape::UnionHash => {
                operator("count", &from("[\"a\", \"b\"]", "hash"));
                second = Some(("a", "rebalance"));
            }
            Shape::TwoInput => {
                operator(
                    "join",
                    "inputs = [{ from = \"a\", exchange = \"hash\", as = \"left\" }, { from = \"b\", exchange = \"broadcast\", as = \"right\" }]",
                );
            }
            Shape::Broadcast => {
                operator("map", &from("\"a\"", self.near));
                operator("count", &from("\"map\"", "hash"));
                operator("all", &from("\"b\"", "broadcast"));
                second = Some(("all", self.near));
            }
            Shape::Deep => {
                operator("map", &from("\"a\"", self.near));
                operator("count", &from("\"map\"", "hash"));
                operator("count2", &from("\"count\"", "hash"));
            }
        }
        let last = self.last();
        let mut sink = |uid: &str, from: &str, exchange: &str| {
            let _ = write!(
                text,
                "[[sink]]\nid = \"{uid}\"\nconnector = \"sim\"\n{}input = {{ from = \"{from}\", exchange = \"{exchange}\" }}\n",
                parallelism(uid)
            );
        };
        sink("out", last, self.sink_exchange);
        if let Some((from, exchange)) = second {
            sink("out2", from, exchange);
        }
        text
    }

    /// Whether rows of one split and key come to the counting operator in order, whatever happens: on the way are hash exchanges
    /// only, where rows in flight stay with their key group.
    pub(crate) fn keeps_order(&self) -> bool {
        matches!(self.shape, Shape::Hash | Shape::UnionHash | Shape::TwoInput)
    }
}

fn input(random: &mut Random, profile: Profile, shape: Shape) -> Input {
    let large = profile == Profile::S25LargeRows;
    let idle = profile == Profile::S28Idle;
    let mut source = |number: u64| {
        // What is broadcast is multiplied by the key groups, so there is less of it.
        let few = large || (number == 1 && matches!(shape, Shape::TwoInput | Shape::Broadcast));
        let splits = random.between(1, if few { 3 } else { 6 });
        let split = |_| {
            let rows = if few { random.between(0, 15) } else { random.between(0, 90) } as u32;
            let period_us = if few { random.between(5_000, 60_000) } else { random.between(500, 15_000) };
            let pause = match (idle, number) {
                (true, 1) => Some((rows / 4, 3_000_000)),
                _ => random.percent(20).then(|| (random.below(u64::from(rows) + 1) as u32, random.between(100_000, 2_000_000))),
            };
            let (rows, period_us) = if idle { (80, if number == 1 { 1_000 } else { 40_000 }) } else { (rows, period_us) };
            Split { rows, start_us: random.below(200_000), period_us, pause }
        };
        (0..splits).map(split).collect::<Vec<Split>>()
    };
    let sources = match shape {
        Shape::UnionForward | Shape::UnionHash | Shape::TwoInput | Shape::Broadcast => vec![source(0), source(1)],
        _ => vec![source(0)],
    };
    Input {
        seed: random.next(),
        sources,
        keys: random.pick(&[1, 5, 30, 200]),
        skewed: profile == Profile::S29Skew || random.percent(10),
        large_permille: if large { 250 } else { 0 },
    }
}

fn faults(random: &mut Random, profile: Profile, scenario: &Scenario) -> Vec<(u64, Fault)> {
    use Fault::{
        Cancel, ControlLost, CoordinatorCrash, DamageForGood, DamageOnce, DataLost, DiskFails, DiskSlow, Hang, Partition,
        Rescale, SecondCoordinator, Stop, Stranger, WorkerCrash, WorkerStuck,
    };
    let kinds: &[Fault] = match profile {
        Profile::S20Kills => &[WorkerCrash, WorkerCrash, CoordinatorCrash, DataLost, ControlLost],
        Profile::S21Rescale | Profile::S22Broadcast => &[Rescale, Rescale, Rescale, WorkerCrash, Stop, CoordinatorCrash],
        Profile::S24InFlightAgain => &[WorkerCrash, WorkerCrash, Rescale],
        Profile::S80Uncertain => &[WorkerCrash, CoordinatorCrash, Cancel],
        Profile::S84Damage => &[DamageForGood, DamageForGood, DamageOnce, WorkerCrash, CoordinatorCrash, Stop],
        Profile::S86Hang => &[Hang, Hang, WorkerStuck, WorkerStuck, WorkerCrash, CoordinatorCrash, Stop, Cancel, Rescale],
        Profile::S88Second => {
            &[SecondCoordinator, SecondCoordinator, Stranger, WorkerCrash, CoordinatorCrash, Partition, Rescale, Cancel]
        }
        Profile::S28Idle => return Vec::new(),
        _ => &[
            WorkerCrash,
            WorkerCrash,
            CoordinatorCrash,
            DataLost,
            ControlLost,
            Partition,
            Partition,
            DiskFails,
            DiskSlow,
            Stop,
            Cancel,
            Rescale,
            Hang,
            WorkerStuck,
            SecondCoordinator,
            DamageOnce,
            DamageForGood,
        ],
    };
    let count = random.pick(&[0, 1, 2, 3, 3, 5, 8]);
    let horizon_us = scenario.input_ends_us() * 3 / 2 + 300_000;
    let mut faults: Vec<(u64, Fault)> = (0..count).map(|_| (random.below(horizon_us), random.pick(kinds))).collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}
