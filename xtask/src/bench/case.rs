//! What is measured for throughput, and in which variants.

/// A job and its settings.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What it is, for the report.
    pub(crate) what: &'static str,
    /// A file in bench/jobs.
    pub(crate) job: &'static str,
    pub(crate) settings: &'static [&'static str],
    /// Its like in bench/flink/scripts/run.py: job and case.
    pub(crate) flink: Option<(&'static str, &'static str)>,
    /// Whether its operator is linked into the native binary.
    has_native: bool,
    /// Whether it is also measured without checkpoints.
    has_unchecked: bool,
}

/// How a case is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// As users run it.
    Sandbox,
    /// The operator compiled natively into the same pipeline: what the sandbox costs.
    Native,
    /// Without checkpoints: what they cost.
    Unchecked,
    /// Apache Flink.
    Flink,
}

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "shuffle",
        what: "source -> map -> hash -> discard",
        job: "shuffle.toml",
        settings: &[],
        flink: Some(("j0", "own b64 1TM")),
        has_native: true,
        has_unchecked: false,
    },
    Case {
        name: "count-10k",
        what: "keyed running count, 10 k keys, checkpoint every second",
        job: "count.toml",
        settings: &["source.gen.keys=10000"],
        flink: Some(("j1", "K=10k ParallelGC")),
        has_native: true,
        has_unchecked: false,
    },
    Case {
        name: "count-1m",
        what: "keyed running count, 1 M keys, checkpoint every second",
        job: "count.toml",
        settings: &["source.gen.keys=1000000"],
        flink: Some(("j1", "K=1M ParallelGC")),
        has_native: true,
        has_unchecked: true,
    },
    Case {
        name: "window",
        what: "one-minute tumbling count, 10 k keys, checkpoint every second",
        job: "window.toml",
        settings: &[],
        flink: Some(("j3", "K=10k ParallelGC ckpt1s")),
        has_native: false,
        has_unchecked: false,
    },
];

impl Case {
    /// The variants to alternate between.
    pub(crate) fn variants(&self, native: bool, flink: bool) -> impl Iterator<Item = Variant> {
        [
            (Variant::Sandbox, true),
            (Variant::Native, native && self.has_native),
            (Variant::Unchecked, self.has_unchecked),
            (Variant::Flink, flink && self.flink.is_some()),
        ]
        .into_iter()
        .filter_map(|(variant, is_wanted)| is_wanted.then_some(variant))
    }
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Sandbox => "weir",
            Variant::Native => "weir, operator native",
            Variant::Unchecked => "weir, no checkpoints",
            Variant::Flink => "flink",
        }
    }
}
