//! What a job file may change between two runs where rows are in flight.

use std::collections::BTreeMap;

use weir_model::{Attempt, CheckpointId, Description, Digest, InputPort};
use weir_plan::Topology;
use weir_protocol::manifest::{Header, assemble};
use weir_protocol::{Acknowledgement, ComponentPin, InstanceAcknowledgement, JobSpec};
use weir_storage::{InFlightState, InstanceState, Manifest, ManifestKind, Segment, StatePart};

use crate::fits::Wanted;

const OPERATOR: &str = "\
    [job]\nname = \"j\"\nparallelism = 2\nkey_groups = 8\n\
    [[source]]\nid = \"a\"\nconnector = \"generator\"\n\
    [[source]]\nid = \"b\"\nconnector = \"generator\"\n\
    [[operator]]\nid = \"op\"\ncomponent = { path = \"op\" }\n";
const SINK: &str = "[[sink]]\nid = \"out\"\nconnector = \"blackhole\"\ninput = \"op\"\n";

fn spec(inputs: &str) -> JobSpec {
    let mut description = Description::plain();
    description.inputs = ["left", "right"].map(|name| InputPort { name: name.to_owned(), doc: String::new() }).into();
    let pin = ComponentPin { digest: Digest([0; 32]), name: "op".to_owned(), description };
    let components = [("op".to_owned(), pin)].into();
    JobSpec { components, ..JobSpec::new("j.toml", &format!("{OPERATOR}{inputs}\n{SINK}")) }
}

/// A checkpoint of the job with these inputs, in which rows are in flight from `from` to `op`.
fn checkpoint(inputs: &str, from: &str, input: u32, exchange: &str, instance: &str) -> Manifest {
    let spec = spec(inputs);
    let job = spec.load().unwrap();
    let topology = Topology::new(&job);
    let chain = topology.chain_of(job.vertex("op").unwrap());
    let frames = Segment { file: "f".to_owned(), offset: 0, length: 1, checksum: String::new() };
    let in_flight = InFlightState {
        from: from.to_owned(),
        output: Some(0),
        input,
        sender: 0,
        exchange: exchange.to_owned(),
        groups: None,
        rows: 5,
        frames,
    };
    let state = InstanceState::of_memory(Vec::new(), 0, false);
    let acknowledgement = Acknowledgement {
        task: topology.task(chain, 0),
        checkpoint: CheckpointId(7),
        finished: false,
        watermarks: Vec::new(),
        source: None,
        instances: vec![InstanceAcknowledgement { uid: "op".to_owned(), name: instance.to_owned(), state }],
        sinks: Vec::new(),
        in_flight: vec![in_flight],
        file: None,
        captured_bytes: 0,
        merged_bytes: 0,
        in_flight_bytes: 1,
    };
    let header = Header {
        attempt: Attempt(1),
        checkpoint: CheckpointId(7),
        kind: ManifestKind::Checkpoint,
        triggered_at_ms: 1,
        completed_at_ms: 2,
    };
    assemble(&spec, &job, &topology, &BTreeMap::new(), &header, &[acknowledgement])
}

/// What is said to the job with these inputs going on from there.
fn resume(manifest: &Manifest, inputs: &str, allow_dropped_state: bool) -> Result<(), String> {
    let spec = spec(inputs);
    let job = spec.load().unwrap();
    Wanted { spec: &spec, job: &job, allow_dropped_state }.check_fits(manifest).map_err(|error| error.to_string())
}

const BOTH: &str =
    "inputs = [{ from = \"a\", exchange = \"hash\", as = \"left\" }, { from = \"b\", exchange = \"broadcast\", as = \"right\" }]";

#[test]
fn s83_what_would_divide_rows_in_flight_by_another_rule_is_refused_with_the_edge_named() {
    let by_hash = checkpoint(BOTH, "a", 0, "hash", "g0");
    let by_broadcast = checkpoint(BOTH, "b", 1, "broadcast", "g0");
    let changed = [
        (
            &by_hash,
            "inputs = [{ from = \"a\", exchange = \"rebalance\", as = \"left\" }, { from = \"b\", exchange = \"broadcast\", as = \"right\" }]",
            "`a` to `op` by exchange \"hash\"",
        ),
        (
            &by_hash,
            "inputs = [{ from = \"b\", exchange = \"broadcast\", as = \"left\" }, { from = \"a\", exchange = \"hash\", as = \"right\" }]",
            "`a` to `op`, and the job file no longer has that edge",
        ),
        (
            &by_hash,
            "inputs = [{ from = \"a\", exchange = \"broadcast\", as = \"left\" }]",
            "`a` to `op` by exchange \"hash\", and the job file now says \"broadcast\"",
        ),
        (
            &by_broadcast,
            "inputs = [{ from = \"a\", exchange = \"hash\", as = \"left\" }, { from = \"b\", exchange = \"hash\", as = \"right\" }]",
            "`b` to `op` by exchange \"broadcast\"",
        ),
        (
            &by_broadcast,
            "inputs = [{ from = \"a\", exchange = \"hash\", as = \"left\" }]",
            "`b` to `op`, and the job file no longer has that edge",
        ),
        // The edge is as it was, but the operator has another number of instances, each of which gets every row.
        (
            &by_broadcast,
            "inputs = [{ from = \"a\", exchange = \"broadcast\", as = \"left\" }, { from = \"b\", exchange = \"broadcast\", as = \"right\" }]",
            "`b` to `op` by exchange \"broadcast\", to each key group of it",
        ),
    ];
    for (manifest, inputs, said) in changed {
        let refused = resume(manifest, inputs, false).unwrap_err();
        assert!(refused.contains("cannot resume from checkpoint 7: 5 rows were on their way from"), "{refused}");
        assert!(refused.contains(said), "{inputs}: {refused}");
        assert_eq!(resume(manifest, inputs, true), Ok(()), "whoever gives the rows up may go on");
    }
    for manifest in [&by_hash, &by_broadcast] {
        assert_eq!(resume(manifest, BOTH, false), Ok(()));
    }
}

#[test]
fn s83_an_edge_that_goes_to_one_subtask_each_may_do_so_by_forward_or_by_rebalance() {
    let inputs = |exchange: &str| {
        format!("inputs = [{{ from = \"a\", exchange = \"{exchange}\", as = \"left\" }}, {{ from = \"b\", as = \"right\" }}]")
    };
    for then in ["forward", "rebalance"] {
        let manifest = checkpoint(&inputs(then), "a", 0, then, "s0");
        for now in ["forward", "rebalance"] {
            assert_eq!(resume(&manifest, &inputs(now), false), Ok(()), "{then} to {now}: parallelism alone may do that");
        }
        assert!(resume(&manifest, BOTH, false).is_err());
    }
}

#[test]
fn state_in_parts_that_nobody_restores_is_refused() {
    let mut manifest = checkpoint(BOTH, "a", 0, "hash", "g0");
    let of_instances = manifest.operators.values_mut().flat_map(|state| state.instances.values_mut());
    of_instances.for_each(|instance| drop(instance.parts.insert(StatePart::Store, Vec::new())));
    let refused = resume(&manifest, BOTH, true).unwrap_err();
    assert!(refused.contains("operator `op` has state besides its memory"), "{refused}");
}
